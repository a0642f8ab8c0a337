"""Every kernel of the engine in turn, on problems of the kinds they are made for, held to the contract.

Kernels are found when tests are collected, so that a new one is tested the day it is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import by_taps
from assertions import assert_matches, dtype_of
from convgrad import Plan, choice, execute, plan_conv2d_transpose, plan_depthwise_conv2d_backprop_filter
from convgrad.blocks import BlockSizes
from reference import Expected

DTYPES = ["float64", "float32", "float16", "bfloat16"]
#: Names of the kernels, by operation. The fast ones keep a bound for the whole result only.
FAST = [module.rpartition(".")[2] for module in choice.FAST["conv2d_transpose"]]
TRANSPOSE = [kernel.name for kernel in choice.kernels("conv2d_transpose", fast=True)]
FILTER_GRAD = [kernel.name for kernel in choice.kernels("depthwise_conv2d_backprop_filter")]


@dataclass(frozen=True)
class Problem:
    """Shapes and options; a filter gradient where there are filter sizes. Shapes are NHWC."""

    name: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    sizes: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    nchw: bool = False

    def __str__(self) -> str:
        return f"{self.name}-NCHW" if self.nchw else self.name

    @property
    def keywords(self) -> dict[str, Any]:
        """Options in the problem's layout."""
        padding = self.options.get("padding", "SAME")
        if self.nchw and not isinstance(padding, str):
            padding = [padding[0], padding[3], padding[1], padding[2]]
        return {**self.options, "padding": padding, "data_format": "NCHW" if self.nchw else "NHWC"}

    def laid(self, *arrays: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Both operands, given in NHWC, in the problem's layout and in a dtype."""
        first, second = (np.asarray(array) for array in arrays)
        assert (first.shape, second.shape) == (self.first, self.second)
        if self.nchw:
            first = np.moveaxis(first, 3, 1)
            second = second if self.sizes is None else np.moveaxis(second, 3, 1)
        with np.errstate(over="ignore"):
            return first.astype(dtype_of(dtype), order="C"), second.astype(dtype_of(dtype), order="C")

    def plan(self, first: Any, second: Any) -> Plan:
        """The plan, fast kernels allowed."""
        if self.sizes is None:
            return plan_conv2d_transpose(first, second, **self.keywords, fast=True)
        return plan_depthwise_conv2d_backprop_filter(first, self.sizes, second, **self.keywords)

    def exact(self, first: np.ndarray, second: np.ndarray) -> Expected:
        """The exact result and its scale."""
        if self.sizes is None:
            return by_taps.transpose(first, second, **self.keywords)
        return by_taps.filter_grad(first, self.sizes, second, **self.keywords)


def explicit(top: int, bottom: int, left: int, right: int) -> list[list[int]]:
    """Explicit padding in NHWC."""
    return [[0, 0], [top, bottom], [left, right], [0, 0]]


_TRANSPOSES = [
    Problem("3x3", (2, 5, 6, 20), (3, 3, 17, 20)),
    Problem("up-convolution", (2, 4, 5, 18), (2, 2, 9, 18), None, {"strides": 2, "padding": "VALID"}),
    Problem("few-outputs", (2, 5, 4, 19), (5, 5, 3, 19), None, {"strides": 2}),
    Problem("few-channels", (1, 4, 3, 5), (8, 6, 5, 5), None, {"strides": (4, 3)}),
    Problem(
        "dilated", (2, 5, 4, 16), (3, 2, 16, 16), None, {"dilations": (2, 3), "padding": explicit(1, 2, 0, 3)}
    ),
    Problem(
        "stride-and-dilation", (1, 4, 5, 4), (3, 3, 2, 4), None, {"strides": (3, 2), "dilations": (2, 3)}
    ),
    Problem("5x5-stride-2", (2, 4, 5, 16), (5, 5, 16, 16), None, {"strides": 2}),
    Problem("4x4-stride-2", (1, 5, 4, 18), (4, 4, 17, 18), None, {"strides": 2}),
    Problem("stride-past-kernel", (2, 3, 4, 4), (2, 1, 5, 4), None, {"strides": (3, 4)}),
]
_GRADIENTS = [
    Problem("3x3", (2, 7, 9, 17), (2, 7, 9, 17), (3, 3)),
    Problem("3x3-stride-2", (2, 9, 12, 6), (2, 5, 6, 6), (3, 3), {"strides": 2}),
    Problem("multiplier", (2, 6, 7, 3), (2, 6, 7, 12), (3, 2)),
    Problem("large-kernel", (2, 6, 7, 5), (2, 6, 7, 5), (11, 9)),
    Problem(
        "dilated",
        (2, 9, 8, 4),
        (2, 8, 8, 4),
        (3, 2),
        {"dilations": (2, 3), "padding": explicit(1, 2, 0, 3)},
    ),
    Problem(
        "stride-and-dilation", (1, 9, 8, 2), (1, 3, 4, 4), (3, 3), {"strides": (3, 2), "dilations": (2, 3)}
    ),
    Problem("stride-past-kernel", (2, 9, 8, 3), (2, 3, 2, 3), (2, 1), {"strides": (3, 4)}),
]
TRANSPOSES = [replace(problem, nchw=nchw) for problem in _TRANSPOSES for nchw in (False, True)]
GRADIENTS = [replace(problem, nchw=nchw) for problem in _GRADIENTS for nchw in (False, True)]
PROBLEMS = TRANSPOSES + GRADIENTS


def run(
    plan: Plan, name: str, first: Any, second: Any, *, threads: int = 1, blocks: BlockSizes | None = None
) -> np.ndarray:
    """The result of a plan by a kernel, into an array that is not zero before."""
    plan = plan.using(name)
    assert plan.strategy == name
    if blocks is not None:
        # As if it took long, for else one thread does it.
        plan = replace(plan, block_sizes=blocks, seconds=1.0)
    out = np.full(plan.output.shape, 7, plan.output.dtype)
    execute(plan, first, second, out, threads=threads)
    return out


def each(plan: Plan, first: Any, second: Any, **keywords: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Every kernel's name and result."""
    for name in plan.strategies:
        print(name)  # shown when the assertion fails
        yield name, run(plan, name, first, second, **keywords)


def bound(name: str, expected: Sequence[np.ndarray]) -> Expected:
    """The expected values with the scale that a kernel's error is held to."""
    values, scale = expected
    if name in FAST and scale.size:
        largest = np.max(scale, where=np.isfinite(scale), initial=0)
        scale = np.where(np.isfinite(scale), 2 * largest, scale)
    return Expected(values, scale)


def assert_all_match(plan: Plan, first: Any, second: Any, expected: Expected, **keywords: Any) -> None:
    """Every kernel within the contract."""
    for name, result in each(plan, first, second, **keywords):
        assert_matches(result, *bound(name, expected), plan.output.dtype)
