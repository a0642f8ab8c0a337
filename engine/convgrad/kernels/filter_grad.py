"""Depthwise filter gradient, tap by tap, on channel planes.

For tap ``(u, v)`` and channels ``(c, m)`` the gradient is one long sum over images, rows and columns,

    out[u, v, c, m] = sum input[n, i*sh + u*dh - top, j*sw + v*dw - left, c] * out_backprop[n, i, j, c*M + m],

over the narrow pixels whose wide pixel exists. The block's operands are copied to planes, channel first and
pixels last, so that all channels of a tap are one elementwise product and one sum along the last axis.
NumPy adds a contiguous axis pairwise (runs of at most 16 terms per accumulator), so the error of a block
does not grow with its length. Rows and columns that a tap does not reach are cut off, not multiplied by zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.dtypes import Float64, to_float64
from convgrad.geometry import Axis
from convgrad.plan import Block


def filter_grad_block(
    input: npt.NDArray[Any],
    out_backprop: npt.NDArray[Any],
    axes: tuple[Axis, Axis],
    block: Block,
) -> Float64:
    """The block's share in the filter gradient of its channels, in float64.

    Parameters
    ----------
    input : (n, H, W, C), any supported dtype, any strides: the block's images and channels
    out_backprop : (n, h, w, C, M), likewise
    axes : height and width
    block : its rows and columns are narrow positions

    Returns
    -------
    (kh, kw, C, M) float64
    """
    (height, width), rows, columns = axes, block.rows, block.columns
    channels, multiplier = out_backprop.shape[3:]
    share = np.zeros((height.kernel, width.kernel, channels, multiplier))
    planes = to_float64(
        out_backprop[:, rows.start : rows.stop, columns.start : columns.stop].transpose(3, 4, 1, 0, 2)
    )  # (C, M, rows, n, columns)
    by_channel = input.transpose(3, 1, 0, 2)  # (C, H, n, W)
    reach = width.wide_reach(columns)
    # With wide strides or dilations the taps of a row use few of the columns between them.
    together = len(reach) <= width.kernel * len(columns)
    products = np.empty(planes.size)
    for u in range(height.kernel):
        i = _within(height.narrow_range(u, range(height.wide)), rows)
        if not i:
            continue
        lines = by_channel[:, height.wide_slice(u, i)]
        shared = to_float64(lines[..., reach.start : reach.stop]) if together else None
        gradients = planes[:, :, i.start - rows.start : i.stop - rows.start]
        for v in range(width.kernel):
            j = _within(width.narrow_range(v, range(width.wide)), columns)
            if not j:
                continue
            if shared is None:
                met = to_float64(lines[..., width.wide_slice(v, j)])
            else:
                met = shared[..., width.wide_slice(v, j, reach.start)]
            against = gradients[..., j.start - columns.start : j.stop - columns.start]
            product = products[: against.size].reshape(against.shape)
            np.multiply(met[:, None], against, out=product)
            share[u, v] = product.reshape(channels, multiplier, -1 if product.size else 0).sum(axis=-1)
    return share


def _within(some: range, bounds: range) -> range:
    return range(max(some.start, bounds.start), min(some.stop, bounds.stop))
