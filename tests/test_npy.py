from __future__ import annotations

import contextlib
import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from convgrad_cli.errors import AddressError, OutputExistsError, StorageError
from convgrad_cli.storage import Hdf5Options, open_source, open_target

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ALL_BITS = np.arange(65536, dtype=np.uint16)


def read(text: object, **options: bool) -> np.ndarray:
    """Two blocks put together, so that offsets count."""
    with open_source(str(text), **options) as source:
        half = source.shape[0] // 2
        return np.concatenate([source[0:half], source[half : source.shape[0]]])


def refusal(text: object, error: type[Exception] = StorageError, **options: bool) -> Exception:
    """The error of opening or reading; it begins with the name as given and keeps to one line."""
    with pytest.raises(error) as caught:
        read(text, **options)
    assert caught.value.message.startswith(str(text))
    assert "\n" not in caught.value.message
    return caught.value


def npy(
    header: str, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None
) -> bytes:
    """A .npy file written by hand from the format's description."""
    text = (header + "\n").encode("utf8")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + text + data


def array(shape: tuple[int, ...] = (4, 3, 2, 5), dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)


# Reading: what NumPy wrote comes back.

DTYPES = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "i1", ">i2", "<i8", "u1", ">u2", "?", "<c8", ">c16"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_what_numpy_wrote_in_native_byte_order(tmp_path, dtype: str, order: str) -> None:
    saved = np.asarray(array(dtype=dtype), order=order)
    np.save(tmp_path / "x.npy", saved)
    got = read(tmp_path / "x.npy")
    assert got.dtype == np.dtype(dtype).newbyteorder("=")
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, saved)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(tmp_path, version: tuple[int, int]) -> None:
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, array(), version=version)
    np.testing.assert_array_equal(read(tmp_path / "x.npy"), array())


def test_header_of_python_2(tmp_path) -> None:
    (tmp_path / "x.npy").write_bytes(
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 1L), }", struct.pack("<2f", 1, 2))
    )
    assert read(tmp_path / "x.npy").tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("shape", [(0,), (0, 3, 2, 2), (3, 0, 2, 2), (2, 2, 2, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_zero_length(tmp_path, shape: tuple[int, ...], order: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros(shape, "f4", order=order))
    assert read(tmp_path / "x.npy").shape == shape


def test_attributes_of_a_source(tmp_path) -> None:
    np.save(tmp_path / "x.npy", array(dtype=">f8"))
    with open_source(str(tmp_path / "x.npy")) as source:
        assert source.address == str(tmp_path / "x.npy")
        assert source.shape == (4, 3, 2, 5)
        assert source.dtype == np.dtype("=f8")
        assert (source.chunks, source.matlab, source.notes) == (None, False, ())


def test_scalar_shape_is_passed_on(tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.float32(3))
    with open_source(str(tmp_path / "x.npy")) as source:
        assert source.shape == ()


def test_stepped_slices_are_refused(tmp_path) -> None:
    np.save(tmp_path / "x.npy", array())
    with open_source(str(tmp_path / "x.npy")) as source, pytest.raises(ValueError, match="step"):
        source[0:4:2]


def test_blocks_read_by_several_threads(tmp_path) -> None:
    saved = array((64, 1000))
    np.save(tmp_path / "x.npy", saved)
    with open_source(str(tmp_path / "x.npy")) as source:
        wrong: list[int] = []

        def check(offset: int) -> None:
            wrong.extend(
                i for i in range(offset, 64, 4) if not np.array_equal(source[i : i + 1], saved[i : i + 1])
            )

        threads = [threading.Thread(target=check, args=(offset,)) for offset in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", ["a b.npy", "a+b", "x#1", "a&b", "%20", "a[0].npy", "a::b.npy", "x.h5", "ü"])
def test_names_are_literal_and_suffixes_mean_nothing(tmp_path, name: str) -> None:
    with open(tmp_path / name, "wb") as file:
        np.save(file, array())
    np.testing.assert_array_equal(read(tmp_path / name), array())


# Reading bfloat16.


def test_all_bfloat16_patterns_from_bytes_written_by_hand(tmp_path) -> None:
    header = "{'descr': '<V2', 'fortran_order': False, 'shape': (65536,), }"
    (tmp_path / "x.npy").write_bytes(npy(header, b"".join(struct.pack("<H", i) for i in range(65536))))
    got = read(tmp_path / "x.npy", as_bfloat16=True)
    assert got.dtype == BFLOAT16
    np.testing.assert_array_equal(got.view(np.uint16), ALL_BITS)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<u2", ">u2", "V2"])
def test_two_byte_data_as_bfloat16(tmp_path, dtype: str, order: str) -> None:
    bits = ALL_BITS.reshape(256, 256)
    saved = bits.view("V2") if dtype == "V2" else bits.astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(saved, order=order))
    got = read(tmp_path / "x.npy", as_bfloat16=True)
    assert got.dtype == BFLOAT16
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint16), bits)


def test_values_of_bfloat16(tmp_path) -> None:
    """The bytes of field report 97."""
    header = "{'descr': '<V2', 'fortran_order': False, 'shape': (4,), }"
    (tmp_path / "x.npy").write_bytes(npy(header, bytes.fromhex("0000803F00404040")))
    assert read(tmp_path / "x.npy", as_bfloat16=True).astype(float).tolist() == [0, 1, 2, 3]


def test_void_stays_void_unless_asked(tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4, BFLOAT16))
    assert read(tmp_path / "x.npy").dtype == np.dtype("V2")
    np.save(tmp_path / "y.npy", np.zeros(4, "u2"))
    assert read(tmp_path / "y.npy").dtype == np.dtype("u2")


