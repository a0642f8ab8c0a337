"""planes: one vector dot product for each tap, on channel planes.

A tap ``u`` has ``u*d - top = shift*s + phase``: narrow row ``i`` meets row ``i + shift`` of stride phase
``phase`` of the input. Both operands are copied to planes, channel first,

    input         (channel, phase, row, image, column),     rows and columns of one stride phase
    out_backprop  (channel, m,     row, image, column),

in which a row has as many columns as the narrow pixels and the shifts beside them need; those that do not
exist are zero. A plane of `out_backprop` is then one run of numbers, the numbers that it meets under tap
``(u, v)`` are a run of the same length in a plane of the input, ``shift_u`` rows and ``shift_v`` columns
farther on, and what wraps into the next row meets a zero. So a gradient is a dot product of two runs, and all
taps of a phase are one call on an overlapping view; the taps of a channel find it in the first-level cache.
Runs are cut to `RUN` numbers, whose dots are added in float64: BLAS keeps 32 sums or more beside each other,
so no chain is longer than 48. The zeros make NaN of a NaN or inf elsewhere in the plane: such a block is
computed again by the general kernel.

A ConvNeXt 7x7 runs here, the early layers of a MobileNet with their few channels, and most of what is NCHW.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, at_most, block_counts, even, shared_out
from convgrad.dtypes import Float64
from convgrad.geometry import Axis, ceil_div, clip
from convgrad.kernels.costs import Work
from convgrad.kernels.transposition import FEW, copy_planes
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from .kernel import FilterGradKernel

Array = npt.NDArray[Any]

#: Longest run of one dot product, by working dtype.
RUN = {"float32": 1536, "float64": 512}
#: Elements of one operand's planes in a block (4 MB of float32).
ELEMENTS = 2**20
#: Most channels of a block: many lie side by side in a pixel, and are swapped together.
CHANNELS = 512
#: Channels below which copying them takes longer.
FEW_CHANNELS = 64


class PhaseTaps(NamedTuple):
    """The taps of one stride phase: evenly spaced, and so are their shifts."""

    phase: int
    taps: slice
    number: int
    first_shift: int
    shift_step: int


def phase_taps(axis: Axis) -> list[PhaseTaps]:
    """Return the taps of an axis by stride phase."""
    found = []
    for phase, taps in axis.taps_by_phase.items():
        step, shift_step = (b - a for a, b in zip(*taps[:2], strict=True)) if len(taps) > 1 else (1, 1)
        where = slice(taps[0][0], taps[-1][0] + 1, step)
        found.append(PhaseTaps(phase, where, len(taps), taps[0][1], shift_step))
    return found


def compute(input: Array, out_backprop: Array, problem: Problem, block: Block, scratch: Scratch) -> Float64:
    """Return the block's share; see `kernel.Compute`."""
    height, width, rows, columns = problem.height, problem.width, block.rows, block.columns
    dtype = problem.working_dtype
    n, _, _, channels, multiplier = out_backprop.shape
    (up, down), (left, right) = height.shifts, width.shifts
    pitch = len(columns) + right - left
    line = n * pitch
    length = len(rows) * line
    gradients = _gradient_planes(out_backprop, block, pitch, dtype, scratch)
    # The last tap's run ends beyond the last row by the columns that wrap: they meet zeros.
    size = (len(rows) + down - up) * line + right - left
    share = np.zeros((height.kernel, width.kernel, channels, multiplier))
    run = min(RUN[dtype.name], max(length, 1))
    pieces = length // run
    for tall in phase_taps(height):
        for wide in phase_taps(width):
            plane = scratch.array("input planes", (channels, size), dtype)
            _fill_input_plane(plane, input, problem, block, (tall, wide), pitch, scratch)
            first = (tall.first_shift - up) * line + wide.first_shift - left
            place = share[tall.taps, wide.taps].transpose(2, 3, 0, 1)
            for start, some, count in ((0, run, pieces), (pieces * run, length - pieces * run, 1)):
                if not some or not count:
                    continue
                met = _view(
                    plane,
                    first + start,
                    (channels, 1, tall.number, wide.number, count, some),
                    (size, 0, tall.shift_step * line, wide.shift_step, run, 1),
                )
                against = _view(
                    gradients,
                    start,
                    (channels, multiplier, 1, 1, count, some),
                    (multiplier * length, length, 0, 0, run, 1),
                )
                # In C order the sum along the last axis is pairwise.
                place += np.vecdot(met, against, order="C").sum(axis=-1, dtype=np.float64)
    return share


def _view(array: Array, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """View a C-contiguous array from element `first` on, strides in elements. Faster than as_strided."""
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, first * size, tuple(step * size for step in strides))


