from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

from convgrad_cli.errors import AddressError, StorageError
from convgrad_cli.storage import open_source

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ALL_BITS = np.arange(65536, dtype=np.uint16)
Fill = Callable[[h5py.File], object]


def array(shape: tuple[int, ...] = (4, 3, 2, 5), dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)


def read(text: object, **options: bool) -> np.ndarray:
    """Two blocks put together, so that offsets count."""
    with open_source(str(text), **options) as source:
        half = source.shape[0] // 2
        return np.concatenate([source[0:half], source[half : source.shape[0]]])


def refusal(text: object, error: type[Exception] = StorageError, **options: bool) -> Exception:
    """The error of opening or reading; it begins with the address as given."""
    with pytest.raises(error) as caught:
        read(text, **options)
    assert caught.value.message.startswith(str(text))
    return caught.value


@pytest.fixture
def h5(tmp_path) -> Callable[..., str]:
    """Write a file with h5py: datasets by keyword, or through a function that gets the open file."""

    def make(fill: Fill | None = None, name: str = "x.h5", **datasets: object) -> str:
        with h5py.File(tmp_path / name, "w") as file:
            for path, data in datasets.items():
                file[path] = data
            if fill is not None:
                fill(file)
        return str(tmp_path / name)

    return make


# Layouts and dtypes: what h5py wrote comes back.


@pytest.mark.parametrize(
    "dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "i1", ">i4", "u1", ">u2", "?", "<c8"]
)
def test_dtypes_in_native_byte_order(h5, dtype: str) -> None:
    got = read(f"{h5(x=array(dtype=dtype))}::/x")
    assert got.dtype == np.dtype(dtype).newbyteorder("=")
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, array(dtype=dtype))


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"chunks": (2, 3, 1, 2)},
        {"compression": "gzip", "shuffle": True},
        {"compression": "lzf"},
        {"compression": "szip"},
        {"fletcher32": True},
        {"maxshape": (None, 3, 2, 5)},
    ],
    ids=str,
)
def test_layouts(h5, layout: dict[str, object]) -> None:
    file = h5(lambda f: f.create_dataset("x", data=array(), **layout))
    np.testing.assert_array_equal(read(f"{file}::/x"), array())


def test_attributes_of_a_source(h5) -> None:
    file = h5(lambda f: f.create_dataset("g/x", data=array(dtype=">f8"), chunks=(2, 3, 1, 5)))
    with open_source(f"{file}::g/x") as source:
        assert source.address == f"{file}::g/x"
        assert source.shape == (4, 3, 2, 5)
        assert source.dtype == np.dtype("=f8")
        assert (source.chunks, source.matlab, source.notes) == ((2, 3, 1, 5), False, ())
        with pytest.raises(ValueError, match="step"):
            source[0:4:2]


@pytest.mark.parametrize("shape", [(0,), (0, 3, 2, 2), (3, 0, 2, 2)])
def test_zero_length(h5, shape: tuple[int, ...]) -> None:
    assert read(f"{h5(x=np.zeros(shape, 'f4'))}::/x").shape == shape


def test_scalar_is_passed_on_and_null_is_an_error(h5) -> None:
    file = h5(scalar=np.float32(3), null=h5py.Empty("f4"))
    with open_source(f"{file}::/scalar") as source:
        assert source.shape == ()
    assert "dataset is empty (null dataspace)" in str(refusal(f"{file}::/null"))


def test_two_sources_of_one_file_at_once(h5) -> None:
    file = h5(a=array(), b=array() + 1)
    with open_source(f"{file}::/a") as a, open_source(f"{file}::/b") as b:
        np.testing.assert_array_equal(a[1:3] + 1, b[1:3])


@pytest.mark.parametrize("offset", [512, 1024, 2048])
def test_user_block(tmp_path, offset: int) -> None:
    with h5py.File(tmp_path / "x", "w", userblock_size=offset) as file:
        file["x"] = array()
    np.testing.assert_array_equal(read(tmp_path / "x"), array())


