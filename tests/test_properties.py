"""Properties of both operations over random geometries, and of their sums over hard data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuts
import reference
from assertions import BFLOAT16, assert_matches, dtype_of
from convgrad import (
    conv2d_transpose,
    execute,
    plan_conv2d_transpose,
    plan_depthwise_conv2d_backprop_filter,
)
from convgrad import depthwise_conv2d_backprop_filter as filter_grad
from convgrad.blocks import BlockSizes

DTYPES = ["float64", "float32", "float16", "bfloat16"]
#: Fewer examples for what is costly or nearly the same as another test.
FEW = settings(max_examples=max(settings().max_examples // 3, 10))


@dataclass(frozen=True)
class Geometry:
    """One forward convolution, which both operations are gradients of. Sizes are (H, W)."""

    kernel: tuple[int, int]
    wide: tuple[int, int]
    narrow: tuple[int, int]
    batch: int
    channels: int
    outputs: int
    options: dict[str, Any]
    seed: int

    def shape(self, size: tuple[int, int], channels: int) -> tuple[int, ...]:
        if self.options["data_format"] == "NHWC":
            return (self.batch, *size, channels)
        return (self.batch, channels, *size)

    def random(self, *shape: int, dtype: str = "float64", which: int = 0) -> np.ndarray:
        """Normal data whose magnitude differs from element to element by up to 10^6."""
        rng = np.random.default_rng([self.seed, which])
        magnitude = 10.0 ** rng.uniform(-2, 2 if dtype == "float16" else 4, shape)
        return (rng.standard_normal(shape) * magnitude).astype(dtype_of(dtype))

    def transpose(self, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        """input, filters and output_shape of a transposed convolution."""
        x = self.random(*self.shape(self.narrow, self.channels), dtype=dtype)
        w = self.random(*self.kernel, self.outputs, self.channels, dtype=dtype, which=1)
        return x, w, self.shape(self.wide, self.outputs)

    def filter_grad(self, dtype: str = "float64") -> tuple[np.ndarray, tuple[int, ...], np.ndarray]:
        """input, filter_sizes and out_backprop of a depthwise filter gradient; outputs is the multiplier."""
        x = self.random(*self.shape(self.wide, self.channels), dtype=dtype)
        g = self.random(*self.shape(self.narrow, self.channels * self.outputs), dtype=dtype, which=1)
        return x, (*self.kernel, self.channels, self.outputs), g


@st.composite
def geometries(draw: st.DrawFn, least: int = 0, fewest: int = 0) -> Geometry:
    """Both layouts, all paddings, unequal strides and dilations.

    `least` is the smallest batch and number of channels, `fewest` the smallest number of rows and columns.
    """
    if draw(st.integers(0, 4), label="4 allows sizes of 0") < 4:
        least, fewest = max(least, 1), max(fewest, 1)
    nchw = draw(st.booleans(), label="NCHW")
    kernel = draw(st.tuples(*[st.integers(1, 4)] * 2), label="kernel")
    strides = draw(st.tuples(*[st.integers(1, 4)] * 2), label="strides")
    dilations = draw(st.tuples(*[st.integers(1, 3)] * 2), label="dilations")
    kind = draw(st.sampled_from(["SAME", "VALID", "explicit"]), label="padding")
    padding: Any = kind
    if kind == "explicit":
        # Up to more than the largest effective kernel.
        pads = draw(st.tuples(*[st.integers(0, 11)] * 4), label="pads")
        rows, columns = list(pads[:2]), list(pads[2:])
        padding = [[0, 0], [0, 0], rows, columns] if nchw else [[0, 0], rows, columns, [0, 0]]
    options = {
        "strides": strides,
        "dilations": dilations,
        "padding": padding,
        "data_format": "NCHW" if nchw else "NHWC",
    }
    wide, narrow = [], []
    for axis in reference.axes(kernel, strides, padding, options["data_format"], dilations):
        smallest = next(size for size in range(fewest, 20) if axis.narrow(size) >= fewest)
        size = draw(st.integers(smallest, smallest + 7), label="wide size")
        wide.append(size)
        narrow.append(axis.narrow(size))
    batch, channels, outputs = draw(st.tuples(*[st.integers(least, 3)] * 3), label="batch, channels, outputs")
    seed = draw(st.integers(0, 2**32 - 1), label="seed")
    return Geometry(
        kernel, (wide[0], wide[1]), (narrow[0], narrow[1]), batch, channels, outputs, options, seed
    )


@given(geometries())
def test_transpose_matches_the_reference_and_its_plan(case: Geometry) -> None:
    x, w, shape = case.transpose()
    plan = plan_conv2d_transpose(x, w, shape, **case.options)
    result = conv2d_transpose(x, w, shape, **case.options)
    assert (tuple(plan.output.shape), plan.output.dtype) == (result.shape, result.dtype)
    assert_matches(result, *reference.transpose(x, w, shape, **case.options), np.float64)


@given(geometries())
def test_transpose_without_output_shape(case: Geometry) -> None:
    x, w, _ = case.transpose()
    plan = plan_conv2d_transpose(x, w, **case.options)
    result = conv2d_transpose(x, w, **case.options)
    assert (tuple(plan.output.shape), plan.output.dtype) == (result.shape, result.dtype)
    assert_matches(result, *reference.transpose(x, w, **case.options), np.float64)


@given(geometries())
def test_filter_grad_matches_the_reference_and_its_plan(case: Geometry) -> None:
    x, sizes, g = case.filter_grad()
    plan = plan_depthwise_conv2d_backprop_filter(x, sizes, g, **case.options)
    result = filter_grad(x, sizes, g, **case.options)
    assert (tuple(plan.output.shape), plan.output.dtype) == (result.shape, result.dtype)
    assert_matches(result, *reference.filter_grad(x, sizes, g, **case.options), np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@FEW
@given(case=geometries())
def test_every_dtype_matches_the_reference(case: Geometry, dtype: str) -> None:
    x, w, shape = case.transpose(dtype)
    result = conv2d_transpose(x, w, shape, **case.options)
    assert_matches(result, *reference.transpose(x, w, shape, **case.options), x.dtype)
    x, sizes, g = case.filter_grad(dtype)
    result = filter_grad(x, sizes, g, **case.options)
    assert_matches(result, *reference.filter_grad(x, sizes, g, **case.options), x.dtype)


def dot(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Inner product and the same on absolute values."""
    terms = first.ravel().astype(np.longdouble) * second.ravel()
    return float(terms.sum()), float(np.abs(terms).sum())


