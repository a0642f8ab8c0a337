"""How transposed convolutions are cut into blocks: whole groups of a stride, many pixels."""

from __future__ import annotations

from convgrad.blocks import BlockSizes, even
from convgrad.geometry import Axis, ceil_div
from convgrad.problem import Problem

#: Numbers that a block's input, the results of one row phase, and all its results may have (8, 8, 16 MB).
INPUT, PHASE, RESULTS = 2**21, 2**21, 2**22
#: Multiply-adds from which on a job is cut in two at least, so that two threads have something to do.
WORTH_HALVING = 2**25


def groups_of(axis: Axis, wide: range) -> range:
    """Return the groups of one stride, counted from position 0, that the positions `wide` lie in."""
    return range(wide.start // axis.stride, ceil_div(wide.stop, axis.stride))


def pixel_blocks(problem: Problem, pixels: int, outputs: int) -> BlockSizes:
    """Return blocks of about `pixels` narrow pixels and at most `outputs` output channels.

    Whole images where they are small, else whole rows of one image, else part of one row.
    """
    height, width = problem.height, problem.width
    channels = even(problem.outputs, min(outputs, max(PHASE // width.stride, 1)))
    group, tall = max(channels * width.stride, 1), max(min(height.stride, height.wide), 1)
    if group * tall > RESULTS:
        return BlockSizes(1, max(RESULTS // group, 1), width.stride, channels)
    rows = max(ceil_div(height.wide, height.stride), 1)
    # Under VALID padding with a large kernel the result has more groups than the input has pixels.
    columns = max(ceil_div(width.wide, width.stride), width.narrow, 1)
    most = min(INPUT // max(problem.channels, 1), PHASE // group, RESULTS // (group * tall))
    pixels = max(min(pixels, most), 1)
    if channels >= problem.outputs and problem.multiply_adds > WORTH_HALVING:
        pixels = max(min(pixels, ceil_div(rows * columns * problem.batch, 2)), 1)
    if columns > pixels:
        return BlockSizes(1, height.stride, even(columns, pixels) * width.stride, channels)
    if rows * columns > pixels:
        return BlockSizes(1, even(rows, pixels // columns) * height.stride, columns * width.stride, channels)
    images = even(problem.batch, pixels // (rows * columns))
    return BlockSizes(images, rows * height.stride, columns * width.stride, channels)
