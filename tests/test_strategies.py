"""Every kernel forced in turn: through the golden cases, and through random geometries and blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forced
import golden_cases
import reference
from assertions import assert_matches, dtype_of
from convgrad import Plan, execute, plan_conv2d_transpose, plan_depthwise_conv2d_backprop_filter
from convgrad.blocks import BlockSizes
from forced import DTYPES, Problem
from golden_cases import CASES, Case
from reference import Expected
from test_properties import Geometry, geometries

#: Examples of tests that run several kernels on each.
SOME = settings(max_examples=max(settings().max_examples // 5, 10))


def golden_plan(case: Case) -> Plan:
    def transpose(*operands: Any, **keywords: Any) -> Plan:
        return plan_conv2d_transpose(*operands, **keywords, fast=True)

    plan: Plan = golden_cases.call(case, transpose, plan_depthwise_conv2d_backprop_filter)
    return plan


@pytest.mark.parametrize("case", CASES, ids=str)
def test_goldens(case: Case) -> None:
    data = golden_cases.load(case)
    plan = golden_plan(case)
    assert plan.output.dtype == dtype_of(data["dtype"])
    expected = Expected(*golden_cases.expected(case))
    forced.assert_all_match(plan, data["input"], data[case.second], expected)


@pytest.mark.parametrize(
    ("op", "names"), [("transpose", forced.TRANSPOSE), ("filter_grad", forced.FILTER_GRAD)]
)
def test_goldens_reach_every_kernel(op: str, names: list[str]) -> None:
    cases = [case for case in CASES if case.op == op]
    accepted = Counter(name for case in cases for name in golden_plan(case).strategies)
    assert accepted[names[0]] == len(cases), "the general kernel accepts everything"
    assert set(accepted) <= set(names)
    # Goldens are small; a fast kernel may ask for more channels than they have.
    assert all(accepted[name] >= 5 for name in names if name not in forced.FAST), accepted


def changed(case: Geometry, **options: Any) -> Geometry:
    """The geometry with other strides or dilations, on a wide side that is large enough for them."""
    options = {**case.options, **options}
    axes = reference.axes(
        case.kernel, options["strides"], options["padding"], options["data_format"], options["dilations"]
    )
    wide = [
        size + max(axis.window - size - (sum(axis.padding) if isinstance(axis.padding, tuple) else 0), 0)
        for axis, size in zip(axes, case.wide, strict=True)
    ]
    narrow = [axis.narrow(size) for axis, size in zip(axes, wide, strict=True)]
    return replace(case, options=options, wide=(wide[0], wide[1]), narrow=(narrow[0], narrow[1]))


def pixels_last(case: Geometry) -> Geometry:
    """The geometry in NHWC."""
    padding = case.options["padding"]
    if case.options["data_format"] == "NHWC":
        return case
    if not isinstance(padding, str):
        padding = [padding[0], *padding[2:], padding[1]]
    return replace(case, options={**case.options, "data_format": "NHWC", "padding": padding})


def as_it_is(case: Geometry) -> Geometry:
    return case


def unstrided(case: Geometry) -> Geometry:
    """For kernels at stride 1."""
    return changed(case, strides=(1, 1))


def rows_in_runs(case: Geometry) -> Geometry:
    """For kernels on NHWC without a multiplier, where either stride or dilation of columns is 1."""
    case = replace(pixels_last(case), outputs=min(case.outputs, 1))
    (down, across), (tall, wide) = case.options["strides"], case.options["dilations"]
    return case if 1 in (across, wide) else changed(case, strides=(down, 1), dilations=(tall, wide))


def many_channels(case: Geometry) -> Geometry:
    """For kernels that transform pixels."""
    return replace(case, channels=case.channels + 15, outputs=case.outputs + 15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [as_it_is, many_channels], ids=["any", "many-channels"])
@SOME
@given(case=geometries())
def test_transpose_geometries(case: Geometry, kind: Any, dtype: str) -> None:
    case = kind(case)
    x, w, shape = case.transpose(dtype)
    plan = plan_conv2d_transpose(x, w, shape, **case.options, fast=True)
    forced.assert_all_match(plan, x, w, reference.transpose(x, w, shape, **case.options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind", [as_it_is, unstrided, rows_in_runs], ids=["any", "unstrided", "rows-in-runs"]
)
@SOME
@given(case=geometries())
def test_filter_grad_geometries(case: Geometry, kind: Any, dtype: str) -> None:
    case = kind(case)
    x, sizes, g = case.filter_grad(dtype)
    plan = plan_depthwise_conv2d_backprop_filter(x, sizes, g, **case.options)
    forced.assert_all_match(plan, x, g, reference.filter_grad(x, sizes, g, **case.options))


BLOCKS = st.builds(BlockSizes, *[st.integers(1, 5)] * 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@SOME
@given(case=geometries(), blocks=BLOCKS)
def test_blocks_of_any_size(case: Geometry, blocks: BlockSizes, dtype: str) -> None:
    """Wherever blocks are cut, also in the middle of a stride."""
    x, w, shape = case.transpose(dtype)
    plan = plan_conv2d_transpose(x, w, shape, **case.options, fast=True)
    forced.assert_all_match(plan, x, w, reference.transpose(x, w, shape, **case.options), blocks=blocks)
    for kind in (as_it_is, unstrided, rows_in_runs):
        case = kind(case)
        x, sizes, g = case.filter_grad(dtype)
        plan = plan_depthwise_conv2d_backprop_filter(x, sizes, g, **case.options)
        expected = reference.filter_grad(x, sizes, g, **case.options)
        forced.assert_all_match(plan, x, g, expected, blocks=blocks)


def operands(problem: Problem, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    return problem.laid(*map(rng.standard_normal, (problem.first, problem.second)), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_views(problem: Problem, dtype: str) -> None:
    """Operands of any strides and byte order, results into any strides."""
    first, second = operands(problem, dtype)
    plan, expected = problem.plan(first, second), problem.exact(first, second)
    spread = np.zeros((*first.shape, 2), first.dtype)
    spread[..., 0] = first
    # bfloat16 has no foreign byte order.
    foreign = second.dtype if dtype == "bfloat16" else second.dtype.newbyteorder("S")
    for name, result in forced.each(plan, first, second):
        pairs = [
            (np.asfortranarray(first), np.asfortranarray(second)),
            (first[::-1, ::-1].copy()[::-1, ::-1], second[..., ::-1].copy()[..., ::-1]),
            (spread[..., 0], second.astype(foreign)),
        ]
        for a, b in pairs:
            assert_matches(forced.run(plan, name, a, b), *forced.bound(name, expected), result.dtype)
        whole = np.full((*result.shape, 3), 7, result.dtype)
        execute(plan.using(name), first, second, whole[..., 1], threads=1)
        assert_matches(whole[..., 1], *forced.bound(name, expected), result.dtype)
        assert (whole[..., ::2] == 7).all()


@pytest.mark.parametrize("name", sorted({*forced.TRANSPOSE, *forced.FILTER_GRAD}))
def test_problems_of_the_other_tests_reach_every_kernel(name: str) -> None:
    some = [
        problem
        for problem in forced.PROBLEMS
        if name in problem.plan(*operands(problem, "float32")).strategies
    ]
    assert len(some) >= 4


#: Layers large enough for several blocks of the kernels' own sizes.
LAYERS = [
    Problem("up-convolution", (1, 30, 60, 24), (2, 2, 70, 24), None, {"strides": 2, "padding": "VALID"}),
    Problem("3x3", (1, 60, 60, 40), (3, 3, 32, 40)),
    Problem("few-outputs", (3, 40, 50, 30), (5, 5, 3, 30), None, {"strides": 2}),
    Problem("few-channels", (1, 40, 42, 8), (8, 8, 8, 8), None, {"strides": 4}),
    Problem("one-row", (1, 1, 4000, 8), (1, 5, 6, 8), None, {"strides": (1, 2)}),
    Problem("3x3-gradient", (2, 70, 61, 40), (2, 70, 61, 40), (3, 3)),
    Problem("3x3-stride-2-gradient", (9, 60, 60, 16), (9, 30, 30, 16), (3, 3), {"strides": 2}),
    Problem("multiplier-gradient", (2, 70, 61, 5), (2, 70, 61, 20), (3, 3)),
    Problem("15x15-gradient", (9, 28, 49, 3), (9, 28, 49, 3), (15, 15)),
    Problem("one-row-gradient", (1, 1, 4000, 6), (1, 1, 4000, 6), (1, 5)),
]


@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("problem", LAYERS, ids=str)
def test_layers(problem: Problem, nchw: bool) -> None:
    problem = replace(problem, nchw=nchw)
    first, second = operands(problem, "float32")
    plan = problem.plan(first, second)
    forced.assert_all_match(plan, first, second, problem.exact(first, second))