@pytest.mark.parametrize("dtype", ["f4", "f2", "i2", "V4", "u4"])
def test_as_bfloat16_leaves_other_data_as_it_is(tmp_path, dtype: str) -> None:
    """The other operand may be what it is for; where neither is, the job is refused."""
    np.save(tmp_path / "x.npy", np.zeros(4, dtype))
    assert read(tmp_path / "x.npy", as_bfloat16=True).dtype == np.dtype(dtype)


# Reading: files that lie.


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("missing", [1, 4, 480])
def test_truncated(tmp_path, missing: int, order: str) -> None:
    np.save(tmp_path / "x.npy", np.asarray(array(), order=order))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[: len(content) - missing])
    error = refusal(tmp_path / "x.npy")
    assert f"is truncated: header promises 480 bytes of data, found {480 - missing}" in str(error)


def test_trailing_bytes(tmp_path) -> None:
    np.save(tmp_path / "x.npy", array())
    with open(tmp_path / "x.npy", "ab") as file:
        file.write(bytes(7))
    error = refusal(tmp_path / "x.npy")
    assert "header promises 480 bytes of data, found 487" in str(error)
    assert "followed by 7 bytes that the header does not account for" in str(error)


def test_a_file_that_shrinks_while_it_is_read(tmp_path) -> None:
    np.save(tmp_path / "x.npy", array())
    with open_source(str(tmp_path / "x.npy")) as source:
        os.truncate(tmp_path / "x.npy", 128 + 100)
        with pytest.raises(StorageError, match="promises 480 bytes of data, found 100"):
            source[0:4]


def test_zero_byte_file(tmp_path) -> None:
    (tmp_path / "x.npy").touch()
    assert "is empty (0 bytes)" in str(refusal(tmp_path / "x.npy"))


@pytest.mark.parametrize("length", [1, 5, 6, 7, 9, 10, 60, 127])
def test_cut_inside_the_header(tmp_path, length: int) -> None:
    np.save(tmp_path / "x.npy", array())
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:length])
    assert "is truncated inside its .npy header" in str(refusal(tmp_path / "x.npy"))


@pytest.mark.parametrize(
    "shape",
    [
        "(8, 3, 224, 224)",
        "(1000000000000, 3, 224, 224)",
        "(9223372036854775807,)",
        "(4611686018427387904, 4611686018427387904)",
        "(0, 4611686018427387904, 4611686018427387904)",
        f"({'9' * 1000},)",
        f"({'9' * 5000},)",
    ],
    ids=lambda shape: shape[:40],
)
def test_absurd_shapes_are_refused_before_allocating(tmp_path, shape: str) -> None:
    (tmp_path / "x.npy").write_bytes(npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))
    refusal(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "[]",
        "None",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [2]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}",
        "{'descr': '<q4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': 7, 'fortran_order': False, 'shape': (2,)}",
        "{'descr': 'bfloat16', 'fortran_order': False, 'shape': (4,)}",
        "{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,)}",
        "{[]: 1}",
        "(" * 3000,
        "\x00",
    ],
    ids=lambda header: header[:60],
)
def test_malformed_headers(tmp_path, header: str) -> None:
    (tmp_path / "x.npy").write_bytes(npy(header, bytes(8)))
    refusal(tmp_path / "x.npy")


