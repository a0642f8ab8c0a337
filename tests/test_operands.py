"""Operands on the command line: casts, bfloat16 by request, standard input, and operands that do not do."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest

import reference
from arrays_on_disk import is_bfloat16, load, load_h5, save
from assertions import BFLOAT16, assert_matches, dtype_of
from commandline import COMMAND, call, run

ONE = np.ones((1, 1, 1, 1), np.float32)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def image(*values: float, dtype: str) -> np.ndarray:
    return np.array(values).astype(dtype_of(dtype)).reshape(1, 1, -1, 1)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def through(x: np.ndarray, *flags: str, one: str = "float32") -> np.ndarray:
    """`x` convolved with a filter of one number, 1: what was read and cast."""
    operands = save(Path("x.npy"), x), save(Path("one.npy"), ONE.astype(dtype_of(one)))
    call("transpose", *operands, *flags, "-o", "y.npy", "--overwrite").succeeded()
    return load(Path("y.npy"))


# --cast


@pytest.mark.parametrize(
    ("stored", "cast", "values", "expected"),
    [
        ("int16", "float32", [-32768, -1, 0, 7, 32767], [-32768, -1, 0, 7, 32767]),
        ("uint8", "float16", [0, 1, 255], [0, 1, 255]),
        ("bool", "float64", [0, 1], [0, 1]),
        ("int64", "float64", [2**53, -3], [2.0**53, -3]),
        ("int32", "float32", [2**24 + 1, 2**24 + 3], [2.0**24, 2.0**24 + 4]),  # ties to even
        ("float64", "float16", [1 + 2.0**-11, 1 + 3 * 2.0**-11, 70000], [1, 1 + 2.0**-9, np.inf]),
        ("float64", "float32", [1e-50, 1 + 2.0**-24], [0, 1]),
        ("float32", "float64", [0.5, -2], [0.5, -2]),
        ("float16", "bfloat16", [1.5, 1 + 2.0**-8], [1.5, 1]),
        ("float64", "bfloat16", [1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8], [1 + 2.0**-7, 1]),  # rounded once
        ("int32", "bfloat16", [257, 258, 259], [256, 258, 260]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_cast(stored: str, cast: str, values: list[float], expected: list[float]) -> None:
    result = through(image(*values, dtype=stored), "--cast", cast, one="int8")
    assert result.dtype == dtype_of(cast)
    assert result.astype(np.float64).ravel().tolist() == expected


def test_cast_float32_to_bfloat16_is_that_of_ml_dtypes() -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 20_000, np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)].reshape(1, 1, -1, 1)
    result = through(x, "--cast", "bfloat16")
    expected = x.astype(ml_dtypes.bfloat16)
    assert np.array_equal(result.view(np.uint16) & 0x7FFF, expected.view(np.uint16) & 0x7FFF)  # -0 + 0 is 0


def test_cast_of_both_operands_makes_them_agree() -> None:
    """An integer image and float64 filters, which without a cast do not go together."""
    x = np.arange(-30, 30, dtype=np.int16).reshape(1, 5, 4, 3)
    w = np.random.default_rng(4).standard_normal((3, 3, 2, 3))
    operands = save(Path("x.npy"), x), save(Path("w.npy"), w)
    call("transpose", *operands, "-n").refused(2, "int16")
    call("transpose", *operands, "--cast", "float32", "-o", "y.npy").succeeded()
    expected = reference.transpose(x.astype(np.float32), w.astype(np.float32))
    assert_matches(np.load("y.npy"), *expected, np.float32)


def test_cast_in_hdf5_and_of_a_filter_gradient() -> None:
    x = np.arange(96, dtype=np.uint16).reshape(2, 4, 4, 3)
    g = np.arange(-96, 96, dtype=">i4").reshape(2, 4, 4, 6)
    with h5py.File("in.h5", "w") as file:
        file["x"], file["g"] = x, g
    operands = "in.h5::/x", "in.h5::/g"
    call("filter-grad", *operands, "--filter-sizes", "3,3", "--cast", "float64", "-o", "y.npy").succeeded()
    expected = reference.filter_grad(x.astype(np.float64), (3, 3), g.astype(np.float64))
    assert_matches(np.load("y.npy"), *expected, np.float64)


@pytest.mark.parametrize("dtype", ["complex64", "V2", "V4"])
def test_cast_of_what_is_not_a_real_number(dtype: str) -> None:
    x = save(Path("x.npy"), np.zeros((1, 1, 1, 1), dtype))
    one = save(Path("one.npy"), ONE)
    done = call("transpose", x, one, "--cast", "float32", "-o", "y.npy")
    done.refused(2, "input", np.dtype(dtype).name)
    assert ("--as bfloat16" in done.hint) == (dtype == "V2")
    assert not Path("y.npy").exists()


# --as bfloat16


@pytest.mark.parametrize("stored", ["V2", "uint16", ">u2"])
def test_as_bfloat16_npy(stored: str) -> None:
    bits = np.array([0x3F80, 0x4040, 0xC000], np.uint16).reshape(1, 1, 3, 1)  # 1, 3, -2
    x = bits.view("V2") if stored == "V2" else bits.astype(stored)
    result = through(x, "--as", "bfloat16", one="bfloat16")
    assert result.dtype == BFLOAT16
    assert result.astype(np.float64).ravel().tolist() == [1, 3, -2]


def test_as_bfloat16_then_cast() -> None:
    """One operand's bits are read as bfloat16; the cast makes both float32."""
    bits = np.array([0x3F80, 0x4040], np.uint16).reshape(1, 1, 2, 1)
    result = through(bits, "--as", "bfloat16", "--cast", "float32", one="bfloat16")
    assert result.dtype == np.float32
    assert result.ravel().tolist() == [1, 3]


