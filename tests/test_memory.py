"""Memory: what is available, what a job holds, and jobs that are refused before anything is computed."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import cuts
from arrays_on_disk import save
from commandline import Completed, call
from convgrad_cli import memory

MEMINFO = "MemTotal:       16384000 kB\nMemFree:          100000 kB\nMemAvailable:    8000000 kB\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that takes the place of `/`."""
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    return tmp_path


def write(machine: Path, meminfo: str | None = None, **cgroup: str) -> None:
    if meminfo is not None:
        (machine / "proc/meminfo").write_text(meminfo)
    for name, text in cgroup.items():
        (machine / "sys/fs/cgroup" / f"memory.{name}").write_text(text)


@pytest.mark.parametrize(
    ("meminfo", "cgroup", "expected"),
    [
        (None, {}, None),
        ("", {}, None),
        ("MemAvailable: many kB\n", {}, None),
        (MEMINFO, {}, 8_000_000 * 1024),
        (MEMINFO, {"max": "max\n", "current": "1000\n"}, 8_000_000 * 1024),
        (MEMINFO, {"max": "5000000\n", "current": "1000000\n", "stat": "anon 1000000\n"}, 4_000_000),
        (None, {"max": "5000000\n", "current": "1000000\n", "stat": "anon 1000000\n"}, 4_000_000),
        (MEMINFO, {"max": "900000000000000\n", "current": "0\n", "stat": ""}, 8_000_000 * 1024),
        (MEMINFO, {"max": "5000000\n"}, 8_000_000 * 1024),
    ],
    ids=["unknown", "empty", "garbled", "meminfo", "no-limit", "limit", "limit-only", "generous", "half"],
)
def test_available(machine: Path, meminfo: str | None, cgroup: dict[str, str], expected: int | None) -> None:
    write(machine, meminfo, **cgroup)
    assert memory.available_bytes() == expected


def test_file_cache_in_a_container_is_available(machine: Path) -> None:
    """A container that has read large files is at its limit, and the kernel drops their pages on demand."""
    stat = "anon 1000000\nfile 4000000\nactive_file 1000000\ninactive_file 3000000\n"
    write(machine, MEMINFO, max="5000000\n", current="5000000\n", stat=stat)
    assert memory.available_bytes() in (3_000_000, 4_000_000)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_this_machine() -> None:
    available = memory.available_bytes()
    assert available is not None
    total = re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert total is not None
    assert 0 < available <= int(total[1]) * 1024


# Jobs


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def operands(folder: Path) -> tuple[str, str]:
    """32 KB of images and 64 bytes of filters that give 32 KB of images."""
    x = np.ones((8, 16, 16, 4), np.float32)
    return save(folder / "x.npy", x), save(folder / "w.npy", np.ones((1, 1, 4, 4), np.float32))


def limited(monkeypatch: pytest.MonkeyPatch, available: int | None) -> None:
    monkeypatch.setattr("convgrad_cli.memory.available_bytes", lambda: available)


@pytest.mark.parametrize("target", ["y.npy", "y.h5::/y", "-"])
def test_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    limited(monkeypatch, 1234)
    names = operands(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = call("transpose", *names, "-o", target)
    done.refused(1, "memory", "1,234")
    assert done.output == b""
    assert sorted(tmp_path.iterdir()) == before
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+\d", done.error)]
    needed = next(number for number in numbers if number != 1234)
    assert needed >= 2 * 8 * 16 * 16 * 4 * 4
    limited(monkeypatch, needed - 1)
    call("transpose", *names, "-o", target).refused(1, "memory")
    limited(monkeypatch, needed)
    call("transpose", *names, "-o", target).succeeded()


def test_unknown_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, None)
    call("transpose", *operands(tmp_path), "-o", "y.npy").succeeded()


def test_a_dry_run_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 0)
    done = call("transpose", *operands(tmp_path), "-n").succeeded()
    assert "(N=8, H=16, W=16, Cout=4)" in done.stdout