def test_unknown_version(tmp_path) -> None:
    (tmp_path / "x.npy").write_bytes(npy("{}", version=(4, 0)))
    assert "version 4.0" in str(refusal(tmp_path / "x.npy"))


def test_a_header_of_gigabytes_is_not_read(tmp_path) -> None:
    (tmp_path / "x.npy").write_bytes(npy("{}", version=(2, 0), length=2**32 - 1))
    assert "header of 4294967295 bytes" in str(refusal(tmp_path / "x.npy"))


class Trap:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("dtype", [object, [("a", "f4"), ("b", "O")]])
def test_object_arrays_are_never_unpickled(tmp_path, dtype: object) -> None:
    item = Trap(tmp_path / "trapped")
    values = np.empty(2, dtype)
    values[0] = item if dtype is object else (1, item)
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    error = refusal(tmp_path / "x.npy")
    assert "object array" in str(error)
    assert "re-save as a numeric dtype" in str(error)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("dtype", [[("a", "f4"), ("b", "i4")], "U5", "S5", "M8[s]"])
def test_data_that_is_not_numeric(tmp_path, dtype: object) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2, dtype))
    assert "not numeric" in str(refusal(tmp_path / "x.npy"))


# Reading: files that are something else.


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", b"")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (zipped(), "npz archive"),
        (pickle.dumps([1, 2]), "pickle"),
        (gzip.compress(b"x"), "gzip"),
        (b"1.0,2.0,3.0\n", "text, '1.0,2.0,3.0"),
        (np.arange(8, dtype="f4").tobytes(), "its first bytes are 00 00 00 00 00 00 80 3f"),
        (b"\x89HDF\n\x1a\n" + bytes(20), "an HDF5 file damaged in its first bytes"),
        (b"MATLAB 5.0 MAT-file" + bytes(200), "MATLAB v5"),
        (b"CDF\x01" + bytes(20), "classic netCDF"),
    ],
    ids=["npz", "pickle", "gzip", "text", "raw", "damaged", "mat5", "netcdf"],
)
def test_other_files_are_recognised(tmp_path, content: bytes, named: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    error = refusal(tmp_path / "x.npy")
    assert "is neither .npy nor HDF5" in str(error)
    assert named in str(error)
    assert error.hint


def test_missing_file_directory_and_dataset_of_a_npy_file(tmp_path) -> None:
    assert "no such file or directory" in str(refusal(tmp_path / "no.npy"))
    assert "no such file or directory" in str(refusal(f"{tmp_path}/no.h5::/a"))
    assert "is a directory" in str(refusal(tmp_path))
    np.save(tmp_path / "x.npy", array())
    assert "is a .npy file, which has no datasets" in str(refusal(f"{tmp_path}/x.npy::/a", AddressError))


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
def test_permission_denied(tmp_path) -> None:
    np.save(tmp_path / "x.npy", array())
    (tmp_path / "x.npy").chmod(0)
    assert "permission denied" in str(refusal(tmp_path / "x.npy"))


# Reading pipes.


class Standard:
    """Stands for sys.stdin or sys.stdout: a pipe's end."""

    def __init__(self, buffer: object) -> None:
        self.buffer = buffer


@pytest.fixture
def feed(tmp_path):
    """A named pipe and a thread that writes into it."""
    threads = []

    def start(content: bytes) -> Path:
        os.mkfifo(tmp_path / "pipe")

        def write() -> None:
            with contextlib.suppress(BrokenPipeError):  # the reader may have seen enough
                (tmp_path / "pipe").write_bytes(content)

        threads.append(threading.Thread(target=write))
        threads[0].start()
        return tmp_path / "pipe"

    yield start
    for thread in threads:
        thread.join()


def saved(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


@pytest.mark.parametrize("order", ["C", "F"])
def test_named_pipe(feed, order: str) -> None:
    values = np.asarray(array((300, 300, 2)), order=order)  # more than a pipe's buffer
    np.testing.assert_array_equal(read(feed(saved(values))), values)


def test_blocks_of_a_pipe_in_any_order_and_again(feed) -> None:
    with open_source(str(feed(saved(array())))) as source:
        for start in (2, 0, 3, 0):
            np.testing.assert_array_equal(source[start : start + 1], array()[start : start + 1])
        with pytest.raises(ValueError, match="read-only"):
            source[0:1][:] = 0


def test_pipe_that_ends_early(feed) -> None:
    error = refusal(feed(saved(array())[:-7]))
    assert "is truncated: header promises 480 bytes of data, found 473" in str(error)


def test_pipe_that_goes_on(feed) -> None:
    assert "header promises 480 bytes of data, found 483" in str(refusal(feed(saved(array()) + b"abc")))


def test_pipe_with_an_absurd_header(feed) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"
    assert "promises 4000000000000000 bytes of data, found 3" in str(refusal(feed(npy(header, b"abc"))))


def test_empty_pipe_and_pipe_cut_in_the_header(feed) -> None:
    assert "is empty" in str(refusal(feed(b"")))


def test_pipe_cut_in_the_header(feed) -> None:
    assert "is truncated inside its .npy header" in str(refusal(feed(saved(array())[:50])))


def test_hdf5_through_a_pipe(feed) -> None:
    assert "HDF5 cannot be read through a pipe" in str(refusal(feed(b"\x89HDF\r\n\x1a\n" + bytes(100))))


def test_standard_input(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(io.BytesIO(saved(array(dtype=">f4")))))
    np.testing.assert_array_equal(read("-"), array())
    monkeypatch.setattr(sys, "stdin", Standard(io.BytesIO(saved(array())[:-1])))
    assert "is truncated" in str(refusal("-"))
    refusal("-::/a", AddressError)


def test_device(monkeypatch) -> None:
    assert "is empty" in str(refusal("/dev/null"))
    assert "first bytes are 00 00" in str(refusal("/dev/zero"))


# Writing.


def write(text: object, values: np.ndarray, rows: int = 2, **options: object) -> None:
    with open_target(str(text), **options).open(values.shape, values.dtype, {"operation": "test"}) as sink:
        for start in range(0, values.shape[0], rows):
            sink[start : start + rows] = values[start : start + rows]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "c8"])