def test_as_bfloat16_hdf5_to_hdf5() -> None:
    x = np.array([1, 3, -2], ml_dtypes.bfloat16).reshape(1, 1, 3, 1)
    with h5py.File("in.h5", "w") as file:
        file["x"], file["one"] = x.view(np.uint16), ONE.astype(BFLOAT16).view(np.uint16)
    call("transpose", "in.h5::/x", "in.h5::/one", "--as", "bfloat16", "-o", "out.h5::/y").succeeded()
    with h5py.File("out.h5") as file:
        assert is_bfloat16(file["y"])
    assert load_h5(Path("out.h5"), "y").astype(np.float64).ravel().tolist() == [1, 3, -2]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "uint32"])
def test_as_bfloat16_of_anything_else(dtype: str) -> None:
    x = save(Path("x.npy"), np.zeros((1, 1, 1, 1), dtype))
    one = save(Path("one.npy"), ONE)
    done = call("transpose", x, one, "--as", "bfloat16", "-o", "y.npy")
    done.refused(2, str(x), dtype, "2-byte", "--cast")


def test_as_bfloat16_of_one_operand_and_a_cast_of_both() -> None:
    x = save(Path("x.npy"), np.array([1, 3, -2], BFLOAT16).reshape(1, 1, 3, 1))
    one = save(Path("one.npy"), ONE)
    done = call("transpose", x, one, "--as", "bfloat16", "--cast", "float32", "-o", "y.npy")
    done.succeeded()
    assert np.load("y.npy").dtype == np.float32
    assert np.load("y.npy").ravel().tolist() == [1, 3, -2]


@pytest.mark.parametrize("dtype", ["V2", "uint16"])
def test_two_bytes_alone_are_refused(dtype: str) -> None:
    bits = np.zeros((1, 1, 1, 1), np.uint16)
    x, one = save(Path("x.npy"), bits.view(dtype)), save(Path("one.npy"), ONE)
    done = call("transpose", x, one, "-o", "y.npy")
    done.refused(2, "input")
    assert "--as bfloat16" in done.hint


# Standard input and output


@pytest.mark.parametrize("place", [0, 1], ids=["input", "filters"])
def test_standard_input(place: int) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((2, 3, 4, 2)), rng.standard_normal((3, 3, 1, 2))]
    operands = [save(Path(f"{n}.npy"), array) for n, array in enumerate(arrays)]
    operands[place] = "-"
    done = call("transpose", *operands, "-o", "y.npy", stdin=npy(arrays[place])).succeeded()
    assert_matches(np.load("y.npy"), *reference.transpose(*arrays), np.float64)
    assert " - " in done.stdout


def test_a_pipeline() -> None:
    """Out of one convgrad into the next."""
    x = np.random.default_rng(6).standard_normal((1, 3, 3, 2))
    w = np.random.default_rng(7).standard_normal((2, 2, 2, 2))
    paths = save(Path("x.npy"), x), save(Path("w.npy"), w)
    first = call("transpose", *paths, "-s", 2, "-o", "-").succeeded()
    call("transpose", "-", "w.npy", "-s", 2, "-o", "y.npy", stdin=first.output).succeeded()
    middle = np.load(io.BytesIO(first.output))
    assert_matches(middle, *reference.transpose(x, w, strides=2), np.float64)
    assert_matches(np.load("y.npy"), *reference.transpose(middle, w, strides=2), np.float64)


