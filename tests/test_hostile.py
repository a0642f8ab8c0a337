"""Every kernel over hostile data: the bound is per element, whatever stands beside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import by_taps
import forced
import reference
from assertions import CONTRACT, assert_matches, dtype_of
from forced import DTYPES, Problem
from reference import Expected

Generator = np.random.Generator
Data = Callable[[Generator, tuple[int, ...], tuple[int, ...], str], tuple[np.ndarray, np.ndarray]]


@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_what_is_expected(problem: Problem) -> None:
    """`by_taps` against `reference`."""
    first, second = spread(np.random.default_rng(1), problem.first, problem.second, "float64")
    first, second = problem.laid(first, second, dtype="float64")
    expected = problem.exact(first, second)
    if problem.sizes is None:
        other = reference.transpose(first, second, **problem.keywords)
    else:
        other = reference.filter_grad(first, problem.sizes, second, **problem.keywords)
    np.testing.assert_allclose(expected.scale, other.scale, rtol=1e-15, atol=0)
    assert (np.abs(expected.values - other.values) <= 1e-15 * other.scale).all()


# Kinds of data, as float64 arrays from a generator, the two shapes in NHWC and a dtype.


def spread(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes that differ by 10^12 from pixel to pixel: nothing but the bound per element helps."""
    # All that float16 has, subnormal numbers included.
    least, most = (-7.7, 4.3) if dtype == "float16" else (-6, 6)
    magnitude = 10.0 ** rng.uniform(least, most, (*first[:3], 1))
    return rng.uniform(-3, 3, first) * magnitude, rng.standard_normal(second)


