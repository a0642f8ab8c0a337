"""sums: tap by tap, products and pairwise sums in float64. The general kernel.

For tap ``(u, v)`` and channels ``(c, m)`` the gradient is one long sum over images, rows and columns,

    out[u, v, c, m] = sum input[n, i*sh + u*dh - top, j*sw + v*dw - left, c] * out_backprop[n, i, j, c*M + m],

over the narrow pixels whose wide pixel exists. The block's operands are copied to planes, channel first and
pixels last, so that all channels of a tap are one elementwise product and one sum along the last axis.
NumPy adds a contiguous axis pairwise (runs of at most 16 terms per accumulator), so the error of a block
does not grow with its length. Rows and columns that a tap does not reach are cut off, not multiplied by zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, at_most, block_counts
from convgrad.dtypes import Float64, to_float64
from convgrad.geometry import clip
from convgrad.kernels.costs import Work
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .kernel import FilterGradKernel

#: Elements that one block's largest float64 array may hold (2 MB: a few of them stay in a core's caches).
BLOCK_ELEMENTS = 2**18


def compute(
    input: npt.NDArray[Any],
    out_backprop: npt.NDArray[Any],
    problem: Problem,
    block: Block,
    scratch: Scratch,
) -> Float64:
    """Return the block's share; see `kernel.Compute`."""
    height, width, rows, columns = problem.height, problem.width, block.rows, block.columns
    channels, multiplier = out_backprop.shape[3:]
    share = np.zeros((height.kernel, width.kernel, channels, multiplier))
    planes = to_float64(
        out_backprop[:, rows.start : rows.stop, columns.start : columns.stop].transpose(3, 4, 1, 0, 2)
    )  # (C, M, rows, n, columns)
    reach = width.wide_reach(columns)
    # With wide strides or dilations the taps of a row use few of the columns between them.
    together = len(reach) <= width.kernel * len(columns)
    products = np.empty(planes.size)
    for u in range(height.kernel):
        i = height.narrow_range(u, range(height.wide))
        i = clip(i.start, i.stop, rows.start, rows.stop)
        if not i:
            continue
        lines = input[:, height.wide_slice(u, i)].transpose(3, 1, 0, 2)  # (C, rows, n, W)
        shared = to_float64(lines[..., reach.start : reach.stop]) if together else None
        gradients = planes[:, :, i.start - rows.start : i.stop - rows.start]
        for v in range(width.kernel):
            j = width.narrow_range(v, range(width.wide))
            j = clip(j.start, j.stop, columns.start, columns.stop)
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


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem: as many channels as leave room for long sums, then pixels, then images."""
    height, width, multiplier = problem.height, problem.width, max(problem.outputs, 1)
    pixels = max(height.narrow * width.narrow * problem.batch, 1)
    # Sums of a few hundred terms keep NumPy's inner loops long; more channels at a time would shorten them.
    some = at_most(problem.channels, BLOCK_ELEMENTS // (multiplier * min(pixels, 512)))
    each = some * multiplier
    columns = at_most(width.narrow, BLOCK_ELEMENTS // each)
    reached = min(len(width.wide_reach(range(columns))), columns * width.kernel)
    row = max(columns * each, reached * some, 1)
    rows = at_most(height.narrow, BLOCK_ELEMENTS // row)
    images = at_most(problem.batch, BLOCK_ELEMENTS // (row * rows))
    return BlockSizes(images, rows, columns, some)


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, sizes = problem.height, problem.width, block_sizes(problem)
    _, _, columns, _ = counts = block_counts(problem, sizes)
    blocks, (tall, tall_pairs), (wide, wide_pairs) = math.prod(counts), height.met, width.met
    planes = problem.channels * problem.outputs
    products = problem.batch * tall_pairs * wide_pairs * planes
    met = tall_pairs * min(width.wide, width.kernel * width.narrow) * problem.channels
    converted = problem.batch * (height.narrow * width.narrow * planes + met)
    pixels_last, some = problem.data_format == "NHWC", sizes.channels * problem.outputs
    return Work(
        calls=blocks * (15 + tall * 6 + tall * wide * 10),
        moved=2 * converted * (not pixels_last),
        runs=converted / max(width.narrow, 1) * (not pixels_last),
        scattered=converted * pixels_last,
        doubles=3 * products + blocks * problem.taps * some * 6,
        double_runs=problem.batch * tall_pairs * wide * columns * planes + blocks * some * tall * wide,
    )


KERNEL = FilterGradKernel(
    name="sums",
    accepts=lambda problem: True,
    work=work,
    block_sizes=block_sizes,
    compute=compute,
)
