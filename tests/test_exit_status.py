"""Exit status and errors: 0, 1, 2, 130, 141 or 143, a line or two of words, never a traceback unasked."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from arrays_on_disk import save
from commandline import COMMAND, Completed, call, run

X = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
W = np.ones((2, 2, 1, 2), np.float32)
PATCHED = """
import sys
import convgrad_cli.job
from convgrad_cli.main import main
def execute(*_, **__):
    raise {error}
convgrad_cli.job.execute = execute
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "x.npy", X)
    save(tmp_path / "w.npy", W)


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Completed]:
    """The command, with this error in the middle of the computation."""

    def execute(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("convgrad_cli.job.execute", execute)
    return call


# Errors in words


@pytest.mark.parametrize(
    ("words", "status", "start"),
    [
        ("no.npy w.npy -o y.npy", 1, "no.npy: "),
        ("x.npy no.npy -o y.npy", 1, "no.npy: "),
        ("no.h5::/x w.npy -o y.npy", 1, "no.h5::/x: "),
        (". w.npy -o y.npy", 1, "."),
        ("text w.npy -o y.npy", 1, "text"),
        ("cut.npy w.npy -o y.npy", 1, "cut.npy"),
        ("net.h5::/no w.npy -o y.npy", 2, "net.h5::/no: "),
        ("net.h5 w.npy -o y.npy", 2, "net.h5: "),
        ("- - -o y.npy", 2, "-: "),
        ("x.npy w.npy -o w.npy", 2, "w.npy: "),
        ("x.npy w.npy -o no/y.npy", 2, "no/y.npy: "),
        ("x.npy w.npy -o net.h5::/x", 2, "net.h5::/x: "),
        ("x.npy w.npy -o y.npy -s 0", 2, "strides: "),
        ("x.npy w.npy -o y.npy -d 1,0", 2, "dilations: "),
        ("x.npy w.npy -o y.npy -p FULL", 2, "padding: "),
        ("x.npy w.npy -o y.npy --data-format HWNC", 2, "data_format: "),
        ("x.npy w.npy -o y.npy --output-shape 9,9", 2, "output_shape: "),
        ("x.npy w.npy -o y.npy --data-format NCHW", 2, "filters: "),
        ("x.npy w.npy -o y.npy --as bfloat16", 2, "x.npy: "),
        ("x.npy w.npy -o y.npy -s two", 2, "Invalid value for '-s' / '--strides': "),
        ("x.npy w.npy -o y.npy --no", 2, "No such option"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_starts_with_what_is_wrong(words: str, status: int, start: str) -> None:
    Path("text").write_text("1 2 3")
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-4])
    with h5py.File("net.h5", "w") as file:
        file["x"], file["y"] = X, X
    before = files()
    done = call("transpose", *words.split())
    done.refused(status)
    assert done.error.startswith(start)
    assert files() == before
    if "datasets" not in done.error:  # which are listed below it
        assert re.fullmatch(r"Error: .+\n(Hint: .+\n)?", done.stderr)


def test_success_says_nothing_on_standard_error() -> None:
    done = run("transpose", "x.npy", "w.npy", "-o", "y.npy").succeeded()
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("transpose x.npy w.npy -n", 0),
        ("transpose no.npy w.npy -n", 1),
        ("transpose x.npy w.npy --output-shape 9,9 -n", 2),
        ("transpose x.npy w.npy", 2),
        ("transpose --no", 2),
        ("no", 2),
        ("", 2),
        ("--help", 0),
        ("--version", 0),
    ],
)
def test_a_process_has_the_same_status(words: str, status: int) -> None:
    done = run(*words.split())
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert call(*words.split()) == done


# Errors in the middle


