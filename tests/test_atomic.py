"""Whatever happens, a target is what it was or complete, and nothing is left beside it; for both formats."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from convgrad_cli.errors import ConvgradError, OutputExistsError, StorageError
from convgrad_cli.storage import Hdf5Options, open_target

SHAPE = (8, 1000)
VALUES = np.arange(8000, dtype="f4").reshape(SHAPE)

# Name of the target, and flags it is written with.
TARGETS = [
    pytest.param("x.npy", {}, id="npy"),
    pytest.param("x.npy", {"overwrite": True}, id="npy-overwrite"),
    pytest.param("x.h5::/g/x", {}, id="hdf5"),
    pytest.param("x.h5::/g/x", {"append": True}, id="hdf5-append"),
    pytest.param("x.h5::/old", {"overwrite": True}, id="hdf5-overwrite"),
    pytest.param("x.h5::/g/x", {"append": True, "hdf5": Hdf5Options(compression="gzip")}, id="hdf5-gzip"),
]


def prepare(folder: Path, name: str, flags: dict[str, object]) -> None:
    """Put something of value at the target, if it may be there."""
    if not flags:
        return
    if name.endswith(".npy"):
        (folder / name).write_bytes(b"precious")
    else:
        with h5py.File(folder / name.partition("::")[0], "w") as file:
            file["old"] = np.arange(100)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class FailureError(Exception):
    """Something in the middle of the computation."""


@pytest.mark.parametrize("error", [FailureError, KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("rows", [0, 1, 7, 8])
@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_an_exception_leaves_everything_as_it_was(tmp_path, name, flags, rows: int, error) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)

    def fail() -> None:
        with open_target(f"{tmp_path}/{name}", **flags).open(SHAPE, VALUES.dtype, {}) as sink:
            for i in range(rows):
                sink[i : i + 1] = VALUES[i : i + 1]
            raise error

    with pytest.raises(error):
        fail()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_only_whole_results_come_into_being(tmp_path, name, flags) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)
    target = open_target(f"{tmp_path}/{name}", **flags)
    with pytest.raises(ValueError, match="7 of 8 rows"), target.open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:7] = VALUES[0:7]
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (slice(1, 2), VALUES[1:2]),
        (slice(0, 2), VALUES[0:1]),
        (slice(0, 1), VALUES[0:1].astype("f8")),
        (slice(0, 2, 2), VALUES[0:1]),
    ],
    ids=["gap", "shape", "dtype", "step"],
)
@pytest.mark.parametrize("name", ["x.npy", "x.h5::/x"])
def test_blocks_that_do_not_fit(tmp_path, name: str, key: slice, value: np.ndarray) -> None:
    target = open_target(f"{tmp_path}/{name}")
    with pytest.raises(ValueError, match=r"expected|step"), target.open(SHAPE, VALUES.dtype, {}) as sink:
        sink[key] = value
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_nothing_changes_before_the_end(tmp_path, name, flags) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)
    file = name.partition("::")[0]
    with open_target(f"{tmp_path}/{name}", **flags).open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
        during = snapshot(tmp_path)
        assert {key: during[key] for key in before} == before
        temporaries = [key for key in during if key.endswith(".convgrad-tmp")]
        assert len(temporaries) == 1
        assert temporaries[0].startswith(f".{file}.")
    assert set(snapshot(tmp_path)) == {file}


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path) -> None:
    def write_meanwhile() -> None:
        with open_target(f"{tmp_path}/x.npy").open(SHAPE, VALUES.dtype, {}) as sink:
            sink[0:8] = VALUES
            (tmp_path / "x.npy").write_bytes(b"precious")

    with pytest.raises(OutputExistsError):
        write_meanwhile()
    assert snapshot(tmp_path) == {"x.npy": b"precious"}


def test_a_folder_that_vanishes_meanwhile(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    target = open_target(f"{tmp_path}/folder/x.npy")
    (tmp_path / "folder").rmdir()
    with pytest.raises(StorageError, match=f"^{tmp_path}/folder/x.npy: cannot be written: no such file"):
        target.open(SHAPE, VALUES.dtype, {}).__enter__()


# Names, links, permission bits


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, "n" * 250 + ".h5::/x"])
def test_the_longest_names(tmp_path, name: str) -> None:
    with open_target(f"{tmp_path}/{name}").open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
        assert max(len(os.fsencode(path.name)) for path in tmp_path.iterdir()) <= 255
    assert set(snapshot(tmp_path)) == {name.partition("::")[0]}


def test_a_name_that_is_too_long(tmp_path) -> None:
    with pytest.raises(ConvgradError, match="file name too long"):
        open_target(f"{tmp_path}/{'n' * 300}")


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path, name, flags) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "links").mkdir()
    prepare(tmp_path / "data", name, flags)
    file, _, dataset = name.partition("::")
    (tmp_path / "links" / "link").symlink_to(f"../data/{file}")  # dangling where nothing was prepared
    text = f"{tmp_path}/links/link" + (f"::{dataset}" if dataset else "")
    with open_target(text, **flags).open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
    assert (tmp_path / "links" / "link").is_symlink()
    assert [path.name for path in (tmp_path / "links").iterdir()] == ["link"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == [file]
    if dataset:
        with h5py.File(tmp_path / "data" / file) as opened:
            np.testing.assert_array_equal(opened[dataset], VALUES)
    else:
        np.testing.assert_array_equal(np.load(tmp_path / "data" / file), VALUES)


@pytest.fixture
def umask() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755, 0o444])
@pytest.mark.parametrize(("name", "flags"), [target for target in TARGETS if target.values[1]])
def test_permission_bits_of_an_existing_target_are_kept(tmp_path, name, flags, mode: int) -> None:
    prepare(tmp_path, name, flags)
    file = tmp_path / name.partition("::")[0]
    file.chmod(mode)
    with open_target(f"{tmp_path}/{name}", **flags).open(SHAPE, VALUES.dtype, {}) as sink:
        for path in tmp_path.glob(".*.convgrad-tmp"):  # at no time readable to more people
            assert stat.S_IMODE(path.stat().st_mode) & ~(mode | stat.S_IWUSR) == 0
        sink[0:8] = VALUES
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("name", ["x.npy", "x.h5::/x"])
def test_permission_bits_of_a_new_file_follow_the_umask(tmp_path, name: str) -> None:
    with open_target(f"{tmp_path}/{name}").open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
    assert stat.S_IMODE((tmp_path / name.partition("::")[0]).stat().st_mode) == 0o640


# Flushed to disk: the file before the rename, the folder after it


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_order_of_flushing_and_renaming(tmp_path, monkeypatch, name, flags) -> None:
    prepare(tmp_path, name, flags)
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        events.append("flush folder" if is_folder else "flush file")
        fsync(descriptor)

    def recorded_replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    with open_target(f"{tmp_path}/{name}", **flags).open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
        assert events == []
    assert events == ["flush file", "rename", "flush folder"]


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_an_error_of_the_disk_at_the_last_moment(tmp_path, monkeypatch, name, flags) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "anything")

    monkeypatch.setattr(os, "fsync", broken)
    target = open_target(f"{tmp_path}/{name}", **flags)
    with pytest.raises(StorageError) as caught, target.open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
    assert caught.value.message == f"{tmp_path}/{name}: cannot be written: input/output error"
    assert snapshot(tmp_path) == before


# In a process of their own: limits, interrupts, kill

JOB = """
import sys, numpy
from convgrad_cli.storage import Hdf5Options, open_target
with open_target(sys.argv[1], **eval(sys.argv[2])).open((64, 10_000), numpy.dtype("f4"), {}) as sink:
    random = numpy.random.default_rng(0)
    for i in range(64):
        if i == 32:
            print("half-way", flush=True)
            sys.stdin.readline()
        sink[i : i + 1] = random.random((1, 10_000), "f4")
