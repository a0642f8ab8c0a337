"""gather: im2col. All taps of a result side by side, one product makes finished results. Few channels.

Tap ``u`` carries narrow row ``i`` to row ``i + shift_u`` of its stride phase, so every result of row group
``a`` and column group ``g`` is made from one window of narrow pixels, ``(a - shift_u, g - shift_v)``. The
windows of a block are copied to

    patches (image, row group, column group, (shift_u, shift_v, Cin)),

the greatest shift first, so that the pixels of a window row lie in the input's own order and are copied as
one run; and the filters are laid out as (stride phase of columns, Cout) by (shift_u, shift_v, Cin), zero
where a phase has no tap. For each row phase one product, with the window rows that have a tap there, makes
whole rows of the result. Nothing is added afterwards: with as few channels as the 21 of an FCN's upsampling,
the products of `taps` would be short, and adding them dear. The zeros, of padding and of lacking taps, make
NaN of a NaN or inf: such a block is computed again by the general kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, block_counts
from convgrad.geometry import ceil_div
from convgrad.kernels.costs import Work
from convgrad.kernels.products import Products, put
from convgrad.kernels.sums import CHAIN
from convgrad.kernels.transposition import FEW, with_zeros_around
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .cutting import groups_of, pixel_blocks
from .kernel import TransposeKernel
from .storing import store_groups

Array = npt.NDArray[Any]

#: Pixels and output channels of a block at most, and numbers in its patches.
PIXELS, OUTPUTS, PATCHES = 1600, 256, 2**20
#: Numbers in a window, and in the filters as they are laid out, at most.
WINDOW, LAID = 2**12, 2**22


class Laid(NamedTuple):
    """Filters of one row phase: (stride, Cout, the window rows `rows`, window columns, Cin)."""

    rows: slice
    matrix: Array


def prepare(filters: Array, problem: Problem, dtype: np.dtype[Any]) -> dict[int, Laid]:
    """Lay out filters (kh, kw, Cout, Cin) by row phase; phases without a tap are left out."""
    height, width = problem.height, problem.width
    (left, right), channels = width.shifts, problem.channels
    laid = {}
    for phase, taps in height.taps_by_phase.items():
        low, high = taps[0][1], taps[-1][1]
        shape = (width.stride, problem.outputs, high - low + 1, right - left + 1, channels)
        matrix = np.zeros(shape, dtype)
        for u, down in taps:
            for v in range(width.kernel):
                across, column = width.shift_and_phase(v)
                matrix[column, :, high - down, right - across] = filters[u, v]
        # Window rows are counted from the one of the greatest shift of all.
        first = height.shifts[1] - high
        laid[phase] = Laid(slice(first, first + high - low + 1), matrix)
    return laid


def compute(
    images: Array, filters: dict[int, Laid], problem: Problem, block: Block, out: Array, scratch: Scratch
) -> Array:
    """Fill `out` with the block's results; see `kernel.Compute`."""
    height, width = problem.height, problem.width
    dtype, outputs, n = problem.working_dtype, len(block.channels), len(images)
    groups, lines = groups_of(width, block.columns), groups_of(height, block.rows)
    patches = _patches(images, problem, lines, groups, scratch)
    stride = width.stride
    shape = (n, len(lines) * height.stride, len(groups), stride, outputs)
    whole_rows = len(block.rows) == shape[1] and len(block.columns) == len(groups) * stride
    in_place = whole_rows and out.dtype == dtype and out[0].flags.c_contiguous and outputs == problem.outputs
    every = out.reshape(shape) if in_place else scratch.array("sums", shape, dtype)
    for phase in range(height.stride):
        rows = every[:, phase :: height.stride]
        if phase not in filters:
            rows[...] = 0
            continue
        laid = filters[phase]
        left = patches[:, :, :, laid.rows].reshape(n * len(lines) * len(groups), -1)
        right = laid.matrix[:, block.channels.start : block.channels.stop]
        right = right.reshape(stride * outputs, left.shape[1]).T
        products = Products(left.shape[1], left.shape[0] * right.shape[1], dtype, scratch)
        put(rows, [part.reshape(rows.shape) for part in products.parts(left, right)], add=False)
    if not in_place:
        first_row, first = (
            block.rows.start - lines.start * height.stride,
            block.columns.start - groups.start * stride,
        )
        cut = every[:, first_row : first_row + len(block.rows)]
        store_groups(out, cut.transpose(1, 2, 0, 3, 4), first)
    return every.reshape(-1)


