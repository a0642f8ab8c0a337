"""Transposed convolution, tap by tap.

Tap ``(u, v)`` carries every narrow pixel to one wide pixel,

    out[n, i*sh + u*dh - top, j*sw + v*dw - left, :] += input[n, i, j, :] @ filters[u, v]^T,

so its share of a block is one matrix product, (pixels, Cin) @ (Cin, Cout), added to the wide pixels
``i*sh + const``, ``j*sw + const``: a strided view. Nothing is padded and no zeros are inserted, so every
product is one that the equation names; NaN and inf reach exactly the results whose sum has them.

The block's pixels lie in scratch as (row, image, column, channel): the rows that a tap reaches are then one
contiguous run of pixels for all images together, that is, one long product instead of one per image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.dtypes import Float64, to_float64
from convgrad.geometry import Axis
from convgrad.plan import Block

from .sums import CHAIN, RunningSum


def transpose_block(
    input: npt.NDArray[Any],
    filters: Float64,
    axes: tuple[Axis, Axis],
    block: Block,
    *,
    compensated: bool,
) -> Float64:
    """out[images, rows, columns, :] of the block, in float64.

    Parameters
    ----------
    input : (n, h, w, Cin), any supported dtype, any strides: the images of the block
    filters : (kh, kw, Cin, Cout) float64
    axes : height and width
    block : its rows and columns are wide positions
    compensated : keep chains of additions short (float64 operands)

    Returns
    -------
    (rows, n, columns, Cout) float64
    """
    (height, width), rows, columns = axes, block.rows, block.columns
    n, _, _, channels = input.shape
    outputs = filters.shape[3]
    total = RunningSum((len(rows), n, len(columns), outputs), compensated=compensated)
    chain = CHAIN if compensated else max(channels, 1)
    by_row = input.transpose(1, 0, 2, 3)
    reach = width.narrow_reach(columns)
    # With a wide dilation the taps of a row reach far apart: then each tap copies its own columns.
    together = len(reach) <= width.kernel * len(columns)
    for u in range(height.kernel):
        i = height.narrow_range(u, rows)
        if not i:
            continue
        pixels = to_float64(by_row[i.start : i.stop, :, reach.start : reach.stop]) if together else None
        for v in range(width.kernel):
            j = width.narrow_range(v, columns)
            if not j:
                continue
            own = to_float64(by_row[i.start : i.stop, :, j.start : j.stop]) if pixels is None else pixels
            first = 0 if pixels is None else j.start - reach.start
            where = (height.wide_slice(u, i, rows.start), slice(None), width.wide_slice(v, j, columns.start))
            flat = own.reshape(len(i) * n * own.shape[2], channels)
            for c in range(0, channels, chain):
                product = flat[:, c : c + chain] @ filters[u, v, c : c + chain]
                by_pixel = product.reshape(len(i), n, own.shape[2], outputs)
                total.add(by_pixel[:, :, first : first + len(j)], where)
    return total.result()


def arranged_filters(filters: npt.NDArray[Any]) -> Float64:
    """Return (kh, kw, Cout, Cin) filters as (kh, kw, Cin, Cout) float64, contiguous."""
    return to_float64(filters.transpose(0, 1, 3, 2))


def by_image(block: Float64) -> Float64:
    """View a block's (rows, n, columns, Cout) result as (n, rows, columns, Cout)."""
    return np.moveaxis(block, 1, 0)
