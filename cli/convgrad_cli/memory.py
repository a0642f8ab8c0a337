"""How much memory a job may take: the user's budget, or what the machine has; less what is taken already."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from convgrad.execution import available_cores, chunks_of
from convgrad.slabs import Slabs

if TYPE_CHECKING:
    from convgrad import Plan

    from .operands import Operand
    from .storage import Target

#: Part of what is available that a job takes at most if nobody says otherwise.
FRACTION = 0.5
#: Bytes that everything but arrays takes from the plan to the end: reports, threads' stacks, BLAS's buffers.
ASIDE = 12 * 2**20
#: Bytes taken already, where the system does not tell.
TYPICAL = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Way:
    """How a job goes through memory.

    Attributes
    ----------
    slabs : what is held of operands and result at a time
    kept_bytes : that operands keep beside
    budget : bytes for the whole process, or None
    """

    slabs: Slabs
    kept_bytes: int
    budget: int | None

    @property
    def array_bytes(self) -> int:
        """Bytes of arrays held at a time, but for what threads work in."""
        return self.slabs.array_bytes + self.kept_bytes

    @property
    def needed_bytes(self) -> int:
        """Bytes of everything held at a time."""
        return self.slabs.held_bytes + self.kept_bytes

    def check(self) -> None:
        """Refuse a job that needs more than it may take, or than there is.

        Raises
        ------
        MemoryError
            With both byte counts.
        """
        if self.budget is not None:
            least = self.needed_bytes + _taken_bytes()
            if least > self.budget:
                raise MemoryError(f"this job needs {least:,} bytes at least, --memory is {self.budget:,}")
        elif (available := available_bytes()) is not None and self.needed_bytes > available:
            raise MemoryError(
                f"this job holds {self.needed_bytes:,} bytes at a time, {available:,} are available"
            )


def way_through_memory(
    plan: Plan,
    operands: Sequence[Operand],
    target: Target | None,
    *,
    budget: int | None,
    threads: int | None,
) -> Way:
    """Cut a job into slabs that fit.

    Parameters
    ----------
    plan, operands : of the job
    target : of its result; none in a dry run without one
    budget : bytes for the whole process; by default a part of what is available
    threads : at most so many; by default as many as there are cores
    """
    kept = sum(operand.kept_bytes for operand in operands)
    if budget is not None:
        room: int | None = budget - _taken_bytes()
    else:
        available = available_bytes()
        room = None if available is None else int(FRACTION * available)
    slabs = Slabs.of(
        plan,
        memory=None if room is None else max(room - kept, 0),
        threads=available_cores() if threads is None else threads,
        chunks=chunks_of(plan, *operands, _Layout(target.chunks(plan.output.shape) if target else None)),
        whole_images=target is not None and target.streams and plan.data_format == "NCHW",
    )
    return Way(slabs, kept, budget)


class _Layout:
    def __init__(self, chunks: tuple[int, ...] | None) -> None:
        self.chunks = chunks


def _taken_bytes() -> int:
    return resident_bytes() + ASIDE


def resident_bytes() -> int:
    """Return the bytes of memory that this process has now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return TYPICAL


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