def spread_everywhere(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Both operands from element to element."""
    reach = 2.3 if dtype == "float16" else 6
    one, other = (10.0 ** rng.uniform(-reach, reach, shape) for shape in (first, second))
    return rng.standard_normal(first) * one, rng.standard_normal(second) * other


def rectified(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Mostly zeros, as after a ReLU, and whole pixels of zeros beside large ones."""
    x = np.maximum(rng.standard_normal(first), 0) * (rng.random(first) < 0.2)
    x *= (rng.random((*first[:3], 1)) < 0.5) * 1e3
    return x, rng.standard_normal(second) * (rng.random(second) < 0.5)


def cancelling(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Every large term has its opposite, in the next channel and in the next column."""
    x, w = rng.standard_normal(first) * 100, rng.standard_normal(second)
    x[..., 1::2], w[..., 1::2] = x[..., : x.shape[3] // 2 * 2 : 2], -w[..., : w.shape[3] // 2 * 2 : 2]
    x[:, :, 1::2] = -x[:, :, : x.shape[2] // 2 * 2 : 2]
    return x * (1 + (rng.random(first) < 0.1) * 1e-3), w


def positive(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of rounding that the scale is no more than."""
    return rng.random(first), rng.random(second)


def near_overflow(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Products near the largest number, whose sums go beyond it and come back."""
    root = float(ml_dtypes.finfo(dtype_of(dtype)).max) ** 0.5
    if dtype == "float64":
        root /= 32  # nothing is wider than float64, so that its sums must stay within it
    return rng.uniform(-1, 1, first) * root, rng.uniform(-1, 1, second) * root


def largest_operand(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """One operand of the largest numbers, the other small or zero."""
    x = rng.uniform(0.5, 1, first) * float(ml_dtypes.finfo(dtype_of(dtype)).max)
    return x * rng.choice([-1, 1], first), rng.uniform(-1, 1, second) * (rng.random(second) < 0.5) / 8


def subnormal_operand(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """One operand of subnormal numbers, the other ordinary."""
    x = rng.uniform(-1, 1, first) * float(ml_dtypes.finfo(dtype_of(dtype)).smallest_normal)
    return x, rng.standard_normal(second)


def both_subnormal(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Every product is too small for the dtype."""
    tiny = float(ml_dtypes.finfo(dtype_of(dtype)).smallest_normal)
    return rng.uniform(-1, 1, first) * tiny, rng.uniform(-1, 1, second) * tiny


def small_products(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Products that are subnormal, of normal numbers."""
    root = float(ml_dtypes.finfo(dtype_of(dtype)).smallest_normal) ** 0.5
    return rng.uniform(-1, 1, first) * root, rng.uniform(-1, 1, second) * root


def small_beside_ordinary(
    rng: Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and outputs or columns, of products that are or become subnormal, the others ordinary."""
    root = float(ml_dtypes.finfo(dtype_of(dtype)).smallest_normal) ** 0.5
    x, w = rng.uniform(-1, 1, first), rng.uniform(-1, 1, second)
    x[:, : first[1] // 2] *= root * 10.0 ** rng.uniform(-3, 0, (first[0], first[1] // 2, *first[2:]))
    w[..., : second[2] // 2, :] *= root * 10.0 ** rng.uniform(-3, 0, (second[2] // 2, second[3]))
    return x, w


KINDS: list[Data] = [
    spread,
    spread_everywhere,
    rectified,
    cancelling,
    positive,
    near_overflow,
    largest_operand,
    subnormal_operand,
    both_subnormal,
    small_products,
]


def hostile(problem: Problem, kind: Data, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return problem.laid(*kind(rng, problem.first, problem.second, dtype), dtype=dtype)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_hostile_data(problem: Problem, kind: Data) -> None:
    for dtype in DTYPES:
        print(dtype)  # shown when an assertion fails
        first, second = hostile(problem, kind, dtype)
        exact = problem.exact(first, second)
        largest = float(ml_dtypes.finfo(first.dtype).max)
        for name, result in forced.each(problem.plan(first, second), first, second):
            assert_matches(result, *forced.bound(name, exact), first.dtype)
            got = result.astype(np.float64)
            assert not np.isnan(got).any()
            if name not in forced.FAST:
                assert (got[exact.scale == 0] == 0).all()
                # Where the sum of absolute values fits, nothing overflows, on the way neither.
                assert np.isfinite(got[exact.scale < 0.99 * largest]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_small_results_beside_ordinary_ones(problem: Problem, dtype: str) -> None:
    """Gradual underflow, also where no block is all small: half the smallest number for each term."""
    first, second = hostile(problem, small_beside_ordinary, dtype)
    exact = problem.exact(first, second)
    terms = problem.exact(np.ones(first.shape), np.ones(second.shape)).values
    floor, least = CONTRACT[first.dtype][1], float(ml_dtypes.finfo(first.dtype).smallest_subnormal)
    expected = Expected(exact.values, exact.scale + terms * (least / (2 * floor)))
    forced.assert_all_match(problem.plan(first, second), first, second, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_sums_of_zeros_are_zero(problem: Problem, dtype: str) -> None:
    """Beside anything: results whose terms all have a factor of 0, of either sign."""
    first, second = hostile(problem, spread, dtype)
    first.reshape(-1)[::2] = -0.0
    second.reshape(-1)[1::2] = 0
    exact = problem.exact(first, second)
    for name, result in forced.each(problem.plan(first, second), first, second):
        if name not in forced.FAST:
            assert (result.astype(np.float64)[exact.scale == 0] == 0).all()
    nothing = np.zeros_like(first)
    for _, result in forced.each(problem.plan(first, second), nothing, second):
        assert not result.astype(np.float64).any()


# Constants: the exact result is the number of terms times the product, and every addition may round the
# same way. A running float32 sum of 1024 equal terms is off by several times the bound.


CONSTANTS = {"0.1": (0.1, 0.1), "third": (1 / 3, 1 / 3), "1.37": (1.37, 1.37), "0.1x-1.37": (0.1, -1.37)}
CONSTANT_TRANSPOSES = [
    *(
        Problem(f"3x3-{channels}", (1, 3, 4, channels), (3, 3, 16, channels))
        for channels in (256, 257, 511, 1000, 1024)
    ),
    Problem("up-convolution-1024", (1, 3, 4, 1024), (2, 2, 16, 1024), None, {"strides": 2}),
    Problem("5x5-stride-2-512-to-3", (1, 4, 4, 512), (5, 5, 3, 512), None, {"strides": 2}),
    Problem("4x4-stride-2-512", (1, 4, 4, 512), (4, 4, 17, 512), None, {"strides": 2}),
    Problem("3x3-dilated-300", (1, 5, 5, 300), (3, 3, 16, 300), None, {"dilations": 2}),
    Problem("16x16-stride-8-21", (1, 4, 4, 21), (16, 16, 21, 21), None, {"strides": 8}),
    Problem("31x31-3", (1, 31, 31, 3), (31, 31, 1, 3)),
    Problem("9x9-56-to-1", (1, 9, 9, 56), (9, 9, 1, 56)),
]


@functools.cache
def _transpose_counts(index: int) -> np.ndarray:
    problem = CONSTANT_TRANSPOSES[index]
    ones = np.ones((*problem.first[:3], 1)), np.ones((*problem.second[:2], 1, 1))
    return by_taps.transpose(*ones, **problem.keywords).values * problem.first[3]


def transpose_counts(problem: Problem) -> np.ndarray:
    """How many terms each result has, for all output channels the same."""
    count = _transpose_counts(CONSTANT_TRANSPOSES.index(problem))
    return np.repeat(count, problem.second[2], axis=3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", CONSTANT_TRANSPOSES, ids=str)
def test_constants_over_many_channels(problem: Problem, dtype: str) -> None:
    for name, constants in CONSTANTS.items():
        print(name)  # shown when the assertion fails
        arrays = map(np.full, (problem.first, problem.second), constants)
        first, second = problem.laid(*arrays, dtype=dtype)
        values = product_of(first, second) * transpose_counts(problem)
        forced.assert_all_match(problem.plan(first, second), first, second, both(values))


def product_of(first: np.ndarray, second: np.ndarray) -> Any:
    return np.longdouble(np.float64(first.flat[0])) * np.longdouble(np.float64(second.flat[0]))


def both(values: np.ndarray) -> Expected:
    values = values.astype(np.float64)
    return Expected(values, np.abs(values))


#: About 10^6 positions, in an image, in rows, in columns and in images.
CONSTANT_GRADIENTS = [
    Problem("3x3", (1, 1000, 1000, 1), (1, 1000, 1000, 1), (3, 3)),
    Problem("1x3-wide", (1, 4, 250_000, 1), (1, 4, 250_000, 1), (1, 3)),
    Problem("3x1-tall", (1, 250_000, 4, 1), (1, 250_000, 4, 1), (3, 1)),
    Problem("2x2-images", (62_500, 4, 4, 1), (62_500, 4, 4, 1), (2, 2)),
    Problem("2x2-stride-2", (4, 1000, 1000, 1), (4, 500, 500, 1), (2, 2), {"strides": 2}),
    Problem("1x1-multiplier", (1, 1000, 500, 1), (1, 1000, 500, 2), (1, 1)),
    Problem("2x2-dilated", (1, 1000, 1000, 1), (1, 1000, 1000, 1), (2, 2), {"dilations": (3, 1)}),
]


def gradient_counts(problem: Problem) -> np.ndarray:
    """How many terms each result has."""
    assert problem.sizes is not None
    options = problem.keywords
    axes = reference.axes(
        problem.sizes, options.get("strides", 1), options["padding"], "NHWC", options.get("dilations")
    )
    by_axis = []
    for axis, wide in zip(axes, problem.first[1:3], strict=True):
        before, narrow = axis.before(wide), np.arange(axis.narrow(wide))
        places = [narrow * axis.stride + tap * axis.dilation - before for tap in range(axis.kernel)]
        by_axis.append(np.array([((place >= 0) & (place < wide)).sum() for place in places], np.float64))
    count = problem.first[0] * np.multiply.outer(*by_axis)[:, :, None, None]
    return np.broadcast_to(count, (*problem.sizes, 1, problem.second[3] // problem.first[3]))


def test_counts_are_of_terms() -> None:
    """The formula above against the loops."""
    for problem in forced.GRADIENTS:
        one = replace(problem, first=(*problem.first[:3], 1), second=(*problem.second[:3], 1), nchw=False)
        ones = np.ones(one.first), np.ones(one.second)
        assert (one.exact(*ones).values == gradient_counts(one)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("constant", ["0.1", "1.37"])
@pytest.mark.parametrize("problem", CONSTANT_GRADIENTS, ids=str)
def test_constants_over_many_positions(problem: Problem, constant: str, dtype: str) -> None:
    first, second = problem.laid(
        *map(np.full, (problem.first, problem.second), CONSTANTS[constant]), dtype=dtype
    )
    values = product_of(first, second) * gradient_counts(problem)
    forced.assert_all_match(problem.plan(first, second), first, second, both(values))


@pytest.mark.parametrize("problem", CONSTANT_GRADIENTS[::4], ids=str)
def test_positive_over_many_positions(problem: Problem) -> None:
    rng = np.random.default_rng(2)
    first, second = problem.laid(*map(rng.random, (problem.first, problem.second)), dtype="float32")
    exact = problem.exact(first, second)
    forced.assert_all_match(problem.plan(first, second), first, second, exact)


@pytest.mark.parametrize("channels", [256, 1000])
def test_positive_over_many_channels(channels: int) -> None:
    rng = np.random.default_rng(channels)
    problem = Problem("3x3", (1, 4, 4, channels), (3, 3, 16, channels))
    for dtype in ("float32", "float64"):
        first, second = problem.laid(*map(rng.random, (problem.first, problem.second)), dtype=dtype)
        forced.assert_all_match(problem.plan(first, second), first, second, problem.exact(first, second))


# The ends of each dtype's range, with results known without a reference.

SMALL = [
    Problem("transpose", (1, 3, 3, 16), (3, 3, 16, 16)),
    Problem("gradient", (1, 4, 4, 3), (1, 4, 4, 3), (1, 1)),
]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("dtype", "value"), [("float16", 300.0), ("bfloat16", 3e19), ("float32", 3e19)])
@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_results_beyond_the_range_are_infinite(problem: Problem, dtype: str, value: float, sign: int) -> None:
    arrays = np.full(problem.first, value), np.full(problem.second, sign * value)
    first, second = problem.laid(*arrays, dtype=dtype)
    for _, result in forced.each(problem.plan(first, second), first, second):
        assert (result.astype(np.float64) == sign * np.inf).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_sums_that_go_beyond_the_range_and_come_back(problem: Problem, dtype: str) -> None:
    """Equal terms of both signs: in real numbers the sum is 0."""
    largest = float(ml_dtypes.finfo(dtype_of(dtype)).max)
    x, w = np.full(problem.first, largest), np.ones(problem.second)
    if problem.sizes is None:
        w[..., ::2] = -1  # over channels
    else:
        w[:, ::2] = -1  # over rows
    first, second = problem.laid(x, w, dtype=dtype)
    for name, result in forced.each(problem.plan(first, second), first, second):
        got = result.astype(np.float64)
        assert not np.isnan(got).any()
        assert name in forced.FAST or (got == 0).all()


@pytest.mark.parametrize(
    ("last", "wanted"), [(65504, 65504), (65519, 65504), (65520, np.inf)], ids=["max", "below", "tie"]
)
def test_float16_rounds_to_infinity_where_it_should(last: int, wanted: float) -> None:
    """65520 lies between the largest float16 and the next power of two: a tie, to even."""
    rest = last - 65504
    x = np.zeros((1, 2, 2, 16))
    x[..., 0] = 65504
    x[..., 1] = rest
    w = np.ones((1, 1, 16, 16))
    problem = Problem("1x1", x.shape, w.shape)
    first, second = problem.laid(x, w, dtype="float16")
    for name, result in forced.each(problem.plan(first, second), first, second):
        assert name in forced.FAST or (result.astype(np.float64) == wanted).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_rounded_once(problem: Problem, dtype: str) -> None:
    """Small integers: exact in float32, so the result is the exact one's nearest number, ties to even."""
    rng = np.random.default_rng(9)
    arrays = rng.integers(-9, 10, problem.first), rng.integers(-9, 10, problem.second)
    first, second = problem.laid(*arrays, dtype=dtype)
    exact = problem.exact(first, second).values
    for name, result in forced.each(problem.plan(first, second), first, second):
        assert name in forced.FAST or (result == exact.astype(result.dtype)).all()


def test_a_wrong_result_is_told() -> None:
    """The bound that these tests share is as tight as the contract."""
    problem = forced.TRANSPOSES[0]
    first, second = hostile(problem, positive, "float32")
    exact = problem.exact(first, second)
    for factor in (1 - 2e-6, 1 + 2e-6):
        with pytest.raises(AssertionError, match="out of bounds"):
            assert_matches((exact.values * factor).astype(np.float32), *exact, np.float32)
