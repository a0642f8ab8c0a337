"""The plan of a job: everything decided from shapes and dtypes, before any data is read.

A plan is frozen. Execution follows it without checking or inferring anything, the diagnostics print it, and
its blocks may be computed in any order, anywhere: a block depends on the operands and the plan alone, and
what the blocks are depends on the problem alone. Hence one machine gives the same bits whatever the memory,
the storage or the order of work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .geometry import Axis, ceil_div
from .shapes import ShapeReport, Tensor

#: Elements that one block's largest float64 array may hold (2 MB: a few of them stay in a core's caches).
#: The last bits of float64 results depend on it.
BLOCK_ELEMENTS = 2**18


@dataclass(frozen=True, slots=True)
class Block:
    """One independent piece of work.

    Rows and columns lie on the result's side for a transposed convolution (wide) and on the side of
    `out_backprop` for a filter gradient (narrow). `channels` are those of the filter gradient's input;
    a transposed convolution always takes all.
    """

    images: range
    rows: range
    columns: range
    channels: range


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """How many images, rows, columns and channels a block has at most."""

    images: int
    rows: int
    columns: int
    channels: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A job that can run.

    Attributes
    ----------
    operation : ``"conv2d_transpose"`` or ``"depthwise_conv2d_backprop_filter"``
    operands : ``input`` and ``filters``, or ``input`` and ``out_backprop``
    output : the result
    data_format : ``"NHWC"`` or ``"NCHW"``
    padding : as asked for: ``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``
    height, width : geometry of the two spatial axes
    batch : N
    channels : Cin of a transposed convolution, C of a filter gradient
    outputs : Cout of a transposed convolution, the multiplier M of a filter gradient
    block_sizes : the most that a block holds
    """

    operation: Literal["conv2d_transpose", "depthwise_conv2d_backprop_filter"]
    operands: tuple[Tensor, Tensor]
    output: Tensor
    data_format: str
    padding: str
    height: Axis
    width: Axis
    batch: int
    channels: int
    outputs: int
    block_sizes: BlockSizes

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Height and width."""
        return self.height, self.width

    @property
    def strategy(self) -> str:
        """Name of the kernel that computes the blocks."""
        return "taps" if self.operation == "conv2d_transpose" else "planes"

    @property
    def report(self) -> ShapeReport:
        """Tensors and axes for display."""
        return ShapeReport((*self.operands, self.output), self.axes)

    @property
    def multiply_adds(self) -> int:
        """Number of products that are summed, border effects left out."""
        taps = self.height.kernel * self.width.kernel
        return self.batch * self.height.narrow * self.width.narrow * taps * self.channels * self.outputs

    @property
    def total_bytes(self) -> int:
        """Bytes of the operands and the result together."""
        return sum(tensor.nbytes for tensor in (*self.operands, self.output))

    def image_ranges(self) -> list[range]:
        """Return the batch cut into the images of a block."""
        return list(_cut(range(self.batch), self.block_sizes.images))

    def blocks(self, images: range) -> Iterator[Block]:
        """Yield the blocks of `images`, which must be one of `image_ranges`, in their fixed order."""
        transpose = self.operation == "conv2d_transpose"
        heights = self.height.wide if transpose else self.height.narrow
        widths = self.width.wide if transpose else self.width.narrow
        # A transposed convolution sums over all channels, even over none.
        channels = [range(self.channels)]
        if not transpose:
            channels = list(_cut(range(self.channels), self.block_sizes.channels))
        for rows in _cut(range(heights), self.block_sizes.rows):
            for columns in _cut(range(widths), self.block_sizes.columns):
                for some in channels:
                    yield Block(images, rows, columns, some)

    @property
    def block_count(self) -> int:
        """Number of blocks in all."""
        transpose = self.operation == "conv2d_transpose"
        sizes = self.block_sizes
        counts = [
            (self.batch, sizes.images),
            (self.height.wide if transpose else self.height.narrow, sizes.rows),
            (self.width.wide if transpose else self.width.narrow, sizes.columns),
            (1 if transpose else self.channels, sizes.channels),
        ]
        return math.prod(ceil_div(whole, part) for whole, part in counts)

    def __str__(self) -> str:
        return (
            f"{self.operation}  {self.data_format}  padding {self.padding}  strategy {self.strategy}  "
            f"{self.multiply_adds} multiply-adds  {self.block_count} blocks  {self.total_bytes} bytes\n"
            f"{self.report}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it."""
        return {
            "operation": self.operation,
            "data_format": self.data_format,
            "padding": self.padding,
            "strategy": self.strategy,
            **self.report.to_dict(),
            "multiply_adds": self.multiply_adds,
            "blocks": self.block_count,
            "total_bytes": self.total_bytes,
        }


def transpose_block_sizes(height: Axis, width: Axis, batch: int, channels: int, outputs: int) -> BlockSizes:
    """Choose blocks of the result: as many columns, then rows, then images as `BLOCK_ELEMENTS` allows."""
    # A block holds its results and, for one kernel row, the narrow pixels under them with all channels
    # and those pixels' products.
    per_pixel = max(channels, outputs, 1)
    columns = _at_most(width.wide, BLOCK_ELEMENTS // max(outputs, ceil_div(per_pixel, width.stride)))
    # The first block's reach stands for all: others are not cut by the border, and reach a kernel farther.
    reached = min(len(width.narrow_reach(range(columns))), columns * width.kernel)
    wide_row, narrow_row = columns * outputs, reached * per_pixel
    rows = _at_most(height.wide, BLOCK_ELEMENTS // max(wide_row, ceil_div(narrow_row, height.stride), 1))
    image = max(rows * wide_row, ceil_div(rows, height.stride) * narrow_row, 1)
    images = _at_most(batch, BLOCK_ELEMENTS // image)
    return BlockSizes(images, rows, columns, max(channels, 1))


def filter_grad_block_sizes(
    height: Axis, width: Axis, batch: int, channels: int, multiplier: int
) -> BlockSizes:
    """Choose blocks of `out_backprop`: as many channels as leave room for long sums, then pixels, images."""
    pixels = max(height.narrow * width.narrow * batch, 1)
    # Sums of a few hundred terms keep NumPy's inner loops long; more channels at a time would shorten them.
    some = _at_most(channels, BLOCK_ELEMENTS // (max(multiplier, 1) * min(pixels, 512)))
    each = some * max(multiplier, 1)
    columns = _at_most(width.narrow, BLOCK_ELEMENTS // each)
    reached = min(len(width.wide_reach(range(columns))), columns * width.kernel)
    row = max(columns * each, reached * some, 1)
    rows = _at_most(height.narrow, BLOCK_ELEMENTS // row)
    images = _at_most(batch, BLOCK_ELEMENTS // (row * rows))
    return BlockSizes(images, rows, columns, some)


def _at_most(size: int, limit: int) -> int:
    return max(min(size, limit), 1)


def _cut(whole: range, size: int) -> Iterator[range]:
    return (whole[start : start + size] for start in range(0, len(whole), max(size, 1)))
