"""Which kernel is chosen, from shapes alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forced
from assertions import dtype_of
from convgrad import (
    ArgumentError,
    Plan,
    TensorSpec,
    choice,
    plan_conv2d_transpose,
    plan_depthwise_conv2d_backprop_filter,
)
from forced import DTYPES
from test_properties import Geometry, geometries


@dataclass(frozen=True)
class Layer:
    """A layer of a published network: (N, h, w, channels), and (kh, kw, Cout, Cin) or (kh, kw)."""

    name: str
    first: tuple[int, int, int, int]
    kernel: tuple[int, ...]
    stride: int = 1
    chosen: str | None = None
    padding: str = "SAME"
    multiplier: int = 1

    def __str__(self) -> str:
        return self.name

    def plan(self, data_format: str = "NHWC", dtype: str = "float32", *, fast: bool = False) -> Plan:
        """The plan of the layer."""
        kind = dtype_of(dtype)
        options: dict[str, Any] = {"strides": self.stride, "padding": self.padding}

        def spec(*shape: int) -> TensorSpec:
            n, h, w, c = shape
            return TensorSpec(shape if data_format == "NHWC" else (n, c, h, w), kind)

        if len(self.kernel) == 4:
            filters = TensorSpec(self.kernel, kind)
            return plan_conv2d_transpose(
                spec(*self.first), filters, data_format=data_format, fast=fast, **options
            )
        n, h, w, c = self.first
        gradient = spec(n, -(-h // self.stride), -(-w // self.stride), c * self.multiplier)
        return plan_depthwise_conv2d_backprop_filter(
            spec(*self.first), self.kernel, gradient, data_format=data_format, **options
        )


LAYERS = [
    Layer("unet-1024-512", (1, 28, 28, 1024), (2, 2, 512, 1024), 2, "taps", "VALID"),
    Layer("unet-128-64", (1, 196, 196, 128), (2, 2, 64, 128), 2, "taps", "VALID"),
    Layer("resnet-3x3-256", (8, 14, 14, 256), (3, 3, 256, 256), 1, "taps"),
    Layer("resnet-3x3-64", (8, 56, 56, 64), (3, 3, 64, 64), 1, "taps"),
    Layer("fcn8s", (1, 64, 64, 21), (16, 16, 21, 21), 8, "gather"),
    Layer("dcgan-128-3", (16, 32, 32, 128), (5, 5, 3, 128), 2, "tap_planes"),
    Layer("dcgan-1024-512", (16, 4, 4, 1024), (5, 5, 512, 1024), 2),
    Layer("fsrcnn", (1, 170, 170, 56), (9, 9, 1, 56), 3),
    Layer("mobilenet-3x3-stride-2", (8, 112, 112, 64), (3, 3), 2),
    Layer("mobilenet-3x3", (8, 14, 14, 512), (3, 3)),
    Layer("convnext-7x7", (4, 56, 56, 96), (7, 7), 1, "planes"),
    Layer("replknet-31x31", (2, 28, 28, 256), (31, 31), 1, "toeplitz"),
    Layer("multiplier-8", (8, 224, 224, 3), (3, 3), 2, multiplier=8),
]
NAMED = [layer for layer in LAYERS if layer.chosen is not None]


@pytest.mark.parametrize("layer", NAMED, ids=str)
def test_kernels_of_published_layers(layer: Layer) -> None:
    assert layer.plan().strategy == layer.chosen


def candidates(plan: Plan) -> tuple[str, ...]:
    """What is chosen from: for small problems the general kernel alone."""
    return plan.strategies[:1] if plan.multiply_adds <= choice.SMALL else plan.strategies


@pytest.mark.parametrize("fast", [False, True], ids=["every-element", "fast"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_least_estimate_is_chosen(layer: Layer, data_format: str, dtype: str, fast: bool) -> None:
    plan = layer.plan(data_format, dtype, fast=fast)
    estimates = {name: plan.using(name).seconds for name in candidates(plan)}
    assert plan.strategy in plan.strategies
    assert plan.seconds == estimates[plan.strategy] == min(estimates.values())
    assert plan.strategies[0] in ("taps", "sums")
    assert fast or not set(plan.strategies) & set(forced.FAST)


@pytest.mark.parametrize("fast", [False, True], ids=["every-element", "fast"])
@pytest.mark.parametrize("layer", [layer for layer in LAYERS if len(layer.kernel) == 4], ids=str)
def test_float64_transposes_use_taps(layer: Layer, fast: bool) -> None:
    plan = layer.plan(dtype="float64", fast=fast)
    assert (plan.strategy, plan.strategies) == ("taps", ("taps",))


def plans(case: Geometry, dtype: str) -> list[Plan]:
    x, w, shape = case.transpose(dtype)
    a, sizes, g = case.filter_grad(dtype)
    return [
        plan_conv2d_transpose(x, w, shape, **case.options, fast=True),
        plan_depthwise_conv2d_backprop_filter(a, sizes, g, **case.options),
    ]


@given(geometries(), st.sampled_from(DTYPES), st.integers(0, 300))
def test_estimates(case: Geometry, dtype: str, channels: int) -> None:
    """Finite, positive where anything is multiplied, and the chosen one the least."""
    more = Geometry(
        case.kernel, case.wide, case.narrow, case.batch, channels, case.outputs, case.options, case.seed
    )
    for plan in plans(case, dtype) + plans(more, dtype):
        estimates = [plan.using(name).seconds for name in plan.strategies]
        assert all(math.isfinite(seconds) and seconds >= 0 for seconds in estimates)
        assert all(seconds > 0 for seconds in estimates) or plan.multiply_adds == 0
        assert plan.seconds == min(plan.using(name).seconds for name in candidates(plan))
        # However a problem is cut, blocks have sizes.
        for name in plan.strategies:
            sizes = plan.using(name).block_sizes
            assert min(sizes.images, sizes.rows, sizes.columns, sizes.channels) >= 1


@given(geometries(), st.sampled_from(DTYPES))
def test_equal_shapes_have_equal_plans(case: Geometry, dtype: str) -> None:
    """Arrays of any content and lay-out, or no arrays at all."""
    x, w, shape = case.transpose(dtype)
    plan = plan_conv2d_transpose(x, w, shape, **case.options)
    others: list[tuple[Any, Any]] = [
        (np.zeros_like(x), np.full_like(w, np.nan)),
        (np.asfortranarray(x), w[::-1]),
        (TensorSpec(x.shape, x.dtype), TensorSpec(w.shape, w.dtype)),
    ]
    for one, other in others:
        again = plan_conv2d_transpose(one, other, shape, **case.options)
        assert again == plan
        assert again.strategies == plan.strategies
    x, sizes, g = case.filter_grad(dtype)
    wanted = plan_depthwise_conv2d_backprop_filter(x, sizes, g, **case.options)
    specs = TensorSpec(x.shape, x.dtype), sizes, TensorSpec(g.shape, g.dtype)
    assert plan_depthwise_conv2d_backprop_filter(*specs, **case.options) == wanted


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_using(layer: Layer) -> None:
    """A kernel of one's own choice changes how, never what."""
    plan = layer.plan(fast=True)
    for name in plan.strategies:
        other = plan.using(name)
        assert other.strategy == name
        assert (other.problem, other.operands, other.output) == (plan.problem, plan.operands, plan.output)
        assert other.strategies == plan.strategies
        assert f"strategy {name}" in str(other)
        assert other.to_dict()["strategy"] == name
        assert other.using(plan.strategy) == plan


