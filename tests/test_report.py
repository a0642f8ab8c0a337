"""What a job says of itself: tables and JSON, whole at any width, on the right stream."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
import pytest

import reference
from arrays_on_disk import save
from commandline import COMMAND, call, run

rng = np.random.default_rng(31)
X = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
W = rng.standard_normal((3, 2, 2, 5)).astype(np.float32)
JOB = ("-s", "2,3", "-d", "2,1")
WIDTHS = ["20", "60", "80", "160", ""]

#: Colours, in SGR sequences; bold and underline are not.
COLOUR = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    save(tmp_path / "x.npy", X)
    save(tmp_path / "w.npy", W)


def row(text: str, first: str) -> list[str]:
    """Cells of the one table row that begins with `first`; cells are two spaces or more apart."""
    (found,) = (line for line in text.splitlines() if line.split()[:1] == [first])
    return re.split(r" {2,}", found.strip())


def loads(text: str) -> dict[str, Any]:
    """Strict JSON: one object on one line, no NaN or Infinity."""

    def refuse(token: str) -> NoReturn:
        pytest.fail(f"{token} is not JSON")

    assert text.count("\n") == 1
    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


# Tables


@pytest.mark.parametrize(
    ("flags", "height", "width"),
    [
        # SAME: h*s wide; pads (h-1)*s + ke - H, the odd one after; (h-1)*s+1 .. h*s legal.
        (
            (),
            ["height", "6", "3", "5", "2", "2", "1/2", "3", "5..6"],
            ["width", "12", "2", "2", "3", "1", "0/0", "4", "10..12"],
        ),
        (
            ("--output-shape", "5,10"),
            ["height", "5", "3", "5", "2", "2", "2/2", "3", "5..6"],
            ["width", "10", "2", "2", "3", "1", "0/1", "4", "10..12"],
        ),
        # VALID: h*s + max(ke-s, 0) wide; (h-1)*s+ke .. +s-1 legal.
        (
            ("-p", "VALID"),
            ["height", "9", "3", "5", "2", "2", "0/0", "3", "9..10"],
            ["width", "12", "2", "2", "3", "1", "0/0", "4", "11..13"],
        ),
        # Explicit: that less the pads, the least by default.
        (
            ("-p", "1,2,0,1"),
            ["height", "6", "3", "5", "2", "2", "1/2", "3", "6..7"],
            ["width", "10", "2", "2", "3", "1", "0/1", "4", "10..12"],
        ),
    ],
    ids=["SAME", "output-shape", "VALID", "explicit"],
)
@pytest.mark.parametrize("dry", [True, False], ids=["dry", "done"])
def test_the_geometry_table(dry: bool, flags: tuple[str, ...], height: list[str], width: list[str]) -> None:
    ending = ("-n",) if dry else ("-o", "y.npy")
    done = call("transpose", "x.npy", "w.npy", *JOB, *flags, *ending).succeeded()
    assert row(done.stdout, "axis") == [
        "axis",
        "wide",
        "kernel",
        "effective kernel",
        "stride",
        "dilation",
        "pad before / after",
        "narrow",
        "legal wide",
    ]
    assert row(done.stdout, "height") == height
    assert row(done.stdout, "width") == width


def test_the_tensors_table() -> None:
    done = call("transpose", "x.npy", "w.npy", *JOB, "-o", "y.npy").succeeded()
    assert row(done.stdout, "tensor") == ["tensor", "address", "shape", "dtype", "bytes"]
    assert row(done.stdout, "input") == ["input", "x.npy", "(N=2, h=3, w=4, Cin=5)", "float32", "480"]
    assert row(done.stdout, "filters") == [
        "filters",
        "w.npy",
        "(kh=3, kw=2, Cout=2, Cin=5)",
        "float32",
        "240",
    ]
    assert row(done.stdout, "output") == ["output", "y.npy", "(N=2, H=6, W=12, Cout=2)", "float32", "1,152"]


def test_the_tensors_table_of_a_filter_gradient() -> None:
    save(Path("chw.npy"), np.ascontiguousarray(np.moveaxis(X, 3, 1)))
    save(Path("g.npy"), np.ones((2, 10, 3, 4), np.float32))
    flags = ("--filter-sizes", "2,2", "--data-format", "NCHW", "-n")
    done = call("filter-grad", "chw.npy", "g.npy", *flags).succeeded()
    assert row(done.stdout, "input")[2] == "(N=2, C=5, H=3, W=4)"
    assert row(done.stdout, "out_backprop")[2] == "(N=2, C*M=10, h=3, w=4)"
    assert row(done.stdout, "output")[-3:] == ["(kh=2, kw=2, C=5, M=2)", "float32", "160"]


def test_the_result_is_summed_up() -> None:
    done = call("transpose", "x.npy", "w.npy", "-o", "y.npy").succeeded()
    y = np.load("y.npy").astype(np.float64)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("result:"))
    numbers = re.findall(r"-?\d+\.\d+", line)
    assert [float(number) for number in numbers] == pytest.approx([y.sum(), np.abs(y).sum()], rel=1e-8)


def names() -> list[str]:
    return [
        "plain.npy",
        "a [b]bold[b] [red].npy",
        "two  spaces + # & %20 é 日本 :smile:.npy",
        "x" * 200 + ".npy",
        "a::b.npy",
        "{braces} 'quotes' \"double\" \\n $HOME.npy",
    ]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", names(), ids=lambda name: name[:12])
def test_an_address_appears_in_full_on_one_line(columns: str, name: str) -> None:
    save(Path(name), X)
    env = {"COLUMNS": columns} if columns else {}
    done = call("transpose", name, "w.npy", *JOB, "-n", env=env).succeeded()
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("input"))
    assert f" {name} " in line
    assert line.endswith(" 480")
    assert "(N=2, h=3, w=4, Cin=5)" in line
    assert row(done.stdout, "height") == ["height", "6", "3", "5", "2", "2", "1/2", "3", "5..6"]


@pytest.mark.parametrize("columns", ["20", "80", ""])
@pytest.mark.parametrize(
    "dataset", ["/a/[b]/c d", "/[red]a[/red]", "/x::y", "/%20+#&", "/" + "long/" * 60 + "x", "relative"]
)
def test_a_dataset_appears_in_full(columns: str, dataset: str) -> None:
    with h5py.File("net file.h5", "w") as file:
        file[dataset] = X
        file["other"] = X
    env = {"COLUMNS": columns} if columns else {}
    done = call("transpose", f"net file.h5::{dataset}", "w.npy", "-o", f"y.h5::{dataset}", env=env)
    done.succeeded()
    assert f" net file.h5::{dataset} " in done.stdout
    assert f" y.h5::{dataset} " in done.stdout


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("new\nline.npy", "new\\nline.npy"),
        ("tab\tbell\a.npy", "tab\\tbell\\x07.npy"),
        ("red\x1b[31m.npy", "red\\x1b[31m.npy"),
        ("right\u202eleft.npy", "right\\u202eleft.npy"),
    ],
    ids=["newline", "tab-bell", "escape", "bidi"],
)
def test_control_characters_are_escaped(name: str, shown: str) -> None:
    save(Path(name), X)
    done = call("transpose", name, "w.npy", "-n").succeeded()
    assert f" {shown} " in done.stdout
    assert not any(character in done.stdout for character in name if not character.isprintable()
                   and character != "\n")  # fmt: skip
    assert loads(call("transpose", name, "w.npy", "-n", "--format", "json").stdout)["tensors"][0][
        "address"
    ] == (name)
    missing = call("transpose", f"no {name}", "w.npy", "-n")
    assert missing.error.startswith(f"no {shown}")


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes")
def test_a_name_that_is_not_text() -> None:
    name = os.fsdecode(b"caf\xe9.npy")
    save(Path(name), X)
    done = run("transpose", name, "w.npy", "-o", "y.npy").succeeded()
    assert " caf\\udce9.npy " in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_encoding(encoding: str) -> None:
    save(Path("日本.npy"), X)
    done = run("transpose", "日本.npy", "w.npy", "-n", env={"PYTHONIOENCODING": encoding, "LC_ALL": "C"})
    done.succeeded()
    assert b"npy" in done.output
    assert done.stderr == ""


def test_the_dataset_that_was_left_out_is_filled_in() -> None:
    with h5py.File("net.h5", "w") as file:
        file["only/one"] = X
    done = call("transpose", "net.h5", "w.npy", "-n").succeeded()
    assert row(done.stdout, "input")[1] == "net.h5::/only/one"


# Mismatches


@pytest.mark.parametrize(
    ("flags", "marked", "axes"),
    [
        (("-s", "2", "--output-shape", "9,8"), {"output": "(N=2, H=9!, W=8, Cout=2)"}, {"height": "9!"}),
        (("-s", "2", "--output-shape", "6,9"), {"output": "(N=2, H=6, W=9!, Cout=2)"}, {"width": "9!"}),
        (
            ("-s", "2", "--output-shape", "3,6,8,2"),
            {"output": "(N=3!, H=6, W=8, Cout=2)"},
            {},
        ),
        (
            ("-s", "2", "--output-shape", "2,6,8,7"),
            {"output": "(N=2, H=6, W=8, Cout=7!)"},
            {},
        ),
        (
            ("--data-format", "NCHW"),
            {"input": "(N=2, Cin=3!, h=4, w=5)", "filters": "(kh=3, kw=2, Cout=2, Cin=5!)"},
            {},
        ),
    ],
    ids=["height", "width", "batch", "Cout", "Cin"],
)
@pytest.mark.parametrize("columns", ["20", ""])
def test_a_mismatch_shows_the_tables_and_marks_the_axis(
    flags: tuple[str, ...], marked: dict[str, str], axes: dict[str, str], columns: str
) -> None:
    env = {"COLUMNS": columns} if columns else {}
    done = call("transpose", "x.npy", "w.npy", *flags, "-o", "y.npy", env=env)
    done.refused(2)
    assert {role: row(done.stdout, role)[2] for role in marked} == marked
    assert {axis: row(done.stdout, axis)[1] for axis in axes} == axes
    assert done.stdout.count("!") == len(marked) + len(axes)
    assert re.fullmatch(r"Error: .+\n(Hint: .+\n)?", done.stderr)


def test_a_mismatch_of_a_filter_gradient() -> None:
    save(Path("g.npy"), np.ones((2, 3, 9, 10), np.float32))
    done = call("filter-grad", "x.npy", "g.npy", "--filter-sizes", "3,3", "-o", "y.npy")
    done.refused(2, "out_backprop", "9", "4")
    assert row(done.stdout, "out_backprop")[2] == "(N=2, h=3, w=9!, C*M=10)"


def test_a_wrong_number_of_axes_is_shown_too() -> None:
    save(Path("flat.npy"), X[0])
    done = call("transpose", "flat.npy", "w.npy", "-n")
    done.refused(2, "input", "4", "3")
    assert row(done.stdout, "input")[:2] == ["input", "flat.npy"]
    assert row(done.stdout, "input")[2] == "(3!, 4!, 5!)"


# JSON

DRY_RUN = ("-n",)
DONE = ("-o", "y.npy")
MISMATCH = ("--output-shape", "99,99", "-o", "y.npy")
ENDINGS = pytest.mark.parametrize("ending", [DRY_RUN, DONE, MISMATCH], ids=["dry", "done", "mismatch"])
VERBOSITIES = pytest.mark.parametrize("verbosity", [(), ("-v",), ("-q",)], ids=["", "v", "q"])


@ENDINGS
@VERBOSITIES
def test_json_parses(ending: tuple[str, ...], verbosity: tuple[str, ...]) -> None:
    found = loads(call("transpose", "x.npy", "w.npy", *JOB, *ending, *verbosity, "--format", "json").stdout)
    assert found["command"] == "transpose"
    roles = {tensor["role"]: tensor for tensor in found["tensors"]}
    assert set(roles) == {"input", "filters", "output"}
    assert roles["input"]["address"] == "x.npy"
    assert roles["input"]["shape"] == [2, 3, 4, 5]
    assert roles["input"]["axes"] == ["N", "h", "w", "Cin"]
    assert roles["input"]["dtype"] == "float32"
    assert roles["input"]["bytes"] == 480
    height, width = found["geometry"]
    assert (height["kernel"], height["effective_kernel"], height["stride"], height["dilation"]) == (
        3,
        5,
        2,
        2,
    )
    assert (width["narrow"], width["legal_wide"]) == (4, [10, 12])
    assert ("error" in found) == (ending is MISMATCH)
    if ending is MISMATCH:
        assert roles["output"]["disagrees"] == [1, 2]
        assert [axis["legal"] for axis in found["geometry"]] == [False, False]
        assert "output_shape" in found["error"]["message"]
    else:
        assert found["dry_run"] == (ending is DRY_RUN)
        assert (height["wide"], height["pad_before"], height["pad_after"]) == (6, 1, 2)
        assert roles["output"]["address"] == ("y.npy" if ending is DONE else None)


def test_json_sums() -> None:
    done = call("transpose", "x.npy", "w.npy", "-o", "y.npy", "--format", "json").succeeded()
    y = np.load("y.npy").astype(np.float64)
    result = loads(done.stdout)["result"]
    assert result["sum"] == pytest.approx(y.sum(), rel=1e-12)
    assert result["abs_sum"] == pytest.approx(np.abs(y).sum(), rel=1e-12)
    assert result["non_finite"] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_json_of_results_that_are_not_finite(value: float) -> None:
    x = X.copy()
    x[0, 0, 0, 0] = value
    save(Path("x.npy"), x)
    done = call("transpose", "x.npy", "w.npy", "-o", "y.npy", "--format", "json").succeeded()
    expected = reference.transpose(x, W).values
    result = loads(done.stdout)["result"]
    assert result["sum"] is None
    assert result["abs_sum"] is None
    assert result["non_finite"] == np.count_nonzero(~np.isfinite(expected)) > 0


def test_json_of_an_empty_result() -> None:
    save(Path("x.npy"), X[:0])
    done = call("transpose", "x.npy", "w.npy", "-o", "y.npy", "--format", "json").succeeded()
    assert loads(done.stdout)["result"] == {"sum": 0, "abs_sum": 0, "non_finite": 0}


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("missing.npy", "w.npy", "-o", "y.npy"), 1),
        (("x.npy", "w.npy", "-o", "w.npy"), 2),
        (("x.npy", "w.npy", "-o", "nowhere/y.npy"), 2),
        (("x.npy", "w.npy", "-s", "0", "-o", "y.npy"), 2),
        (("x.npy", "w.npy"), 2),
    ],
    ids=["missing", "exists", "no-folder", "stride", "no-output"],
)
def test_standard_output_of_an_error_is_json_or_nothing(args: tuple[str, ...], status: int) -> None:
    done = call("transpose", *args, "--format", "json")
    done.refused(status)
    assert done.stdout == "" or loads(done.stdout)["error"]["message"] == done.error


# Streams


@ENDINGS
def test_quiet_prints_nothing(ending: tuple[str, ...]) -> None:
    done = call("transpose", "x.npy", "w.npy", *ending, "-q")
    assert done.stdout == ""
    assert (done.stderr != "") == (ending is MISMATCH)


@ENDINGS
def test_verbose_adds_to_standard_error_only(ending: tuple[str, ...]) -> None:
    plain = call("transpose", "x.npy", "w.npy", *ending)
    Path("y.npy").unlink(missing_ok=True)
    verbose = call("transpose", "x.npy", "w.npy", *ending, "-v")
    assert verbose.stdout == plain.stdout
    if ending is not MISMATCH:
        assert plain.stderr == ""
        assert verbose.stderr != ""


@pytest.mark.parametrize("flags", [(), ("--format", "json"), ("-v",)], ids=["table", "json", "v"])
def test_with_an_array_on_standard_output_the_rest_is_on_standard_error(flags: tuple[str, ...]) -> None:
    done = call("transpose", "x.npy", "w.npy", *flags, "-o", "-").succeeded()
    assert np.load(io.BytesIO(done.output)).shape == (2, 3, 4, 2)
    assert np.load(io.BytesIO(done.output)).nbytes + 128 == len(done.output)
    assert "x.npy" in done.stderr
    if flags == ("--format", "json"):
        assert loads(done.stderr)["dry_run"] is False


def test_a_mismatch_with_the_array_on_standard_output() -> None:
    done = call("transpose", "x.npy", "w.npy", *MISMATCH[:2], "-o", "-")
    done.refused(2)
    assert done.output == b""
    assert row(done.stderr, "output")[2] == "(N=2, H=99!, W=99!, Cout=2)"


def test_notes_are_on_standard_error_unless_quiet() -> None:
    with h5py.File("m.mat", "w", userblock_size=512) as file:
        file["x"] = X
        file["x"].attrs["MATLAB_class"] = np.bytes_("single")
    with Path("m.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    loud = call("transpose", "m.mat::/x", "w.npy", "-n").succeeded()
    assert "MATLAB" in loud.stderr
    assert "MATLAB" not in loud.stdout
    assert call("transpose", "m.mat::/x", "w.npy", "-n", "-q").succeeded().stderr == ""


# Colour


def test_no_colour_and_no_escapes_off_a_terminal() -> None:
    assert "\x1b" not in call("transpose", "x.npy", "w.npy", *MISMATCH).stdout


def test_force_color() -> None:
    assert COLOUR.search(call("transpose", "x.npy", "w.npy", *MISMATCH, env={"FORCE_COLOR": "1"}).stdout)


@pytest.mark.parametrize("force", [{}, {"FORCE_COLOR": "1"}], ids=["", "forced"])
def test_no_color(force: dict[str, str]) -> None:
    done = call("transpose", "x.npy", "w.npy", *MISMATCH, env={"NO_COLOR": "1", **force})
    assert not COLOUR.search(done.stdout)


def test_forced_colour_does_not_cut_a_piped_table() -> None:
    """As in a continuous-integration job: colour is wanted, the width is nobody's."""
    name = "x" * 150 + ".npy"
    save(Path(name), X)
    env = {"FORCE_COLOR": "1", "COLUMNS": "40"}
    text = re.sub(r"\x1b\[[0-9;]*m", "", call("transpose", name, "w.npy", *JOB, "-n", env=env).stdout)
    assert f" {name} " in text
    assert row(text, "height") == ["height", "6", "3", "5", "2", "2", "1/2", "3", "5..6"]


def on_a_terminal(args: list[str], columns: int) -> str:
    """What a command shows on a terminal of so many columns."""
    pty, fcntl, struct, termios = (pytest.importorskip(n) for n in ("pty", "fcntl", "struct", "termios"))
    child, screen = pty.fork()
    if child == 0:
        os.environ.pop("COLUMNS", None)
        os.environ["TERM"] = "xterm"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execv(args[0], args)
    shown = b""
    try:
        while more := os.read(screen, 65536):
            shown += more
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(screen)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return shown.decode()


@pytest.mark.parametrize("columns", [40, 80])
def test_on_a_terminal_cells_fold_and_nothing_is_lost(columns: int) -> None:
    name = "abcdefghijklmnopqrstuvwxyz0123456789" * 4 + ".npy"
    save(Path(name), X)
    shown = on_a_terminal([*COMMAND, "transpose", name, "w.npy", "-n"], columns)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "…" not in text
    folded = text[text.index("input") : text.index("filters")]
    assert [folded.count(letter) for letter in "qz79"] == [4] * 4