def test_an_old_result_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = operands(tmp_path)
    Path("y.npy").write_bytes(b"old")
    limited(monkeypatch, 0)
    call("transpose", *names, "-o", "y.npy", "--overwrite").refused(1, "memory")
    assert Path("y.npy").read_bytes() == b"old"


# What is read in pieces needs little; what can only be read whole counts whole.

LITTLE = 500_000


def streamed(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Completed:
    """2 MB of images, read a few at a time where the file allows it, with half a megabyte of memory."""
    monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", 20_000)
    limited(monkeypatch, LITTLE)
    x = np.ones((500, 16, 16, 4), np.float32)
    flags, stdin = [], None
    save(folder / "w.npy", np.ones((1, 1, 4, 4), np.float32))
    if kind == "hdf5":
        with h5py.File("x.h5", "w") as file:
            file["x"] = x
    elif kind == "reversed":
        with h5py.File("x.h5", "w") as file:
            file["x"] = x.T
        with h5py.File("w.h5", "w") as file:
            file["x"] = np.ones((4, 4, 1, 1), np.float32)
        flags = ["--reverse-axes"]
    elif kind == "pipe":
        stream = io.BytesIO()
        np.save(stream, x)
        stdin = stream.getvalue()
    else:
        save(folder / "x.npy", np.asfortranarray(x) if kind == "fortran" else x)
    name = {"pipe": "-", "hdf5": "x.h5", "reversed": "x.h5"}.get(kind, "x.npy")
    filters = "w.h5" if kind == "reversed" else "w.npy"
    with cuts.every_plan_cut(cuts.FEW):
        return call("transpose", name, filters, *flags, "-o", "y.npy", stdin=stdin)


@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_pieces_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    streamed(tmp_path, monkeypatch, kind).succeeded()
    assert np.load("y.npy").nbytes >= 4 * LITTLE


@pytest.mark.parametrize("kind", ["fortran", "pipe", "reversed"])
def test_what_is_read_whole_counts_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    streamed(tmp_path, monkeypatch, kind).refused(1, "memory", f"{LITTLE:,}")
    assert not Path("y.npy").exists()


def test_integers_that_are_cast_count_as_what_they_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uint8 images become float64 ones of eight times the size."""
    x = save(tmp_path / "x.npy", np.ones((1, 100, 100, 1), np.uint8))
    w = save(tmp_path / "w.npy", np.ones((1, 1, 1, 1), np.uint8))
    limited(monkeypatch, 8 * 100 * 100)
    call("transpose", x, w, "--cast", "float64", "-o", "y.npy").refused(1, "memory")


def test_what_a_cast_holds_beside_its_result_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a megabyte of float64 for each eighth of it of float16."""
    x = save(tmp_path / "x.npy", np.ones((1, 256, 256, 1)))
    w = save(tmp_path / "w.npy", np.ones((1, 1, 1, 1)))
    result_and_operand = 2 * 2 * 256 * 256
    limited(monkeypatch, result_and_operand + 8 * 256 * 256)
    call("transpose", x, w, "--cast", "float16", "-o", "y.npy").refused(1, "memory")


def test_a_dry_run_names_what_the_job_would_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read whole is held whatever there is: with less memory the job does not begin."""
    x = save(tmp_path / "x.npy", np.asfortranarray(np.ones((3, 16, 16, 4), np.float32)))
    w = save(tmp_path / "w.npy", np.ones((1, 1, 4, 4), np.float32))
    shown = json.loads(call("transpose", x, w, "-n", "--format", "json").succeeded().stdout)
    assert shown["held_bytes"] >= 3 * (Path(x).stat().st_size - 128)
    limited(monkeypatch, Path(x).stat().st_size - 129)
    call("transpose", x, w, "-o", "y.npy").refused(1, "memory")
    limited(monkeypatch, 2 * (shown["held_bytes"] + shown["scratch_bytes"]))
    call("transpose", x, w, "-o", "y.npy").succeeded()
