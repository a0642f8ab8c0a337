"""toeplitz: products of all pairs of columns, of which the taps are diagonals. Large kernels at stride 1.

For one channel and kernel row ``u``, the product over rows and images

    pairs[j, x] = sum over n, i of out_backprop[n, i, j] * input[n, i + u*d - top, x]

holds the share of every pair of columns, and tap ``v`` is the sum of its diagonal ``x = j + v*d - left``. Of
the pairs a kernel as wide as the image needs nearly all, and a matrix product forms them several times faster
than dot products would: a RepLKNet 31x31 on 28 pixels runs here. Narrow kernels need few and run elsewhere.
Rows that ``u`` does not reach are left out of the product. The diagonals are rows of a view of `pairs` whose
rows start one number later each, with zeros in the margins where a diagonal leaves the image. Chains are the
rows and images of a block, at most `ROWS`, and `TOGETHER` columns of a diagonal; all else is added in
float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, block_counts, even, shared_out
from convgrad.dtypes import Float64
from convgrad.geometry import ceil_div, clip
from convgrad.kernels.costs import Work
from convgrad.kernels.transposition import copy_planes
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .kernel import FilterGradKernel

Array = npt.NDArray[Any]

#: Rows of a block, of all its images together: the longest chain of additions. Columns of a block.
ROWS, COLUMNS = 56, 48
#: Columns that are added in float32, in a chain with the rows.
TOGETHER = 4
#: Numbers in the pairs of a block at most.
PAIRS = 2**19
#: Channels below which copying them takes longer.
FEW_CHANNELS = 16


def compute(input: Array, out_backprop: Array, problem: Problem, block: Block, scratch: Scratch) -> Float64:
    """Return the block's share; see `kernel.Compute`."""
    height, width, rows, columns = problem.height, problem.width, block.rows, block.columns
    n, _, _, channels, multiplier = out_backprop.shape
    reach, across = height.wide_reach(rows), width.wide_reach(columns)
    share = np.zeros((height.kernel, width.kernel, channels, multiplier))
    if not reach or not across:
        return share
    some = input[:, reach.start : reach.stop, across.start : across.stop]
    planes = scratch.array("input planes", (channels, len(reach), n, len(across)), np.float32)
    copy_planes(planes, some, scratch)
    some = out_backprop[:, rows.start : rows.stop, columns.start : columns.stop]
    gradients = scratch.array(
        "gradient planes", (channels, multiplier, len(rows), n, len(columns)), np.float32
    )
    copy_planes(
        gradients.reshape(-1, *gradients.shape[2:]),
        some.reshape(*some.shape[:3], channels * multiplier),
        scratch,
    )
    # A row of pairs begins where the block's first column meets tap 0.
    before = across.start - (columns.start - width.pad_before)
    pitch = len(columns) - 1 + width.effective_kernel
    pairs = scratch.array("pairs", (channels, multiplier, len(columns), pitch), np.float32)
    pairs[...] = 0
    inside = pairs[..., before : before + len(across)]
    diagonals = np.ndarray(
        (channels, multiplier, len(columns), width.kernel),
        np.float32,
        pairs,
        0,
        (*pairs.strides[:2], pairs.strides[2] + 4, width.dilation * 4),
    )
    sets = np.arange(ceil_div(len(columns), TOGETHER))
    adding = (np.arange(len(columns)) // TOGETHER == sets[:, None]).astype(np.float32)
    for u in range(height.kernel):
        i = height.narrow_range(u, range(height.wide))
        i = clip(i.start, i.stop, rows.start, rows.stop)
        if not i:
            continue
        met = height.wide_slice(u, i, reach.start)
        right = planes[:, met].reshape(channels, 1, -1, len(across))
        against = gradients[:, :, i.start - rows.start : i.stop - rows.start]
        against = against.reshape(channels, multiplier, -1, len(columns))
        np.matmul(against.swapaxes(-1, -2), right, out=inside)
        # BLAS adds such short runs many times as fast as NumPy does.
        few = np.matmul(adding, diagonals)
        share[u] = few.sum(axis=2, dtype=np.float64).transpose(2, 0, 1)
    return share


def accepts(problem: Problem) -> bool:
    """Whether rows and columns follow each other without strides."""
    return (
        problem.height.stride == problem.width.stride == 1
        and problem.dtype != np.float64
        and problem.multiply_adds > 0
        and _one_channel(problem) <= 2 * PAIRS
    )


def _one_channel(problem: Problem) -> int:
    """Return how many numbers one channel of a block takes: its pairs, or the input it meets."""
    pitch = COLUMNS + problem.width.effective_kernel
    met = (ROWS + problem.height.effective_kernel) * min(pitch, problem.width.wide)
    return max(COLUMNS * pitch * problem.outputs, met)


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem: rows and columns for short chains, channels for the room their pairs take."""
    height, width, multiplier = problem.height, problem.width, problem.outputs
    columns = even(width.narrow, COLUMNS)
    rows = even(height.narrow, ROWS)
    images = even(problem.batch, ROWS // rows) if rows == height.narrow else 1
    pitch = columns + width.effective_kernel
    met = min(rows + height.effective_kernel, height.wide) * images * min(pitch, width.wide)
    channels = even(problem.channels, PAIRS // max(columns * pitch * multiplier, met, 1))
    return shared_out(problem, BlockSizes(images, rows, columns, channels), FEW_CHANNELS)


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, sizes = problem.height, problem.width, block_sizes(problem)
    blocks = math.prod(block_counts(problem, sizes))
    tall, pairs = height.met
    across = min(sizes.columns - 1 + width.effective_kernel, width.wide)
    met_lines = blocks * sizes.images * min(sizes.rows + height.effective_kernel, height.wide)
    gradients = problem.batch * height.narrow * width.narrow * problem.channels * problem.outputs
    copied = met_lines * across * sizes.channels + gradients
    # Products of one kernel row, one for each channel and multiple.
    planes = sizes.channels * problem.outputs
    products = blocks * tall * planes
    diagonals = products * sizes.columns
    pixels_last = problem.data_format == "NHWC"
    margins = blocks * planes * sizes.columns * (sizes.columns + width.effective_kernel)
    return Work(
        calls=blocks * (25 + tall * 12),
        multiply_adds=problem.batch * pairs * problem.channels * problem.outputs * across * width.narrow,
        packed=products * sizes.rows * sizes.images * (across + sizes.columns),
        moved=1.5 * diagonals * (across + width.kernel) + margins + copied * (not pixels_last),
        runs=diagonals * min(width.dilation, 2) + blocks * sizes.channels * sizes.rows,
        swapped=copied * pixels_last,
        dots=4 * products,
        scattered=diagonals * width.kernel * (width.dilation > 1),
        doubles=blocks * problem.taps * planes * 6,
    )


KERNEL = FilterGradKernel(
    name="toeplitz",
    accepts=accepts,
    work=work,
    block_sizes=block_sizes,
    compute=compute,
)