@pytest.mark.parametrize("target", ["y.npy", "y.h5::/y", "net.h5::/y"])
@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (RuntimeError("boom"), 1, ("internal error", "RuntimeError", "boom", "--debug")),
        (ZeroDivisionError(), 1, ("internal error", "ZeroDivisionError", "--debug")),
        (MemoryError(), 1, ("memory",)),
        (OSError(errno.ENOSPC, "No space left on device", "x.npy"), 1, ("x.npy: ", "space")),
    ],
    ids=["runtime", "zero", "memory", "disk"],
)
def test_a_failure_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, words: tuple[str, ...], target: str
) -> None:
    with h5py.File("net.h5", "w") as file:
        file["x"] = X
    before = {name: Path(name).read_bytes() for name in files()}
    flags = ("--append",) if target.startswith("net") else ()
    done = failing(error, monkeypatch)("transpose", "x.npy", "w.npy", "-o", target, *flags)
    done.refused(status, *words)
    assert {name: Path(name).read_bytes() for name in files()} == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(7)], ids=["interrupt", "exit"])
@pytest.mark.parametrize("target", ["w.npy", "y.h5::/y"])
def test_a_way_out_leaves_nothing_either(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, target: str
) -> None:
    before = {name: Path(name).read_bytes() for name in files()}
    done = failing(error, monkeypatch)("transpose", "x.npy", "w.npy", "-o", target, "--overwrite")
    assert done.returncode == (130 if isinstance(error, KeyboardInterrupt) else 7)
    assert "Error" not in done.stderr
    assert {name: Path(name).read_bytes() for name in files()} == before


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
def test_a_traceback_is_for_debugging(debug: bool) -> None:
    words = ["transpose", "x.npy", "w.npy", "-o", "y.npy", *["--debug"] * debug]
    done = subprocess.run(
        [sys.executable, "-c", PATCHED.format(error="RuntimeError('boom')"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) == debug
    assert "boom" in done.stderr
    assert files() == ["w.npy", "x.npy"]


@pytest.mark.parametrize(
    ("words", "status"),
    [("no.npy w.npy -n", 1), ("x.npy w.npy --output-shape 9,9 -n", 2), ("x.npy w.npy -o x.npy", 2)],
    ids=["missing", "mismatch", "exists"],
)
def test_debugging_does_not_change_the_status(words: str, status: int) -> None:
    done = run("transpose", "--debug", *words.split())
    assert done.returncode == status
    assert "Traceback" in done.stderr


# Signals


@pytest.fixture
def long_job() -> list[str]:
    """Some minutes of work on a file without a block on disk."""
    with Path("long.npy").open("wb") as file:
        shape = (500, 64, 64, 64)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 4 * 500 * 64**3)
    save(Path("filters.npy"), np.ones((7, 7, 64, 64), np.float32))
    return [*COMMAND, "transpose", "long.npy", "filters.npy", "-s", "2"]


def temporaries() -> list[Path]:
    return list(Path().glob(".*.convgrad-tmp"))


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("target", ["y.npy", "y.h5::/y"], ids=["npy", "hdf5"])
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["interrupt", "terminate", "hang-up"],
)
def test_a_signal_in_the_middle(long_job: list[str], target: str, number: int, status: int) -> None:
    before = files()
    with subprocess.Popen([*long_job, "-o", target], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        while not temporaries():
            assert job.poll() is None, job.communicate()
            time.sleep(0.005)
        assert temporaries()[0].name.startswith(f".{target.partition('::')[0]}.")
        job.send_signal(number)
        output, error = job.communicate(timeout=60)
    assert job.returncode == status
    assert output == b""
    assert b"Traceback" not in error
    assert b"Error" not in error
    assert files() == before


@pytest.mark.parametrize("target", ["y.npy", "y.h5::/y"], ids=["npy", "hdf5"])
def test_an_impatient_user(long_job: list[str], target: str) -> None:
    """More signals while the first is being answered end it sooner, and as cleanly."""
    before = files()
    with subprocess.Popen([*long_job, "-o", target], stderr=subprocess.PIPE) as job:
        while not temporaries():
            assert job.poll() is None, job.communicate()
            time.sleep(0.005)
        for _ in range(20):
            job.send_signal(signal.SIGINT)
        _, error = job.communicate(timeout=60)
    assert (job.returncode, error) == (130, b"")
    assert files() == before


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_leaves_an_old_result_as_it_was(long_job: list[str]) -> None:
    Path("y.npy").write_bytes(b"old")
    command = [*long_job, "-o", "y.npy", "--overwrite"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as job:
        while not temporaries():
            assert job.poll() is None, job.communicate()
            time.sleep(0.005)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
    assert job.returncode == 130
    assert Path("y.npy").read_bytes() == b"old"
    assert temporaries() == []


# Standard streams that are closed, full or gone


def with_closed_pipe(*args: str, stream: str = "stdout") -> subprocess.CompletedProcess[bytes]:
    """Run with a standard stream that is a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer}
        return subprocess.run([*COMMAND, *args], **streams, check=False, timeout=60)
    finally:
        os.close(writer)


def many_axes_of_text() -> str:
    """A name so long that the tables do not fit into a stream's buffer."""
    name = "x" * 250
    folder = Path(*[name] * 6)
    folder.mkdir(parents=True)
    return save(folder / "x.npy", X)


@pytest.mark.parametrize(
    "words",
    [
        ("transpose", "x.npy", "w.npy", "-n"),
        ("transpose", "x.npy", "w.npy", "-n", "--format", "json"),
        ("transpose", "x.npy", "w.npy", "-o", "y.npy"),
        ("transpose", "x.npy", "w.npy", "-o", "y.npy", "-v"),
        ("--help",),
        ("transpose", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_a_reader_of_tables_may_leave(words: tuple[str, ...]) -> None:
    done = with_closed_pipe(*words)
    assert b"Traceback" not in done.stderr
    assert b"Error" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == 0
    if "-o" in words:
        assert np.load("y.npy").shape == (1, 4, 3, 1)


def test_a_reader_of_long_tables_may_leave() -> None:
    done = with_closed_pipe("transpose", many_axes_of_text(), "w.npy", "-o", "y.npy")
    assert (done.returncode, done.stderr) == (0, b"")
    assert np.load("y.npy").shape == (1, 4, 3, 1)


def test_a_mismatch_is_one_even_if_nobody_reads_its_tables() -> None:
    done = with_closed_pipe("transpose", "x.npy", "w.npy", "--output-shape", "9,9", "-n")
    assert done.returncode == 2
    assert done.stderr.startswith(b"Error: output_shape: ")


@pytest.mark.parametrize("size", [4, 600], ids=["small", "large"])
@pytest.mark.parametrize("flags", [(), ("-q",)], ids=["", "quiet"])
def test_a_reader_of_an_array_may_not_leave(size: int, flags: tuple[str, ...]) -> None:
    save(Path("x.npy"), np.ones((1, size, size, 2), np.float32))
    done = with_closed_pipe("transpose", "x.npy", "w.npy", "-o", "-", *flags)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == 141


def test_a_reader_of_a_named_pipe_may_not_leave() -> None:
    save(Path("x.npy"), np.ones((1, 600, 600, 2), np.float32))
    os.mkfifo("pipe")
    with subprocess.Popen([*COMMAND, "transpose", "x.npy", "w.npy", "-o", "pipe", "-q"]) as job:
        with Path("pipe").open("rb") as reader:
            assert reader.read(6) == b"\x93NUMPY"
        assert job.wait(60) == 141


def test_standard_output_by_its_file_name() -> None:
    """Also where it is a file, which the shell has made already."""
    with Path("y.npy").open("wb") as file:
        words = [*COMMAND, "transpose", "x.npy", "w.npy", "-o", "/dev/stdout"]
        done = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, check=True)
    assert np.load("y.npy").shape == (1, 4, 3, 1)
    assert b"legal wide" in done.stderr


def test_an_array_is_whole_even_if_nobody_reads_the_tables() -> None:
    done = with_closed_pipe("transpose", "x.npy", "w.npy", "-o", "-", "-v", stream="stderr")
    assert np.load(io.BytesIO(done.stdout)).shape == (1, 4, 3, 1)
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ("transpose", "x.npy", "w.npy", "-n"),
        ("transpose", "x.npy", "w.npy", "-n", "--format", "json"),
        ("transpose", "x.npy", "w.npy", "-o", "-"),
        ("transpose", "x.npy", "w.npy", "-q", "-o", "-"),
        ("--help",),
    ],
    ids=" ".join,
)
def test_standard_output_that_is_full(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, check=False)
    text = done.stderr.decode()
    assert done.returncode == 1
    assert "Traceback" not in text
    assert "Exception ignored" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("Error: "))
    assert line.startswith(("Error: standard output: ", "Error: -: "))
    assert "space" in line


def without(number: int, *args: str) -> subprocess.CompletedProcess[bytes]:
    """Run with a standard stream that is not open at all."""
    shell = ["sh", "-c", f'exec "$@" {number}{"<" if number == 0 else ">"}&-', "sh"]
    return subprocess.run([*shell, *COMMAND, *args], capture_output=True, check=False)


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize(
    ("number", "words", "statuses"),
    [
        (0, ("transpose", "x.npy", "w.npy", "-o", "y.npy"), {0}),
        (1, ("transpose", "x.npy", "w.npy", "-q", "-o", "y.npy"), {0}),
        (1, ("transpose", "x.npy", "w.npy", "-o", "y.npy"), {0, 1}),
        (1, ("transpose", "x.npy", "w.npy", "-o", "-"), {1}),
        (1, ("transpose", "x.npy", "w.npy", "-o", "y.h5::/y"), {0, 1}),
        (1, ("--help",), {0, 1}),
        (2, ("transpose", "x.npy", "w.npy", "-v", "-o", "y.npy"), {0}),
        (2, ("transpose", "x.npy", "w.npy", "-q", "-o", "y.h5::/y"), {0}),
        (2, ("transpose", "no.npy", "w.npy", "-n"), {1}),
        (2, ("transpose", "x.npy", "w.npy", "-v", "-o", "-"), {0}),
        (0, ("transpose", "-", "w.npy", "-o", "y.npy"), {1}),
    ],
    ids=str,
)
def test_a_standard_stream_that_is_closed(number: int, words: tuple[str, ...], statuses: set[int]) -> None:
    done = without(number, *words)
    assert done.returncode in statuses
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr
    if done.returncode == 0 and "-o" in words:
        target = words[-1]
        if target == "-":
            assert np.load(io.BytesIO(done.stdout)).nbytes + 128 == len(done.stdout)
        elif target.endswith(".npy"):
            assert np.load(target).shape == (1, 4, 3, 1)
        else:
            with h5py.File("y.h5") as file:
                assert file["y"].shape == (1, 4, 3, 1)
    elif "-o" in words:
        assert not temporaries()


def test_an_array_does_not_go_to_a_terminal() -> None:
    import pty

    controller, terminal = pty.openpty()
    words = [*COMMAND, "transpose", "x.npy", "w.npy", "-o", "-"]
    done = subprocess.run(words, stdout=terminal, stderr=subprocess.PIPE, check=False)
    os.close(terminal)
    os.close(controller)
    assert done.returncode == 2
    assert b"terminal" in done.stderr


def test_layout_options_without_an_output_are_not_ignored() -> None:
    done = call("transpose", "x.npy", "w.npy", "-n", "--chunks", "1,1,1,1")
    done.refused(2, "--chunks", "-o")


def test_a_single_colon_is_explained() -> None:
    with h5py.File("net.h5", "w") as file:
        file["x"] = np.ones((1, 2, 2, 2), np.float32)
    done = call("transpose", "net.h5:/x", "w.npy", "-n")
    done.refused(1, "net.h5:/x")
    assert "net.h5::/x" in done.hint


def test_a_signal_whose_exception_is_swallowed() -> None:
    """Weak references' callbacks swallow exceptions: the signal is heard at the next block."""
    from convgrad_cli import interrupts

    with interrupts.unwinding():
        with contextlib.suppress(interrupts.Unwound):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(interrupts.Unwound) as caught:
            interrupts.check()
        assert caught.value.status == interrupts.signalled() == 143


def test_a_second_signal_leaves_at_once_and_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from convgrad_cli import interrupts

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(interrupts.os, "_exit", leave)
    Path("half.npy").touch()
    monkeypatch.setattr(interrupts, "temporaries", {"half.npy", "gone already"})
    with interrupts.unwinding():
        with contextlib.suppress(interrupts.Unwound):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(signal.SIGINT)
    assert caught.value.code == 130
    assert not Path("half.npy").exists()


def test_a_signal_during_an_import_waits_for_the_next_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from convgrad_cli import interrupts

    Path("imported_here.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(str(Path().resolve()))
    with interrupts.unwinding():
        import imported_here  # noqa: F401

        with pytest.raises(interrupts.Unwound):
            interrupts.check()
