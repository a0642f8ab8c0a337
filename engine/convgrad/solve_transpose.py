"""From a request for a transposed convolution to its plan."""

from __future__ import annotations

from .findings import Findings, check_addressable, check_kernel, joined, rule_in_words
from .geometry import Axis, AxisRule
from .layout import axis_letters, sizes_in, sizes_nhwc
from .plan import Plan
from .problem import Problem
from .requests import Request
from .shapes import ShapeReport, Tensor


def solve_transpose(request: Request) -> Plan:
    """Plan a transposed convolution.

    Raises
    ------
    ShapeError
        If the shapes do not fit; its report marks every axis that disagrees.
    """
    n, h, w, channels = sizes_nhwc(request.input, request.data_format)
    kh, kw, outputs, filter_channels = request.other
    position = request.data_format.index
    found = Findings()
    check_kernel(found, "filters", "filters", (kh, kw))
    if filter_channels != channels:
        message = f"filters: axis 3 (Cin) must equal the {channels} channels of input, got {filter_channels}"
        found.add(message, "filters", 3)
        found.mark("input", position("C"))
    asked = _asked_height_width(request, found, n, outputs)
    # An illegal kernel is reported; 1 in its place lets the rest of the table be worked out.
    rules = request.rules((max(kh, 1), max(kw, 1)))
    height, width = (
        _axis(rule, narrow, wide, found, position(rule.name[0].upper()))
        for rule, narrow, wide in zip(rules, (h, w), asked, strict=True)
    )
    shape = sizes_in(request.data_format, n, height.wide, width.wide, outputs)
    if request.sizes is not None and len(request.sizes) == 4:
        shape = request.sizes  # as asked for: where that differs, it has been found wrong
    dtype, letters = request.dtype, axis_letters(request.data_format, "H", "W", "Cout")
    small = axis_letters(request.data_format, "h", "w", "Cin")
    input = Tensor("input", small, request.input, dtype, found.on("input"))
    filters = Tensor("filters", ("kh", "kw", "Cout", "Cin"), request.other, dtype, found.on("filters"))
    output = Tensor("output", letters, shape, dtype, found.on("output"))
    report = ShapeReport((input, filters, output), (height, width))
    found.refuse(report)
    check_addressable(output, "strides" if request.sizes is None else "output_shape", report)
    problem = Problem(
        operation="conv2d_transpose",
        data_format=request.data_format,
        height=height,
        width=width,
        batch=n,
        channels=channels,
        outputs=outputs,
        dtype=request.dtype,
    )
    return Plan.of(problem, (input, filters), output, request.padding_name, fast=request.fast)


def _asked_height_width(
    request: Request, found: Findings, n: int, outputs: int
) -> tuple[int, int] | tuple[None, None]:
    """Return the output height and width asked for; note batch and channels that cannot be."""
    sizes, position = request.sizes, request.data_format.index
    if sizes is None:
        return None, None
    for axis, size in zip("HW" if len(sizes) == 2 else request.data_format, sizes, strict=True):
        if size < 0:
            found.add(
                f"output_shape: must not be negative, got {size} ({joined(sizes)})", "output", position(axis)
            )
    if len(sizes) == 2:
        return sizes[0], sizes[1]
    asked_n, height, width, asked_outputs = sizes_nhwc(sizes, request.data_format)
    if asked_n != n:
        found.add(f"output_shape: batch must equal input's {n}, got {asked_n} ({joined(sizes)})", "output", 0)
    if asked_outputs != outputs:
        message = (
            f"output_shape: channels must equal axis 2 (Cout) of filters, {outputs}, got {asked_outputs}"
        )
        found.add(f"{message} ({joined(sizes)})", "output", position("C"))
    return height, width


def _axis(rule: AxisRule, narrow: int, asked: int | None, found: Findings, position: int) -> Axis:
    """Return the axis for the size asked for, or the default; note it if it is not legal."""
    axis = rule.solve(rule.default_wide(narrow) if asked is None else asked, narrow)
    if not axis.legal:
        found.add(_illegal(rule, axis), "output", position)
    return axis


def _illegal(rule: AxisRule, axis: Axis) -> str:
    words, (least, most) = rule_in_words(rule), axis.legal_wide
    if most < least:
        return f"padding: input {axis.name} {axis.narrow} can give no output, the pads exceed it ({words})"
    can = "can only give" if least == most else "can give"
    return (
        f"output_shape: {axis.name} {axis.wide} is not possible, "
        f"input {axis.name} {axis.narrow} {can} {axis.legal_wide_text} ({words})"
    )
