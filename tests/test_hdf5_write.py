from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
from h5py import h5s, h5t

from convgrad_cli.errors import AddressError, OutputExistsError, StorageError
from convgrad_cli.storage import Hdf5Options, open_source, open_target

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ALL_BITS = np.arange(65536, dtype=np.uint16)


def array(shape: tuple[int, ...] = (4, 3, 2, 5), dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)


def write(text: object, values: np.ndarray, rows: int = 2, **options: object) -> None:
    attributes = {"operation": "conv2d_transpose", "parameters": '{"strides": [2, 2]}'}
    with open_target(str(text), **options).open(values.shape, values.dtype, attributes) as sink:
        for start in range(0, values.shape[0], rows):
            sink[start : start + rows] = values[start : start + rows]


def refusal(text: object, error: type[Exception] = AddressError, **options: object) -> Exception:
    """The error of asking for a target; the file is what it was, and nothing is left beside it."""
    file = Path(str(text).partition("::")[0])
    before = file.read_bytes() if file.is_file() else None
    beside = set(os.listdir(file.parent)) if file.parent.is_dir() else None  # noqa: PTH208
    with pytest.raises(error) as caught:
        write(text, array(), **options)
    assert (file.read_bytes() if file.is_file() else None) == before
    assert (set(os.listdir(file.parent)) if file.parent.is_dir() else None) == beside  # noqa: PTH208
    return caught.value


def content(file: object) -> dict[str, object]:
    """Everything in a file, read by h5py: groups, datasets, attributes, links."""
    found: dict[str, object] = {}
    with h5py.File(file) as opened:

        def visit(name: str, item: h5py.HLObject) -> None:
            data = item[()].tolist() if isinstance(item, h5py.Dataset) else "group"
            found[name] = (data, {key: str(value) for key, value in item.attrs.items()})

        opened.visititems(visit)
    return found


@pytest.fixture
def file(tmp_path) -> Path:
    """An HDF5 file of somebody else's."""
    with h5py.File(tmp_path / "x.h5", "w") as opened:
        opened["a"] = array() + 1
        opened["a"].attrs["unit"] = "mm"
        opened.create_dataset("g/b", data=array() + 2, chunks=(2, 3, 2, 5), compression="gzip")
        opened["g"].attrs["note"] = "keep"
        opened["soft"] = h5py.SoftLink("/g/b")
        opened["soft group"] = h5py.SoftLink("/g")
        opened["dangling"] = h5py.SoftLink("/no")
        opened["external"] = h5py.ExternalLink("other.h5", "/")
    with h5py.File(tmp_path / "other.h5", "w") as opened:
        opened["c"] = array()
    return tmp_path / "x.h5"


# A new file


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "c8"])
def test_new_file_with_parent_groups_and_attributes(tmp_path, dtype: str) -> None:
    write(f"{tmp_path}/x.h5::/g/h/x", array(dtype=dtype), rows=3)
    with h5py.File(tmp_path / "x.h5") as opened:
        dataset = opened["g/h/x"]
        assert dataset.dtype == np.dtype(dtype).newbyteorder("<")
        np.testing.assert_array_equal(dataset[()], array(dtype=dtype))
        assert dict(dataset.attrs) == {
            "operation": "conv2d_transpose",
            "parameters": '{"strides": [2, 2]}',
        }
        assert dataset.chunks is None
    assert [path.name for path in tmp_path.iterdir()] == ["x.h5"]


def test_the_same_bytes_again(tmp_path) -> None:
    for name in ("x", "y"):
        write(f"{tmp_path}/{name}::/g/x", array(), hdf5=Hdf5Options(compression="gzip"))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


