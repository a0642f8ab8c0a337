"""Memory that blocks work in: kept, aligned, and nobody else's."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from convgrad.scratch import Scratch, borrowed

DTYPES = ["float32", "float64", "float16", "uint8"]


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 1, 7, 11), (0,), (4, 0, 3), (1000, 33)], ids=str)
def test_arrays(shape: tuple[int, ...], dtype: str) -> None:
    scratch = Scratch()
    for name in ("one", "another", "one"):
        array = scratch.array(name, shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert address(array) % 64 == 0 or array.size == 0


def test_alignment_at_every_size() -> None:
    scratch = Scratch()
    assert all(address(scratch.array("a", (size,), "uint8")) % 64 == 0 for size in range(1, 700))


def test_buffers_are_kept() -> None:
    scratch = Scratch()
    first = scratch.array("sums", (10, 20), "float32")
    first[...] = 3
    assert address(scratch.array("sums", (5, 5), "float32")) == address(first)
    assert address(scratch.array("sums", (100,), "float64")) == address(first)
    assert (scratch.array("sums", (200,), "float32") == 3).all(), "the same memory, untouched"


def test_buffers_grow() -> None:
    scratch = Scratch()
    scratch.array("sums", (10,), "float32")
    larger = scratch.array("sums", (1000,), "float32")
    larger[...] = 1
    assert scratch.nbytes == 4000
    assert address(scratch.array("sums", (10,), "float32")) == address(larger)
    assert scratch.nbytes == 4000


def test_bytes_held() -> None:
    scratch = Scratch()
    assert scratch.nbytes == 0
    scratch.array("a", (3, 5), "float64")
    scratch.array("b", (7,), "float32")
    assert scratch.nbytes == 3 * 5 * 8 + 7 * 4
    scratch.array("a", (2,), "uint8")
    assert scratch.nbytes == 3 * 5 * 8 + 7 * 4


def test_names_do_not_share() -> None:
    scratch = Scratch()
    arrays = [scratch.array(name, (33,), "float32") for name in "abc"]
    for value, array in enumerate(arrays):
        array[...] = value
    assert [set(array.tolist()) for array in arrays] == [{0.0}, {1.0}, {2.0}]
    assert not any(np.shares_memory(one, other) for one, other in itertools.pairwise(arrays))


def test_nobody_else_has_what_is_borrowed() -> None:
    with borrowed() as one, borrowed() as other, borrowed() as third:
        assert len({id(one), id(other), id(third)}) == 3


def test_what_was_borrowed_is_lent_again() -> None:
    with borrowed() as first:
        held = first.array("kept", (50,), "float32")
    with borrowed() as second:
        assert second is first
        assert address(second.array("kept", (50,), "float32")) == address(held)


def test_what_was_borrowed_comes_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="stop"), borrowed() as first:
        raise RuntimeError("stop")
    with borrowed() as second:
        assert second is first


def test_threads_have_their_own() -> None:
    everyone = threading.Barrier(4, timeout=60)
    found: list[Scratch] = []
    intact: list[bool] = []

    def work(value: int) -> None:
        with borrowed() as scratch:
            array = scratch.array("mine", (1000,), "float32")
            array[...] = value
            found.append(scratch)
            everyone.wait()
            intact.append(bool((array == value).all()))
            everyone.wait()

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(scratch) for scratch in found}) == 4
    assert intact == [True] * 4
