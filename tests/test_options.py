"""Options that both commands share: what is refused, where results go and what they carry."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import convgrad
import reference
from arrays_on_disk import load, load_h5, save
from assertions import assert_matches
from commandline import call

rng = np.random.default_rng(21)
X = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
W = rng.standard_normal((3, 3, 2, 5)).astype(np.float32)
Y = reference.transpose(X, W)
G = rng.standard_normal((2, 3, 4, 10)).astype(np.float32)
OTHER = np.arange(6.0)


@pytest.fixture
def operands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two operands in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "x.npy", X)
    save(tmp_path / "w.npy", W)
    return "x.npy", "w.npy"


@pytest.fixture
def existing(operands: tuple[str, str]) -> Path:
    """An HDF5 file with something in it."""
    with h5py.File("old.h5", "w") as file:
        file["kept/other"] = OTHER
        file["kept/other"].attrs["unit"] = "mV"
        file["y"] = np.zeros(3)
    return Path("old.h5")


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.fixture
def no_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(*_: object) -> None:
        pytest.fail("something was computed")

    monkeypatch.setattr("convgrad_cli.job.execute", execute)


# Words that are refused


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-s", ""), ("--strides",)),
        (("-s", "2,"), ("--strides", "2,")),
        (("-s", "2.0"), ("--strides", "2.0")),
        (("-s", "two"), ("--strides", "two")),
        (("-s", "2 3"), ("--strides", "2 3")),
        (("-s", "0"), ("strides", "0")),
        (("-s", "-1"), ("strides", "-1")),
        (("-s", "1,2,3"), ("strides", "1,2,3")),
        (("-s", "2,1,1,1"), ("strides", "batch")),
        (("-s", "1,2,2,1", "--data-format", "NCHW"), ("strides", "channels")),
        (("-d", "0,1"), ("dilations", "0")),
        (("-d", "1x"), ("--dilations", "1x")),
        (("-p", "FULL"), ("padding", "FULL", "SAME", "VALID")),
        (("-p", "1,1,1"), ("--padding", "top,bottom,left,right")),
        (("-p", "1"), ("--padding", "top,bottom,left,right")),
        (("-p", "-1,0,0,0"), ("padding", "negative", "-1")),
        (("-p", "[[0,0],[1,0]"), ("--padding", "JSON")),
        (("-p", "[[0,0],[1,0],[0,1]]"), ("padding", "4", "3")),
        (("-p", "[[0,0],[1.5,0],[0,1],[0,0]]"), ("padding", "integer", "1.5")),
        (("-p", "[[1,0],[0,0],[0,0],[0,0]]"), ("padding", "batch")),
        (("-p", "[[0,0],[0,0],[1,1],[0,1]]"), ("padding", "channels")),
        (("-p", "[" * 5000), ("--padding",)),
        (("--data-format", "HWNC"), ("HWNC", "NHWC", "NCHW")),
        (("--output-shape", "3"), ("output_shape", "2", "4")),
        (("--output-shape", "2,3,4"), ("output_shape", "2,3,4")),
        (("--output-shape", "3;4"), ("--output-shape", "3;4")),
        (("--cast", "int8"), ("--cast", "int8", "float16", "bfloat16", "float32", "float64")),
        (("--as", "float16"), ("--as", "float16", "bfloat16")),
        (("--format", "yaml"), ("--format", "yaml", "table", "json")),
        (("--nonsense",), ("--nonsense",)),
        (("--compression-level", "high"), ("--compression-level", "high")),
        (("extra.npy",), ("2 inputs", "y.npy", "{stem}")),
    ],
    ids=lambda value: "_".join(value)[:40],
)
@pytest.mark.usefixtures("no_computing")
def test_refused_words(operands: tuple[str, str], flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    before = names()
    call("transpose", *operands, *flags, "-o", "y.npy").refused(2, *words)
    assert names() == before


@pytest.mark.parametrize(
    ("flags", "written"),
    [(("-p", "samesame"), "samesame"), (("--data-format", "hwcn"), "hwcn")],
    ids=["padding", "data-format"],
)
def test_the_message_quotes_what_was_written(
    operands: tuple[str, str], flags: tuple[str, str], written: str
) -> None:
    assert written in call("transpose", *operands, *flags, "-n").error


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), ("command",)),
        (("nonsense",), ("nonsense",)),
        (("--nonsense",), ("--nonsense",)),
        (("transpose",), ("FILTERS",)),
        (("transpose", "x.npy", "-o", "y.npy"), ("FILTERS",)),
        (("transpose", "x.npy", "w.npy"), ("--output",)),
        (("filter-grad", "x.npy", "--filter-sizes", "3,3", "-o", "y.npy"), ("OUT_BACKPROP",)),
        (("filter-grad", "x.npy", "w.npy", "--filter-sizes", "3,3"), ("--output",)),
        (("transpose", "x.npy", "w.npy", "-o"), ("-o",)),
    ],
    ids=lambda value: "_".join(value) or "nothing",
)
@pytest.mark.usefixtures("operands")
def test_missing_words(args: tuple[str, ...], words: tuple[str, ...]) -> None:
    done = call(*args)
    done.refused(2, *words)
    assert re.fullmatch("see convgrad( transpose| filter-grad)? --help", done.hint)


@pytest.mark.parametrize("verb", ["transpose", "filter-grad"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_verb(verb: str, flag: str) -> None:
    done = call(verb, flag).succeeded()
    assert f"\n  convgrad {verb} " in done.stdout.replace("    convgrad", "  convgrad")  # an example
    for option in ("--strides", "--padding", "--data-format", "--dilations", "--output", "--overwrite",
                   "--append", "--chunks", "--compression", "--compression-level", "--shuffle", "--as",
                   "--cast", "--dry-run", "--format", "--quiet", "--verbose", "--debug"):  # fmt: skip
        assert f"{option} " in done.stdout.replace("\n", " ")


# Where the result goes


@pytest.mark.parametrize("name", ["y.npy", "y", "y.dat", "y.NPY", "ÿ y#1+%20[0].bin", "a::b.npy"])
def test_the_output_has_exactly_that_name(operands: tuple[str, str], name: str) -> None:
    if "::" in name:
        Path(name).touch()  # an existing file is that file
        call("transpose", *operands, "-o", name, "--overwrite").succeeded()
    else:
        call("transpose", *operands, "-o", name).succeeded()
    assert names() == sorted([*operands, name])
    assert_matches(load(Path(name)), *Y, np.float32)


def test_npy_output_is_what_numpy_would_write(operands: tuple[str, str], tmp_path: Path) -> None:
    call("transpose", *operands, "-o", "y.npy").succeeded()
    save(tmp_path / "again.npy", np.load("y.npy"))
    assert Path("y.npy").read_bytes() == Path("again.npy").read_bytes()


@pytest.mark.usefixtures("no_computing")
def test_an_existing_output_is_refused_before_anything_is_computed(operands: tuple[str, str]) -> None:
    Path("y.npy").write_bytes(b"precious")
    done = call("transpose", *operands, "-o", "y.npy")
    done.refused(2, "y.npy", "exists")
    assert done.error.startswith("y.npy")
    assert "--overwrite" in done.hint
    assert Path("y.npy").read_bytes() == b"precious"


def test_overwrite_replaces_a_file_and_keeps_its_permissions(operands: tuple[str, str]) -> None:
    Path("y.npy").write_bytes(b"old")
    Path("y.npy").chmod(0o640)
    call("transpose", *operands, "-o", "y.npy", "--overwrite").succeeded()
    assert_matches(load(Path("y.npy")), *Y, np.float32)
    assert stat.S_IMODE(Path("y.npy").stat().st_mode) == 0o640


@pytest.mark.parametrize("address", ["y.npy", "new.h5::/y"])
def test_overwrite_without_anything_to_replace(operands: tuple[str, str], address: str) -> None:
    call("transpose", *operands, "-o", address, "--overwrite").succeeded()


@pytest.mark.parametrize("operand", ["x.npy", "w.npy"])
def test_the_output_may_replace_an_operand(operands: tuple[str, str], operand: str) -> None:
    call("transpose", *operands, "-o", operand, "--overwrite").succeeded()
    assert_matches(load(Path(operand)), *Y, np.float32)


def test_the_output_may_replace_an_operand_in_hdf5(operands: tuple[str, str]) -> None:
    with h5py.File("net.h5", "w") as file:
        file["x"], file["w"] = X, W
    call("transpose", "net.h5::/x", "net.h5::/w", "-o", "net.h5::/x", "--overwrite").succeeded()
    assert_matches(load_h5(Path("net.h5"), "x"), *Y, np.float32)
    assert np.array_equal(load_h5(Path("net.h5"), "w"), W)


def kept(path: Path) -> None:
    with h5py.File(path) as file:
        assert np.array_equal(file["kept/other"], OTHER)
        assert file["kept/other"].attrs["unit"] == "mV"


@pytest.mark.parametrize(
    ("address", "flags"),
    [
        ("old.h5::/y", ("--overwrite",)),
        ("old.h5::y", ("--overwrite",)),
        ("old.h5::/new", ("--append",)),
        ("old.h5::/new/deep/y", ("--append",)),
        ("old.h5::/kept/new", ("--overwrite",)),
    ],
    ids=str,
)
@pytest.mark.usefixtures("operands")
def test_one_dataset_changes_and_all_else_stays(existing: Path, address: str, flags: tuple[str, ...]) -> None:
    call("transpose", "x.npy", "w.npy", "-o", address, *flags).succeeded()
    assert_matches(load_h5(existing, address.partition("::")[2]), *Y, np.float32)
    kept(existing)


@pytest.mark.parametrize(
    ("address", "flags", "words"),
    [
        ("old.h5::/new", (), ("old.h5::/new", "exists", "--append")),
        ("old.h5::/y", (), ("old.h5::/y", "exists", "--overwrite")),
        ("old.h5::/y", ("--append",), ("old.h5::/y", "exists", "--overwrite")),
        ("old.h5::/kept", ("--overwrite",), ("old.h5::/kept", "group")),
        ("old.h5::/y/below", ("--append",), ("old.h5::/y/below", "dataset")),
        ("old.h5", ("--overwrite",), ("old.h5", "dataset")),
        ("old.h5::/", ("--overwrite",), ("old.h5::/", "dataset")),
        ("old.h5::", ("--overwrite",), ("old.h5::", "dataset")),
        ("x.npy::/y", ("--overwrite",), ("x.npy::/y", "HDF5")),
        ("new.h5", (), ("new.h5", "dataset")),
        ("::/y", (), ("::/y",)),
        ("", (), ("output",)),
        ("-::/y", (), ("-::/y", "standard output")),
        ("nowhere/y.npy", (), ("nowhere/y.npy", "folder")),
        ("nowhere/y.h5::/y", (), ("nowhere/y.h5::/y", "folder")),
        (".", (), (".", "director")),
        ("y.npy", ("--append",), ("y.npy", "--append")),
        ("-", ("--append",), ("-", "--append")),
        ("y.npy", ("--chunks", "1,1,1,1"), ("y.npy", "--chunks")),
        ("y.npy", ("--compression", "gzip"), ("y.npy", "--compression")),
        ("y.npy", ("--compression-level", "4"), ("y.npy", "--compression-level")),
        ("y.npy", ("--shuffle",), ("y.npy", "--shuffle")),
        ("-", ("--shuffle",), ("-", "--shuffle")),
        ("new.h5::/y", ("--chunks", "1,1,1"), ("--chunks", "1, 1, 1")),
        ("new.h5::/y", ("--chunks", "0,1,1,1"), ("--chunks", "0")),
        ("new.h5::/y", ("--chunks", "2,3,4,3"), ("--chunks", "3")),
        ("new.h5::/y", ("--compression", "zip"), ("--compression", "zip", "gzip", "lzf")),
        ("new.h5::/y", ("--compression-level", "3"), ("--compression-level", "gzip")),
        ("new.h5::/y", ("--compression", "lzf", "--compression-level", "3"), ("--compression-level", "lzf")),
        ("new.h5::/y", ("--compression", "gzip", "--compression-level", "10"), ("--compression-level", "10")),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value),
)
@pytest.mark.usefixtures("no_computing")
def test_outputs_that_are_refused(
    existing: Path, address: str, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    files = {path: path.read_bytes() for path in Path().iterdir()}
    done = call("transpose", "x.npy", "w.npy", "-o", address, *flags)
    done.refused(2, *words)
    assert {path: path.read_bytes() for path in Path().iterdir()} == files
    kept(existing)


# What HDF5 results carry


def test_layout_options(operands: tuple[str, str]) -> None:
    flags = ("--chunks", "1,3,2,2", "--compression", "gzip", "--compression-level", "9", "--shuffle")
    call("transpose", *operands, "-o", "y.h5::/y", *flags).succeeded()
    with h5py.File("y.h5") as file:
        data = file["y"]
        assert (data.chunks, data.compression, data.compression_opts) == ((1, 3, 2, 2), "gzip", 9)
        assert data.shuffle
    assert_matches(load_h5(Path("y.h5"), "y"), *Y, np.float32)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ((), (None, None, False)),
        (("--chunks", "2x3x4x2"), ((2, 3, 4, 2), None, False)),
        (("--compression", "lzf", "--chunks", "1,1,4,2"), ((1, 1, 4, 2), "lzf", False)),
        (("--shuffle", "--chunks", "1,1,4,2"), ((1, 1, 4, 2), None, True)),
    ],
    ids=["plain", "chunks", "lzf", "shuffle"],
)
def test_one_layout_option(operands: tuple[str, str], flags: tuple[str, ...], found: tuple[Any, ...]) -> None:
    call("transpose", *operands, "-o", "y.h5::/y", *flags).succeeded()
    with h5py.File("y.h5") as file:
        data = file["y"]
        assert (data.chunks, data.compression, data.shuffle) == found
    assert_matches(load_h5(Path("y.h5"), "y"), *Y, np.float32)


def attributes(path: str, name: str) -> dict[str, Any]:
    with h5py.File(path) as file:
        return dict(file[name].attrs)


def test_attributes(operands: tuple[str, str]) -> None:
    """No time stamps: these and no others."""
    flags = ("-s", "2,3", "-p", "1,2,0,1", "-d", "2,1", "--output-shape", "6,11")
    call("transpose", *operands, *flags, "-o", "y.h5::/y").succeeded()
    found = attributes("y.h5", "y")
    parameters = json.loads(found.pop("parameters"))
    assert found == {
        "operation": "conv2d_transpose",
        "input": "x.npy",
        "filters": "w.npy",
        "convgrad_version": convgrad.__version__,
    }
    assert parameters == {
        "output_shape": [6, 11],
        "strides": [2, 3],
        "padding": [[0, 0], [1, 2], [0, 1], [0, 0]],
        "data_format": "NHWC",
        "dilations": [2, 1],
    }
    assert_matches(load_h5(Path("y.h5"), "y"), *reference.transpose(X, W, **parameters), np.float32)
    with h5py.File("y.h5") as file:
        assert h5py.h5g.get_objinfo(file.id, b"y").mtime == 0


def test_attributes_of_a_filter_gradient(operands: tuple[str, str], tmp_path: Path) -> None:
    with h5py.File("net.h5", "w") as file:
        file["only one"] = X
    save(tmp_path / "g.npy", G)
    call(
        "filter-grad", "net.h5", "g.npy", "--filter-sizes", "3,2", "-p", "same", "-o", "y.h5::/y"
    ).succeeded()
    found = attributes("y.h5", "y")
    parameters = json.loads(found.pop("parameters"))
    assert found == {
        "operation": "depthwise_conv2d_backprop_filter",
        "input": "net.h5::/only one",
        "out_backprop": "g.npy",
        "convgrad_version": convgrad.__version__,
    }
    assert parameters["filter_sizes"] == [3, 2]
    assert parameters["padding"] == "SAME"


def test_the_same_job_gives_the_same_file(operands: tuple[str, str]) -> None:
    found = []
    for _ in range(2):
        call("transpose", *operands, "-o", "y.h5::/y").succeeded()
        found.append((attributes("y.h5", "y"), Path("y.h5").read_bytes()))
        Path("y.h5").unlink()
    assert found[0] == found[1]


# Dry runs


@pytest.mark.parametrize("flags", [(), ("-o", "y.npy"), ("-o", "y.h5::/y"), ("-o", "-")], ids=str)
@pytest.mark.usefixtures("no_computing")
def test_a_dry_run_writes_nothing(operands: tuple[str, str], flags: tuple[str, ...]) -> None:
    before = names()
    done = call("transpose", *operands, "-s", 2, "-n", *flags).succeeded()
    assert "(N=2, H=6, W=8, Cout=2)" in done.stdout
    assert done.stderr == ""
    assert names() == before


def test_a_dry_run_of_a_filter_gradient(operands: tuple[str, str], tmp_path: Path) -> None:
    save(tmp_path / "g.npy", G)
    done = call("filter-grad", "x.npy", "g.npy", "--filter-sizes", "3x3", "--dry-run").succeeded()
    assert "(kh=3, kw=3, C=5, M=2)" in done.stdout


def huge(path: Path, fortran: bool) -> None:
    """A header that promises 8 GB, and a file of that size without a block on disk."""
    shape = (2000, 1000, 1000, 1)
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": fortran, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * 2000 * 1000 * 1000)


@pytest.mark.parametrize("fortran", [False, True], ids=["C", "F"])
def test_a_dry_run_reads_headers_only(operands: tuple[str, str], tmp_path: Path, fortran: bool) -> None:
    huge(tmp_path / "huge.npy", fortran)
    save(tmp_path / "one.npy", np.ones((1, 1, 1, 1), np.float32))
    done = call("transpose", "huge.npy", "one.npy", "-n", "--format", "json").succeeded()
    assert json.loads(done.stdout)["tensors"][0]["bytes"] == 8_000_000_000


def test_a_dry_run_reads_no_dataset(operands: tuple[str, str]) -> None:
    """100 TB of an HDF5 dataset without a chunk on disk."""
    with h5py.File("huge.h5", "w") as file:
        file.create_dataset("x", (100_000, 1000, 1000, 250), "f4", chunks=(1, 100, 100, 10))
    np.save("one.npy", np.ones((1, 1, 3, 250), np.float32))
    done = call("transpose", "huge.h5", "one.npy", "-n", "--format", "json").succeeded()
    assert json.loads(done.stdout)["tensors"][0]["bytes"] == 10**14