@given(geometries())
def test_transpose_is_the_adjoint_of_the_convolution(case: Geometry) -> None:
    """<conv(x, w), y> == <x, conv2d_transpose(y, w)>."""
    y, w, shape = case.transpose()
    x = case.random(*shape, which=2)
    forward, scale = dot(reference.conv2d(x, w, **case.options), y)
    backward, other = dot(x, conv2d_transpose(y, w, shape, **case.options))
    size = dot(reference.conv2d(np.abs(x), np.abs(w), **case.options), np.abs(y))[0]
    assert abs(forward - backward) <= 3e-14 * max(size, scale, other)


@given(geometries())
def test_filter_grad_is_the_adjoint_of_the_depthwise_convolution(case: Geometry) -> None:
    """<depthwise(x, w), g> == <w, filter_grad(x, g)>."""
    x, sizes, g = case.filter_grad()
    w = case.random(*sizes, which=2)
    forward, scale = dot(reference.depthwise_conv2d(x, w, **case.options), g)
    backward, other = dot(w, filter_grad(x, sizes, g, **case.options))
    size = dot(reference.depthwise_conv2d(np.abs(x), np.abs(w), **case.options), np.abs(g))[0]
    assert abs(forward - backward) <= 3e-14 * max(size, scale, other)


@FEW
@given(geometries(least=1))
def test_an_image_does_not_depend_on_its_batch(case: Geometry) -> None:
    x, w, shape = case.transpose()
    whole = conv2d_transpose(x, w, shape, **case.options)
    scale = reference.transpose(x, w, shape, **case.options).scale
    for index in range(case.batch):
        alone = conv2d_transpose(x[index : index + 1], w, (1, *shape[1:]), **case.options)
        image = slice(index, index + 1)
        assert_matches(alone, whole[image], scale[image], np.float64)


