"""Operands of the whole jobs, and whether two results agree.

``job_files.py make FOLDER JOB...`` writes operands; ``job_files.py agree A B`` exits with 1 if they do not.
It is a process of its own, because a process starts with its parent's largest resident set: whoever
measures memory must stay small.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

#: By job: shapes of both operands.
SHAPES = {
    "transpose tiny": ((1, 32, 32, 64), (3, 3, 64, 64)),
    "transpose 100 MB": ((8, 64, 64, 256), (3, 3, 128, 256)),
    "transpose 800 MB": ((64, 64, 64, 256), (3, 3, 128, 256)),
    "filter-grad tiny": ((1, 32, 32, 64), (1, 32, 32, 64)),
    "filter-grad 100 MB": ((8, 112, 112, 128), (8, 112, 112, 128)),
    "filter-grad 800 MB": ((64, 112, 112, 128), (64, 112, 112, 128)),
}


def operand_paths(folder: Path, job: str) -> tuple[str, str]:
    """Return where a job's operands are."""
    stem = job.replace(" ", "-")
    return str(folder / f"{stem}-first.npy"), str(folder / f"{stem}-second.npy")


def make(folder: Path, jobs: list[str]) -> None:
    """Write operands, standard normal."""
    rng = np.random.default_rng(0)
    for job in jobs:
        for path, shape in zip(operand_paths(folder, job), SHAPES[job], strict=True):
            np.save(path, rng.standard_normal(shape, np.float32))


def agree(one: str, other: str) -> bool:
    """Whether two results have one shape and differ by rounding only, on the scale of the largest.

    Frameworks that sum a million terms in one float32 are off by more than 1e-5 of it.
    """
    first, second = np.load(one, mmap_mode="r"), np.load(other, mmap_mode="r")
    if first.shape != second.shape:
        return False
    largest = max(float(np.abs(part).max()) for part in first)
    return all(float(np.abs(a - b).max()) <= 1e-4 * largest for a, b in zip(first, second, strict=True))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(not agree(*sys.argv[2:]))
