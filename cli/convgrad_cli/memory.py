"""How much memory a job needs, held against what the machine has, before anything is allocated."""

from __future__ import annotations

from pathlib import Path

from convgrad import Plan


def check_memory(plan: Plan, kept: int) -> None:
    """Refuse a job whose arrays do not fit.

    Parameters
    ----------
    plan : of the job
    kept : bytes of operands that are held whole although the plan reads them in slabs

    Raises
    ------
    MemoryError
        With both byte counts.
    """
    available, needed = available_bytes(), plan.held_bytes + kept
    if available is not None and needed > available:
        raise MemoryError(f"this job holds {needed:,} bytes at a time, {available:,} are available")


def available_bytes() -> int | None:
    """Return the memory this process may still take, in bytes, or None where the system does not tell."""
    limits = [_meminfo(), _cgroup()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _cgroup() -> int | None:
    """What this process's control group (version 2) leaves."""
    folder = Path("/sys/fs/cgroup")
    try:
        left = int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, amount = line.partition(" ")
            if name == "inactive_file":  # pages of files read before, which the kernel drops when asked
                left += int(amount)
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return left