@FEW
@given(geometries(least=1))
def test_a_filter_gradient_is_the_sum_over_the_batch(case: Geometry) -> None:
    x, sizes, g = case.filter_grad()
    whole = filter_grad(x, sizes, g, **case.options)
    parts = [filter_grad(x[n : n + 1], sizes, g[n : n + 1], **case.options) for n in range(case.batch)]
    scale = reference.filter_grad(x, sizes, g, **case.options).scale
    assert_matches(whole, np.sum(parts, axis=0), scale, np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@FEW
@given(case=geometries())
def test_layouts_agree_bit_for_bit(case: Geometry, dtype: str) -> None:
    if case.options["data_format"] == "NCHW":
        here, there, other = 1, 3, "NHWC"
    else:
        here, there, other = 3, 1, "NCHW"

    def moved(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array, here, there)

    padding = case.options["padding"]
    if not isinstance(padding, str):
        padding = [padding[0], *([padding[3], *padding[1:3]] if here == 3 else [*padding[2:], padding[1]])]
    options = {**case.options, "padding": padding, "data_format": other}
    x, w, shape = case.transpose(dtype)
    result = moved(conv2d_transpose(x, w, shape, **case.options))
    same = conv2d_transpose(moved(x), w, result.shape, **options)
    assert result.tobytes() == same.tobytes()
    x, sizes, g = case.filter_grad(dtype)
    result = filter_grad(x, sizes, g, **case.options)
    assert result.tobytes() == filter_grad(moved(x), sizes, moved(g), **options).tobytes()


class OnlySlices:
    """A source and a sink that take slices of leading axes alone, and count what they cover."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.seen = array, np.zeros(array.shape, int)
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, key: Any) -> np.ndarray:
        assert all((type(one), one.step) == (slice, None) for one in (key if type(key) is tuple else (key,)))
        self.seen[key] += 1
        return self.array[key]

    def __setitem__(self, key: Any, value: np.ndarray) -> None:
        self[key][...] = value


@given(geometries(), st.builds(BlockSizes, *[st.integers(1, 6)] * 4), st.booleans())
def test_blocks_and_slabs_of_any_size(case: Geometry, blocks: BlockSizes, slabs: bool) -> None:
    """Small blocks change nothing but rounding; how much is read at a time changes nothing at all."""
    with (
        cuts.every_plan_cut(blocks),
        mock.patch("convgrad.slabs.SLAB_BYTES", 1 if slabs else 2**20),
    ):
        x, w, shape = case.transpose()
        result = conv2d_transpose(x, w, shape, **case.options)
        source, sink = OnlySlices(x), OnlySlices(np.full(shape, 7.0))
        execute(plan_conv2d_transpose(x, w, shape, **case.options), source, OnlySlices(w), sink)
        assert sink.array.tobytes() == result.tobytes()
        assert (sink.seen == 1).all()
        assert_matches(result, *reference.transpose(x, w, shape, **case.options), np.float64)
        x, sizes, g = case.filter_grad()
        result = filter_grad(x, sizes, g, **case.options)
        source, sink, products = OnlySlices(x), OnlySlices(np.full(sizes, 7.0)), OnlySlices(g)
        plan = plan_depthwise_conv2d_backprop_filter(x, sizes, g, **case.options)
        execute(plan, source, products, sink)
        assert sink.array.tobytes() == result.tobytes()
        assert (sink.seen == 1).all()
        assert (products.seen == 1).all()
        assert_matches(result, *reference.filter_grad(x, sizes, g, **case.options), np.float64)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan], ids=str)
@pytest.mark.parametrize("operand", [0, 1])
@FEW
@given(case=geometries(least=1, fewest=1), places=st.lists(st.integers(0, 10**6), min_size=1, max_size=3))
def test_non_finite_values_reach_exactly_their_sums(
    case: Geometry, places: list[int], operand: int, bad: float
) -> None:
    """The reference visits existing taps only, so NaN and inf must stand where it has them."""
    x, w, shape = case.transpose()
    target = (x, w)[operand].reshape(-1)
    target[[place % target.size for place in places]] = bad
    result = conv2d_transpose(x, w, shape, **case.options)
    assert_matches(result, *reference.transpose(x, w, shape, **case.options), np.float64)
    x, sizes, g = case.filter_grad()
    target = (x, g)[operand].reshape(-1)
    target[[place % target.size for place in places]] = bad
    result = filter_grad(x, sizes, g, **case.options)
    assert_matches(result, *reference.filter_grad(x, sizes, g, **case.options), np.float64)


@FEW
@given(geometries())
def test_terms_that_are_all_zero_give_exactly_zero(case: Geometry) -> None:
    """Also next to very large values, which a kernel that mixes neighbours would smear."""
    x, w, shape = case.transpose("float32")
    x.reshape(-1)[::2] = 0
    w.reshape(-1)[1::2] = 0
    x *= 1e6
    scale = reference.transpose(x, w, shape, **case.options).scale
    assert (conv2d_transpose(x, w, shape, **case.options)[scale == 0] == 0).all()


@FEW
@given(geometries(), st.sampled_from([np.float64, np.float32]))
def test_strided_and_swapped_operands_and_out(case: Geometry, dtype: Any) -> None:
    """Views, negative strides, foreign byte order and a non-contiguous `out` change nothing."""
    x, w, shape = case.transpose(np.dtype(dtype).name)
    result = conv2d_transpose(x, w, shape, **case.options)
    reversed_view = x[::-1].copy()[::-1]
    swapped = w.astype(w.dtype.newbyteorder("S"))
    out = np.full((*shape, 2), 7, dtype)[..., 0]
    assert conv2d_transpose(reversed_view, swapped, shape, **case.options, out=out) is out
    assert out.tobytes() == result.tobytes()
    x, sizes, g = case.filter_grad(np.dtype(dtype).name)
    result = filter_grad(x, sizes, g, **case.options)
    again = filter_grad(np.asfortranarray(x), sizes, g.astype(g.dtype.newbyteorder("S")), **case.options)
    assert again.tobytes() == result.tobytes()
    assert again.dtype.isnative


# Sums over hard data. Each is computed exactly here, with integers or fractions.


def both_ways(terms: np.ndarray, weights: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The sum of terms*weights by a transpose over its channels and by a filter gradient over positions."""
    rows = 1000 if terms.size % 1000 == 0 else 1
    positions, images = (1, rows, -1, 1), (-1, 1, 1, 1)
    return [
        ("transpose", conv2d_transpose(terms.reshape(1, 1, 1, -1), weights.reshape(1, 1, 1, -1))),
        ("filter-grad", filter_grad(terms.reshape(positions), (1, 1, 1, 1), weights.reshape(positions))),
        ("filter-grad over the batch", filter_grad(terms.reshape(images), (1, 1), weights.reshape(images))),
    ]


def check_sum(
    terms: np.ndarray, weights: np.ndarray, exact: float | Fraction, scale: float | Fraction
) -> None:
    for way, result in both_ways(terms, weights):
        print(way)  # shown when the assertion fails
        shape = result.shape
        assert_matches(result, np.full(shape, float(exact)), np.full(shape, float(scale)), terms.dtype)


@pytest.mark.parametrize(
    ("dtype", "count"),
    [("float16", 2049), ("float16", 4100), ("float16", 60_000), ("bfloat16", 258), ("bfloat16", 65_536)],
)
def test_ones_do_not_stall(dtype: str, count: int) -> None:
    """A running float16 sum of ones stops at 2048, a running bfloat16 sum at 256."""
    ones = np.ones(count, dtype_of(dtype))
    nearest = dtype_of(dtype).type(count)
    for _, result in both_ways(ones, ones):
        assert result.item() == float(nearest)


def test_ones_do_not_stall_across_taps_and_images() -> None:
    """The transpose also sums over taps: 60 x 60 of them past 2048."""
    ones = np.ones((1, 60, 60, 1), np.float16)
    result = conv2d_transpose(ones, np.ones((60, 60, 1, 1), np.float16), padding="VALID")
    assert result[0, 59, 59, 0] == 3600


@pytest.mark.parametrize("constant", [None, 0.1], ids=["random", "constant"])
def test_ten_million_float32_terms(constant: float | None) -> None:
    """All positive, so that errors of rounding do not cancel."""
    count = 10**7
    if constant is None:
        x = np.random.default_rng(3).random(count, np.float32)
    else:
        x = np.full(count, constant, np.float32)
    exact = float((x.astype(np.float64) ** 2).astype(np.longdouble).sum())
    image = x.reshape(1, 2500, 4000, 1)
    result = filter_grad(image, (1, 1, 1, 1), image)
    assert_matches(result, np.full(result.shape, exact), np.full(result.shape, exact), np.float32)


def test_a_million_constant_float64_terms() -> None:
    x = np.full(10**6, 0.1)
    exact = 10**6 * Fraction(0.1) ** 2
    check_sum(x, x, exact, exact)


@pytest.mark.parametrize("first", [0, 500_000, 999_999])
def test_one_among_a_million_tiny_float64_terms(first: int) -> None:
    """A running sum drops each 1e-16 beside 1; together they are 1e-10."""
    x = np.full(10**6, 1e-16)
    x[first] = 1
    exact = 1 + (10**6 - 1) * Fraction(1e-16)
    check_sum(x, np.ones(10**6), exact, exact)


@pytest.mark.parametrize("count", [3, 3000, 300_000])
def test_cancellation_in_float32(count: int) -> None:
    """Large, minus large, and small terms left over: products that float32 would round."""
    rng = np.random.default_rng(count)
    x = (rng.standard_normal(count) * 1e6).astype(np.float32)
    w = rng.standard_normal(count).astype(np.float32)
    x[1::3], w[1::3] = x[::3], -w[::3]
    x[2::3] = 1e-3
    terms = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, w, strict=True)]
    check_sum(x, w, sum(terms), sum(map(abs, terms)))


