"""Field reports, by number: HDF5 files that other tools misread, and what is said of broken ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import cuts
import reference
from arrays_on_disk import save
from assertions import assert_matches
from commandline import call, run
from round_trips import identity, random, refused, through


def matlab_file(path: Path, **arrays: np.ndarray) -> None:
    """A file as MATLAB v7.3 writes it: axes reversed, a header in front, a class on each dataset."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file[name] = array.T
            file[name].attrs["MATLAB_class"] = np.bytes_("single")
    header = (
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema 1.00 ."
    )
    with path.open("r+b") as file:
        file.write(header.ljust(116) + b"\0" * 8 + b"\x00\x02" + b"IM")


def test_report_106_matlab_axes(tmp_path: Path) -> None:
    x, w = random(2, 5, 4, 3), random(3, 2, 2, 3, seed=1)
    matlab_file(tmp_path / "m.mat", x=x, w=w)
    operands = [f"{tmp_path}/m.mat::/x", f"{tmp_path}/m.mat::/w"]
    expected = reference.transpose(x, w, strides=2)
    target = tmp_path / "y.npy"
    call("transpose", *operands, "-s", 2, "--reverse-axes", "-o", target).succeeded()
    assert_matches(np.load(target), *expected, np.float32)
    # Only what MATLAB stored is reversed.
    mixed = [operands[0], save(tmp_path / "w.npy", w)]
    call("transpose", *mixed, "-s", 2, "--reverse-axes", "-o", target, "--overwrite").succeeded()
    assert_matches(np.load(target), *expected, np.float32)


def test_report_106_108_read_as_stored_and_recognised(tmp_path: Path) -> None:
    """Without the option nothing is reordered, but the user is told."""
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)[np.newaxis, :, :, np.newaxis]
    matlab_file(tmp_path / "m.mat", x=x.T)
    target = tmp_path / "y.npy"
    done = call("transpose", f"{tmp_path}/m.mat::/x", identity(tmp_path), "-o", target).succeeded()
    assert np.load(target)[0, :, :, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert "MATLAB" in done.stderr
    assert "--reverse-axes" in done.stderr


def test_report_109_a_virtual_dataset_whose_source_moved(tmp_path: Path) -> None:
    x = random(2, 3, 2, 1)
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["x"] = x
    layout = h5py.VirtualLayout(x.shape, x.dtype)
    layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "x", shape=x.shape)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    address = f"{tmp_path}/virtual.h5::/x"
    assert np.array_equal(through(address, tmp_path), x)
    (tmp_path / "read.npy").unlink()
    (tmp_path / "source.h5").rename(tmp_path / "moved.h5")
    refused(address, tmp_path, 1, "virtual.h5", "source.h5")


def test_report_110_a_file_that_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = random(1, 3, 2, 1)
        done = run("transpose", f"{path}::/x", identity(tmp_path), "-o", tmp_path / "y.npy")
    assert "Traceback" not in done.stderr
    if done.returncode:  # a system without file locks lets it pass
        done.refused(1, str(path), "HDF5_USE_FILE_LOCKING")
        assert not (tmp_path / "y.npy").exists()


def test_report_110_two_datasets_and_the_output_in_one_file(tmp_path: Path) -> None:
    """A job does not lock itself out; the operands stay in the file."""
    x, w = random(2, 5, 4, 3), random(3, 2, 2, 3, seed=1)
    path = tmp_path / "all.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["w"] = x, w
    run("transpose", f"{path}::/x", f"{path}::/w", "-o", f"{path}::/y", "--append").succeeded()
    with h5py.File(path) as file:
        assert sorted(file) == ["w", "x", "y"]
        assert np.array_equal(file["x"], x)
        assert_matches(file["y"][:], *reference.transpose(x, w), np.float32)


