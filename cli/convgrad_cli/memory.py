"""How much memory a job needs, held against what the machine has, before anything is allocated."""

from __future__ import annotations

from pathlib import Path

from convgrad import Plan


def check_memory(plan: Plan) -> None:
    """Refuse a job whose arrays do not fit.

    Raises
    ------
    MemoryError
        With both byte counts.
    """
    available = available_bytes()
    if available is not None and plan.held_bytes > available:
        raise MemoryError(f"this job holds {plan.held_bytes:,} bytes at a time, {available:,} are available")


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
    folder = Path("/sys/fs/cgroup")
    try:
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no cgroup, or "max"
        return None