def test_writes_the_bytes_numpy_would(tmp_path, dtype: str) -> None:
    write(tmp_path / "x", array(dtype=dtype))
    assert (tmp_path / "x").read_bytes() == saved(array(dtype=dtype))
    assert (tmp_path / "x").read_bytes()[6:8] == b"\x01\x00"


def test_writes_strided_blocks_in_c_order(tmp_path) -> None:
    values = array((4, 3, 2, 5)).transpose(0, 2, 3, 1)
    write(tmp_path / "x.npy", values)
    got = np.load(tmp_path / "x.npy")
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (3, 0, 2, 2), (2, 2, 2, 0)])
def test_writes_zero_length(tmp_path, shape: tuple[int, ...]) -> None:
    with open_target(str(tmp_path / "x.npy")).open(shape, np.dtype("f4"), {}):
        pass
    assert np.load(tmp_path / "x.npy").shape == shape


def test_writes_all_bfloat16_patterns(tmp_path) -> None:
    write(tmp_path / "x.npy", ALL_BITS.reshape(256, 256).view(BFLOAT16), rows=100)
    assert (tmp_path / "x.npy").read_bytes() == saved(ALL_BITS.reshape(256, 256).view(BFLOAT16))
    assert b"'<V2'" in (tmp_path / "x.npy").read_bytes()[:128]
    got = np.load(tmp_path / "x.npy")
    np.testing.assert_array_equal(got.view(np.uint16), ALL_BITS.reshape(256, 256))


def test_exactly_the_given_name(tmp_path) -> None:
    write(tmp_path / "grad.tmp", array())
    assert [path.name for path in tmp_path.iterdir()] == ["grad.tmp"]