@pytest.mark.parametrize("flags", [(), ("-v",), ("--format", "json"), ("-q",), ("-v", "--format", "json")],
                         ids=lambda flags: "_".join(flags) or "plain")  # fmt: skip
def test_standard_output_is_the_array_and_nothing_else(flags: tuple[str, ...]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    operands = save(Path("x.npy"), x), save(Path("one.npy"), ONE)
    done = run("transpose", *operands, *flags, "-o", "-").succeeded()
    assert done.output == npy(x)
    assert ("x.npy" in done.stderr) == ("-q" not in flags)
    if "-q" in flags:
        assert done.stderr == ""


def test_both_operands_from_standard_input() -> None:
    call("transpose", "-", "-", "-o", "y.npy", stdin=npy(ONE)).refused(2, "-", "standard input")
    assert not Path("y.npy").exists()


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"", ("empty",)),
        (npy(ONE)[:-1], ("truncated",)),
        (npy(ONE) + b"\0", ()),
        (b"\x89HDF\r\n\x1a\n" + bytes(2000), ("pipe",)),
        (b"1.0 2.0 3.0", ("text",)),
    ],
    ids=["empty", "truncated", "trailing", "hdf5", "text"],
)
def test_standard_input_that_is_no_npy(stdin: bytes, words: tuple[str, ...]) -> None:
    save(Path("one.npy"), ONE)
    done = call("transpose", "-", "one.npy", "-o", "y.npy", stdin=stdin)
    assert done.error.startswith("-")
    done.refused(1, *(words if words != ("truncated",) else ()))
    assert not Path("y.npy").exists()
    assert done.output == b"" or b"tensor" in done.output


def test_standard_input_has_no_datasets() -> None:
    save(Path("one.npy"), ONE)
    call("transpose", "-n", "--", "one.npy", "-::/x").refused(2, "-::/x", "standard input")


