"""Files larger than the budget: time and peak memory against reading and writing alone, and computing alone.

Everything runs in processes of its own, in turn. "files alone" reads the operands part by part and writes the
result with the same code and no computation; "compute alone" is the operation on arrays that are in memory
already. A run that overlaps them well takes little more than the slower of both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from display import RESULTS, console, machine, ratio, write_json
from jobs import timed
from rich.table import Table

CONVGRAD = str(Path(sys.executable).with_name("convgrad"))
HERE = str(Path(__file__).resolve())
#: Bytes that are written at a time while operands are made.
PIECE = 2**26
#: Gigabytes that are not computed in memory as a whole, and the part that is.
TOO_LARGE, PARTS = 20, 10


@dataclass(frozen=True, slots=True)
class Job:
    """One job: what its files hold and the words after the verb.

    Attributes
    ----------
    verb, first, second : the operation and the shapes of its operands
    words : options
    layout : how operands are stored: ``"npy"``, or keyword arguments for an HDF5 dataset
    budget : value of ``--memory``
    gigabytes : of operands and result together
    """

    verb: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    words: tuple[str, ...]
    layout: str
    budget: str
    gigabytes: float


LAYOUTS: dict[str, dict[str, Any]] = {
    "HDF5 contiguous": {},
    "HDF5 gzip": {"chunks": (1, 56, 112, 64), "compression": "gzip", "compression_opts": 1},
    "HDF5 chunks of 7 images": {"chunks": (7, 28, 28, 64)},
}


def jobs(sizes: list[int]) -> dict[str, Job]:
    """Return the jobs by label."""
    found = {}
    for gigabytes in sizes:
        images = 80 * gigabytes  # of 6.4 MB in each operand
        shape = (images, 112, 112, 128)
        layouts = ["npy", *LAYOUTS] if gigabytes == 4 else ["npy"]
        for layout in layouts:
            label = f"filter-grad, {gigabytes} GB of operands, {layout}"
            words = ("--filter-sizes", "3,3")
            found[label] = Job("filter-grad", shape, shape, words, layout, "256M", gigabytes)
        first = (gigabytes * 160, 28, 56, 256)
        words = ("--strides", "2")
        label = f"transpose to {gigabytes} GB, npy"
        found[label] = Job("transpose", first, (2, 2, 256, 256), words, "npy", "256M", 1.25 * gigabytes)
    huge = Job("transpose", (1, 20_000, 20_000, 8), (3, 3, 8, 8), (), "npy", "512M", 25.6)
    found["transpose of one 20000 x 20000 x 8 image"] = huge
    return found


def main() -> None:
    """Measure, print a table, write a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=int, default=[1, 2, 4, 8], metavar="GB")
    parser.add_argument("--jobs", default="", help="only those whose label holds this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the files go; default: a temporary folder")
    parser.add_argument("--json", type=Path, default=RESULTS / "streams.json", metavar="FILE")
    parser.add_argument("--only", nargs=2, metavar=("WHAT", "JOB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        alone(
            options.only[0],
            Job(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(options.only[1]).items()}
            ),
        )
        return
    out = console()
    out.print(machine(), markup=False)
    headings = "job", "budget", "peak MB", "seconds", "files alone", "compute alone", "to the slower"
    table = Table(*headings, title="files larger than the budget")
    results = {}
    for label, job in jobs(options.sizes).items():
        if options.jobs in label:
            with tempfile.TemporaryDirectory(dir=options.folder) as name, contextlib.chdir(name):
                measured = measure(job, options.rounds)
            results[label] = measured
            write_json(options.json, results)
            slower = max(measured["files"], measured["compute"])
            cells = [f"{measured[key]:.2f}" for key in ("seconds", "files", "compute")]
            table.add_row(
                label,
                job.budget,
                f"{measured['peak'] / 1e6:.0f}",
                *cells,
                ratio(measured["seconds"] / slower),
            )
    out.print(table)


def measure(job: Job, rounds: int) -> dict[str, float]:
    """Return the least seconds of each way, and the largest resident set in bytes."""
    told = json.dumps({name: getattr(job, name) for name in Job.__slots__})
    subprocess.run([sys.executable, HERE, "--only", "make", told], check=True)
    first, second = addresses(job)
    command = [CONVGRAD, job.verb, first, second, *job.words, "-o", "out.npy", "-q", "--memory", job.budget]
    best = {"seconds": float("inf"), "files": float("inf"), "compute": float("inf"), "peak": 0.0}
    for _ in range(rounds):
        Path("out.npy").unlink(missing_ok=True)
        os.sync()
        seconds, peak = timed(command)
        best["seconds"], best["peak"] = min(best["seconds"], seconds), max(best["peak"], peak)
        Path("out.npy").unlink(missing_ok=True)
        os.sync()
        for what in ("files", "compute"):
            done = subprocess.run(
                [sys.executable, HERE, "--only", what, told], check=True, capture_output=True, text=True
            )
            best[what] = min(best[what], float(done.stdout))
    return best