"""

LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
"""

INTERRUPTED = """
import os, signal
from convgrad_cli.storage.hdf5 import output as hdf5_output
close = hdf5_output._close
def interrupted(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    close(*arguments)
hdf5_output._close = interrupted
"""


def start(code: str, text: str, flags: dict[str, object]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, text, repr(flags)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_a_full_disk(tmp_path, name, flags) -> None:
    """HDF5 must not crash on it: the process ends with an error of ours."""
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)
    with start(LIMITED + JOB, f"{tmp_path}/{name}", flags) as process:
        _, errors = process.communicate("\n")
    assert errors.splitlines()[-1].endswith(
        f"StorageError: {tmp_path}/{name}: cannot be written: file too large"
    )
    assert process.returncode == 1
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_an_interrupt_from_the_keyboard(tmp_path, name, flags) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)
    with start(JOB, f"{tmp_path}/{name}", flags) as process:
        assert process.stdout.readline() == "half-way\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("name", "flags"), TARGETS[2:])
def test_an_interrupt_while_hdf5_closes_the_file(tmp_path, name, flags) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)
    with start(INTERRUPTED + JOB, f"{tmp_path}/{name}", flags) as process:
        _, errors = process.communicate("\n")
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("name", "flags"), TARGETS)
def test_a_kill_leaves_the_target_and_a_name_that_tells(tmp_path, name, flags) -> None:
    prepare(tmp_path, name, flags)
    before = snapshot(tmp_path)
    with start(JOB, f"{tmp_path}/{name}", flags) as process:
        assert process.stdout.readline() == "half-way\n"
        process.kill()
    after = snapshot(tmp_path)
    assert {key: after[key] for key in before} == before
    left = set(after) - set(before)
    assert all(key.startswith(f".{name.partition('::')[0]}.") for key in left)
    assert all(key.endswith((".convgrad-tmp", ".convgrad-lock")) for key in left)
    # What is left does not stand in the way of the next run.
    with open_target(f"{tmp_path}/{name}", **flags).open(SHAPE, VALUES.dtype, {}) as sink:
        sink[0:8] = VALUES
    assert not any(path.name.endswith("-lock") for path in tmp_path.iterdir())


def test_waiting_for_another_process_that_appends(tmp_path) -> None:
    """The second one takes its copy only when the first one is done."""
    prepare(tmp_path, "x.h5::/a", {"append": True})
    text = f"{tmp_path}/x.h5"
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(start(JOB, f"{text}::/{name}", {"append": True})) for name in "ab"]
        first = next(process for process in processes if _is_half_way(process, processes))
        first.communicate("\n")
        for process in processes:
            if process is not first:
                assert process.stdout.readline() == "half-way\n"
                process.communicate("\n")
    with h5py.File(text) as file:
        assert set(file) == {"old", "a", "b"}


def _is_half_way(process: subprocess.Popen[str], processes: list[subprocess.Popen[str]]) -> bool:
    ready, _, _ = select.select([each.stdout for each in processes], [], [])
    return process.stdout in ready and process.stdout.readline() == "half-way\n"
