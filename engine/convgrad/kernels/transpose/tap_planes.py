"""tap_planes: one product for all taps, pixels last, then shifted additions of planes. Few output channels.

With filters as (kh*kw*Cout, Cin) one product

    (kh*kw*Cout, Cin) @ (Cin, pixels)

gives a plane of products for every tap and output channel: as many rows as taps keep BLAS busy where the
output channels alone, 3 in an image or 1 in a luminance, would not. Tap ``(u, v)`` adds its plane to that
of its stride phases, ``shift_u`` rows and ``shift_v`` columns farther on. Pixels lie as (row, image, column)
with zeros after the columns of each row, as many as shifts differ by: so a shift is a distance within one
run of numbers, rows that fall outside are left out, and columns that fall outside meet zeros. At the end the
planes of phases and channels are woven into the result. The zeros make NaN of an inf filter: such a block is
computed again by the general kernel.

The last layer of a DCGAN or an FSRCNN runs here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, block_counts
from convgrad.geometry import ceil_div, clip
from convgrad.kernels.costs import Work
from convgrad.kernels.products import Products
from convgrad.kernels.sums import CHAIN, GROUP, ShortChains
from convgrad.kernels.transposition import copy_pixels
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .cutting import groups_of, pixel_blocks
from .kernel import TransposeKernel

Array = npt.NDArray[Any]

#: Pixels of a block, numbers in its products, and output channels.
PIXELS, PRODUCTS, OUTPUTS = 2**14, 2**20, 16
#: Taps times output channels at most.
MOST = 2**11


def prepare(filters: Array, problem: Problem, dtype: np.dtype[Any]) -> Array:
    """Return filters (kh, kw, Cout, Cin) in `dtype`, C-contiguous: as they are if they are so."""
    # NumPy multiplies what is not aligned without BLAS, and so to other bits.
    return np.require(filters, dtype, ["C", "A"])


def compute(
    images: Array, filters: Array, problem: Problem, block: Block, out: Array, scratch: Scratch
) -> Array:
    """Fill `out` with the block's results; see `kernel.Compute`."""
    height, width = problem.height, problem.width
    n, outputs, dtype = len(images), len(block.channels), problem.working_dtype
    groups, lines = groups_of(width, block.columns), groups_of(height, block.rows)
    (up, down), (left, right) = height.shifts, width.shifts
    # Narrow pixels under the block, and the zeros that a shift may bring in or wrap to.
    i = clip(lines.start - down, lines.stop - up, 0, height.narrow)
    j = clip(groups.start - right, groups.stop - left, 0, width.narrow)
    # A pixel of column j lands on columns j+left to j+right, a group of the block on `groups`.
    pitch = max(j.stop + right, groups.stop) - min(j.start + left, groups.start)
    line = n * pitch
    planes = (height.stride, width.stride, outputs)
    # One run for each phase and channel, with room for a shift beyond its last row.
    sums = scratch.array("sums", (*planes, len(lines) * line + pitch), dtype)
    pixels = scratch.array("pixels", (len(i), n, pitch, problem.channels), dtype)
    pixels[:, :, len(j) :] = 0
    if i and j:
        copy_pixels(pixels[:, :, : len(j)].swapaxes(0, 1), images[:, i.start : i.stop, j.start : j.stop])
    taps = height.kernel * width.kernel
    kernel = filters[:, :, block.channels.start : block.channels.stop].reshape(taps * outputs, -1)
    products = Products(problem.channels, kernel.shape[0] * len(i) * line, dtype, scratch)
    parts = products.parts(kernel, pixels.reshape(len(i) * line, problem.channels).T)
    for part in parts[1:]:
        parts[0] += part
    by_tap = parts[0].reshape(height.kernel, width.kernel, outputs, len(i) * line)
    # Where column 0 of the pixels and of the groups lie in a row.
    origin = min(j.start + left, groups.start)
    most, rows_of, columns_of = _most(problem), height.taps_by_phase, width.taps_by_phase
    for p in range(height.stride):
        for q in range(width.stride):
            total = ShortChains(sums[p, q], most, scratch)
            for u, below in rows_of.get(p, []):
                met = clip(lines.start - below, lines.stop - below, i.start, i.stop)
                run = len(met) * line
                if not run:
                    continue
                for v, beside in columns_of.get(q, []):
                    start = (met.start + below - lines.start) * line + j.start + beside - origin
                    where = (slice(None), slice(start, start + run))
                    products_of = by_tap[u, v][:, (met.start - i.start) * line : (met.stop - i.start) * line]
                    target = total.target(where, clear=True)
                    np.add(target, products_of, out=target)
            total.finish()
    grid = sums[..., : len(lines) * line].reshape(*planes, len(lines), n, pitch)
    grid = grid[..., groups.start - origin : groups.stop - origin]
    _weave(out, grid.transpose(4, 3, 0, 5, 1, 2), block, lines, groups, problem)
    return sums.reshape(-1)


