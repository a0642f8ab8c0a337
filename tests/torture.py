"""What the command line promises of its files, under SIGKILL, SIGTERM and SIGINT at random moments.

A try copies a folder, starts the real command in it, sends a signal at a moment between 0 and 1.2 times what
the job takes, and compares each array with what it was and with what an undisturbed run made of it. Then the
same command runs again, undisturbed. `test_kills.py` does a few such tries, this script hundreds.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import h5py
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

CONVGRAD = str(Path(sys.executable).with_name("convgrad"))
STATUS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
EXISTS = 2
#: Seconds from the signal to the end: more are counted, and more than LATE are wrong on any machine.
SLOW, LATE, HANGS = 1.0, 3.0, 60.0
#: Part of an undisturbed run's time that a job may go on after a signal: it was about to end anyway.
DEAF = 0.5
#: Seconds that Python may take to start where the system does not tell which signals are handled.
STARTS = 0.05
BATCH = 10  # jobs of each format
COLUMNS = (
    "tries",
    "starting",
    "finished",
    "absent",
    "old",
    "complete",
    "left",
    "slow",
    "slowest ms",
    "wrong",
)

#: Digests of arrays by address.
Contents: TypeAlias = dict[str, str]


@dataclass(frozen=True)
class Kind:
    """One kind of target.

    Attributes
    ----------
    label : str
        Its name in the table.
    words : tuple of str
        The command.
    repeats : bool
        Whether the command may run again over its own result.
    start : Path
        Folder as the command finds it.
    before, after : dict
        What is in it before and after an undisturbed run.
    seconds : float
        What such a run takes.
    """

    label: str
    words: tuple[str, ...]
    repeats: bool
    start: Path
    before: Contents
    after: Contents
    seconds: float

    @property
    def targets(self) -> list[str]:
        """Addresses that the command writes."""
        return [name for name, digest in self.after.items() if self.before.get(name) != digest]


@dataclass
class Ended:
    """How a signalled process ended: its status, seconds since the signal, and what it said.

    `starting` is whether the signal found Python's own start-up, before `convgrad` handles any.
    """

    status: int
    seconds: float
    errors: str
    starting: bool


@dataclass
class Try:
    """What became of one try; it went well if there are no `problems`."""

    kind: Kind
    signal: signal.Signals
    delay: float
    ended: Ended
    states: Counter[str]
    leftovers: list[str]
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Name the try and what was wrong."""
        return f"{self.kind.label}, {self.signal.name} after {self.delay:.4f} s: {'; '.join(self.problems)}"


# Kinds of targets


def prepare(base: Path, images: int) -> list[Kind]:
    """Write operands into `base`, run every kind of job undisturbed, and return the kinds.

    Parameters
    ----------
    base : Path
        An empty folder.
    images : int
        Half a megabyte of operand and four of result each.
    """
    rng = np.random.default_rng(0)
    (base / "operands").mkdir()
    np.save(base / "operands/x.npy", rng.standard_normal((images, 64, 64, 32), np.float32))
    np.save(base / "operands/w.npy", rng.standard_normal((5, 5, 64, 32), np.float32))
    for i in range(BATCH):
        np.save(base / f"operands/x{i}.npy", rng.standard_normal((images, 16, 16, 32), np.float32))
    old = rng.standard_normal((images, 100, 1000), np.float32)
    job = ("transpose", "../operands/x.npy", "../operands/w.npy", "-s", "2", "-q", "-o")
    return [
        _kind(base, "new", "new .npy", (*job, "y.npy")),
        _kind(base, "replace", "old .npy, --overwrite", (*job, "y.npy", "--overwrite"), old, repeats=True),
        _kind(base, "append", "dataset, --append", (*job, "y.h5::/new/y", "--append"), old),
        _kind(base, "batch", "batch", ("batch", "jobs.toml", "-q"), old, repeats=True),
    ]


def _kind(
    base: Path,
    name: str,
    label: str,
    words: tuple[str, ...],
    old: np.ndarray | None = None,
    *,
    repeats: bool = False,
) -> Kind:
    start = base / f"start-{name}"
    start.mkdir()
    if old is not None and name == "replace":
        np.save(start / "y.npy", old)
    elif old is not None:
        with h5py.File(start / "y.h5", "w") as file:
            file["old/contiguous"] = old
            file.create_dataset("old/chunked", data=old[:, :10], chunks=(1, 10, 1000), compression="gzip")
    if name == "batch":
        (start / "jobs.toml").write_text(manifest())
    after, seconds = _undisturbed(start, base / f"done-{name}", words)
    return Kind(label, words, repeats, start, contents(start), after, seconds)


