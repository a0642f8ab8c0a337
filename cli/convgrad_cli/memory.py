"""How much memory a job needs, held against what the machine has, before anything is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convgrad.slabs import held_bytes

if TYPE_CHECKING:
    from convgrad import Plan

    from .operands import Operand


def needed_bytes(plan: Plan, operands: Sequence[Operand]) -> int:
    """Return the bytes a job holds at a time: slabs, and what operands keep beside them."""
    return held_bytes(plan, *operands) + sum(operand.kept_bytes for operand in operands)


def check_memory(needed: int) -> None:
    """Refuse a job that needs more than there is.

    Raises
    ------
    MemoryError
        With both byte counts.
    """
    available = available_bytes()
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