def _gradient_planes(
    out_backprop: Array, block: Block, pitch: int, dtype: np.dtype[Any], scratch: Scratch
) -> Array:
    """Return (c, M, rows*n*pitch): zeros after the columns of each row."""
    n, _, _, channels, multiplier = out_backprop.shape
    rows, columns = block.rows, block.columns
    planes = scratch.array("gradient planes", (channels * multiplier, len(rows), n, pitch), dtype)
    planes[..., len(columns) :] = 0
    some = out_backprop[:, rows.start : rows.stop, columns.start : columns.stop]
    some = some.reshape(*some.shape[:3], channels * multiplier)
    copy_planes(planes[..., : len(columns)], some, scratch)
    return planes.reshape(channels, multiplier, -1)


def _fill_input_plane(
    plane: Array,
    input: Array,
    problem: Problem,
    block: Block,
    phases: tuple[PhaseTaps, PhaseTaps],
    pitch: int,
    scratch: Scratch,
) -> None:
    """Fill (c, rows*n*pitch + tail) with the pixels of one stride phase, zeros where there are none."""
    n, channels = input.shape[0], input.shape[3]
    slices, places = [], []
    axes = (problem.height, problem.width), phases, (block.rows, block.columns)
    for axis, taps, narrow in zip(*axes, strict=True):
        low, high = axis.shifts
        there = axis.phase_range(taps.phase, range(axis.wide))
        met = clip(narrow.start + low, narrow.stop + high, there.start, there.stop)
        if not met:
            plane[...] = 0
            return
        first = met.start * axis.stride + taps.phase
        slices.append(slice(first, first + len(met) * axis.stride, axis.stride))
        places.append(slice(met.start - narrow.start - low, met.stop - narrow.start - low))
    rows = (plane.shape[1]) // (n * pitch)
    inside = plane[:, : rows * n * pitch].reshape(channels, rows, n, pitch)
    plane[:, rows * n * pitch :] = 0
    inside[:, : places[0].start] = 0
    inside[:, places[0].stop :] = 0
    inside[:, places[0], :, : places[1].start] = 0
    inside[:, places[0], :, places[1].stop :] = 0
    copy_planes(inside[:, places[0], :, places[1]], input[:, slices[0], slices[1]], scratch)


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem: some channels, and as many rows and images of them as the cache holds."""
    height, width, multiplier = problem.height, problem.width, max(problem.outputs, 1)
    (up, down), (left, right) = height.shifts, width.shifts
    halo, spread = down - up, right - left
    # What lies around even the smallest block is met too: of large kernels it is most of it.
    fitting = ELEMENTS // ((halo + 1) * (spread + 1))
    channels = even(problem.channels, at_most(min(CHANNELS // multiplier, fitting), problem.channels))
    elements = ELEMENTS // (channels * multiplier)
    columns = even(width.narrow, max(elements // (halo + 1) - spread, 1))
    rows = even(height.narrow, max(elements // (columns + spread) - halo, 1))
    images = 1
    if rows >= height.narrow:
        images = even(problem.batch, elements // ((rows + halo) * (columns + spread)))
    return shared_out(problem, BlockSizes(images, rows, columns, channels), FEW_CHANNELS)


def accepts(problem: Problem) -> bool:
    """Whether what one channel of the smallest block meets fits."""
    halo, spread = (high - low for low, high in (problem.height.shifts, problem.width.shifts))
    return problem.multiply_adds > 0 and (halo + 1) * (spread + 1) * problem.outputs <= ELEMENTS


def work(problem: Problem) -> Work:
    """Count the work."""
    height, width, sizes = problem.height, problem.width, block_sizes(problem)
    blocks = math.prod(block_counts(problem, sizes))
    (up, down), (left, right) = height.shifts, width.shifts
    phases = len(phase_taps(height)) * len(phase_taps(width))
    pitch, planes = sizes.columns + right - left, sizes.channels * problem.outputs
    lines, met_lines = sizes.rows * sizes.images, (sizes.rows + down - up) * sizes.images * phases
    length = lines * pitch
    gradients = problem.batch * height.narrow * width.narrow * problem.channels * problem.outputs
    met = blocks * met_lines * pitch * sizes.channels
    swapped = scattered = line_runs = 0
    if problem.data_format == "NHWC":
        swapped = met * (sizes.channels >= FEW) + gradients * (planes >= FEW)
        scattered = met + gradients - swapped
    else:
        scattered = met * (width.stride > 1)
        line_runs = lines * planes + met_lines * sizes.channels
    return Work(
        calls=blocks * (30 + phases * 32),
        moved=met + blocks * length * planes * 0.3 + (met + gradients) * (swapped == 0),
        runs=blocks * (lines * planes + met_lines * sizes.channels + line_runs),
        swapped=swapped,
        scattered=scattered,
        dotted=blocks * length * planes * problem.taps,
        dots=blocks * planes * problem.taps * ceil_div(length, RUN["float32"]),
        doubles=blocks * planes * problem.taps * 6,
    )


KERNEL = FilterGradKernel(
    name="planes",
    accepts=accepts,
    work=work,
    block_sizes=block_sizes,
    compute=compute,
    halo=1,
)