def _patches(images: Array, problem: Problem, lines: range, groups: range, scratch: Scratch) -> Array:
    """Return (n, row groups, column groups, window rows, window columns * Cin)."""
    n, _, _, channels = images.shape
    dtype = problem.working_dtype
    (up, down), (left, right) = problem.height.shifts, problem.width.shifts
    rows = range(lines.start - down, lines.stop - up)
    columns = range(groups.start - right, groups.stop - left)
    padded = with_zeros_around(images, rows, columns, dtype, scratch)
    tall, wide = len(rows) - len(lines) + 1, len(columns) - len(groups) + 1
    patches = scratch.array("patches", (n, len(lines), len(groups), tall, wide * channels), dtype)
    image, line, pixel, one = padded.strides
    views = np.ndarray(patches.shape, dtype, padded, 0, (image, line, pixel, line, one))
    np.copyto(patches, views)
    return patches


def accepts(problem: Problem) -> bool:
    """Whether windows are small enough to be copied."""
    return problem.dtype != np.float64 and problem.multiply_adds > 0 and _fits(problem)


def _fits(problem: Problem) -> bool:
    numbers = _numbers(problem)
    # Windows of one pixel need no patches: `taps` does the same without.
    return problem.channels < numbers <= WINDOW and numbers * problem.width.stride * problem.outputs <= LAID


def _numbers(problem: Problem) -> int:
    """Return how many numbers a window has."""
    numbers = problem.channels
    for axis in (problem.height, problem.width):
        least, most = axis.shifts
        numbers *= most - least + 1
    return numbers


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem so that patches stay in cache."""
    return pixel_blocks(problem, min(PIXELS, max(PATCHES // _numbers(problem), 1)), OUTPUTS)


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, sizes = problem.height, problem.width, block_sizes(problem)
    images, rows, columns, parts = block_counts(problem, sizes)
    blocks = images * rows * columns
    lines, groups = ceil_div(height.wide, height.stride), ceil_div(width.wide, width.stride)
    windows, (least, most) = problem.batch * lines * groups, width.shifts
    across, up_down = (most - least + 1) * problem.channels, height.shifts
    terms = [(taps[-1][1] - taps[0][1] + 1) * across for taps in height.taps_by_phase.values()]
    pieces = sum(ceil_div(count, CHAIN) for count in terms)
    results, all_terms = width.stride * problem.outputs, sum(terms)
    read = problem.batch * height.narrow * width.narrow * problem.channels * parts
    written = problem.batch * height.wide * width.wide * problem.outputs
    moved = windows * (results * pieces * 2 + _numbers(problem) * parts * 4) + read + all_terms * results
    runs: float = windows * (up_down[1] - up_down[0] + 1) * parts + problem.batch * lines * len(terms)
    swapped = scattered = 0.0
    if problem.data_format == "NCHW":
        swapped = written * (problem.outputs >= FEW)
        scattered = read + written - swapped
    elif parts > 1 or height.wide % height.stride or width.wide % width.stride:
        moved += 2 * written
        runs += written / (sizes.channels * width.stride)
    return Work(
        calls=blocks * parts * (45 + 4 * len(terms) + 2 * pieces) + problem.taps * 2,
        # A product has vectors of 16 results.
        multiply_adds=all_terms * windows * ceil_div(results, 16) * 16,
        packed=all_terms * (windows * parts + blocks * results),
        moved=moved,
        runs=runs,
        swapped=swapped,
        scattered=scattered,
    )


KERNEL = TransposeKernel(
    name="gather",
    accepts=accepts,
    work=work,
    block_sizes=block_sizes,
    prepare=prepare,
    compute=compute,
    halo=1,
)