NAMES = ["a b", "a+b", "x#1", "a&b", "%20", "a[0]", "ünï", "*"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_literal(tmp_path, name: str) -> None:
    write(f"{tmp_path}/{name}::/{name}/x::y", array())
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert set(content(tmp_path / name)) == {name, f"{name}/x::y"}


@pytest.mark.parametrize(
    "options", [{}, {"append": True}, {"overwrite": True}, {"append": True, "overwrite": True}]
)
def test_flags_do_not_matter_for_a_new_file(tmp_path, options: dict[str, bool]) -> None:
    write(f"{tmp_path}/x.h5::/x", array(), **options)
    assert set(content(tmp_path / "x.h5")) == {"x"}


@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (3, 0, 2, 2), (2, 2, 2, 0)])
@pytest.mark.parametrize(
    "options",
    [Hdf5Options(), Hdf5Options(chunks=(2, 2, 2, 2), compression="gzip", shuffle=True)],
    ids=["", "chunked"],
)
def test_zero_length(tmp_path, shape: tuple[int, ...], options: Hdf5Options) -> None:
    with open_target(f"{tmp_path}/x.h5::/x", hdf5=options).open(shape, np.dtype("f4"), {}):
        pass
    with h5py.File(tmp_path / "x.h5") as opened:
        assert opened["x"].shape == shape


# bfloat16


@pytest.mark.parametrize(
    "options",
    [Hdf5Options(), Hdf5Options(chunks=(100, 30), compression="gzip", shuffle=True)],
    ids=["plain", "compressed"],
)
def test_all_bfloat16_patterns_as_the_true_type(tmp_path, options: Hdf5Options) -> None:
    write(f"{tmp_path}/x.h5::/x", ALL_BITS.reshape(256, 256).view(BFLOAT16), rows=100, hdf5=options)
    with h5py.File(tmp_path / "x.h5") as opened:
        dataset = opened["x"].id
        stored = dataset.get_type()
        assert stored.get_size() == 2
        assert stored.get_order() == h5t.ORDER_LE
        assert stored.get_fields() == (15, 7, 8, 0, 7)
        assert stored.get_ebias() == 127
        bits = np.empty((256, 256), "<u2")
        dataset.read(h5s.ALL, h5s.ALL, bits, mtype=stored)
        np.testing.assert_array_equal(bits, ALL_BITS.reshape(256, 256))
        # A reader that has never heard of bfloat16 sees the right numbers: the bits and 16 zeros are float32.
        as_float32 = opened["x"][()].reshape(-1)
        expected = (ALL_BITS.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(as_float32, expected)
    with open_source(f"{tmp_path}/x.h5") as source:
        np.testing.assert_array_equal(source[0:256].view(np.uint16), bits)


# An existing file


def test_refused_without_a_flag(file) -> None:
    error = refusal(f"{file}::/new", OutputExistsError)
    assert error.message == f"{file}::/new: {file} exists already"
    assert "--append" in error.hint
    assert "--overwrite" in error.hint


@pytest.mark.parametrize(
    "options", [{"append": True}, {"overwrite": True}, {"append": True, "overwrite": True}]
)
@pytest.mark.parametrize("path", ["/new", "new", "/g/new", "/g/h/i/new", "/soft group/new"])
def test_adding_keeps_everything_else(file, path: str, options: dict[str, bool]) -> None:
    before = content(file)
    write(f"{file}::{path}", array(), **options)
    after = content(file)
    assert {name: after[name] for name in before} == before
    with h5py.File(file) as opened:
        np.testing.assert_array_equal(opened[path][()], array())
        assert opened.get("soft", getlink=True).path == "/g/b"
        assert opened.get("dangling", getlink=True).path == "/no"
        assert opened.get("external", getlink=True).filename == "other.h5"
    assert sorted(path.name for path in file.parent.iterdir()) == ["other.h5", "x.h5"]


@pytest.mark.parametrize("path", ["/a", "/g/b", "/soft group/b", "/soft", "/dangling"])
def test_appending_never_replaces(file, path: str) -> None:
    error = refusal(f"{file}::{path}", OutputExistsError, append=True)
    assert error.message == f"{file}::{path}: exists already"
    assert error.hint == "add --overwrite to replace it"


def test_appending_twice_is_refused(file) -> None:
    write(f"{file}::/new", array(), append=True)
    refusal(f"{file}::/new", OutputExistsError, append=True)


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("path", ["/a", "/g/b", "/soft group/b", "/soft", "/dangling"])
def test_overwriting_replaces_one_dataset(file, path: str, append: bool) -> None:
    before = content(file)
    write(f"{file}::{path}", array((2, 1), "f8"), overwrite=True, append=append)
    name = path.lstrip("/").replace("soft group", "g")
    after = content(file)
    assert after.pop(name)[0] == array((2, 1), "f8").tolist()
    before.pop(name, None)
    assert after == before


def test_user_block_survives(tmp_path) -> None:
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as opened:
        opened["a"] = array()
    with open(tmp_path / "x.mat", "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(512))
    write(f"{tmp_path}/x.mat::/b", array(), append=True)
    assert (tmp_path / "x.mat").read_bytes().startswith(b"MATLAB 7.3 MAT-file   ")
    assert set(content(tmp_path / "x.mat")) == {"a", "b"}


def test_reading_from_the_file_that_is_appended_to(file) -> None:
    with open_source(f"{file}::/a") as source:
        with open_target(f"{file}::/new", append=True).open(source.shape, source.dtype, {}) as sink:
            sink[0:4] = source[0:4]
        np.testing.assert_array_equal(source[0:4], array() + 1)
    assert content(file)["new"][0] == (array() + 1).tolist()


# Places that cannot be


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/g", "names a group"),
        ("/soft group", "names a group"),
        ("/external", "names a group"),
        ("/.", "names a group"),
        ("/a/x", "/a is a dataset, nothing can be below it"),
        ("/soft/x", "is a dataset, nothing can be below it"),
        ("/dangling/x", "the link 'dangling' in / is broken"),
        ("/external/x", "'external' is a link into another file"),
    ],
)
@pytest.mark.parametrize("options", [{"append": True}, {"overwrite": True}])
def test_paths_that_lead_elsewhere(file, path: str, what: str, options: dict[str, bool]) -> None:
    assert what in str(refusal(f"{file}::{path}", **options))


