"""The plan of a job: everything decided from shapes and dtypes, before any data is read.

A plan is frozen. Execution follows it without checking or inferring anything, the diagnostics print it, and
its blocks may be computed in any order, anywhere: a block depends on the operands and the plan alone, and
what the blocks are depends on the problem alone. Hence one machine gives the same bits whatever the memory,
the storage, the number of threads or the order of work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import choice
from .blocks import Block, BlockSizes, block_counts, cut
from .geometry import Axis, clip
from .problem import Problem
from .shapes import ShapeReport, Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    """A job that can run.

    Attributes
    ----------
    problem : every size
    operands : ``input`` and ``filters``, or ``input`` and ``out_backprop``
    output : the result
    padding : as asked for: ``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``
    strategy : name of the kernel that computes the blocks
    seconds : what its cost model estimates for one core
    block_sizes : the most that a block holds
    fast : whether kernels that keep a bound for the whole result only were allowed
    """

    problem: Problem
    operands: tuple[Tensor, Tensor]
    output: Tensor
    padding: str
    strategy: str
    seconds: float
    block_sizes: BlockSizes
    fast: bool = False

    @classmethod
    def of(
        cls, problem: Problem, operands: tuple[Tensor, Tensor], output: Tensor, padding: str, *, fast: bool
    ) -> Plan:
        """Plan a problem with the kernel that is estimated to be fastest."""
        kernel = choice.choose(problem, fast=fast)
        seconds, sizes = choice.estimate(kernel, problem), kernel.block_sizes(problem)
        return cls(problem, operands, output, padding, kernel.name, seconds, sizes, fast)

    def using(self, strategy: str) -> Plan:
        """Return this plan with another kernel, one of `strategies`.

        Raises
        ------
        ArgumentError
            If that kernel does not exist or cannot compute this problem.
        """
        kernel = choice.named(self.problem, strategy)
        seconds, sizes = choice.estimate(kernel, self.problem), kernel.block_sizes(self.problem)
        return replace(self, strategy=kernel.name, seconds=seconds, block_sizes=sizes)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of all kernels that this plan could use, the general one first."""
        return tuple(kernel.name for kernel in choice.applicable(self.problem, fast=self.fast))

    @property
    def operation(self) -> str:
        """``"conv2d_transpose"`` or ``"depthwise_conv2d_backprop_filter"``."""
        return self.problem.operation

    @property
    def data_format(self) -> str:
        """``"NHWC"`` or ``"NCHW"``."""
        return self.problem.data_format

    @property
    def height(self) -> Axis:
        """Geometry of the first spatial axis."""
        return self.problem.height

    @property
    def width(self) -> Axis:
        """Geometry of the second spatial axis."""
        return self.problem.width

    @property
    def batch(self) -> int:
        """N."""
        return self.problem.batch

    @property
    def channels(self) -> int:
        """Cin of a transposed convolution, C of a filter gradient."""
        return self.problem.channels

    @property
    def outputs(self) -> int:
        """Cout of a transposed convolution, the multiplier M of a filter gradient."""
        return self.problem.outputs

    @property
    def multiply_adds(self) -> int:
        """Number of products that are summed, border effects left out."""
        return self.problem.multiply_adds

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Height and width."""
        return self.height, self.width

    @property
    def report(self) -> ShapeReport:
        """Tensors and axes for display."""
        return ShapeReport((*self.operands, self.output), self.axes)

    @property
    def total_bytes(self) -> int:
        """Bytes of the operands and the result together."""
        return sum(tensor.nbytes for tensor in (*self.operands, self.output))

    def image_ranges(self) -> list[range]:
        """Return the batch cut into the images of a block."""
        return list(cut(range(self.batch), self.block_sizes.images))

    def blocks(self, images: range, rows: range | None = None) -> Iterator[Block]:
        """Yield blocks in their fixed order.

        Parameters
        ----------
        images : one of `image_ranges`
        rows : those of whole blocks; all where left out
        """
        sizes = self.block_sizes
        _, heights, widths, channels = self.problem.cut_sizes
        for lines in cut(range(heights) if rows is None else rows, sizes.rows):
            for columns in cut(range(widths), sizes.columns):
                for some in cut(range(channels), sizes.channels):
                    yield Block(images, lines, columns, some)

    @property
    def halo(self) -> int:
        """Rows of the input that the kernel looks at beyond those it needs, in strides on the wide side."""
        return choice.planned(self.problem, self.strategy).halo

    def rows_met(self, rows: range) -> range:
        """Return the rows of the input that blocks of `rows` look at: of all rows all."""
        height, halo = self.height, self.halo
        transposed = self.operation == "conv2d_transpose"
        size = height.narrow if transposed else height.wide
        if len(rows) == self.problem.cut_sizes[1]:
            return range(size)
        if transposed:
            reach = height.narrow_reach(rows)
        else:
            reach, halo = height.wide_reach(rows), halo * height.stride
        return clip(reach.start - halo, reach.stop + halo, 0, size)

    @property
    def block_count(self) -> int:
        """Number of blocks in all."""
        return math.prod(block_counts(self.problem, self.block_sizes))

    def __str__(self) -> str:
        return (
            f"{self.operation}  {self.data_format}  padding {self.padding}  "
            f"strategy {self.strategy}, about {self.seconds:.1e} s on one core  "
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
            "seconds": self.seconds,
            **self.report.to_dict(),
            "multiply_adds": self.multiply_adds,
            "blocks": self.block_count,
            "total_bytes": self.total_bytes,
        }
