"""Copies that swap pixels and channels, by a matrix product with the identity.

NumPy copies a transposed array element by element, about one each nanosecond. A product with a 16 by 16
identity moves the same elements through BLAS's packing, four times as fast for all its multiplications by
zero: each result is one element times 1 plus fifteen zeros, so it is exact, except that NaN or inf makes NaN
of its 16 neighbours, and that the sign of a zero is lost. Kernels that use it look at their results and are
done again by plain copies when those are not finite.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.dtypes import convert
from convgrad.geometry import clip
from convgrad.scratch import Scratch

#: Largest and least side of the identity: less wastes BLAS's registers, more multiplies by more zeros.
TILE, LEAST = 16, 10
#: Channels below which NumPy's own copies are as fast.
FEW = 12

Array = npt.NDArray[Any]


@functools.cache
def _identity(side: int) -> Array:
    return np.eye(side, dtype=np.float32)


@functools.cache
def _tile(size: int) -> int:
    """Return the side to cut `size` by: one that divides it, if there is one, for the rest costs as much."""
    if size <= TILE:
        return size
    return next((side for side in range(TILE, LEAST - 1, -1) if size % side == 0), TILE)


def swap_last_two(out: Array, source: Array) -> None:
    """out[..., b, a] = source[..., a, b]

    Parameters
    ----------
    out : (..., b, a), any strides
    source : (..., a, b), any dtype; fast for float32 with unit strides along `b` here and `a` in `out`
    """
    a, b = source.shape[-2:]
    unit = source.itemsize
    fast = (
        source.dtype == out.dtype == np.float32
        and source.dtype.isnative
        and source.strides[-1] == unit == out.strides[-1]
        and b >= FEW
    )
    if not fast:
        np.copyto(out, source.swapaxes(-1, -2), casting="unsafe")
        return
    tile = _tile(a)
    whole = a - a % tile
    tiles = source[..., :whole, :].reshape(*source.shape[:-2], whole // tile, tile, b)
    places = out[..., :whole].reshape(*out.shape[:-1], whole // tile, tile)
    np.matmul(tiles.swapaxes(-1, -2), _identity(tile), out=places.swapaxes(-2, -3))
    if whole < a:
        rest = source[..., whole:, :]
        np.matmul(rest.swapaxes(-1, -2), _identity(a - whole), out=out[..., whole:])


def copy_pixels(out: Array, source: Array) -> None:
    """Copy `source` to `out`, two (n, h, w, c) arrays in whatever order their axes lie in memory."""
    pixels_last, to_pixels_last = (
        array.strides[3] != array.itemsize == array.strides[2] and array.shape[3] > 1
        for array in (source, out)
    )
    if to_pixels_last and not pixels_last:
        swap_last_two(out.swapaxes(2, 3), source)
    else:
        # The other way NumPy reads long runs, and is as fast.
        convert(out, source)


def with_zeros_around(
    images: Array, rows: range, columns: range, dtype: np.dtype[Any], scratch: Scratch
) -> Array:
    """Return pixels `rows` by `columns` of `images`, zeros where these lie outside.

    Parameters
    ----------
    images : (n, h, w, c), any supported dtype, any strides
    rows, columns : positions, also negative ones and ones beyond the last
    dtype : of the copy
    scratch : for the copy

    Returns
    -------
    (n, rows, columns, c), C-contiguous
    """
    n, height, width, channels = images.shape
    i, j = clip(rows.start, rows.stop, 0, height), clip(columns.start, columns.stop, 0, width)
    padded = scratch.array("padded", (n, len(rows), len(columns), channels), dtype)
    inner = padded[:, i.start - rows.start : i.stop - rows.start]
    padded[:, : i.start - rows.start] = 0
    padded[:, i.stop - rows.start :] = 0
    inner[:, :, : j.start - columns.start] = 0
    inner[:, :, j.stop - columns.start :] = 0
    place = inner[:, :, j.start - columns.start : j.stop - columns.start]
    copy_pixels(place, images[:, i.start : i.stop, j.start : j.stop])
    return padded


def copy_planes(out: Array, source: Array, scratch: Scratch) -> None:
    """Copy pixels to planes, converting them if need be.

    Parameters
    ----------
    out : (c, rows, n, columns), any strides
    source : (n, rows, columns, c), any supported dtype, any strides
    scratch : for numbers converted on the way
    """
    out = out.transpose(2, 1, 0, 3)  # (n, rows, c, columns)
    pixels_last = source.strides[3] != source.itemsize == source.strides[2]
    if source.dtype != out.dtype and not pixels_last:
        # Numbers are converted in the order they lie, then swapped: each at its own best speed.
        staged = scratch.array("staged", source.shape, out.dtype)
        convert(staged, source)
        source = staged
    swap_last_two(out, source)
