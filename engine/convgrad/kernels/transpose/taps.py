"""taps: one matrix product for each kernel row and column shift, added where it belongs. The general kernel.

A tap ``u`` has ``u*d - top = shift*s + phase``: it carries narrow row ``i`` to row ``i + shift`` of stride
phase ``phase``. Taps ``v`` of one column shift reach different phases from the same narrow pixels, so their
filters, which lie side by side as (count*Cout, Cin), make one wide product

    (pixels, Cin) @ (Cin, count*Cout),

whose row for pixel ``j`` is the run of wide columns ``(j + shift)*s + phase``. It is added to the sums of a
stride phase of rows, laid out as (row, column group, image, phase of columns, Cout): that is the result's own
layout when one image is done at a time, and the sums are then kept in the result itself. NHWC float32
operands are not copied at all: pixels are rows of the matrix as they lie. Where kernel and stride are equal
(a U-Net up-convolution) every result has one tap, and nothing is ever added. Where images are small, several
lie innermost, so that one product serves them all (the head of a GAN: 4 x 4 pixels, 1024 channels). Rows that
a tap does not reach are left out; there are no zeros, no patches, and no tap that the equation does not name,
so NaN and inf reach exactly the results whose sum has them.

A ResNet 3x3 runs here too: im2col would only copy pixels, for sums are cut into short chains anyway.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, block_counts, even
from convgrad.geometry import Axis, ceil_div, clip
from convgrad.kernels.costs import Work
from convgrad.kernels.products import Products, put
from convgrad.kernels.sums import CHAIN, ShortChains
from convgrad.kernels.transposition import FEW, copy_pixels
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .cutting import groups_of, pixel_blocks
from .kernel import TransposeKernel
from .storing import store_groups

Array = npt.NDArray[Any]

#: Columns of a product: beyond these BLAS gains nothing and the product leaves the cache.
WIDEST = 512
#: Output channels of a block.
OUTPUTS = 256
#: Pixels of a block, and numbers in one of its products, at most: more leave the cache.
PIXELS, PRODUCT = 2**12, 2**18
#: Rows of a product below which it is better to compute some that are not needed.
FEW_ROWS = 128
#: Numbers added to each pixel below which NumPy takes three times as long for the run.
FEW_NUMBERS = 16
#: Elements of a block's input that are copied at once; of more, each tap copies its own.
WHOLE = 2**22


class TapRun(NamedTuple):
    """Taps ``first .. first+number`` of one column shift, the first at stride phase `phase`."""

    shift: int
    phase: int
    first: int
    number: int


def tap_runs(axis: Axis, outputs: int, of: int) -> list[TapRun]:
    """Return the taps of an axis in runs of one shift, of `WIDEST` columns at most where they are several.

    Where a block has but some `outputs` of all, the filters of two taps do not lie side by side.
    """
    longest = _longest(outputs, of)
    runs: list[TapRun] = []
    for tap in range(axis.kernel):
        shift, phase = axis.shift_and_phase(tap)
        last = runs[-1] if runs else None
        if last and last.shift == shift and last.number < longest:
            runs[-1] = last._replace(number=last.number + 1)
        else:
            runs.append(TapRun(shift, phase, tap, 1))
    return runs


def _longest(outputs: int, of: int) -> int:
    """Return the most taps of a run."""
    return max(WIDEST // max(outputs, 1), 1) if outputs == of else 1


def prepare(filters: Array, problem: Problem, dtype: np.dtype[Any]) -> Array:
    """Return filters (kh, kw, Cout, Cin) in `dtype`, C-contiguous: as they are if they are so."""
    # NumPy multiplies what is not aligned without BLAS, and so to other bits.
    return np.require(filters, dtype, ["C", "A"])


def compute(
    images: Array, filters: Array, problem: Problem, block: Block, out: Array, scratch: Scratch
) -> Array:
    """Fill `out` with the block's results; see `kernel.Compute`."""
    height, width = problem.height, problem.width
    kernel = filters[:, :, block.channels.start : block.channels.stop]
    groups, outputs, n = groups_of(width, block.columns), len(block.channels), len(images)
    shape = (len(block.rows), len(groups), n, width.stride, outputs)
    # One image's sums in groups of whole strides lie as the result does.
    in_place = n == 1 and len(block.columns) == len(groups) * width.stride
    in_place = in_place and out.dtype == filters.dtype and out.flags.c_contiguous
    every = out.reshape(shape) if in_place else scratch.array("sums", shape, filters.dtype)
    pixels = _Pixels(images, problem, block, filters.dtype, scratch)
    runs = tap_runs(width, outputs, problem.outputs)
    widest = max(run.number for run in runs) * outputs
    products = Products(problem.channels, pixels.most * widest, filters.dtype, scratch)
    # Columns do not depend on the row of taps: worked out once for all.
    columns = [
        (run, clip(groups.start - run.shift, groups.stop - run.shift, 0, width.narrow)) for run in runs
    ]
    taps = height.taps_by_phase
    for first in range(min(height.stride, len(block.rows))):
        phase = (block.rows.start + first) % height.stride
        rows = height.phase_range(phase, block.rows)
        reaching = taps.get(phase, [])
        sums = ShortChains(every[first :: height.stride], len(reaching) * len(runs), scratch)
        for u, down in reaching:
            i = clip(rows.start - down, rows.stop - down, 0, height.narrow)
            for run, j in columns:
                if not i or not j:
                    continue
                left, kept, across = pixels.matrix(i, j)
                right = kernel[u, run.first : run.first + run.number]
                right = right.reshape(run.number * outputs, problem.channels).T
                store = sums.fresh and (len(i), len(j), run.number) == (len(rows), len(groups), width.stride)
                target = sums.target(
                    (
                        slice(i.start + down - rows.start, i.stop + down - rows.start),
                        slice(j.start + run.shift - groups.start, j.stop + run.shift - groups.start),
                        slice(None),
                        slice(run.phase, run.phase + (run.number - 1) * width.dilation + 1, width.dilation),
                    ),
                    clear=not store,
                )
                shape = (len(i), across, n, run.number, outputs)
                parts = [part.reshape(shape)[:, kept] for part in products.parts(left, right)]
                put(target, parts, add=not store)
        sums.finish()
    if not in_place:
        store_groups(out, every, block.columns.start - groups.start * width.stride)
    return every.reshape(-1)


