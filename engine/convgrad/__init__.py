"""Transposed 2-D convolutions and depthwise filter gradients in NumPy, with TensorFlow's semantics."""

from .blocks import Block
from .errors import ArgumentError, ConvgradError, DTypeError, ShapeError
from .execution import execute
from .geometry import Axis
from .operations import (
    conv2d_transpose,
    depthwise_conv2d_backprop_filter,
    plan_conv2d_transpose,
    plan_depthwise_conv2d_backprop_filter,
)
from .plan import Plan
from .requests import TensorSpec
from .shapes import ShapeReport, Tensor

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Axis",
    "Block",
    "ConvgradError",
    "DTypeError",
    "Plan",
    "ShapeError",
    "ShapeReport",
    "Tensor",
    "TensorSpec",
    "__version__",
    "conv2d_transpose",
    "depthwise_conv2d_backprop_filter",
    "execute",
    "plan_conv2d_transpose",
    "plan_depthwise_conv2d_backprop_filter",
]
