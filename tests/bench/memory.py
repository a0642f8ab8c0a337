"""Peak memory against the plan: what `--dry-run` says a job holds, and what the job's process really took.

The measure is the process's largest resident set less that of a tiny job, over the plan's bytes at a time
plus the scratch of one block (32 MB). A process starts with its parent's largest set, so the operands are
made in another process than this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

CONVGRAD = str(Path(sys.executable).with_name("convgrad"))
SCRATCH = 32 * 2**20


def main() -> int:
    """Measure, print a table, and return 1 if a job took more than it said."""
    over = False
    here = Path(__file__).resolve()
    table = Table("job", "planned MB", "taken MB", "ratio", "at most", title="peak memory")
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        subprocess.run([sys.executable, here, "--prepare"], check=True)
        jobs = commands()
        idle = {True: peak(jobs.pop("tiny HDF5")), False: peak(jobs.pop("tiny"))}
        for label, words in jobs.items():
            planned = json.loads(subprocess.check_output([*words, "--dry-run", "--format", "json"]))[
                "held_bytes"
            ]
            taken = peak(words) - idle["HDF5" in label]
            ratio = taken / (planned + SCRATCH)
            over |= ratio > 1
            table.add_row(label, f"{planned / 1e6:.0f}", f"{taken / 1e6:.0f}", f"{ratio:.2f}", "1.00")
    Console().print(table)
    return int(over)


def prepare() -> None:
    """Write the operands."""
    import h5py
    import numpy as np

    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((64, 112, 112, 64), dtype=np.float32) for _ in range(2))
    np.save("x.npy", x)
    np.save("dy.npy", dy)
    np.save("small.npy", rng.standard_normal((256, 28, 28, 64), dtype=np.float32))
    np.save("w.npy", rng.standard_normal((4, 4, 64, 64), dtype=np.float32))
    np.save("tiny.npy", np.ones((1, 2, 2, 64), np.float32))
    with h5py.File("x.h5", "w") as file:
        file["tiny"] = np.ones((1, 2, 2, 64), np.float32)
        for role, array in (("input", x), ("out_backprop", dy)):
            file.create_dataset(role, data=array, chunks=(5, 56, 56, 64))


def commands() -> dict[str, list[str]]:
    """Return the jobs."""
    out = ["-o", "out.npy", "--overwrite", "-q"]
    grad = ["--filter-sizes", "3x3", *out]
    return {
        "tiny": [CONVGRAD, "transpose", "tiny.npy", "w.npy", *out],
        "tiny HDF5": [CONVGRAD, "transpose", "x.h5::/tiny", "w.npy", *out],
        "filter-grad of 2 x 206 MB, .npy": [CONVGRAD, "filter-grad", "x.npy", "dy.npy", *grad],
        "the same, HDF5 in chunks of 5 images": [
            CONVGRAD, "filter-grad", "x.h5::/input", "x.h5::/out_backprop", *grad,
        ],
        "the same, cast to float16": [CONVGRAD, "filter-grad", "x.npy", "dy.npy", "--cast", "float16", *grad],
        "transpose to 411 MB, .npy": [CONVGRAD, "transpose", "small.npy", "w.npy", "-s", "4", *out],
    }  # fmt: skip


def peak(command: list[str]) -> int:
    """Run a command and return its largest resident set in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    sys.exit(prepare() if sys.argv[1:] == ["--prepare"] else main())