@pytest.mark.parametrize("large", [1e8, 1e20, 1e38])
def test_cancellation_keeps_the_small_term(large: float) -> None:
    """float32 terms whose two large ones cancel: the error is held to the scale, never to NaN or inf."""
    x = np.array([large, large, 1.5, large, -large], np.float32)
    w = np.array([1, -1, 1, 3, 3], np.float32)
    big = Fraction(float(x[0]))
    check_sum(x, w, Fraction(3, 2), 8 * big)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("bfloat16", 3e38), ("float16", 6e4), ("float32", 3e38)],
    ids=["bfloat16", "float16", "float32"],
)
def test_overflow_gives_infinity_and_never_nan(dtype: str, value: float) -> None:
    kind = dtype_of(dtype)
    for signs, wanted in [
        ((1, 1), np.inf),
        ((-1, -1), -np.inf),
        ((1, 1, -1), value),
        ((1, 1, -1, -1), 0),
        ((1, 1, 1, -1, -1, -1, -1, -1), -np.inf),
    ]:
        x = np.full(len(signs), value, np.float64).astype(kind)
        w = np.array(signs, np.float64).astype(kind)
        for _, result in both_ways(x, w):
            assert float(result.item()) == float(np.asarray(wanted, np.float64).astype(kind))


def test_products_beyond_the_range_of_the_dtype() -> None:
    x = np.array([1e30, 1e30, 1e-30], np.float32)
    w = np.array([1e30, -1e30, 1e-30], np.float32)
    for _, result in both_ways(x, w):
        assert np.isfinite(result).all()
    for _, result in both_ways(x[:1], w[:1]):
        assert result.item() == np.inf
    big = np.full(2, 3e38).astype(BFLOAT16)
    for _, result in both_ways(big, big):
        assert float(result.item()) == np.inf