class _Pixels:
    """The narrow pixels of a block as matrices (pixels, Cin), copied only where BLAS could not read them."""

    def __init__(
        self, images: Array, problem: Problem, block: Block, dtype: np.dtype[Any], scratch: Scratch
    ) -> None:
        self._images, self._dtype, self._scratch = images, dtype, scratch
        self._rows = problem.height.narrow_reach(block.rows)
        groups, stride = groups_of(problem.width, block.columns), problem.width.stride
        self._columns = problem.width.narrow_reach(range(groups.start * stride, groups.stop * stride))
        n, _, _, channels = images.shape
        self._held: Array | None = None
        #: Whether rows of pixels follow each other without gaps.
        self._close = True
        here = self._cut(self._rows, self._columns)
        as_they_lie = n == 1 and images.dtype == dtype and images.dtype.isnative and images.flags.aligned
        as_they_lie = as_they_lie and images.strides[2:] == (channels * dtype.itemsize, dtype.itemsize)
        if as_they_lie:
            self._held = here.transpose(1, 2, 0, 3)
            self._close = images.strides[1] == images.strides[2] * len(self._columns)
        elif here.size <= WHOLE:
            self._held = self._copied(here)
        #: The most pixels of a matrix: of tall kernels a tap meets but part of the rows.
        self.most = min(len(self._rows), ceil_div(len(block.rows), problem.height.stride)) * here.shape[2] * n

    def _cut(self, rows: range, columns: range) -> Array:
        return self._images[:, rows.start : rows.stop, columns.start : columns.stop]

    def _copied(self, some: Array) -> Array:
        n, h, w, channels = some.shape
        held = self._scratch.array("pixels", (h, w, n, channels), self._dtype)
        copy_pixels(held.transpose(2, 0, 1, 3), some)
        return held

    def matrix(self, i: range, j: range) -> tuple[Array, slice, int]:
        """Return rows `i` as (1 or rows, pixels, Cin), and which columns they keep as `j`, of how many."""
        first = self._columns.start
        if self._held is None:
            held, first = self._copied(self._cut(i, j)), j.start
        else:
            held = self._held[i.start - self._rows.start : i.stop - self._rows.start]
        h, w, n, channels = held.shape
        kept = slice(j.start - first, j.stop - first)
        if self._close and (len(j) * 8 >= w * 7 or len(j) * n < FEW_ROWS):
            return held.reshape(1, h * w * n, channels), kept, w
        # Rows that do not follow each other, or columns not worth computing: one product a row.
        return held[:, kept].reshape(h, len(j) * n, channels), slice(None), len(j)


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem: output channels first, then images, rows, and columns of one row that is too long."""
    outputs = even(problem.outputs, OUTPUTS)
    width = problem.width
    widest = min(_longest(outputs, problem.outputs), ceil_div(width.stride, width.dilation), width.kernel)
    return pixel_blocks(problem, min(PRODUCT // max(widest * outputs, 1), PIXELS), OUTPUTS)


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, channels, sizes = problem.height, problem.width, problem.channels, block_sizes(problem)
    images, rows, columns, parts = block_counts(problem, sizes)
    blocks, (tall, pairs), (wide, _) = images * rows * columns, height.met, width.met
    runs = [run for run in tap_runs(width, sizes.channels, problem.outputs) if _meets(width, run)]
    pieces = ceil_div(channels, CHAIN)
    pixels = problem.batch * pairs * width.narrow
    moved = pixels * wide * problem.outputs * pieces * 3
    line_runs: float = 0
    for run in runs:
        few = run.number * sizes.channels < FEW_NUMBERS
        line_runs += problem.batch * pairs if run.number == width.stride else pixels * (3 if few else 1)
    read = problem.batch * height.narrow * width.narrow * channels * parts
    written = problem.batch * height.wide * width.wide * problem.outputs
    swapped = scattered = 0
    if problem.data_format == "NCHW":
        swapped = written * (problem.outputs >= FEW)
        scattered = read + written - swapped
    elif sizes.images > 1 or width.wide % width.stride or parts > 1:
        moved += 2 * (read + written)
        line_runs += read / max(channels, 1) + written / (sizes.channels * width.stride)
    return Work(
        calls=blocks * parts * (30 + tall * len(runs) * (13 + 2 * pieces)),
        multiply_adds=pixels * channels * wide * problem.outputs,
        packed=channels * (pixels * len(runs) * parts + blocks * tall * wide * problem.outputs),
        moved=moved,
        runs=2 * line_runs * parts,
        swapped=swapped,
        scattered=scattered,
    )


def _meets(axis: Axis, run: TapRun) -> bool:
    return any(axis.narrow_range(tap, range(axis.wide)) for tap in range(run.first, run.first + run.number))


KERNEL = TransposeKernel(
    name="taps",
    accepts=lambda problem: True,
    work=work,
    block_sizes=block_sizes,
    prepare=prepare,
    compute=compute,
)
