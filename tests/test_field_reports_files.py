"""Field reports, by number: .npy files, bfloat16 and pipes that other tools misread or cannot read."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import reference
from arrays_on_disk import is_bfloat16, load, save
from assertions import BFLOAT16, assert_matches
from commandline import call, run
from round_trips import identity, npy_bytes, random, refused, through

#: bfloat16 0, 1, 2, 3 as in report 97.
BITS = np.array([0x0000, 0x3F80, 0x4000, 0x4040], np.uint16).reshape(1, 2, 2, 1)

# bfloat16


def test_report_097_two_byte_void_is_bfloat16_when_the_user_says_so(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", BITS.view("V2"))
    result = through(path, tmp_path, "--as", "bfloat16", dtype="bfloat16")
    assert result.dtype == BFLOAT16
    assert result.ravel().tolist() == [0, 1, 2, 3]


def test_report_097_two_byte_void_alone_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", BITS.view("V2"))
    done = refused(path, tmp_path, 2, "void", "bfloat16")
    assert "--as bfloat16" in done.stderr


def test_report_099_opaque_in_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = BITS.view("V2")
    refused(f"{path}::/x", tmp_path, 2, "void", "bfloat16")
    result = through(f"{path}::/x", tmp_path, "--as", "bfloat16", dtype="bfloat16")
    assert result.ravel().tolist() == [0, 1, 2, 3]


def write_true_bfloat16(path: Path, big_endian: bool = False, **arrays: np.ndarray) -> None:
    """Datasets of a 16-bit float type with an 8-bit exponent, raw bits."""
    stored = (h5py.h5t.IEEE_F32BE if big_endian else h5py.h5t.IEEE_F32LE).copy()
    stored.set_fields(15, 7, 8, 0, 7)
    stored.set_size(2)
    stored.set_ebias(127)
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            bits = array.view(np.uint16)
            space = h5py.h5s.create_simple(bits.shape)
            data = h5py.h5d.create(file.id, name.encode(), stored, space)
            raw = bits.byteswap() if big_endian else bits
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=stored)


@pytest.mark.parametrize("big_endian", [False, True], ids=["little-endian", "big-endian"])
def test_report_100_true_bfloat16_in_hdf5(tmp_path: Path, big_endian: bool) -> None:
    """Exponent and mantissa fields say what it is; h5py alone reports float32."""
    values = np.array([1.1640625, -0.5, 3e38, 0.0]).astype(BFLOAT16).reshape(1, 2, 2, 1)
    one = np.ones((1, 1, 1, 1), BFLOAT16)
    write_true_bfloat16(tmp_path / "x.h5", big_endian, x=values, one=one)
    target = tmp_path / "y.npy"
    call("transpose", f"{tmp_path}/x.h5::/x", f"{tmp_path}/x.h5::/one", "-o", target).succeeded()
    assert load(target).tobytes() == values.tobytes()


def test_report_100_half_is_half(tmp_path: Path) -> None:
    values = random(1, 2, 2, 1, dtype="float16")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = values
    result = through(f"{tmp_path}/x.h5::/x", tmp_path, dtype="float16")
    assert result.dtype == np.float16
    assert result.tobytes() == values.tobytes()


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_report_100_uint16_bits_on_request(tmp_path: Path, suffix: str) -> None:
    if suffix == "npy":
        address = save(tmp_path / "x.npy", BITS)
    else:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = BITS
        address = f"{tmp_path}/x.h5::/x"
    refused(address, tmp_path, 2, "uint16")
    result = through(address, tmp_path, "--as", "bfloat16", dtype="bfloat16")
    assert result.ravel().tolist() == [0, 1, 2, 3]


def test_report_101_every_bfloat16_in_and_out_of_both_formats(tmp_path: Path) -> None:
    bits = np.arange(65536, dtype=np.uint16).reshape(1, 256, 256, 1)
    finite = (bits & 0x7F80) != 0x7F80
    bits = np.where(finite, bits, 0x3F80).astype(np.uint16)
    bits[bits == 0x8000] = 0  # a sum has no negative zero
    path = save(tmp_path / "x.npy", bits.view(BFLOAT16))
    one = save(tmp_path / "one.npy", np.ones((1, 1, 1, 1), BFLOAT16))
    through_h5 = f"{tmp_path}/y.h5::/y"
    call("transpose", path, one, "--as", "bfloat16", "-o", through_h5).succeeded()
    with h5py.File(tmp_path / "y.h5") as file:
        assert is_bfloat16(file["y"])
    call("transpose", through_h5, one, "--as", "bfloat16", "-o", tmp_path / "z.npy").succeeded()
    written = (tmp_path / "z.npy").read_bytes()
    assert b"'descr': '<V2'" in written
    assert written[-bits.nbytes :] == bits.tobytes()


# .npy


@pytest.mark.parametrize("keep", ["nothing", "magic", "half the header", "header", "all but a byte", "most"])
def test_report_102_truncated_npy(tmp_path: Path, keep: str) -> None:
    whole = npy_bytes(random(1, 8, 8, 3))
    start = len(whole) - 8 * 8 * 3 * 4
    length = {
        "nothing": 0,
        "magic": 6,
        "half the header": start // 2,
        "header": start,
        "all but a byte": len(whole) - 1,
        "most": start + 500,
    }[keep]
    path = tmp_path / "x.npy"
    path.write_bytes(whole[:length])
    done = refused(path, tmp_path, 1, str(path))
    if length >= start:
        assert "truncated" in done.error
        assert "768" in done.error.replace(",", "")
        assert str(length - start) in done.error.replace(",", "")


def test_report_102_an_absurd_header_does_not_allocate(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    whole = npy_bytes(random(1, 8, 8, 3))
    path.write_bytes(whole.replace(b"(1, 8, 8, 3)", b"(9999999, 99999, 9999, 3)").replace(b" " * 13, b"", 1))
    refused(path, tmp_path, 1, str(path))


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_report_103_object_arrays_are_never_unpickled(tmp_path: Path) -> None:
    array = np.empty((1, 1, 1, 1), object)
    array[0, 0, 0, 0] = Bomb(tmp_path / "exploded")
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=True)
    refused(path, tmp_path, 1, str(path), "object")
    path.write_bytes(pickle.dumps(array))
    refused(path, tmp_path, 1, str(path))
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_report_104_fortran_order(tmp_path: Path, order: str, version: tuple[int, int]) -> None:
    x, w = random(2, 5, 4, 3), random(3, 2, 2, 3, seed=1)
    paths = []
    for name, array in (("x.npy", x), ("w.npy", w)):
        path = tmp_path / name
        with path.open("wb") as file:
            np.lib.format.write_array(file, np.asarray(array, order=order), version)
        paths.append(path)
    target = tmp_path / "y.npy"
    call("transpose", *paths, "-s", 2, "-o", target).succeeded()
    assert_matches(np.load(target), *reference.transpose(x, w, strides=2), np.float32)
    assert b"'fortran_order': False" in target.read_bytes()


@pytest.mark.parametrize("suffix", ["npy", "h5"])
@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
def test_report_105_big_endian(tmp_path: Path, dtype: str, suffix: str) -> None:
    x = random(2, 3, 4, 3).astype(dtype)
    w = random(3, 2, 2, 3, seed=1).astype(dtype)
    if suffix == "npy":
        operands = [save(tmp_path / "x.npy", x), save(tmp_path / "w.npy", w)]
    else:
        with h5py.File(tmp_path / "in.h5", "w") as file:
            file["x"], file["w"] = x, w
        operands = [f"{tmp_path}/in.h5::/x", f"{tmp_path}/in.h5::/w"]
    target = tmp_path / "y.npy"
    call("transpose", *operands, "-o", target).succeeded()
    native = np.dtype(dtype).newbyteorder("=")
    assert_matches(np.load(target), *reference.transpose(x.astype(native), w.astype(native)), native)
    assert f"'descr': '<{dtype[1:]}'".encode() in target.read_bytes()


@pytest.mark.parametrize("name", ["x.npy", "x.dat"])
def test_report_120_raw_data_is_not_a_npy(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(random(1, 8, 8, 3).tobytes())
    refused(path, tmp_path, 1, str(path))


def test_report_120_the_kind_comes_from_the_content(tmp_path: Path) -> None:
    """A .npy named .h5 and the reverse are read as what they are."""
    x = random(1, 3, 2, 1)
    assert np.array_equal(through(save(tmp_path / "x.h5", x), tmp_path), x)
    with h5py.File(tmp_path / "y.npy", "w") as file:
        file["only"] = x
    assert np.array_equal(through(f"{tmp_path}/y.npy::/only", tmp_path), x)
    assert np.array_equal(through(tmp_path / "y.npy", tmp_path), x)
    done = call("transpose", f"{tmp_path}/x.h5::/x", identity(tmp_path), "-o", tmp_path / "z.npy")
    assert done.returncode in (1, 2)
    assert str(tmp_path / "x.h5") in done.error


def test_report_122_npz_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=random(1, 3, 2, 1))
    refused(path, tmp_path, 1, str(path), "npz")


# Pipes and many files


def test_report_119_standard_input_and_output(tmp_path: Path) -> None:
    x, w = random(2, 3, 4, 2), random(3, 3, 2, 2, seed=1)
    other = save(tmp_path / "w.npy", w)
    done = run("transpose", "-", other, "-o", "-", stdin=npy_bytes(x)).succeeded()
    result = np.load(io.BytesIO(done.output))
    assert_matches(result, *reference.transpose(x, w), np.float32)
    done = run("transpose", save(tmp_path / "x.npy", x), "-", "-o", "-", stdin=npy_bytes(w)).succeeded()
    assert np.array_equal(np.load(io.BytesIO(done.output)), result)
    done = run("transpose", "-", other, "-o", "-", stdin=npy_bytes(x)[:-1])
    done.refused(1)
    assert len(done.output) < len(npy_bytes(result))  # nobody can take it for a result


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_report_119_named_pipe(tmp_path: Path) -> None:
    """Read whole, or refused: never a traceback from seeking."""
    x = random(2, 3, 4, 2)
    source, pipe = save(tmp_path / "x.npy", x), tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'cat "$1" > "$2"', "sh", source, str(pipe)]) as writer:
        one = save(tmp_path / "one.npy", np.eye(2, dtype=np.float32).reshape(1, 1, 2, 2))
        done = run("transpose", pipe, one, "-o", tmp_path / "y.npy")
        writer.kill()
    if done.returncode == 0:
        assert np.array_equal(np.load(tmp_path / "y.npy"), x)
    else:
        done.refused(done.returncode, str(pipe))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_report_123_no_file_is_left_open(tmp_path: Path) -> None:
    x = random(1, 3, 2, 1)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
    addresses = [save(tmp_path / "x.npy", x), f"{tmp_path}/x.h5::/x"]

    def files_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    for address in addresses:
        through(address, tmp_path)
    before = files_open()
    for _ in range(20):
        for address in addresses:
            through(address, tmp_path)
            call("transpose", address, address, "--output-shape", "7,7", "-o", tmp_path / "no.npy")
    assert files_open() <= before