def addresses(job: Job) -> tuple[str, str]:
    """Return where the operands are."""
    names = ("first.npy", "second.npy") if job.layout == "npy" else ("first.h5::/a", "second.h5::/a")
    # Filters are always a .npy file.
    return names[0], "second.npy" if job.verb == "transpose" else names[1]


def alone(what: str, job: Job) -> None:
    """Make the operands, or print the seconds that files or computing take alone."""
    if what == "make":
        for address, shape in zip(addresses(job), (job.first, job.second), strict=True):
            make(address, shape, job.layout)
        return
    start, seconds = time.perf_counter(), 0.0
    if what == "files":
        files_alone(job)
        seconds = time.perf_counter() - start
    else:
        seconds = compute_alone(job)
    print(seconds)


def make(address: str, shape: tuple[int, ...], layout: str) -> None:
    """Write an operand: normal numbers rounded to few bits, so that gzip has something to do."""
    rng = np.random.default_rng(0)
    image = math.prod(shape[1:])
    # Whole images, but of one that is larger than a piece some rows.
    step = max(PIECE // 4 // image, 1) * image if image <= PIECE // 4 else PIECE // 4
    some = np.round(rng.standard_normal(min(step, image * shape[0]), dtype=np.float32) * 64) / 64
    starts = range(0, image * shape[0], len(some))
    if address.endswith(".npy"):
        with open(address, "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for start in starts:
                file.write(some[: starts.stop - start])
        return
    with h5py.File(address.partition("::")[0], "w") as file:
        dataset = file.create_dataset("a", shape, np.float32, **LAYOUTS[layout])
        for start in starts:
            part = some[: starts.stop - start].reshape(-1, *shape[1:])
            dataset[start // image : start // image + len(part)] = part


def files_alone(job: Job) -> None:
    """Read the operands as the command would, and write a result without computing it."""
    from convgrad.scratch import Scratch
    from convgrad_cli.memory import way_through_memory
    from convgrad_cli.options import MemoryType
    from convgrad_cli.storage import open_source, open_target

    target = open_target("out.npy", overwrite=True)
    first, second = map(open_source, addresses(job))
    plan = planned(job, first, second)
    budget = MemoryType().convert(job.budget, None, None)
    slabs = way_through_memory(plan, (first, second), target, budget=budget, threads=None).slabs
    buffers = Scratch()
    by_image = [first, second] if job.verb == "filter-grad" else [first]
    with target.open(plan.output.shape, plan.output.dtype, {}) as sink:
        for slab in slabs:
            every = slab.rows == range(slabs.rows)
            keys = [
                (slab.span,) if every else (slab.span, rows_slice(rows))
                for rows in (plan.rows_met(slab.rows), slab.rows)
            ]
            for number, source in enumerate(by_image):
                shape = np.broadcast_to(0, source.shape)[keys[number]].shape
                source.read_into(keys[number], buffers.array(f"operand {number}", shape, source.dtype))  # type: ignore[attr-defined]
            if job.verb == "transpose":
                shape = np.broadcast_to(0, plan.output.shape)[keys[1]].shape
                sink[keys[1]] = buffers.array("result", shape, plan.output.dtype)
        if job.verb == "filter-grad":
            sink[0 : plan.output.shape[0]] = np.zeros(plan.output.shape, plan.output.dtype)


def rows_slice(rows: range) -> slice:
    """Return a range as a slice."""
    return slice(rows.start, rows.stop)


def planned(job: Job, first: Any, second: Any) -> Any:
    """Return the plan of a job."""
    import convgrad

    if job.verb == "transpose":
        return convgrad.plan_conv2d_transpose(first, second, strides=2 if job.words else 1)
    return convgrad.plan_depthwise_conv2d_backprop_filter(first, (3, 3), second)


def compute_alone(job: Job) -> float:
    """Return the seconds of the operation on arrays in memory, into an array that is there.

    Of one image that is larger than memory, of its first rows: as many times longer as there are more of all.
    """
    from convgrad import execute
    from convgrad_cli.storage import open_source

    rows = slice(None) if job.gigabytes < TOO_LARGE else slice(0, job.first[1] // PARTS)
    sources = [open_source(address) for address in addresses(job)]
    first, second = (np.asarray(source[0 : source.shape[0], rows]) for source in sources)
    plan = planned(job, first, second)
    out = np.zeros(plan.output.shape, plan.output.dtype)
    least = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        execute(plan, first, second, out)
        least = min(least, time.perf_counter() - start)
    return least * (PARTS if job.gigabytes >= TOO_LARGE else 1)


if __name__ == "__main__":
    main()