def test_a_dry_run_waits_for_no_data() -> None:
    """The writer has sent a header, and keeps the pipe open."""
    x = np.zeros((1, 100, 100, 1), np.float32)
    save(Path("one.npy"), ONE)
    with subprocess.Popen(
        [*COMMAND, "transpose", "-", "one.npy", "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write(npy(x)[:128])
        job.stdin.flush()
        assert job.wait(timeout=60) == 0
        assert b"(N=1, H=100, W=100, Cout=1)" in job.stdout.read()


# Operands that do not do


@pytest.mark.parametrize(
    ("x", "w", "words"),
    [
        (np.ones((3, 3), np.float32), ONE, ("input", "4 axes", "2")),
        (np.float32(1), ONE, ("input", "4 axes", "0")),
        (ONE, np.ones((1, 1, 1, 1, 1), np.float32), ("filters", "4 axes", "5")),
        (ONE.astype(np.float64), ONE, ("float64", "float32")),
        (ONE.astype(np.int32), ONE.astype(np.int32), ("input", "int32", "--cast")),
        (ONE.astype(np.complex64), ONE, ("input", "complex64")),
        (ONE, ONE.astype(">f2"), ("filters", "float16")),
        (np.ones((1, 2, 2, 3), np.float32), np.ones((3, 3, 2, 4), np.float32), ("filters", "Cin", "3", "4")),
    ],
    ids=["2-axes", "scalar", "5-axes", "two-dtypes", "integers", "complex", "filters-float16", "channels"],
)
def test_refused_operands(x: np.ndarray, w: np.ndarray, words: tuple[str, ...]) -> None:
    operands = save(Path("x.npy"), x), save(Path("w.npy"), w)
    done = call("transpose", *operands, "-o", "y.npy")
    done.refused(2, *words)
    assert not Path("y.npy").exists()


def test_the_same_file_twice() -> None:
    x = np.random.default_rng(8).standard_normal((3, 3, 2, 2))
    path = save(Path("x.npy"), x)
    with h5py.File("x.h5", "w") as file:
        file["x"] = x
    for operand in (path, "x.h5::/x"):
        call("transpose", operand, operand, "-o", "y.npy", "--overwrite").succeeded()
        assert_matches(np.load("y.npy"), *reference.transpose(x, x), np.float64)


def test_reverse_axes_of_both_where_neither_is_from_matlab() -> None:
    """As a Fortran program stores them: the first axis varies fastest."""
    rng = np.random.default_rng(9)
    x, w = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((3, 2, 2, 5))
    with h5py.File("f.h5", "w") as file:
        file["x"], file["w"] = x.T, w.T
    done = call(
        "transpose", "f.h5::/x", "f.h5::/w", "--reverse-axes", "-o", "y.npy", "--format", "json"
    ).succeeded()
    assert_matches(np.load("y.npy"), *reference.transpose(x, w), np.float64)
    assert json.loads(done.stdout)["tensors"][0]["shape"] == [2, 3, 4, 5]


# HDF5 addresses


@pytest.fixture
def network() -> str:
    x = np.ones((1, 2, 3, 1), np.float32)
    with h5py.File("net.h5", "w") as file:
        for name in ("a", "b c", "sub/d", "sub/e::f[0]"):
            file[name] = x
        file["new\nline"] = x
    save(Path("one.npy"), ONE)
    return "net.h5"


def test_a_file_of_several_datasets_lists_them_one_to_a_line(network: str) -> None:
    done = call("transpose", network, "one.npy", "-o", "y.npy")
    done.refused(2, network, "5 datasets")
    listed = [line.split("  ") for line in done.stderr.splitlines() if line.startswith("  ")]
    assert [line[1:] for line in listed] == [
        ["net.h5::/a", "(1, 2, 3, 1) float32"],
        ["'net.h5::/b c'", "(1, 2, 3, 1) float32"],
        ["'net.h5::/new\\nline'", "(1, 2, 3, 1) float32"],
        ["net.h5::/sub/d", "(1, 2, 3, 1) float32"],
        ["'net.h5::/sub/e::f[0]'", "(1, 2, 3, 1) float32"],
    ]


@pytest.mark.parametrize("name", ["/a", "a", "/b c", "/sub/d", "sub/d", "/sub/e::f[0]", "/new\nline"])
def test_every_dataset_can_be_named(network: str, name: str) -> None:
    call("transpose", f"{network}::{name}", "one.npy", "-o", "y.npy").succeeded()
    assert np.load("y.npy").shape == (1, 2, 3, 1)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("net.h5::/aa", ("net.h5::/aa", "'aa'", "net.h5::/a")),
        ("net.h5::/sub", ("net.h5::/sub", "2 datasets")),
        ("net.h5::/a/b", ("net.h5::/a/b", "/a is a dataset")),
        ("net.h5::/sub/d ", ("net.h5::/sub/d ", "'d '")),
        ("one.npy::/x", ("one.npy::/x", ".npy")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.usefixtures("network")
def test_addresses_that_name_nothing(address: str, words: tuple[str, ...]) -> None:
    done = call("transpose", address, "one.npy", "-o", "y.npy")
    done.refused(2, *words)
    assert done.error.startswith(address)
    assert not Path("y.npy").exists()


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_cast_in_pieces_is_a_cast(rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few elements are converted at a time."""
    monkeypatch.setattr("convgrad_cli.operands._PIECE", 7 * rows)
    values = np.random.default_rng(0).integers(-500, 500, (5, 3, 4, 2)).astype(np.int16)
    x, one = save(Path("x.npy"), values), save(Path("w.npy"), np.eye(2, dtype=np.int16).reshape(1, 1, 2, 2))
    call("transpose", x, one, "--cast", dtype, "-o", "y.npy").succeeded()
    wanted = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    assert np.load("y.npy").tobytes() == values.astype(wanted).tobytes()


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    x = os.fsdecode(b"a\xff.npy")
    save(Path(x), np.ones((1, 1, 1, 1), np.float32))
    one = save(Path("one.npy"), ONE.astype(np.float32))
    call("transpose", x, one, "-o", "y.h5::/y").succeeded()
    with h5py.File("y.h5") as file:
        assert file["y"].attrs["input"] == "a\\udcff.npy"


def test_candidates_in_json() -> None:
    with h5py.File("two.h5", "w") as file:
        file["a"], file["b c"] = ONE, ONE
    one = save(Path("one.npy"), ONE)
    done = call("transpose", "two.h5", one, "-n", "--format", "json")
    assert done.returncode == 2
    candidates = json.loads(done.stdout)["error"]["candidates"]
    assert [candidate.split("  ")[0] for candidate in candidates] == ["two.h5::/a", "'two.h5::/b c'"]


def test_a_dry_run_checks_the_layout_of_the_result() -> None:
    one = save(Path("one.npy"), ONE)
    done = call("transpose", one, one, "-o", "y.h5::/y", "--chunks", "1,2", "-n")
    done.refused(2, "--chunks")
