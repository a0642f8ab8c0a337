"""The layers that are measured, as data, each with the paper it comes from.

*Narrow* is the side of a convolution's output, *wide* the side of its input: a transposed convolution goes
from narrow to wide, a filter gradient sums over both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal["transpose", "filter-grad"]
Shape: TypeAlias = tuple[int, int, int, int]

DCGAN = "DCGAN generator, Radford, Metz and Chintala 2015"
U_NET = "U-Net up-convolution, Ronneberger, Fischer and Brox 2015"
FCN = "FCN-8s, Long, Shelhamer and Darrell 2015"
FSRCNN = "FSRCNN, Dong, Loy and Tang 2016"
POSE = "Simple Baselines for pose, Xiao, Wu and Wei 2018"
RESNET = "ResNet, He et al. 2015: a 3x3 convolution's gradient with respect to its input"
MOBILENET = "MobileNets, Howard et al. 2017"
EFFICIENTNET = "EfficientNet-B0, Tan and Le 2019"
CONVNEXT = "ConvNeXt-T, Liu et al. 2022"
REPLKNET = "RepLKNet, Ding et al. 2022"
XCEPTION = "depth multipliers above 1, in the manner of Xception, Chollet 2017"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Kernels are square and strides equal.

    Attributes
    ----------
    narrow, wide : (height, width), in elements
    channels : Cin of a transposed convolution, C of a filter gradient
    outputs : Cout of a transposed convolution, the multiplier M of a filter gradient
    """

    name: str
    paper: str
    operation: Operation
    batch: int
    narrow: tuple[int, int]
    wide: tuple[int, int]
    channels: int
    outputs: int
    kernel: int
    stride: int
    padding: Literal["SAME", "VALID"] = "SAME"

    @property
    def first_shape(self) -> Shape:
        """Shape of `input`, channels last."""
        height, width = self.narrow if self.operation == "transpose" else self.wide
        return self.batch, height, width, self.channels

    @property
    def second_shape(self) -> Shape:
        """Shape of `filters`, or of `out_backprop` with its channels last."""
        if self.operation == "transpose":
            return self.kernel, self.kernel, self.outputs, self.channels
        return self.batch, *self.narrow, self.channels * self.outputs

    @property
    def result_shape(self) -> Shape:
        """Shape of the result, channels last if it has images."""
        if self.operation == "transpose":
            return self.batch, *self.wide, self.outputs
        return self.kernel, self.kernel, self.channels, self.outputs

    @property
    def pads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The convolution's padding, (before, after) of height and of width."""
        height, width = (self._pads(axis) for axis in (0, 1))
        return height, width

    def _pads(self, axis: int) -> tuple[int, int]:
        if self.padding == "VALID":
            return 0, 0
        total = max((self.narrow[axis] - 1) * self.stride + self.kernel - self.wide[axis], 0)
        return total // 2, total - total // 2

    def meeting(self, axis: int, tap: int) -> tuple[slice, slice]:
        """Return the narrow and the wide positions of an axis that a tap joins, both inside their sides."""
        shift = tap - self.pads[axis][0]
        start = max(-(shift // self.stride), 0)
        stop = min((self.wide[axis] - 1 - shift) // self.stride + 1, self.narrow[axis])
        count = max(stop - start, 0)
        if not count:
            return slice(0, 0), slice(0, 0)
        first = start * self.stride + shift
        return slice(start, stop), slice(first, first + (count - 1) * self.stride + 1, self.stride)

    @property
    def multiply_adds(self) -> int:
        """Products in the sums, those of taps that padding cuts off left out."""
        pairs = 1
        for axis in (0, 1):
            met = [self.meeting(axis, tap)[0] for tap in range(self.kernel)]
            pairs *= sum(positions.stop - positions.start for positions in met)
        return pairs * self.batch * self.channels * self.outputs

    def bytes(self, itemsize: int) -> int:
        """Return the bytes of both operands and of the result."""
        return itemsize * sum(map(math.prod, (self.first_shape, self.second_shape, self.result_shape)))


def _transpose(
    name: str, paper: str, input: Shape, outputs: int, kernel: int, stride: int, padding: str = "SAME"
) -> Layer:
    batch, height, width, channels = input
    wide = height * stride, width * stride
    mode: Literal["SAME", "VALID"] = "VALID" if padding == "VALID" else "SAME"
    narrow = height, width
    return Layer(name, paper, "transpose", batch, narrow, wide, channels, outputs, kernel, stride, mode)


def _filter_grad(
    name: str, paper: str, input: Shape, kernel: int, stride: int = 1, multiplier: int = 1
) -> Layer:
    batch, height, width, channels = input
    narrow = -(-height // stride), -(-width // stride)
    wide = height, width
    return Layer(name, paper, "filter-grad", batch, narrow, wide, channels, multiplier, kernel, stride)


LAYERS = {
    layer.name: layer
    for layer in (
        _transpose("dcgan-1024-512", DCGAN, (16, 4, 4, 1024), 512, 5, 2),
        _transpose("dcgan-256-128", DCGAN, (16, 16, 16, 256), 128, 5, 2),
        _transpose("dcgan-128-3", DCGAN, (16, 32, 32, 128), 3, 5, 2),
        _transpose("unet-1024-512", U_NET, (1, 28, 28, 1024), 512, 2, 2, "VALID"),
        _transpose("unet-128-64", U_NET, (1, 196, 196, 128), 64, 2, 2, "VALID"),
        _transpose("fcn8s-up8", FCN, (1, 64, 64, 21), 21, 16, 8),
        _transpose("fsrcnn-x3", FSRCNN, (1, 170, 170, 56), 1, 9, 3),
        _transpose("pose-256-256", POSE, (8, 32, 24, 256), 256, 4, 2),
        _transpose("res4-3x3s1", RESNET, (8, 14, 14, 256), 256, 3, 1),
        _transpose("res2-3x3s1", RESNET, (8, 56, 56, 64), 64, 3, 1),
        _transpose("res3a-3x3s2", RESNET, (8, 28, 28, 128), 128, 3, 2),
        _filter_grad("mbv1-112x32", MOBILENET, (8, 112, 112, 32), 3),
        _filter_grad("mbv1-112x64s2", MOBILENET, (8, 112, 112, 64), 3, 2),
        _filter_grad("mbv1-56x128", MOBILENET, (8, 56, 56, 128), 3),
        _filter_grad("mbv1-14x512", MOBILENET, (8, 14, 14, 512), 3),
        _filter_grad("mbv1-7x1024", MOBILENET, (8, 7, 7, 1024), 3),
        _filter_grad("effb0-28x240", EFFICIENTNET, (8, 28, 28, 240), 5),
        _filter_grad("effb0-14x672s2", EFFICIENTNET, (8, 14, 14, 672), 5, 2),
        _filter_grad("convnext-56x96", CONVNEXT, (4, 56, 56, 96), 7),
        _filter_grad("convnext-14x384", CONVNEXT, (8, 14, 14, 384), 7),
        _filter_grad("replknet-28x256", REPLKNET, (2, 28, 28, 256), 31),
        _filter_grad("mult4-112x16", XCEPTION, (4, 112, 112, 16), 3, 1, 4),
        _filter_grad("rgb-224-m8", XCEPTION, (8, 224, 224, 3), 3, 2, 8),
    )
}

#: Measured in float16 and bfloat16 as well: many and few channels, kernels from 2 to 16, strides 1 to 8.
HALF_PRECISION = (
    "dcgan-256-128",
    "unet-128-64",
    "fcn8s-up8",
    "res2-3x3s1",
    "mbv1-56x128",
    "effb0-14x672s2",
    "convnext-14x384",
    "rgb-224-m8",
)