@pytest.mark.parametrize(
    "options", [{}, {"append": True}, {"overwrite": True}, {"append": True, "overwrite": True}]
)
@pytest.mark.parametrize("existing", [b"", b"precious", b"\x93NUMPY"])
def test_a_file_that_is_not_hdf5_is_left_alone(tmp_path, existing: bytes, options: dict[str, bool]) -> None:
    (tmp_path / "x.h5").write_bytes(existing)
    assert "is not an HDF5 file" in str(refusal(f"{tmp_path}/x.h5::/x", **options))


def test_a_damaged_file_is_left_alone(file) -> None:
    os.truncate(file, 3000)
    assert "is truncated" in str(refusal(f"{file}::/x", StorageError, append=True))


def test_a_file_being_written_is_left_alone(tmp_path) -> None:
    code = "import sys, h5py; f = h5py.File(sys.argv[1], 'w'); print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / "x.h5")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        error = refusal(f"{tmp_path}/x.h5::/x", StorageError, append=True)
        process.communicate(b"")
    assert "another process has it open for writing" in str(error)
    assert error.hint is None  # getting round the lock would lose what the other process writes


def test_no_place_for_the_file(tmp_path) -> None:
    assert "does not exist" in str(refusal(f"{tmp_path}/no/x.h5::/x"))
    assert "names a directory" in str(refusal(f"{tmp_path}::/x", overwrite=True))
    assert "not a regular file" in str(refusal("/dev/null::/x", overwrite=True))
    assert "HDF5 needs a file" in str(refusal("-::/x"))