def manifest() -> str:
    """Return a manifest of jobs that write .npy files and datasets of one file in turn."""
    lines = ["[defaults]", 'operation = "transpose"', 'filters = "../operands/w.npy"', "strides = 2"]
    for i in range(BATCH):
        lines += ["[[job]]", f'input = "../operands/x{i}.npy"', f'output = "y{i}.npy"']
        lines += [
            "[[job]]",
            f'input = "../operands/x{i}.npy"',
            f'output = "y.h5::/new/y{i}"',
            "append = true",
        ]
    return "\n".join(lines) + "\n"


def _undisturbed(start: Path, folder: Path, words: tuple[str, ...]) -> tuple[Contents, float]:
    """Return what the command makes of a folder, and the median of its seconds."""
    seconds = []
    for _ in range(3):
        with _copied(start, folder):
            began = time.perf_counter()
            subprocess.run([CONVGRAD, *words], cwd=folder, check=True, stdin=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
            found = contents(folder)
    return found, statistics.median(seconds)


@contextlib.contextmanager
def _copied(start: Path, folder: Path) -> Iterator[None]:
    shutil.copytree(start, folder)
    try:
        yield
    finally:
        shutil.rmtree(folder)


# What is in a folder


def contents(folder: Path) -> Contents:
    """Return a digest of each file that is not hidden; of an HDF5 file one for each dataset."""
    found: Contents = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.suffix == ".h5":
            found |= _datasets(path)
        else:
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _datasets(path: Path) -> Contents:
    found: Contents = {}

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            about = repr((item.shape, item.dtype, item.chunks, item.compression, sorted(item.attrs.items())))
            found[f"{path.name}::/{name}"] = hashlib.sha256(about.encode() + item[...].tobytes()).hexdigest()

    try:
        with h5py.File(path, "r") as file:
            file.visititems(add)
    except (OSError, RuntimeError, KeyError) as error:
        found[path.name] = f"cannot be read: {error}"
    return found


def state(name: str, now: Contents, kind: Kind) -> str:
    """Return what is at an address: absent, old, complete, or else wrong."""
    digest = now.get(name)
    if digest == kind.after.get(name):
        return "complete"
    if digest == kind.before.get(name):
        return "absent" if digest is None else "old"
    return "wrong"


def leftovers(folder: Path) -> tuple[list[str], list[str]]:
    """Return hidden names: of temporaries and lock files, and those that nobody may leave."""
    known, unknown = [], []
    for path in sorted(folder.glob(".*")):
        if path.name.endswith((".convgrad-tmp", ".convgrad-lock")):
            known.append(path.name)
        elif path.name != ".jobs.toml.convgrad-done":
            unknown.append(path.name)
    return known, unknown


# A try


def attempt(kind: Kind, number: signal.Signals, delay: float, folder: Path) -> Try:
    """Send a signal to a job after some seconds, look at what is there, and run the job again."""
    with _copied(kind.start, folder):
        ended = _signalled(kind, number, delay, folder)
        now = contents(folder)
        known, unknown = leftovers(folder)
        one = Try(kind, number, delay, ended, Counter(state(name, now, kind) for name in kind.targets), known)
        one.problems += _wrong_contents(now, kind)
        one.problems += [f"{name} is left behind" for name in unknown]
        if number is not signal.SIGKILL:
            one.problems += [f"{name} is left behind" for name in known]
        one.problems += _wrong_end(one, untouched=now == kind.before)
        one.problems += [f"then, again: {problem}" for problem in _again(kind, now, folder)]
    return one


def _signalled(kind: Kind, number: signal.Signals, delay: float, folder: Path) -> Ended:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [CONVGRAD, *kind.words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        began = time.perf_counter()
        time.sleep(delay)
        starting = _is_starting(process.pid, time.perf_counter() - began)
        sent = time.perf_counter()
        process.send_signal(number)
        try:
            process.wait(HANGS)
        except subprocess.TimeoutExpired:
            process.kill()
        status, seconds = process.wait(), time.perf_counter() - sent
        errors.seek(0)
        return Ended(status, seconds, errors.read().decode("utf-8", "replace"), starting and status != 0)


def _is_starting(pid: int, seconds: float) -> bool:
    """Whether a process does not handle SIGHUP, the last signal that `convgrad` sets a handler for."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return seconds < STARTS
    caught = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    return not (caught and caught[0] >> (signal.SIGHUP - 1) & 1)


def _wrong_contents(now: Contents, kind: Kind) -> list[str]:
    problems = []
    for name in sorted({*now, *kind.before, *kind.after}):
        if state(name, now, kind) == "wrong":
            what = now.get(name, "gone")
            problems.append(f"{name} is neither what it was nor complete ({what[:80]})")
    return problems


def _wrong_end(one: Try, *, untouched: bool) -> list[str]:
    """Return what is wrong with the status, the time or the messages of a signalled process."""
    ended, problems = one.ended, []
    finished = ended.status == 0 and one.states["complete"] == len(one.kind.targets)
    if ended.seconds > LATE:
        problems.append(f"ended {ended.seconds:.1f} s after the signal")
    if ended.starting and untouched and ended.status in (-one.signal, STATUS[one.signal], 1):
        if ended.status == 1 and "KeyboardInterrupt" not in ended.errors:
            problems.append(f"exit status 1: {ended.errors.strip()[-500:]}")
    elif finished and ended.seconds > one.kind.seconds * DEAF:
        problems.append(f"went on for {ended.seconds:.2f} s and finished, as if there had been no signal")
    elif ended.status != STATUS[one.signal] and not finished:
        problems.append(f"exit status {ended.status}: {ended.errors.strip()[-500:]}")
    elif ended.errors.strip():
        problems.append(f"said {ended.errors.strip()[-500:]!r}")
    return problems


def _again(kind: Kind, now: Contents, folder: Path) -> list[str]:
    """Run the command undisturbed and return what is wrong with what it does and leaves."""
    refused = not kind.repeats and any(state(name, now, kind) == "complete" for name in kind.targets)
    done = subprocess.run(
        [CONVGRAD, *kind.words], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    problems = []
    if done.returncode != (EXISTS if refused else 0):
        problems.append(f"exit status {done.returncode}: {(done.stdout + done.stderr).strip()[-800:]}")
    after = contents(folder)
    for name in sorted({*after, *kind.after}):
        if after.get(name) != kind.after.get(name):
            problems.append(f"{name} differs")
    known, unknown = leftovers(folder)
    # A job that is refused does not get as far as taking the lock.
    left = [name for name in known if not (refused and name.endswith("-lock"))]
    return problems + [f"{name} is left behind" for name in (*left, *unknown)]


def tries(kinds: list[Kind], counts: Mapping[signal.Signals, int], seed: int, folder: Path) -> Iterator[Try]:
    """Yield as many tries for each signal as `counts` says, of the kinds in turn."""
    rng = random.Random(seed)
    for number, count in counts.items():
        for i in range(count):
            kind = kinds[i % len(kinds)]
            yield attempt(kind, number, rng.uniform(0, 1.2) * kind.seconds, folder)


# The table


def table_of(done: Iterable[Try]) -> Table:
    """Return a row for each kind and signal."""
    table = Table(title="targets after a signal, and what was left")
    for heading in ("kind", "signal"):
        table.add_column(heading)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    groups: dict[tuple[str, str], list[Try]] = {}
    for one in done:
        groups.setdefault((one.kind.label, one.signal.name), []).append(one)
    for (label, name), some in groups.items():
        states = sum((one.states for one in some), Counter[str]())
        numbers = (
            len(some),
            sum(one.ended.starting for one in some),
            sum(one.ended.status == 0 for one in some),
            *(states[which] for which in ("absent", "old", "complete")),
            sum(len(one.leftovers) for one in some),
            sum(one.ended.seconds > SLOW for one in some),
            round(1000 * max(one.ended.seconds for one in some)),
            sum(bool(one.problems) for one in some),
        )
        table.add_row(label, name, *map(str, numbers))
    return table


def main() -> int:
    """Do all tries, print a table, and return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--terms", type=int, default=100)
    parser.add_argument("--interrupts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = {signal.SIGKILL: given.kills, signal.SIGTERM: given.terms, signal.SIGINT: given.interrupts}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background, and the jobs would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        kinds = prepare(base, images=8)
        for kind in kinds:
            print(f"{kind.label}: {kind.seconds:.2f} s, {len(kind.targets)} targets")
        running = tries(kinds, counts, given.seed, base / "try")
        done = list(track(running, "signals", total=sum(counts.values()), disable=not sys.stderr.isatty()))
    Console(width=None if sys.stdout.isatty() else 160).print(table_of(done))
    wrong = [one for one in done if one.problems]
    for one in wrong:
        print(one)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
