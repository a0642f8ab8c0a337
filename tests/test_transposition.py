"""Copies that swap pixels and channels: every element exact, at every size."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from assertions import dtype_of
from convgrad.kernels.transposition import copy_pixels, copy_planes, swap_last_two
from convgrad.scratch import Scratch

SELECTED = [0, 1, 3, 4, 5, 9, 15, 16, 17, 31, 33, 40]
DTYPES = ["float32", "float16", "bfloat16", "float64"]


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers of all magnitudes; the largest, the smallest and zero among them."""
    rng = np.random.default_rng(shape)
    reach = 4 if dtype == "float16" else 30
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-reach, reach, shape)
    special = [0.0, 65504.0, -6e-8, 1.0] if dtype == "float16" else [0.0, 3.4e38, -1e-45, 1.0]
    values.reshape(-1)[: 4 * (values.size > 4)] = special[: 4 * (values.size > 4)]
    with np.errstate(over="ignore"):
        return values.astype(dtype_of(dtype))


def same(result: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all are equal, zeros of either sign too."""
    return result.shape == wanted.shape and bool((result == wanted.astype(result.dtype)).all())


@pytest.mark.parametrize("a", range(41))
def test_swap_last_two_at_every_size(a: int) -> None:
    for b in SELECTED:
        for rows, columns in ((a, b), (b, a)):
            source = numbers(2, rows, columns)
            out = np.full((2, columns, rows), 7, np.float32)
            swap_last_two(out, source)
            assert same(out, np.swapaxes(source, 1, 2)), (rows, columns)


def every_second(array: np.ndarray, axis: int) -> np.ndarray:
    """An equal array that leaves out every second number along an axis."""
    shape = list(array.shape)
    shape[axis] *= 2
    spread = np.full(shape, 7, array.dtype)
    view = np.moveaxis(np.moveaxis(spread, axis, 0)[::2], 0, axis)
    view[...] = array
    assert view.shape == array.shape
    return view


def in_a_frame(array: np.ndarray) -> np.ndarray:
    """An equal array cut out of a larger one."""
    framed = np.full([size + 3 for size in array.shape], 7, array.dtype)
    view = framed[tuple(slice(1, size + 1) for size in array.shape)]
    view[...] = array
    return view


def backwards(array: np.ndarray) -> np.ndarray:
    """An equal array with negative strides."""
    return np.flip(np.flip(array).copy())


def swapped(array: np.ndarray) -> np.ndarray:
    """An equal array in foreign byte order."""
    return array.astype(array.dtype.newbyteorder("S"))


VIEWS = {
    "contiguous": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "every-second-row": lambda array: every_second(array, -2),
    "every-second-column": lambda array: every_second(array, -1),
    "every-second-matrix": lambda array: every_second(array, 0),
    "in-a-frame": in_a_frame,
    "backwards": backwards,
}


@pytest.mark.parametrize("out_view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("view", [*VIEWS.values(), swapped], ids=[*VIEWS, "foreign"])
def test_swap_last_two_of_views(view: Any, out_view: Any) -> None:
    for a, b in product([1, 4, 7, 16, 18, 40], repeat=2):
        source = view(numbers(3, 2, a, b))
        out = out_view(np.full((3, 2, b, a), 7, np.float32))
        swap_last_two(out, source)
        assert same(out, np.swapaxes(source, 2, 3)), (a, b)


def test_swap_last_two_writes_nothing_else() -> None:
    for a, b in product(SELECTED, repeat=2):
        around = np.full((2, b + 2, a + 2), 7, np.float32)
        swap_last_two(around[:, 1:-1, 1:-1], numbers(2, a, b))
        around[:, 1:-1, 1:-1] = 7
        assert (around == 7).all(), (a, b)


@pytest.mark.parametrize("out_dtype", ["float32", "float64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_swap_last_two_converts(dtype: str, out_dtype: str) -> None:
    for a, b in product(SELECTED, repeat=2):
        source = numbers(2, a, b, dtype="float16").astype(dtype_of(dtype))
        out = np.full((2, b, a), 7, out_dtype)
        swap_last_two(out, source)
        assert same(out, np.swapaxes(source, 1, 2)), (a, b)


def test_swap_last_two_of_matrices_without_batch() -> None:
    source = numbers(19, 23)
    out = np.full((23, 19), 7, np.float32)
    swap_last_two(out, source)
    assert same(out, source.T)


def test_swap_last_two_twice_is_no_change() -> None:
    source = numbers(3, 29, 21)
    between, out = np.empty((3, 21, 29), np.float32), np.empty_like(source)
    swap_last_two(between, source)
    swap_last_two(out, between)
    assert same(out, source)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
def test_non_finite_values_stay_where_they_are(bad: float) -> None:
    """They may spoil others, but never vanish: whoever looks for them finds them."""
    for a, b in [(3, 5), (16, 16), (20, 33)]:
        source = numbers(a, b)
        source[a // 2, b // 2] = bad
        out = np.zeros((b, a), np.float32)
        with np.errstate(invalid="ignore"):
            swap_last_two(out, source)
        assert not np.isfinite(out[b // 2, a // 2])


#: How (n, h, w, c) may lie in memory: the order of its axes, outermost first.
ORDERS = {
    "NHWC": (0, 1, 2, 3),
    "NCHW": (0, 3, 1, 2),
    "CHNW": (3, 1, 0, 2),
    "HWNC": (1, 2, 0, 3),
    "WHCN": (2, 1, 3, 0),
}
SHAPES = [
    (2, 3, 5, 4),
    (1, 2, 17, 20),
    (2, 1, 16, 33),
    (3, 4, 1, 5),
    (2, 3, 6, 1),
    (1, 1, 1, 1),
    (2, 0, 3, 4),
    (0, 2, 2, 2),
]


def lying(array: np.ndarray, order: str) -> np.ndarray:
    """An equal array whose axes lie in another order in memory."""
    axes = ORDERS[order]
    return np.ascontiguousarray(array.transpose(axes)).transpose(np.argsort(axes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("there", ORDERS)
@pytest.mark.parametrize("here", ORDERS)
def test_copy_pixels(here: str, there: str, dtype: str) -> None:
    for shape in SHAPES:
        values = numbers(*shape, dtype="float16").astype(dtype_of(dtype))
        for source in (lying(values, here), in_a_frame(lying(values, here)), backwards(lying(values, here))):
            out = lying(np.full(shape, 7, np.float32), there)
            copy_pixels(out, source)
            assert same(out, values), shape


@pytest.mark.parametrize("here", ORDERS)
def test_copy_pixels_into_part_of_an_array(here: str) -> None:
    values = numbers(2, 5, 18, 20)
    for order in ORDERS:
        whole = lying(np.full((2, 8, 22, 20), 7, np.float32), order)
        copy_pixels(whole[:, 2:7, 1:19], lying(values, here))
        assert same(whole[:, 2:7, 1:19], values)
        whole[:, 2:7, 1:19] = 7
        assert (whole == 7).all()


@pytest.mark.parametrize("out_dtype", ["float32", "float64"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("here", ORDERS)
def test_copy_planes(here: str, dtype: str, out_dtype: str) -> None:
    scratch = Scratch()
    for shape in SHAPES:
        values = numbers(*shape, dtype="float16").astype(dtype_of(dtype))
        n, rows, columns, channels = shape
        planes = np.full((channels, rows, n, columns + 3), 7, out_dtype)
        strided = lying(values, here)[:, ::-1][:, ::-1]
        copy_planes(planes[..., :columns], strided, scratch)
        assert same(planes[..., :columns], values.transpose(3, 1, 0, 2)), shape
        assert (planes[..., columns:] == 7).all()


def test_copy_planes_of_one_stride_phase() -> None:
    values = numbers(2, 9, 35, 20)
    out = np.full((20, 4, 2, 17), 7, np.float32)
    copy_planes(out, values[:, 1::2, 1::2], Scratch())
    assert same(out, values[:, 1::2, 1::2].transpose(3, 1, 0, 2))