def test_a_bright_pixel_does_not_disturb_its_neighbours() -> None:
    """The bound is per element: beside a pixel of 10^6 a small result keeps its own small error."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((1, 12, 12, 4)) * 1e-3).astype(np.float32)
    x[0, 6, 6] = 1e6
    w = rng.standard_normal((3, 3, 4, 4)).astype(np.float32)
    assert_matches(conv2d_transpose(x, w), *reference.transpose(x, w), np.float32)
    g = rng.standard_normal((1, 12, 12, 4)).astype(np.float32)
    assert_matches(filter_grad(x, (3, 3), g), *reference.filter_grad(x, (3, 3), g), np.float32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_subnormal_results(dtype: str) -> None:
    """Gradual underflow: what is smaller than the smallest normal number is rounded, not flushed."""
    tiny = {"float16": 2.0**-12, "bfloat16": 2.0**-66, "float32": 2.0**-70}[dtype]
    x = (np.arange(1, 17) * tiny).astype(dtype_of(dtype)).reshape(1, 4, 4, 1)
    w = (np.array([1.0, 1.5]) * tiny).astype(dtype_of(dtype)).reshape(1, 2, 1, 1)
    expected = reference.transpose(x, w)
    assert_matches(conv2d_transpose(x, w), *expected, x.dtype)
    assert (conv2d_transpose(x, w) != 0).all()
