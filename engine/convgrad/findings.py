"""Disagreements between shapes, collected so that all of them can be shown, and the words for them."""

from __future__ import annotations

import math
import sys

from .errors import ShapeError
from .geometry import AxisRule
from .shapes import ShapeReport, Tensor


class Findings:
    """Disagreements in the order found, and which axes of which tensor they are on."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.wrong: dict[str, set[int]] = {}

    def add(self, message: str, role: str, axis: int) -> None:
        """Note `message` and mark `axis` of the tensor `role`."""
        self.messages.append(message)
        self.mark(role, axis)

    def mark(self, role: str, axis: int) -> None:
        """Mark `axis` of the tensor `role` as part of a disagreement."""
        self.wrong.setdefault(role, set()).add(axis)

    def on(self, role: str) -> frozenset[int]:
        """Return the marked axes of the tensor `role`."""
        return frozenset(self.wrong.get(role, ()))

    def refuse(self, report: ShapeReport) -> None:
        """Raise what was found first, if anything was.

        Raises
        ------
        ShapeError
            With the whole `report`.
        """
        if self.messages:
            raise ShapeError(self.messages[0], report=report)


def check_kernel(found: Findings, argument: str, role: str, kernel: tuple[int, int]) -> None:
    """Note kernel sizes below 1."""
    for axis, (side, size) in enumerate(zip(("height", "width"), kernel, strict=True)):
        if size < 1:
            found.add(f"{argument}: kernel {side} must be at least 1, got {size}", role, axis)


def check_addressable(output: Tensor, argument: str, report: ShapeReport) -> None:
    """Refuse a result that no machine can hold.

    Raises
    ------
    ShapeError
        If its bytes cannot be counted in the machine's word.
    """
    # NumPy counts the bytes of an empty array as if its zeros were ones.
    counted = math.prod(size for size in output.shape if size) * output.dtype.itemsize
    if counted > sys.maxsize:
        shape = output.labelled_shape()
        message = f"{argument}: the result {shape} would need {counted} bytes, more than any machine has"
        raise ShapeError(message, report=report)


def rule_in_words(rule: AxisRule) -> str:
    """Return e.g. ``kernel 3 dilated by 2 to 5, stride 2, SAME``."""
    padding = rule.padding if isinstance(rule.padding, str) else f"pads {rule.padding[0]},{rule.padding[1]}"
    kernel = f"kernel {rule.kernel}"
    if rule.dilation > 1:
        kernel += f" dilated by {rule.dilation} to {rule.effective_kernel}"
    return f"{kernel}, stride {rule.stride}, {padding}"


def joined(sizes: tuple[int, ...]) -> str:
    """Return sizes as the command line takes them."""
    return ",".join(map(str, sizes))
