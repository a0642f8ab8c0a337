"""What a job computes, in sizes alone: all that choosing a kernel and cutting blocks may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .geometry import Axis

Operation: TypeAlias = Literal["conv2d_transpose", "depthwise_conv2d_backprop_filter"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One of the two operations with every size known.

    Attributes
    ----------
    operation : ``"conv2d_transpose"`` or ``"depthwise_conv2d_backprop_filter"``
    data_format : ``"NHWC"`` or ``"NCHW"``
    height, width : geometry of the two spatial axes
    batch : N
    channels : Cin of a transposed convolution, C of a filter gradient
    outputs : Cout of a transposed convolution, the multiplier M of a filter gradient
    dtype : of operands and result
    """

    operation: Operation
    data_format: str
    height: Axis
    width: Axis
    batch: int
    channels: int
    outputs: int
    dtype: np.dtype[Any]

    @property
    def taps(self) -> int:
        """Number of taps of the kernel, kh*kw."""
        return self.height.kernel * self.width.kernel

    @property
    def multiply_adds(self) -> int:
        """Number of products that are summed, border effects left out."""
        return self.batch * self.height.narrow * self.width.narrow * self.taps * self.channels * self.outputs

    @property
    def cut_sizes(self) -> tuple[int, int, int, int]:
        """Sizes of what blocks are cut from: images, rows, columns, channels. See `Block`."""
        if self.operation == "conv2d_transpose":
            return self.batch, self.height.wide, self.width.wide, self.outputs
        return self.batch, self.height.narrow, self.width.narrow, self.channels

    @property
    def working_dtype(self) -> np.dtype[Any]:
        """The dtype that sums are kept in: float64 for float64, float32 for the narrower three."""
        return np.dtype(np.float64 if self.dtype == np.float64 else np.float32)