NAMES = ["a b", "a+b", "x#1", "a&b", "%20", "a[0]", "ünï", "a::b", "*"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_literal(h5, name: str) -> None:
    file = h5(name=f"{name.replace('::', '_')}.h5", **{f"{name}/x": array(), "other": array() + 1})
    np.testing.assert_array_equal(read(f"{file}::/{name}/x"), array())


# bfloat16


def bfloat16_file(path: Path, order: str, **layout: tuple[int, ...]) -> None:
    """The type built by hand: 16 bits, sign 15, exponent 7..14 with bias 127, mantissa 0..6."""
    stored = (h5t.IEEE_F16LE if order == "<" else h5t.IEEE_F16BE).copy()
    stored.set_fields(15, 7, 8, 0, 7)
    stored.set_ebias(127)
    creation = h5p.create(h5p.DATASET_CREATE)
    if layout:
        creation.set_chunk(layout["chunks"])
        creation.set_deflate(4)
    with h5py.File(path, "w") as file:
        dataset = h5d.create(file.id, b"x", stored, h5s.create_simple((256, 256)), creation)
        dataset.write(h5s.ALL, h5s.ALL, ALL_BITS.astype(f"{order}u2").reshape(256, 256), mtype=stored)


@pytest.mark.parametrize("as_bfloat16", [False, True])
@pytest.mark.parametrize("layout", [{}, {"chunks": (100, 30)}], ids=["contiguous", "compressed"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_all_patterns_of_the_true_type(
    tmp_path, order: str, layout: dict[str, object], as_bfloat16: bool
) -> None:
    bfloat16_file(tmp_path / "x.h5", order, **layout)
    got = read(tmp_path / "x.h5", as_bfloat16=as_bfloat16)
    assert got.dtype == BFLOAT16
    np.testing.assert_array_equal(got.view(np.uint16), ALL_BITS.reshape(256, 256))


@pytest.mark.parametrize(
    "stored",
    [ALL_BITS, ALL_BITS.astype(">u2"), ALL_BITS.view("V2"), ALL_BITS.view(BFLOAT16)],
    ids=["uint16", "big-endian", "opaque", "ml_dtypes"],
)
def test_all_patterns_of_two_byte_data_on_request(h5, stored: np.ndarray) -> None:
    got = read(h5(x=stored), as_bfloat16=True)
    assert got.dtype == BFLOAT16
    np.testing.assert_array_equal(got.view(np.uint16), ALL_BITS)


def test_opaque_and_uint16_stay_what_they_are(h5) -> None:
    file = h5(v=ALL_BITS.view("V2"), u=ALL_BITS)
    assert read(f"{file}::/v").dtype == np.dtype("V2")
    np.testing.assert_array_equal(read(f"{file}::/u"), ALL_BITS)


def test_as_bfloat16_leaves_other_data_as_it_is(h5) -> None:
    assert read(f"{h5(x=array())}::/x", as_bfloat16=True).dtype == np.float32


@pytest.mark.parametrize(("fields", "bias"), [((15, 7, 8, 0, 7), 15), ((15, 9, 6, 0, 9), 31)])
def test_other_16_bit_floats_are_refused(h5, fields: tuple[int, ...], bias: int) -> None:
    def fill(file: h5py.File) -> None:
        stored = h5t.IEEE_F16LE.copy()
        stored.set_fields(*fields)
        stored.set_ebias(bias)
        h5d.create(file.id, b"x", stored, h5s.create_simple((2,)))

    assert "neither float16 nor bfloat16" in str(refusal(f"{h5(fill)}::/x"))


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (h5py.string_dtype(), "string"),
        (np.dtype("S3"), "string"),
        (np.dtype([("a", "f4"), ("b", "i4")]), "compound"),
        (h5py.vlen_dtype("f4"), "variable-length"),
        (h5py.ref_dtype, "reference"),
        (h5py.enum_dtype({"RED": 1, "BLUE": 2}), "enum"),
        (np.dtype(("f4", (3,))), "array"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_is_not_numeric(h5, kind: np.dtype, named: str) -> None:
    file = h5(lambda f: f.create_dataset("x", (2,), kind))
    assert f"dtype {named} is not numeric" in str(refusal(f"{file}::/x"))


# Which dataset


def test_a_single_dataset_need_not_be_named(h5) -> None:
    file = h5(lambda f: f.create_dataset("a/b/only", data=array()))
    with open_source(file) as source:
        assert source.address == f"{file}::/a/b/only"
        np.testing.assert_array_equal(source[0:4], array())


def test_of_several_the_candidates_are_listed(h5) -> None:
    def fill(file: h5py.File) -> None:
        file["g/a b"] = array()
        file["text"] = ["x"]
        file["null"] = h5py.Empty("f4")
        file["half"] = np.zeros((2, 2), ">f2")
        file["soft"] = h5py.SoftLink("/half")
        file["dangling"] = h5py.SoftLink("/no")
        file["g/up"] = h5py.SoftLink("/")
        file["g/again"] = file["/g"]

    file = h5(fill)
    error = refusal(file, AddressError)
    first, *lines = str(error).split("\n")
    assert first == f"{file}: the file holds 4 datasets; name one:"
    assert lines == [
        f"  '{file}::/g/a b'  (4, 3, 2, 5) float32",
        f"  {file}::/half  (2, 2) float16",
        f"  {file}::/null  empty float32",
        f"  {file}::/text  (1,) string",
    ]
    for line in lines[:2]:  # pasteable into a shell
        assert read(shlex.split(line)[0]).size


def test_true_bfloat16_is_listed_as_such(tmp_path) -> None:
    bfloat16_file(tmp_path / "x.h5", "<")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["y"] = array()
    assert "::/x  (256, 256) bfloat16" in str(refusal(tmp_path / "x.h5", AddressError))


def test_a_listing_keeps_to_one_line_per_dataset(h5) -> None:
    file = h5(**{"a\nb": array(), "c": array()})
    assert str(refusal(file, AddressError)).split("\n")[1:] == [
        f"  '{file}::/a\\nb'  (4, 3, 2, 5) float32",
        f"  {file}::/c  (4, 3, 2, 5) float32",
    ]


def test_long_listings_end(h5) -> None:
    file = h5(**{f"d{i:02}": i for i in range(25)})
    lines = str(refusal(file, AddressError)).split("\n")
    assert len(lines) == 22
    assert lines[-1] == "  ... and 5 more"


def test_no_dataset_at_all(h5) -> None:
    assert "holds no dataset" in str(refusal(h5(lambda f: f.create_group("a/b")), AddressError))


def test_a_group_lists_what_it_holds(h5) -> None:
    file = h5(**{"g/a": array(), "g/h/b": array(), "c": array()})
    error = refusal(f"{file}::/g", AddressError)
    assert str(error).split("\n") == [
        f"{file}::/g: a group holds 2 datasets; name one:",
        f"  {file}::/g/a  (4, 3, 2, 5) float32",
        f"  {file}::/g/h/b  (4, 3, 2, 5) float32",
    ]


def test_a_missing_name_suggests_a_close_one(h5) -> None:
    file = h5(**{"layer/out_backprop": array(), "layer/input": array()})
    error = refusal(f"{file}::/layer/out_backprob", AddressError)
    assert "no 'out_backprob' in /layer" in str(error)
    assert error.hint == f"did you mean {file}::/layer/out_backprop"
    assert refusal(f"{file}::/zzz", AddressError).hint is None


def test_a_path_through_a_dataset_and_a_datatype(h5) -> None:
    file = h5(x=array(), t=np.dtype("f4"))
    assert "/x is a dataset, nothing can be below it" in str(refusal(f"{file}::/x/y", AddressError))
    assert "a named datatype" in str(refusal(f"{file}::/t", AddressError))


# Links


def test_soft_external_and_circular_links(h5) -> None:
    other = h5(name="other.h5", data=array())

    def fill(file: h5py.File) -> None:
        file["g/x"] = array() + 1
        file["soft"] = h5py.SoftLink("/g/x")
        file["external"] = h5py.ExternalLink("other.h5", "/data")
        file["whole"] = h5py.ExternalLink("other.h5", "/")
        file["g/loop"] = h5py.SoftLink("/g")

    file = h5(fill)
    np.testing.assert_array_equal(read(f"{file}::/soft"), array() + 1)
    np.testing.assert_array_equal(read(f"{file}::/external"), array())
    np.testing.assert_array_equal(read(f"{file}::/g/loop/loop/x"), array() + 1)
    assert read(file).shape == (4, 3, 2, 5)  # /g/x is the only one that is no link
    assert f"{file}::/whole/data  (4," in str(refusal(f"{file}::/whole", AddressError))
    Path(other).unlink()
    assert "external link to other.h5::/data" in str(refusal(f"{file}::/external"))


def test_broken_and_endless_soft_links(h5) -> None:
    def fill(file: h5py.File) -> None:
        file["dangling"] = h5py.SoftLink("/no/where")
        file["endless"] = h5py.SoftLink("/endless")

    file = h5(fill)
    assert "soft link to /no/where" in str(refusal(f"{file}::/dangling"))
    assert "links" in str(refusal(f"{file}::/endless"))


# Data kept elsewhere


def virtual(sources: list[tuple[str, str]]) -> Fill:
    def fill(file: h5py.File) -> None:
        layout = h5py.VirtualLayout((len(sources), 3), "f8")
        for i, (name, path) in enumerate(sources):
            layout[i] = h5py.VirtualSource(name, path, (3,))
        file.create_virtual_dataset("v", layout)

    return fill


def test_virtual_dataset(h5, tmp_path, monkeypatch) -> None:
    row = np.array([1.0, 2.0, 3.0])
    (tmp_path / "sub").mkdir()
    for name in ("a.h5", "sub/b.h5"):
        h5(name=name, x=row)
    file = h5(virtual([("a.h5", "x"), ("sub/b.h5", "/x")]), name="v.h5")
    np.testing.assert_array_equal(read(f"{file}::/v"), [row, row])
    monkeypatch.chdir(tmp_path / "sub")
    np.testing.assert_array_equal(read("../v.h5::/v"), [row, row])
    (tmp_path / "sub" / "link.h5").symlink_to("../v.h5")
    np.testing.assert_array_equal(read("link.h5"), [row, row])


@pytest.mark.parametrize(
    ("name", "path"), [("gone.h5", "x"), ("no/gone.h5", "x"), ("/no/gone.h5", "x"), ("b.h5", "gone")]
)
def test_missing_virtual_source_is_named(h5, name: str, path: str) -> None:
    h5(name="b.h5", x=np.ones(3))
    file = h5(virtual([("b.h5", "x"), (name, path)]), name="v.h5")
    with h5py.File(file) as plain:
        assert plain["v"][1].tolist() == [0, 0, 0]  # the trap
    error = refusal(f"{file}::/v")
    assert "virtual source" in str(error)
    assert f"{name}::{path}" in str(error)
    assert "is missing" in str(error)


def test_missing_source_of_a_virtual_source(h5, tmp_path) -> None:
    h5(name="a.h5", x=np.ones(3))

    def middle(file: h5py.File) -> None:
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource("a.h5", "x", (3,))
        file.create_virtual_dataset("x", layout)

    h5(middle, name="b.h5")
    file = h5(virtual([("b.h5", "x")]), name="v.h5")
    assert read(f"{file}::/v").tolist() == [[1, 1, 1]]
    (tmp_path / "a.h5").unlink()
    assert "a.h5::x is missing" in str(refusal(f"{file}::/v"))


def test_virtual_source_in_the_same_file(h5) -> None:
    def fill(file: h5py.File) -> None:
        file["x"] = np.ones(3)
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource(file["x"])
        file.create_virtual_dataset("v", layout)

    file = h5(fill)
    assert read(f"{file}::/v").tolist() == [1, 1, 1]
    with h5py.File(file, "r+") as changed:
        del changed["x"]
    assert "::/x is missing" in str(refusal(f"{file}::/v"))


def test_percent_signs_in_the_names_of_virtual_sources(h5, tmp_path) -> None:
    h5(name="50%.h5", **{"100%": np.ones(3)})
    file = h5(virtual([("50%%.h5", "100%%")]), name="v.h5")
    assert read(f"{file}::/v").tolist() == [[1, 1, 1]]
    (tmp_path / "50%.h5").unlink()
    assert "50%.h5::100% is missing" in str(refusal(f"{file}::/v"))


def test_virtual_sources_by_pattern(h5, tmp_path) -> None:
    for i in range(2):
        h5(name=f"part-{i}.h5", x=np.full(3, i + 1.0))

    def fill(file: h5py.File) -> None:
        space = h5s.create_simple((0, 3), (h5s.UNLIMITED, 3))
        space.select_hyperslab((0, 0), (h5s.UNLIMITED, 1), (1, 1), (1, 3))
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_virtual(space, b"part-%b.h5", b"x", h5s.create_simple((3,)))
        shape = h5s.create_simple((0, 3), (h5s.UNLIMITED, 3))
        h5d.create(file.id, b"v", h5t.NATIVE_DOUBLE, shape, creation)

    file = h5(fill, name="v.h5")
    assert read(f"{file}::/v").tolist() == [[1, 1, 1], [2, 2, 2]]
    (tmp_path / "part-0.h5").unlink()
    assert "part-0.h5::x is missing" in str(refusal(f"{file}::/v"))


def test_raw_data_file(h5, tmp_path) -> None:
    raw = tmp_path / "raw.bin"
    np.arange(4.0).tofile(raw)
    file = h5(lambda f: f.create_dataset("x", (3,), "f8", external=[(raw, 8, 24)]))
    assert read(f"{file}::/x").tolist() == [1, 2, 3]
    os.truncate(raw, 24)
    with h5py.File(file) as plain:
        assert plain["x"][2] == 0  # the trap
    assert "is truncated: 24 bytes needed, found 16" in str(refusal(f"{file}::/x"))
    raw.unlink()
    assert "raw.bin cannot be read: no such file or directory" in str(refusal(f"{file}::/x"))


# Filters


def with_filter(code: int) -> Fill:
    def fill(file: h5py.File) -> None:
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_chunk((4,))
        creation.set_filter(code, h5z.FLAG_OPTIONAL, (3,))
        dataset = h5d.create(file.id, b"x", h5t.IEEE_F32LE, h5s.create_simple((4,)), creation)
        dataset.write(h5s.ALL, h5s.ALL, np.ones(4, "f4"))

    return fill


@pytest.mark.parametrize(
    ("code", "name"),
    [(32001, "blosc"), (32004, "lz4"), (32008, "bitshuffle"), (32015, "zstd"), (307, "bzip2")],
)
@pytest.mark.skipif(importlib.util.find_spec("hdf5plugin") is not None, reason="hdf5plugin is installed")
def test_missing_filter_is_named(h5, code: int, name: str) -> None:
    error = refusal(f"{h5(with_filter(code))}::/x")
    assert f"compressed with filter {name} (id {code}), which is not installed" in str(error)
    assert error.hint == "pip install 'convgrad[hdf5plugin]'"


@pytest.mark.parametrize("name", ["Zstd", "Blosc2", "LZ4", "Bitshuffle"])
def test_filters_of_hdf5plugin(h5, name: str) -> None:
    compression = getattr(pytest.importorskip("hdf5plugin"), name)()
    file = h5(lambda f: f.create_dataset("x", data=array(), **compression))
    code = f"from convgrad_cli.storage import open_source; print(open_source({file!r})[0:4].tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == f"{array().tolist()}\n"


def test_a_filter_that_nobody_knows(h5) -> None:
    assert "filter unknown (id 65000)" in str(refusal(f"{h5(with_filter(65000))}::/x"))


# Damaged, locked, MATLAB


@pytest.mark.parametrize("block", [0, 512])
@pytest.mark.parametrize("kept", [96, 2000, 10000])
def test_truncated_file_names_both_sizes(tmp_path, kept: int, block: int) -> None:
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=block) as file:
        file["x"] = np.zeros(3000)
    size = (tmp_path / "x.h5").stat().st_size
    os.truncate(tmp_path / "x.h5", block + kept)
    error = refusal(f"{tmp_path}/x.h5::/x")
    assert f"is truncated: HDF5 header promises {size} bytes, found {block + kept}" in str(error)


@pytest.mark.parametrize("kept", [8, 20, 40])
def test_file_cut_in_its_first_bytes(h5, kept: int) -> None:
    file = h5(x=array())
    os.truncate(file, kept)
    assert "damaged HDF5 file" in str(refusal(file))


def test_damaged_superblock(h5) -> None:
    file = h5(x=array())
    with open(file, "r+b") as damaged:
        damaged.seek(20)
        damaged.write(b"\xff" * 70)
    assert "damaged HDF5 file: bad superblock status flags" in str(refusal(file))


def test_damaged_chunk(h5, tmp_path) -> None:
    values = np.random.default_rng(0).random(10_000)
    file = h5(lambda f: f.create_dataset("x", data=values, chunks=(10_000,), compression="gzip"))
    with h5py.File(file) as plain:
        chunk = plain["x"].id.get_chunk_info(0)
    with open(file, "r+b") as damaged:
        damaged.seek(chunk.byte_offset + 100)
        damaged.write(bytes(1000))
    assert "::/x: cannot be read: " in str(refusal(f"{file}::/x"))


WRITER = """
import sys, h5py
file = h5py.File(sys.argv[1], "w", **eval(sys.argv[2]))
file["x"] = [1.0, 2.0]
file.flush()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path):
    """A process that holds a file open for writing."""
    processes = []

    def start(**options: object) -> tuple[str, subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", WRITER, str(tmp_path / "x.h5"), repr(options)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert processes[0].stdout.readline() == b"ready\n"
        return str(tmp_path / "x.h5"), processes[0]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_file_open_for_writing_elsewhere(writer) -> None:
    file, process = writer()
    error = refusal(f"{file}::/x")
    assert "another process has it open for writing" in str(error)
    assert "HDF5_USE_FILE_LOCKING=FALSE" in error.hint
    code = f"from convgrad_cli.storage import open_source; print(open_source({file!r})[0:2])"
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b"[1. 2.]\n"
    process.communicate(b"")  # closes it
    assert read(file).tolist() == [1, 2]


def test_file_whose_writer_was_killed(writer) -> None:
    file, process = writer(libver="latest")
    process.kill()
    process.wait()
    error = refusal(file)
    assert "its writer ended without closing it" in str(error)
    assert "h5clear" in error.hint


def test_file_open_for_reading_elsewhere(h5) -> None:
    file = h5(x=array())
    with h5py.File(file):
        np.testing.assert_array_equal(read(file), array())


def test_matlab_by_its_user_block(tmp_path) -> None:
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        file["x"] = array((5, 2, 3, 4))
    with open(tmp_path / "x.mat", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created by hand".ljust(512))
    with open_source(str(tmp_path / "x.mat")) as source:
        assert source.matlab
        assert "MATLAB v7.3" in source.notes[0]
        assert source.shape == (5, 2, 3, 4)
        np.testing.assert_array_equal(source[0:5], array((5, 2, 3, 4)))


def test_matlab_by_its_attribute(h5) -> None:
    def fill(file: h5py.File) -> None:
        file["x"] = array()
        file["x"].attrs["MATLAB_class"] = np.bytes_("single")

    with open_source(h5(fill)) as source:
        assert source.matlab


def test_nothing_stays_open_after_an_error(h5) -> None:
    file = h5(a=array(), b=array())
    refusal(file, AddressError)
    refusal(f"{file}::/c", AddressError)
    with h5py.File(file, "r+"):  # HDF5 refuses this while the file is open for reading
        pass


def test_a_file_that_is_cut_while_it_is_read(tmp_path) -> None:
    """HDF5 reads what is gone as zeros."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((100, 1000), "f4")
    with open_source(f"{path}::/x") as source:
        assert source[0:10].all()
        os.truncate(path, 100_000)
        with pytest.raises(StorageError, match=r"shorter while it was read: \d+ bytes before, now 100000"):
            source[50:100]
