"""Files that pass through memory in parts: the same bits whatever the parts, the storage and the threads."""

from __future__ import annotations

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
from commandline import Completed, call
from convgrad_cli.storage import open_source, open_target
from convgrad_cli.storage.protocols import box, pieces, runs

RNG = np.random.default_rng(0)
SHAPE = (7, 12, 11, 6)
X, DY = (RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
W = RNG.standard_normal((3, 3, 5, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def store(kind: str, name: str, array: np.ndarray) -> str:
    """Save an array in one of the ways that files have; return its address."""
    if kind == "npy":
        return save(Path(f"{name}.npy"), array)
    if kind == "fortran":
        return save(Path(f"{name}.npy"), np.asfortranarray(array))
    if kind == "big-endian":
        return save(Path(f"{name}.npy"), array.astype(array.dtype.newbyteorder(">")))
    layouts: dict[str, dict[str, Any]] = {
        "contiguous": {},
        "image-chunks": {"chunks": (1, *array.shape[1:])},
        "batch-chunks": {"chunks": (5, 3, 4, 2)},
        "row-chunks": {"chunks": (2, 1, *array.shape[2:])},
        "gzip": {"chunks": (3, 5, 5, 3), "compression": "gzip", "shuffle": True},
    }
    with h5py.File(f"{name}.h5", "w") as file:
        file.create_dataset("a", data=array, **layouts[kind])
    return f"{name}.h5::/a"


KINDS = (
    "npy",
    "fortran",
    "big-endian",
    "contiguous",
    "image-chunks",
    "batch-chunks",
    "row-chunks",
    "gzip",
)


def result(text: str) -> np.ndarray:
    with open_source(text) as source:
        return np.array(source[0 : source.shape[0]])


def nchw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits(kind: str, data_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For parts of some images, of one, and of some rows of one; for one thread and three."""
    turned: Callable[[np.ndarray], np.ndarray] = nchw if data_format == "NCHW" else np.ascontiguousarray
    first, second, filters = store(kind, "x", turned(X)), store(kind, "dy", turned(DY)), store("npy", "w", W)
    expected = {
        "transpose": reference.transpose(turned(X), W, None, strides=2, data_format=data_format),
        "filter-grad": reference.filter_grad(turned(X), (3, 3), turned(DY), data_format=data_format),
    }
    found: dict[str, set[bytes]] = {"transpose": set(), "filter-grad": set()}
    for number, (slab, threads) in enumerate([(1, 1), (5000, 3), (2**27, 1), (2**27, 3)]):
        monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", slab)
        words = ["--data-format", data_format, "--overwrite", "--threads", threads]
        with cuts.every_plan_cut(cuts.FEW):
            for out in (f"y{number}.npy", f"y{number}.h5::/y"):
                call("transpose", first, filters, "-s", "2", "-o", out, *words).succeeded()
                array = result(out)
                assert_matches(array, *expected["transpose"], np.float32)
                found["transpose"].add(array.tobytes())
            sizes = ["--filter-sizes", "3,3", "-o", "dw.npy"]
            call("filter-grad", first, second, *sizes, *words).succeeded()
            array = result("dw.npy")
            assert_matches(array, *expected["filter-grad"], np.float32)
            found["filter-grad"].add(array.tobytes())
    assert {verb: len(bits) for verb, bits in found.items()} == {"transpose": 1, "filter-grad": 1}


@pytest.mark.parametrize("cast", ["float64", "bfloat16"])
@pytest.mark.parametrize("kind", ["npy", "gzip"])
def test_parts_of_what_is_cast(kind: str, cast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = store(kind, "x", X), store(kind, "dy", DY)
    bits = set()
    for slab in (1, 2**27):
        monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", slab)
        monkeypatch.setattr("convgrad_cli.operands._PIECE", 100 if slab == 1 else 2**20)
        with cuts.every_plan_cut(cuts.FEW):
            words = ["--filter-sizes", "3,3", "-o", "dw.npy", "--overwrite", "--cast", cast]
            call("filter-grad", first, second, *words).succeeded()
        bits.add(Path("dw.npy").read_bytes())
    assert len(bits) == 1


def test_chunks_of_a_matlab_array_are_read_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File("m.h5", "w") as file:
        file.create_dataset("x", data=X.T, chunks=(6, 11, 12, 2))
        file.create_dataset("dy", data=DY.T, chunks=(6, 11, 12, 2))
    monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", 1)
    words = ["--filter-sizes", "3,3", "-o", "dw.npy", "--reverse-axes"]
    with cuts.every_plan_cut(cuts.CUTS["images"]):
        call("filter-grad", "m.h5::/x", "m.h5::/dy", *words).succeeded()
    assert_matches(result("dw.npy"), *reference.filter_grad(X, (3, 3), DY), np.float32)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_a_pipe_takes_parts_in_their_order(data_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one image follow each other in NHWC; NCHW images go whole."""
    turned: Callable[[np.ndarray], np.ndarray] = nchw if data_format == "NCHW" else np.ascontiguousarray
    first, filters = store("npy", "x", turned(X)), store("npy", "w", W)
    words = ["transpose", first, filters, "--data-format", data_format]
    call(*words, "-o", "y.npy").succeeded()
    monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", 1)
    with cuts.every_plan_cut(cuts.CUTS["images"]):
        done: Completed = call(*words, "-o", "-").succeeded()
    assert done.output == Path("y.npy").read_bytes()


def test_too_little_memory_is_refused_with_both_numbers() -> None:
    first, filters = store("npy", "x", X), store("npy", "w", W)
    done = call("transpose", first, filters, "-o", "y.npy", "--memory", "1M")
    done.refused(1, "memory", "1,000,000", "--memory")
    assert not Path("y.npy").exists()


@pytest.mark.parametrize("size", ["0", "-1", "1X", "M", "1e9", "9" * 20, "", "1 2", "0.4", "1.2.3"])
def test_sizes_that_are_none(size: str) -> None:
    call("transpose", "x.npy", "w.npy", "-n", "--memory", size).refused(2, "--memory")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("512M", 512_000_000),
        ("2G", 2 * 10**9),
        ("512Mi", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("1000000", 10**6),
    ],
)
def test_sizes(size: str, expected: int) -> None:
    from convgrad_cli.options import MemoryType

    assert MemoryType().convert(size, None, None) == expected


def test_memory_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    first, filters = store("npy", "x", X), store("npy", "w", W)
    monkeypatch.setenv("CONVGRAD_MEMORY", "1M")
    call("transpose", first, filters, "-o", "y.npy").refused(1, "memory", "1,000,000")


def test_a_file_that_shrinks_between_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = store("npy", "x", X), store("npy", "dy", DY)
    monkeypatch.setattr("convgrad.slabs.SLAB_BYTES", 1)
    from convgrad_cli.storage.npy import read

    original = read._NpyBlocks.read_into

    def cut_after(self: Any, key: Any, out: Any) -> None:
        original(self, key, out)
        with open("x.npy", "r+b") as file:
            file.truncate(1000)

    monkeypatch.setattr(read._NpyBlocks, "read_into", cut_after)
    with cuts.every_plan_cut(cuts.FEW):
        done = call("filter-grad", first, second, "--filter-sizes", "3,3", "-o", "dw.npy")
    done.refused(1, "x.npy", "shorter")
    assert not Path("dw.npy").exists()


# How parts lie.


@pytest.mark.parametrize(
    "key",
    [
        np.s_[1:3],
        np.s_[0:0],
        np.s_[0:4],
        np.s_[1:2, 2:4],
        np.s_[1:3, :, 1:2],
        np.s_[0:4, 0:5, 2:6],
        np.s_[0:4, 1:3, 0:6, 1:2],
    ],
    ids=str,
)
def test_runs_are_where_the_elements_are(key: Any) -> None:
    array = np.arange(4 * 5 * 6 * 3).reshape(4, 5, 6, 3)
    length, places = runs(box(key, array.shape), array.shape)
    elements = [np.arange(place, place + length) for place in places]
    assert np.array_equal(np.concatenate([*elements, []]), array[key].reshape(-1))


@pytest.mark.parametrize("elements", [1, 10, 10**6])
@pytest.mark.parametrize("chunks", [None, (3, 2, 4, 3)])
def test_pieces_cover_a_part_in_whole_chunks(chunks: tuple[int, ...] | None, elements: int) -> None:
    part = box(np.s_[1:2, 1:5, 0:6], (4, 5, 6, 3))
    seen = np.zeros((4, 5, 6, 3), int)
    inside = np.zeros((1, 4, 6, 3), int)
    for piece, place in pieces(part, chunks, elements):
        seen[np.ix_(*piece)] += 1
        inside[place] += 1
        assert inside[place].flags.c_contiguous
        if chunks and piece[1].stop < 5:
            assert piece[1].stop % chunks[1] == 0
    assert (inside == 1).all()
    assert seen[1:2, 1:5].sum() == seen.sum() == 4 * 6 * 3


def test_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="step 1"):
        box(np.s_[0:4:2], (4,))


@pytest.mark.parametrize("chunks", ["auto", "2,3,4,5"])
def test_a_target_knows_its_chunks(chunks: str) -> None:
    from convgrad_cli.storage import Hdf5Options

    wanted = True if chunks == "auto" else tuple(map(int, chunks.split(",")))
    target = open_target("y.h5::/y", hdf5=Hdf5Options(chunks=wanted))
    planned = target.chunks((8, 9, 10, 11))
    with target.open((8, 9, 10, 11), np.dtype("float32"), {}) as sink:
        sink[0:8] = np.zeros((8, 9, 10, 11), np.float32)
    with h5py.File("y.h5") as file:
        assert file["y"].chunks == planned