def test_report_110_a_read_only_file(tmp_path: Path) -> None:
    x = random(1, 3, 2, 1)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = x
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    assert np.array_equal(through(path, tmp_path), x)
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("code", "name"), [(32015, "zstd"), (32004, "lz4"), (32001, "blosc"), (31999, "31999")], ids=str
)
def test_report_111_a_filter_that_is_not_installed(tmp_path: Path, code: int, name: str) -> None:
    if code != 31999 and importlib.util.find_spec("hdf5plugin"):
        pytest.skip("hdf5plugin has this filter")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk((1, 2, 2, 1))
        creation.set_filter(code, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((1, 2, 2, 1))
        data = h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, dcpl=creation)
        data.write_direct_chunk((0, 0, 0, 0), b"compressed", filter_mask=0)
    refused(f"{path}::/x", tmp_path, 1, str(path), name, "hdf5plugin")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="contiguous"),
        pytest.param({"chunks": (3, 2, 4, 1)}, id="chunked"),
        pytest.param({"chunks": (1, 5, 4, 3), "compression": "gzip"}, id="gzip"),
        pytest.param({"chunks": (7, 1, 1, 3), "compression": "lzf", "shuffle": True}, id="lzf"),
    ],
)
@pytest.mark.parametrize("verb", ["transpose", "filter-grad"])
def test_report_112_in_pieces_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], verb: str
) -> None:
    """A file is read in pieces of the batch; layout and size of the pieces do not change the result."""
    x = random(8, 5, 4, 3)
    other = random(3, 2, 2, 3, seed=1) if verb == "transpose" else random(8, 5, 4, 6, seed=1)
    flags = () if verb == "transpose" else ("--filter-sizes", "3,3")
    plain = [save(tmp_path / "x.npy", x), save(tmp_path / "other.npy", other)]
    with cuts.every_plan_cut(cuts.FEW):
        call(verb, *plain, *flags, "-o", tmp_path / "whole.npy").succeeded()
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("x", data=x, **options)
        file["other"] = other
    monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", 1)
    stored = [f"{tmp_path}/in.h5::/x", f"{tmp_path}/in.h5::/other"]
    with cuts.every_plan_cut(cuts.FEW):
        call(verb, *stored, *flags, "-o", tmp_path / "pieces.npy").succeeded()
    assert (tmp_path / "pieces.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.parametrize("length", [0, 4, 96, 600, -1])
def test_report_113_114_truncated_hdf5(tmp_path: Path, length: int) -> None:
    """The message starts with the file; where HDF5 tells both sizes, so does it."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = random(1, 30, 30, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    done = refused(f"{path}::/x", tmp_path, 1)
    assert done.error.startswith(str(path))
    if length in (96, 600, -1):
        size = len(whole) - 1 if length == -1 else length
        numbers = done.error.replace(",", "")
        assert str(len(whole)) in numbers
        assert str(size) in numbers


def broken(folder: Path) -> dict[str, tuple[str, Callable[[], object]]]:
    """Files that cannot be read: address, and how to make each."""

    def corrupt_chunk() -> None:
        with h5py.File(folder / "chunk.h5", "w") as file:
            data = file.create_dataset("x", (2, 2, 2, 1), "f4", chunks=(1, 2, 2, 1), compression="gzip")
            data[:] = 1
            data.id.write_direct_chunk((1, 0, 0, 0), b"not gzip at all")

    def one_dataset() -> None:
        with h5py.File(folder / "named.h5", "w") as file:
            file["x"] = np.ones((1, 2, 2, 1), np.float32)

    def strings() -> None:
        with h5py.File(folder / "strings.h5", "w") as file:
            file["x"] = ["a", "b"]

    return {
        "missing file": (f"{folder}/nowhere.npy", lambda: None),
        "missing hdf5": (f"{folder}/nowhere.h5::/x", lambda: None),
        "missing dataset": (f"{folder}/named.h5::/y", one_dataset),
        "corrupt chunk": (f"{folder}/chunk.h5::/x", corrupt_chunk),
        "text": (f"{folder}/text.npy", lambda: (folder / "text.npy").write_text("1 2 3")),
        "folder": (f"{folder}/here", lambda: (folder / "here").mkdir()),
        "strings": (f"{folder}/strings.h5::/x", strings),
    }


@pytest.mark.parametrize("kind", broken(Path()))
@pytest.mark.parametrize("operand", [0, 1], ids=["input", "filters"])
def test_report_114_every_error_of_a_file_starts_with_its_name(
    tmp_path: Path, kind: str, operand: int
) -> None:
    address, make = broken(tmp_path)[kind]
    make()
    operands = [save(tmp_path / "good.npy", np.ones((1, 1, 1, 1), np.float32))]
    operands.insert(operand, address)
    target = tmp_path / "y.npy"
    done = call("transpose", *operands, "-o", target)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.error.removeprefix(("input: ", "filters: ")[operand]).startswith(address.split("::")[0])
    assert not target.exists()


@pytest.mark.parametrize(("kind", "words"), [("scalar", ("4", "0")), ("null", ("null",))])
def test_report_115_scalar_and_null_datasets(tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.float32(3) if kind == "scalar" else h5py.Empty("f4")
    done = call("transpose", f"{path}::/x", identity(tmp_path), "-o", tmp_path / "y.npy")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert all(word in done.error for word in words)
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_report_115_zero_length_axis(tmp_path: Path, suffix: str) -> None:
    x = np.ones((0, 3, 2, 1), np.float32)
    if suffix == "npy":
        address = save(tmp_path / "x.npy", x)
    else:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = x
        address = f"{tmp_path}/x.h5::/x"
    assert through(address, tmp_path).shape == (0, 3, 2, 1)