@pytest.mark.parametrize(
    ("layer", "data_format", "dtype", "name"),
    [
        ("resnet-3x3-64", "NHWC", "float32", "im2col"),
        ("resnet-3x3-64", "NHWC", "float32", ""),
        ("resnet-3x3-64", "NHWC", "float32", "Taps"),
        ("resnet-3x3-64", "NHWC", "float32", "planes"),
        ("resnet-3x3-64", "NHWC", "float64", "gather"),
        ("resnet-3x3-64", "NHWC", "float64", "tap_planes"),
        ("convnext-7x7", "NHWC", "float32", "taps"),
        ("convnext-7x7", "NHWC", "float32", "fir"),
        ("convnext-7x7", "NCHW", "float32", "direct"),
        ("convnext-7x7", "NHWC", "float64", "toeplitz"),
        ("mobilenet-3x3-stride-2", "NHWC", "float32", "toeplitz"),
        ("multiplier-8", "NHWC", "float32", "direct"),
    ],
)
def test_kernels_that_cannot(layer: str, data_format: str, dtype: str, name: str) -> None:
    plan = next(one for one in LAYERS if one.name == layer).plan(data_format, dtype)
    assert name not in plan.strategies
    with pytest.raises(ArgumentError, match="strategy") as caught:
        plan.using(name)
    assert plan.strategies[0] in str(caught.value), "says what can"
