"""From a request for a depthwise filter gradient to its plan."""

from __future__ import annotations

from .findings import Findings, check_addressable, check_kernel, rule_in_words
from .geometry import Axis, AxisRule
from .layout import axis_letters, sizes_nhwc
from .plan import Plan
from .problem import Problem
from .requests import Request
from .shapes import ShapeReport, Tensor


def solve_filter_grad(request: Request) -> Plan:
    """Plan a depthwise filter gradient.

    Raises
    ------
    ShapeError
        If the shapes do not fit; its report marks every axis that disagrees.
    """
    n, wide_h, wide_w, channels = sizes_nhwc(request.input, request.data_format)
    other_n, h, w, products = sizes_nhwc(request.other, request.data_format)
    position = request.data_format.index
    found = Findings()
    shape = _filter_shape(request, found, channels, products)
    kh, kw, _, multiplier = shape
    check_kernel(found, "filter_sizes", "output", (kh, kw))
    if other_n != n:
        found.add(f"out_backprop: batch must equal input's {n}, got {other_n}", "out_backprop", 0)
    # An illegal kernel is reported; 1 in its place lets the rest of the table be worked out.
    rules = request.rules((max(kh, 1), max(kw, 1)))
    height, width = (
        _axis(rule, wide, narrow, found, position(rule.name[0].upper()))
        for rule, wide, narrow in zip(rules, (wide_h, wide_w), (h, w), strict=True)
    )
    dtype, letters = request.dtype, axis_letters(request.data_format, "H", "W", "C")
    small = axis_letters(request.data_format, "h", "w", "C*M")
    input = Tensor("input", letters, request.input, dtype, found.on("input"))
    out_backprop = Tensor("out_backprop", small, request.other, dtype, found.on("out_backprop"))
    output = Tensor("output", ("kh", "kw", "C", "M"), shape, dtype, found.on("output"))
    report = ShapeReport((input, out_backprop, output), (height, width))
    found.refuse(report)
    check_addressable(output, "filter_sizes", report)
    problem = Problem(
        operation="depthwise_conv2d_backprop_filter",
        data_format=request.data_format,
        height=height,
        width=width,
        batch=n,
        channels=channels,
        outputs=multiplier,
        dtype=request.dtype,
    )
    return Plan.of(problem, (input, out_backprop), output, request.padding_name, fast=False)


def _filter_shape(
    request: Request, found: Findings, channels: int, products: int
) -> tuple[int, int, int, int]:
    """Return (kh, kw, C, M), the last two from the operands where left out; note what cannot be."""
    sizes, position = request.sizes or (), request.data_format.index
    if len(sizes) == 2:
        if channels == 0:
            message = "filter_sizes: M cannot be derived from 0 channels, give all four sizes (kh, kw, C, M)"
            found.add(message, "output", 3)
            return sizes[0], sizes[1], 0, 0
        multiplier, rest = divmod(products, channels)
        if rest:
            message = f"out_backprop: channels must be a multiple of input's {channels}, got {products}"
            found.add(message, "out_backprop", position("C"))
        return sizes[0], sizes[1], channels, multiplier
    kh, kw, filter_channels, multiplier = sizes
    if filter_channels != channels:
        message = (
            f"filter_sizes: axis 2 (C) must equal the {channels} channels of input, got {filter_channels}"
        )
        found.add(message, "output", 2)
    elif multiplier < 0:
        found.add(f"filter_sizes: axis 3 (M) must not be negative, got {multiplier}", "output", 3)
    elif products != channels * multiplier:
        wanted = f"C*M = {channels}*{multiplier} = {channels * multiplier}"
        found.add(f"out_backprop: channels must be {wanted}, got {products}", "out_backprop", position("C"))
    return kh, kw, filter_channels, multiplier


def _axis(rule: AxisRule, wide: int, narrow: int, found: Findings, position: int) -> Axis:
    """Return the axis for both given sizes; note it if the rule does not join them."""
    axis = rule.solve(wide, narrow)
    words, right = rule_in_words(rule), rule.narrow_from_wide(wide)
    if right < 0:
        span = rule.effective_kernel
        found.add(
            f"input: {rule.name} {wide} is too small for a kernel that spans {span} ({words})",
            "input",
            position,
        )
    elif not axis.legal:
        reason = f", a kernel that spans {rule.effective_kernel} does not fit" if right == 0 < wide else ""
        message = f"out_backprop: {rule.name} must be {right} for input {rule.name} {wide}{reason} ({words})"
        found.add(f"{message}, got {narrow}", "out_backprop", position)
    return axis