# Options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Hdf5Options(chunks=(2, 3, 2, 5)), ((2, 3, 2, 5), None, None, False)),
        (Hdf5Options(compression="gzip", compression_level=9), (True, "gzip", 9, False)),
        (Hdf5Options(compression="gzip", compression_level=0), (True, "gzip", 0, False)),
        (Hdf5Options(compression="lzf", shuffle=True), (True, "lzf", None, True)),
        (Hdf5Options(shuffle=True), (True, None, None, True)),
        (Hdf5Options(chunks=True), (True, None, None, False)),
        (Hdf5Options(chunks=False), (None, None, None, False)),
    ],
    ids=lambda value: "",
)
def test_options(tmp_path, options: Hdf5Options, expected: tuple[object, ...]) -> None:
    write(f"{tmp_path}/x.h5::/x", array(), rows=1, hdf5=options)
    with h5py.File(tmp_path / "x.h5") as opened:
        x = opened["x"]
        chunks = True if expected[0] is True and x.chunks else x.chunks
        assert (chunks, x.compression, x.compression_opts, x.shuffle) == expected
        np.testing.assert_array_equal(x[()], array())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (Hdf5Options(compression="brotli"), "--compression brotli: unknown"),
        (
            Hdf5Options(compression_level=3),
            "--compression-level 3: goes with --compression gzip, got no compression",
        ),
        (
            Hdf5Options(compression="lzf", compression_level=3),
            "--compression-level 3: goes with --compression gzip",
        ),
        (Hdf5Options(compression="gzip", compression_level=10), "--compression-level 10: expected 0 to 9"),
        (Hdf5Options(compression="gzip", compression_level=-1), "--compression-level -1: expected 0 to 9"),
        (Hdf5Options(compression="gzip", chunks=False), "--compression: needs chunks"),
        (Hdf5Options(shuffle=True, chunks=False), "--shuffle: needs chunks"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_contradictions_are_found_before_computing(tmp_path, options: Hdf5Options, what: str) -> None:
    with pytest.raises(AddressError) as caught:
        open_target(f"{tmp_path}/x.h5::/x", hdf5=options)
    assert what in caught.value.message


@pytest.mark.parametrize("chunks", [(2, 3, 2), (5, 3, 2, 5), (0, 3, 2, 5)])
def test_chunks_that_do_not_fit(tmp_path, chunks: tuple[int, ...]) -> None:
    error = refusal(f"{tmp_path}/x.h5::/x", hdf5=Hdf5Options(chunks=chunks))
    assert f"--chunks {chunks} does not fit the result's shape (4, 3, 2, 5)" in str(error)


# Two processes at once

APPEND = """
import sys, numpy
from convgrad_cli.storage import open_target
file, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for i in range(first, first + count):
    with open_target(f"{file}::/d{i}", append=True).open((2, 2), numpy.dtype("f4"), {}) as sink:
        sink[0:2] = numpy.full((2, 2), i, "f4")
"""


@pytest.mark.parametrize("exists", [True, False])
def test_processes_that_append_at_once_all_land(file, exists: bool) -> None:
    target = file if exists else file.with_name("new.h5")
    names = {"a", "g", "g/b"} if exists else set()
    starts = [0, 100, 200]
    processes = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(target), str(start), "10"]) for start in starts
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    found = content(target)
    assert set(found) == names | {f"d{start + i}" for start in starts for i in range(10)}
    assert found["d107"][0] == [[107, 107], [107, 107]]
    assert not [path for path in file.parent.iterdir() if "convgrad" in path.name]


def test_a_dataset_that_appears_meanwhile_is_not_replaced(file) -> None:
    target = open_target(f"{file}::/new", append=True)
    write(f"{file}::/new", array(), append=True)
    with pytest.raises(OutputExistsError), target.open((2,), np.dtype("f4"), {}):
        pass
    np.testing.assert_array_equal(content(file)["new"][0], array())


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path) -> None:
    def write_meanwhile() -> None:
        with open_target(f"{tmp_path}/x.h5::/x").open((2,), np.dtype("f4"), {}) as sink:
            sink[0:2] = np.zeros(2, "f4")
            (tmp_path / "x.h5").write_bytes(b"precious")

    with pytest.raises(OutputExistsError):
        write_meanwhile()
    assert (tmp_path / "x.h5").read_bytes() == b"precious"
    assert [path.name for path in tmp_path.iterdir()] == ["x.h5"]


def test_writers_are_kept_out_while_the_copy_grows(file) -> None:
    code = "import sys, h5py; h5py.File(sys.argv[1], 'r+')"
    with open_target(f"{file}::/new", append=True).open((2,), np.dtype("f4"), {}) as sink:
        sink[0:2] = np.zeros(2, "f4")
        done = subprocess.run([sys.executable, "-c", code, str(file)], check=False, capture_output=True)
    assert b"unable to lock file" in done.stderr