def _weave(out: Array, grid: Array, block: Block, lines: range, groups: range, problem: Problem) -> None:
    """Copy (n, row groups, phases, column groups, phases, outputs) to (n, rows, columns, outputs)."""
    tall, wide = problem.height.stride, problem.width.stride
    # Phase by phase and channel by channel: an inner axis of three numbers would be slow.
    for p in range(tall):
        rows = slice((p - block.rows.start) % tall, None, tall)
        first_row = -(-(block.rows.start - p) // tall) - lines.start
        for q in range(wide):
            columns = slice((q - block.columns.start) % wide, None, wide)
            first = -(-(block.columns.start - q) // wide) - groups.start
            place = out[:, rows, columns]
            part = grid[:, first_row : first_row + place.shape[1], p, first : first + place.shape[2], q]
            for o in range(out.shape[3]):
                place[..., o] = part[..., o]


def accepts(problem: Problem) -> bool:
    """Whether there are few enough planes, and what lies around a block does not outweigh it."""
    (up, down), (left, right) = problem.height.shifts, problem.width.shifts
    planes = problem.taps * min(problem.outputs, OUTPUTS)
    return (
        problem.dtype != np.float64
        and problem.multiply_adds > 0
        and planes <= MOST
        and planes * (down - up + 1) * (right - left + 1) <= PRODUCTS // 4
        and right - left <= 2 * problem.width.narrow
    )


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem so that the products stay near the cache, those of rows around a block too."""
    (up, down), planes = problem.height.shifts, problem.taps * min(problem.outputs, OUTPUTS)
    around = (down - up) * ceil_div(problem.width.wide, problem.width.stride)
    pixels = max(PRODUCTS // planes - around, PRODUCTS // (planes * (down - up + 1)), 1)
    return pixel_blocks(problem, min(PIXELS, pixels), OUTPUTS)


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, sizes = problem.height, problem.width, block_sizes(problem)
    images, rows, columns, parts = block_counts(problem, sizes)
    blocks = images * rows * columns * parts
    (left, right), (_, pairs), (wide, _) = width.shifts, height.met, width.met
    pitch = max(width.narrow + right - left, ceil_div(width.wide, width.stride))
    pixels, pieces = problem.batch * height.narrow * pitch, ceil_div(problem.channels, CHAIN)
    planes = problem.taps * problem.outputs
    read = problem.batch * height.narrow * width.narrow * problem.channels * parts
    written = problem.batch * height.wide * width.wide * problem.outputs
    added = problem.batch * pairs * pitch * problem.outputs * wide
    pixels_last = problem.data_format == "NHWC"
    return Work(
        calls=blocks * (25 + problem.taps * 4.5 + height.stride * width.stride * (8 + 2 * sizes.channels)),
        multiply_adds=pixels * problem.channels * planes,
        packed=problem.channels * (pixels * parts + blocks * planes),
        moved=pixels * planes * (pieces + 1)
        + added * (1 + 2 * (_most(problem) > GROUP))
        + 3 * written
        + read,
        scattered=written if pixels_last else read,
    )


def _most(problem: Problem) -> int:
    """Return the most taps that one result may have."""
    tall, wide = (max(map(len, axis.taps_by_phase.values())) for axis in (problem.height, problem.width))
    return tall * wide


KERNEL = TransposeKernel(
    name="tap_planes",
    accepts=accepts,
    work=work,
    block_sizes=block_sizes,
    prepare=prepare,
    compute=compute,
    halo=1,
)
