"""A job as asked for, in one form: arguments read, shapes not yet held against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .arguments import Padding, Sizes, height_width, padding_rules, sizes_2_or_4
from .dtypes import common
from .errors import ShapeError
from .geometry import AxisPadding, AxisRule
from .layout import axis_letters, check_data_format
from .shapes import ShapeReport, Tensor


class Shaped(Protocol):
    """Anything with a shape and a dtype: an array, a source, a `TensorSpec`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Any dtype; it is checked."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A shape and a dtype without data, to plan with."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What both operations are asked with.

    Attributes
    ----------
    input : shape of `input` in `data_format` order
    other : shape of `filters` or `out_backprop`
    sizes : `output_shape` (2 or 4 sizes, or None), or `filter_sizes` (2 or 4 sizes)
    strides, dilations : (height, width)
    padding : rule of height and of width
    fast : whether kernels that keep a bound for the whole result only are allowed
    """

    input: tuple[int, ...]
    other: tuple[int, ...]
    dtype: np.dtype[Any]
    sizes: tuple[int, ...] | None
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[AxisPadding, AxisPadding]
    data_format: str
    fast: bool = False

    @property
    def padding_name(self) -> str:
        """``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``."""
        return self.padding[0] if isinstance(self.padding[0], str) else "EXPLICIT"

    def rules(self, kernel: tuple[int, int]) -> tuple[AxisRule, AxisRule]:
        """Return the rules of height and width for a kernel of these sizes."""
        one, two = (
            AxisRule(name, size, stride, dilation, padding)
            for name, size, stride, dilation, padding in zip(
                ("height", "width"), kernel, self.strides, self.dilations, self.padding, strict=True
            )
        )
        return one, two


def read_request(
    input: Shaped,
    other: tuple[str, Shaped],
    sizes: tuple[str, object],
    *,
    strides: Sizes,
    padding: Padding,
    data_format: str,
    dilations: Sizes | None,
    fast: bool = False,
) -> Request:
    """Read the arguments of either operation.

    Parameters
    ----------
    input : the first operand
    other : (name, operand): ``filters`` or ``out_backprop``
    sizes : (name, value): ``output_shape`` or ``filter_sizes``; a value of None stays None

    Raises
    ------
    ArgumentError
        On a malformed argument.
    ShapeError
        On an operand that has not 4 axes.
    DTypeError
        On an unsupported dtype, or two.
    """
    data_format = check_data_format(data_format)
    name, value = sizes
    asked = None if value is None and name == "output_shape" else sizes_2_or_4(name, value)
    strides = height_width("strides", strides, data_format)
    dilations = height_width("dilations", 1 if dilations is None else dilations, data_format)
    paddings = padding_rules(padding, data_format)
    report = _bare_report(input, other, data_format)
    for tensor in report.tensors:
        if len(tensor.shape) != 4:
            shown = "x".join(map(str, tensor.shape)) or "scalar"
            raise ShapeError(f"{tensor.role}: needs 4 axes, has {len(tensor.shape)} ({shown})", report=report)
    first, second = report.tensors
    dtype = common((first.role, first.dtype), (second.role, second.dtype))
    return Request(
        first.shape, second.shape, dtype, asked, strides, dilations, paddings, data_format, bool(fast)
    )


def _bare_report(input: Shaped, other: tuple[str, Shaped], data_format: str) -> ShapeReport:
    """Return the two operands as they are, each marked whole where its number of axes is wrong."""
    filters = other[0] == "filters"
    letters = (
        axis_letters(data_format, *(("h", "w", "Cin") if filters else ("H", "W", "C"))),
        ("kh", "kw", "Cout", "Cin") if filters else axis_letters(data_format, "h", "w", "C*M"),
    )
    tensors = []
    for role, names, operand in zip(("input", other[0]), letters, (input, other[1]), strict=True):
        shape = tuple(map(int, operand.shape))
        wrong = frozenset(range(len(shape))) if len(shape) != 4 else frozenset[int]()
        tensors.append(Tensor(role, names, shape, np.dtype(operand.dtype), wrong))
    return ShapeReport(tuple(tensors))
