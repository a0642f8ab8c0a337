"""direct: products of whole rows, pixels and channels together, added up row by row. NHWC, no multiplier.

In NHWC a row is one run of numbers, column after column, and under tap ``v`` the run of `out_backprop` meets
the input's run that starts ``v*d`` columns farther on. So the taps of a kernel row are one sum of products,

    sums[v, (j, c)] = sum over n, i of input[n, i*s + u*d, (j*s + v*d, c)] * out_backprop[n, i, (j, c)],

on an overlapping view, and the columns `j` of its result are added at the end. The input is copied to rows
with the padding's zeros around them, in long runs; `out_backprop` is used as it lies. With a stride `s` along
the row its pixels are repeated `s` times, so that the input is still met as one run: repetition ``r`` of
the run that starts at ``shift`` makes tap ``v = shift + r``, and ``ceil(k/s)`` runs serve all taps. One
accumulator gets one term a row, so no chain is longer than the `ROWS` of a block; columns and blocks are
added in float64. The zeros make NaN of a NaN or inf beside them: such a block is computed again by the
general kernel.

This multiplies at a third of the speed of `planes`, but moves next to nothing: best for the 3x3 kernels of a
MobileNet at stride 2, where planes of four phases would be needed, and for its many channels on few pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, at_most, block_counts, even
from convgrad.dtypes import Float64, convert
from convgrad.geometry import Axis
from convgrad.kernels.costs import Work
from convgrad.kernels.transposition import with_zeros_around
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .kernel import FilterGradKernel

Array = npt.NDArray[Any]

#: Rows of a block, of all its images together: the longest chain of additions.
ROWS = 48
#: Numbers of one operand in a block (2 MB of float32).
ELEMENTS = 2**19
#: Numbers in the sums of one kernel row at most.
SUMS = 2**20


def starts(axis: Axis) -> range:
    """Return where the runs that serve all taps start, in wide positions from the first tap on."""
    step = max(axis.stride, axis.dilation)
    return range(0, (axis.kernel - 1) * axis.dilation // step * step + 1, step)


def compute(input: Array, out_backprop: Array, problem: Problem, block: Block, scratch: Scratch) -> Float64:
    """Return the block's share; see `kernel.Compute`."""
    height, width = problem.height, problem.width
    n, _, _, channels = input.shape
    runs, columns = starts(width), len(block.columns)
    padded = _padded(input, problem, block, scratch)
    gradients = _repeated(out_backprop, problem, block, scratch)
    numbers = columns * width.stride * channels
    image, line, one = padded.strides[0], padded.strides[1], padded.itemsize
    share = np.empty((height.kernel, width.kernel, channels, 1))
    sums = scratch.array("sums", (len(runs), numbers), padded.dtype)
    for u in range(height.kernel):
        met = np.ndarray(
            (len(runs), n, len(block.rows), numbers),
            padded.dtype,
            padded,
            u * height.dilation * line,
            (runs.step * channels * one, image, height.stride * line, one),
        )
        np.einsum("vnrk,nrk->vk", met, gradients, out=sums)
        by_tap = sums.reshape(len(runs), columns, width.stride, channels).sum(axis=1, dtype=np.float64)
        share[u, :, :, 0] = by_tap.reshape(-1, channels)[: width.kernel]
    return share


def _padded(input: Array, problem: Problem, block: Block, scratch: Scratch) -> Array:
    """Return (n, rows, columns*c): the pixels that the block meets, zeros where there are none."""
    height, width = problem.height, problem.width
    top = block.rows.start * height.stride - height.pad_before
    left = block.columns.start * width.stride - width.pad_before
    rows = range(top, top + (len(block.rows) - 1) * height.stride + height.effective_kernel)
    columns = range(left, left + len(block.columns) * width.stride + starts(width)[-1])
    padded = with_zeros_around(input, rows, columns, problem.working_dtype, scratch)
    return padded.reshape(len(padded), len(rows), -1)


def _repeated(out_backprop: Array, problem: Problem, block: Block, scratch: Scratch) -> Array:
    """Return (n, rows, columns*s*c) of (n, h, w, c, 1): as it lies if that will do."""
    rows, columns, stride = block.rows, block.columns, problem.width.stride
    some = out_backprop[:, rows.start : rows.stop, columns.start : columns.stop, :, 0]
    n, h, w, channels = some.shape
    if (
        stride == 1
        and some.flags.aligned
        and some.dtype == problem.working_dtype
        and some.strides[2:] == (channels * 4, 4)
    ):
        return some.reshape(n, h, -1)
    repeated = scratch.array("repeated", (n, h, w, stride, channels), problem.working_dtype)
    convert(repeated, np.broadcast_to(some[:, :, :, None], repeated.shape))
    return repeated.reshape(n, h, -1)


def accepts(problem: Problem) -> bool:
    """Whether rows are runs in which the taps are evenly spaced."""
    axis = problem.width
    return (
        problem.data_format == "NHWC"
        and problem.outputs == 1
        and problem.dtype != np.float64
        and min(axis.stride, axis.dilation) == 1
        and problem.multiply_adds > 0
        and _one_column(problem) <= SUMS
    )


def _one_column(problem: Problem) -> int:
    """Return how many numbers the smallest block takes: its sums, or the rows that its one row meets."""
    height, width = problem.height, problem.width
    runs, tall = starts(width), max(height.stride, height.effective_kernel)
    return problem.channels * max(len(runs) * width.stride, tall * (width.stride + runs[-1]))


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem: all channels, whole rows unless one is too long, few enough rows for short chains."""
    height, width = problem.height, problem.width
    runs, channels = starts(width), max(problem.channels, 1)
    tall = max(height.stride, height.effective_kernel)
    fitting = min(SUMS // (len(runs) * channels), 2 * SUMS // (tall * channels) - runs[-1]) // width.stride
    columns = even(width.narrow, max(fitting, 1))
    row = (columns * width.stride + runs[-1]) * channels
    # A row of taps meets rows beyond the block's own: of tall kernels more than of low ones.
    most = at_most(ROWS, ELEMENTS // max(row * min(height.stride, height.kernel), 1))
    rows = even(height.narrow, most)
    images = even(problem.batch, most // rows) if rows == height.narrow else 1
    return BlockSizes(images, rows, columns, problem.channels)


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, sizes = problem.height, problem.width, block_sizes(problem)
    images, rows, columns, _ = block_counts(problem, sizes)
    blocks, runs = images * rows * columns, starts(width)
    lines = problem.batch * height.narrow
    numbers = width.narrow * width.stride * problem.channels
    padded = sizes.columns * width.stride + runs[-1]
    met_lines = blocks * sizes.images * ((sizes.rows - 1) * height.stride + height.effective_kernel)
    repeated = width.stride > 1
    # Taps of odd numbers of channels start at odd places: loads that straddle cache lines.
    odd = problem.channels % 4 > 0
    folded = blocks * height.kernel * len(runs) * sizes.columns * width.stride
    return Work(
        calls=blocks * (25 + height.kernel * 8),
        moved=met_lines * padded * problem.channels + lines * numbers * repeated,
        # An einsum takes as long to begin a row as a copy takes for three.
        runs=lines * (3 * height.kernel * len(runs) * columns + width.narrow * width.stride * repeated)
        + met_lines,
        summed=lines * height.kernel * len(runs) * numbers * (1.4 if odd else 1),
        doubles=problem.channels * (folded + blocks * problem.taps * 6),
        double_runs=folded,
    )


KERNEL = FilterGradKernel(
    name="direct",
    accepts=accepts,
    work=work,
    block_sizes=block_sizes,
    compute=compute,
)
