"""Whole jobs, files to files: the convgrad command against a script per framework, wall time and peak memory.

Jobs alternate. Before each, what earlier ones wrote is flushed to disk and the output removed, so that
nobody pays for another's writing; operands are in the page cache after the first round.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from children import installed_environment
from display import RESULTS, console, machine, ratio, write_json
from rich.table import Table

HERE = Path(__file__).resolve().parent
CONVGRAD = str(Path(sys.executable).with_name("convgrad"))
FILES = str(HERE / "job_files.py")
OURS = "convgrad"
#: By operation: kernel, stride, and the wide side by size of job.
KERNELS = {"transpose": (3, 2), "filter-grad": (3, 1)}
SIZES = ("tiny", "100 MB", "800 MB")
SIDES = {
    "transpose": {"tiny": 64, "100 MB": 128, "800 MB": 128},
    "filter-grad": {"tiny": 32, "100 MB": 112, "800 MB": 112},
}


@dataclass(slots=True)
class Runs:
    """All runs of one job by one program: seconds and bytes."""

    job: str
    program: str
    seconds: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    agrees: bool = True

    @property
    def best(self) -> float:
        """The least wall time."""
        return min(self.seconds)


def main() -> None:
    """Measure, print a table, write a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=SIZES)
    parser.add_argument("--op", nargs="*", choices=tuple(KERNELS), default=tuple(KERNELS))
    parser.add_argument("--rounds", type=int, help="default: 5 of tiny jobs, 3 of others")
    parser.add_argument("--peers", nargs="*", default=["tensorflow", "torch"])
    parser.add_argument("--folder", type=Path, help="where the files go; default: a temporary folder")
    parser.add_argument("--json", type=Path, default=RESULTS / "jobs.json", metavar="FILE")
    options = parser.parse_args()
    out = console()
    out.print(machine(), markup=False)
    table = Table(
        title="whole jobs, files to files", caption="ratios above 1: convgrad is faster, or smaller"
    )
    for name in ("job", "program", "best s", "median s", "ratio", "peak MB", "ratio", "same result"):
        table.add_column(name, justify="left" if name in ("job", "program") else "right")
    everything = []
    for operation in options.op:
        for size in options.sizes:
            rounds = options.rounds or (5 if size == "tiny" else 3)
            with tempfile.TemporaryDirectory(dir=options.folder) as name:
                runs = measured(Path(name), operation, size, [OURS, *options.peers], rounds)
            add_rows(table, runs)
            everything += runs
    out.print(table)
    write_json(options.json, [asdict(runs) for runs in everything])


def measured(folder: Path, operation: str, size: str, programs: list[str], rounds: int) -> list[Runs]:
    """Run one job with every program in turn."""
    job = f"{operation} {size}"
    subprocess.run([sys.executable, FILES, "make", str(folder), job], check=True)
    stem = str(folder / job.replace(" ", "-"))
    operands = f"{stem}-first.npy", f"{stem}-second.npy"
    results = {program: str(folder / f"{program}.npy") for program in programs}
    runs = [Runs(job, program) for program in programs]
    for turn in range(rounds):
        for one in runs[turn % len(runs) :] + runs[: turn % len(runs)]:
            result = results[one.program]
            Path(result).unlink(missing_ok=True)
            os.sync()
            seconds, peak = timed(command(one.program, operation, size, operands, result))
            one.seconds.append(seconds)
            one.peaks.append(peak)
    for one in runs:
        agree = [sys.executable, FILES, "agree", results[OURS], results[one.program]]
        one.agrees = subprocess.run(agree).returncode == 0
    return runs


def command(program: str, operation: str, size: str, operands: tuple[str, str], result: str) -> list[str]:
    """Return the command line of a job."""
    (kernel, stride), side = KERNELS[operation], SIDES[operation][size]
    if program != OURS:
        numbers = map(str, (kernel, stride, side, side))
        return [sys.executable, str(HERE / "job_peer.py"), program, operation, *operands, result, *numbers]
    sizes = ["--output-shape", f"{side},{side}"]
    if operation == "filter-grad":
        sizes = ["--filter-sizes", f"{kernel},{kernel}"]
    return [CONVGRAD, operation, *operands, "-o", result, "-s", str(stride), *sizes, "-q"]


def timed(words: list[str]) -> tuple[float, int]:
    """Run a command and return its wall time and its largest resident set in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=installed_environment() | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}:\n{said.decode()[-2000:]}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def add_rows(table: Table, runs: list[Runs]) -> None:
    """Add a job's programs to the table."""
    ours = runs[0]
    for one in runs:
        faster = one.best / ours.best if one is not ours else math.nan
        smaller = max(one.peaks) / max(ours.peaks) if one is not ours else math.nan
        table.add_row(
            one.job, one.program, f"{one.best:.3f}", f"{statistics.median(one.seconds):.3f}", ratio(faster),
            f"{max(one.peaks) / 1e6:.0f}", ratio(smaller), "yes" if one.agrees else "NO",
        )  # fmt: skip
    table.add_section()


if __name__ == "__main__":
    main()