def test_existing_file_is_refused_and_replaced_on_request(tmp_path) -> None:
    (tmp_path / "x.npy").write_bytes(b"precious")
    with pytest.raises(OutputExistsError) as caught:
        open_target(str(tmp_path / "x.npy"))
    assert caught.value.message == f"{tmp_path}/x.npy: exists already"
    assert "--overwrite" in caught.value.hint
    assert (tmp_path / "x.npy").read_bytes() == b"precious"
    write(tmp_path / "x.npy", array(), overwrite=True)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), array())


@pytest.mark.parametrize("name", ["x.h5", "x.hdf5", "x.he5", "x.H5"])
def test_hdf5_suffix_without_a_dataset_is_refused(tmp_path, name: str) -> None:
    with pytest.raises(AddressError) as caught:
        open_target(str(tmp_path / name), overwrite=True)
    assert f"{name}::/name" in caught.value.hint


def test_append_and_hdf5_options_are_refused(tmp_path) -> None:
    with pytest.raises(AddressError, match="--append adds to HDF5 files"):
        open_target(str(tmp_path / "x.npy"), append=True)
    for options, flag in [
        (Hdf5Options(chunks=(1,)), "--chunks"),
        (Hdf5Options(chunks=True), "--chunks"),
        (Hdf5Options(compression="gzip"), "--compression"),
        (Hdf5Options(compression_level=0), "--compression-level"),
        (Hdf5Options(shuffle=True), "--shuffle"),
    ]:
        with pytest.raises(AddressError, match=f": {flag} is for HDF5"):
            open_target(str(tmp_path / "x.npy"), hdf5=options)
    open_target(str(tmp_path / "x.npy"), hdf5=Hdf5Options())


def test_places_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "file").touch()
    for text, what in [
        (f"{tmp_path}/no/x.npy", f"the folder {tmp_path}/no does not exist"),
        (f"{tmp_path}/file/x.npy", "does not exist"),
        (f"{tmp_path}", "names a directory"),
        (f"{tmp_path}/new/", "names a directory"),
    ]:
        with pytest.raises(AddressError, match=what):
            open_target(text, overwrite=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is writable to root")
def test_unwritable_folder(tmp_path) -> None:
    (tmp_path / "folder").mkdir(mode=0o500)
    with pytest.raises(AddressError, match="is not writable"):
        open_target(str(tmp_path / "folder" / "x.npy"))


def test_an_hdf5_file_is_not_replaced_by_npy(tmp_path) -> None:
    (tmp_path / "x.mat").write_bytes(bytes(512) + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(AddressError, match="is an HDF5 file"):
        open_target(str(tmp_path / "x.mat"), overwrite=True)


def test_standard_output(monkeypatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Standard(buffer))
    write("-", array())
    assert buffer.getvalue() == saved(array())
    with pytest.raises(AddressError, match="standard output"):
        open_target("-::/x")


def test_closed_pipe_is_a_broken_pipe(monkeypatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as end:
        monkeypatch.setattr(sys, "stdout", Standard(end))
        with pytest.raises(BrokenPipeError):
            write("-", array())


def test_devices_and_pipes_are_written_directly(tmp_path) -> None:
    before = Path("/dev/null").stat()
    write("/dev/null", array())
    assert os.path.samestat(before, Path("/dev/null").stat())
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe", array())
    reader.join()
    assert got == [saved(array())]
    assert (tmp_path / "pipe").is_fifo()


def test_full_device() -> None:
    with pytest.raises(StorageError, match=r"^/dev/full: cannot be written: no space left on device"):
        write("/dev/full", array())


def test_a_npy_job_imports_neither_h5py_nor_ml_dtypes(tmp_path) -> None:
    np.save(tmp_path / "x.npy", array())
    code = f"""
import sys
from convgrad_cli.storage import open_source, open_target
with open_source({str(tmp_path / "x.npy")!r}) as source:
    block = source[0:4]
with open_target({str(tmp_path / "y.npy")!r}).open(block.shape, block.dtype, {{}}) as sink:
    sink[0:4] = block
sys.exit(bool({{"h5py", "ml_dtypes"}} & sys.modules.keys()))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array())