def test_a_dataset_made_again_and_again_does_not_make_its_file_grow(tmp_path) -> None:
    target, sizes = f"{tmp_path}/x.h5::/deep/in/y", []
    for _ in range(5):
        write(target, array(), overwrite=True)
        sizes.append((tmp_path / "x.h5").stat().st_size)
    assert len(set(sizes)) == 1
    assert sorted(content(tmp_path / "x.h5")) == ["deep", "deep/in", "deep/in/y"]


@pytest.mark.parametrize("worth_keeping", ["attribute", "group attribute", "dataset", "userblock"])
def test_whatever_else_is_in_the_file_is_kept(tmp_path, worth_keeping: str) -> None:
    userblock = 512 if worth_keeping == "userblock" else 0
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=userblock) as file:
        file["g/y"] = array()
        if worth_keeping == "attribute":
            file.attrs["note"] = "keep"
        elif worth_keeping == "group attribute":
            file["g"].attrs["note"] = "keep"
        elif worth_keeping == "dataset":
            file["g/z"] = [1, 2]
    write(f"{tmp_path}/x.h5::/g/y", array() + 1, overwrite=True)
    with h5py.File(tmp_path / "x.h5") as file:
        assert np.array_equal(file["g/y"], array() + 1)
        assert file.userblock_size == userblock
        assert {**file.attrs, **file["g"].attrs} == ({"note": "keep"} if "attr" in worth_keeping else {})
        assert ("z" in file["g"]) == (worth_keeping == "dataset")


def test_a_dataset_name_that_is_not_utf8(tmp_path) -> None:
    assert "UTF-8" in str(refusal(f"{tmp_path}/x.h5::/y" + os.fsdecode(b"\xff")))


def test_chunks_of_h5py_s_choice(tmp_path) -> None:
    write(f"{tmp_path}/x.h5::/y", array(), hdf5=Hdf5Options(chunks=True))
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["y"].chunks is not None


def test_waiting_for_another_job_is_said(tmp_path, capfd) -> None:
    """The other one holds the lock until it has heard that somebody waits."""
    holder = subprocess.Popen(
        [sys.executable, "-c", WAITED_FOR, f"{tmp_path}/x.h5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"locked\n"
    waiter = subprocess.Popen(
        [sys.executable, "-c", WAITING, f"{tmp_path}/x.h5::/y"], stderr=subprocess.PIPE, text=True
    )
    assert "waiting for another job" in waiter.stderr.readline()
    holder.communicate(b"\n")
    assert (waiter.communicate(timeout=60)[1], waiter.returncode, holder.returncode) == ("", 0, 0)


WAITED_FOR = """
import sys
from convgrad_cli.storage.hdf5.lock import exclusive
with exclusive(sys.argv[1], "x"):
    print("locked", flush=True)
    sys.stdin.readline()
"""
WAITING = """
import sys, numpy as np
from convgrad_cli.storage import open_target
with open_target(sys.argv[1]).open((1,), np.dtype("f4"), {}) as sink:
    sink[0:1] = np.ones(1, "f4")
"""


def test_empty_parts_of_a_path_do_not_count(tmp_path) -> None:
    write(f"{tmp_path}/x.h5::/p//q/", array())
    assert sorted(content(tmp_path / "x.h5")) == ["p", "p/q"]


@pytest.mark.parametrize("chunks", [None, (3, 3, 2, 5), (1, 1, 1, 1), (40, 3, 2, 5)])
def test_pieces_of_any_size_make_the_same_dataset(tmp_path, monkeypatch, chunks) -> None:
    """Written in pieces of whole chunks, so that no chunk is compressed twice."""
    from convgrad_cli.storage.hdf5 import write as module

    monkeypatch.setattr(module, "_PIECE_BYTES", 500)
    values = array((40, 3, 2, 5))
    options = Hdf5Options(chunks=chunks, compression="gzip" if chunks else None)
    write(f"{tmp_path}/x.h5::/y", values, rows=7, hdf5=options)
    with h5py.File(tmp_path / "x.h5") as file:
        assert np.array_equal(file["y"], values)
        assert file["y"].chunks == chunks
