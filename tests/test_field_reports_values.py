"""Field reports, by number: values of both operations. The numbers in the tests are the reports' own."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

import convgrad
import reference
from assertions import BFLOAT16, assert_matches, dtype_of
from convgrad import conv2d_transpose
from convgrad import depthwise_conv2d_backprop_filter as filter_grad

DTYPES = ["float64", "float32", "float16", "bfloat16"]


def image(rows: list[list[float]], dtype: str = "float32") -> np.ndarray:
    """(1, H, W, 1) from rows."""
    return np.array(rows, np.float64).astype(dtype_of(dtype))[np.newaxis, :, :, np.newaxis]


def kernel(rows: list[list[float]], dtype: str = "float32") -> np.ndarray:
    """(kh, kw, 1, 1) from rows."""
    return np.array(rows, np.float64).astype(dtype_of(dtype))[:, :, np.newaxis, np.newaxis]


def random(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype_of(dtype))


def check_transpose(x: np.ndarray, w: np.ndarray, *args: object, **options: object) -> np.ndarray:
    result = conv2d_transpose(x, w, *args, **options)
    assert_matches(result, *reference.transpose(x, w, *args, **options), x.dtype)
    return result


def check_filter_grad(x: np.ndarray, sizes: tuple[int, ...], g: np.ndarray, **options: object) -> np.ndarray:
    result = filter_grad(x, sizes, g, **options)
    assert_matches(result, *reference.filter_grad(x, sizes, g, **options), x.dtype)
    return result


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_001_the_extra_row_of_an_even_kernel_goes_after(dtype: str) -> None:
    result = conv2d_transpose(image([[1, 1], [1, 1]], dtype), kernel([[1, 1], [1, 1]], dtype), (2, 2))
    assert result[0, :, :, 0].tolist() == [[1, 2], [2, 4]]


def test_report_002_values_not_only_shapes() -> None:
    rng = np.random.default_rng(42)
    x = rng.standard_normal((4, 16, 16, 16)).astype(np.float32)
    w = (rng.standard_normal((3, 3, 32, 16)) * 0.05).astype(np.float32)
    result = check_transpose(x, w, (4, 32, 32, 32), strides=2)
    assert result.sum(dtype=np.float64) == pytest.approx(44.597, abs=5e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_004_same_is_not_valid(dtype: str) -> None:
    x = image([[2, 3], [4, 5]], dtype)
    w = kernel([[2, 3, 4], [5, 6, 7], [8, 9, 10]], dtype)
    assert conv2d_transpose(x, w)[0, :, :, 0].tolist() == [[49, 63], [91, 105]]


def test_report_030_the_filter_is_not_flipped() -> None:
    x, w = image([[1]]), kernel([[1, 2], [3, 4]])
    assert conv2d_transpose(x, w, strides=2, padding="VALID")[0, :, :, 0].tolist() == [[1, 2], [3, 4]]
    result = filter_grad(image([[1, 2], [3, 4]]), (2, 2), image([[1]]), padding="VALID")
    assert result[:, :, 0, 0].tolist() == [[1, 2], [3, 4]]


def test_report_034_gaps_are_exactly_zero() -> None:
    x, w = image([[-1.9954, -0.3385]], "float64"), kernel([[-0.7767]], "float64")
    result = conv2d_transpose(x, w, (1, 3), strides=2, padding="VALID")
    assert result.ravel() == pytest.approx([1.5498, 0, 0.2629], abs=5e-5)
    assert result[0, 0, 1, 0] == 0
    assert conv2d_transpose(x, w, strides=2, padding="VALID").ravel()[[1, 3]].tolist() == [0, 0]


def test_report_036_seeded_normal_data() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 7, 7)).astype(np.float32)
    w = (rng.standard_normal((3, 3, 3, 16)) * 0.01).astype(np.float32)
    padding = [[0, 0], [0, 0], [1, 1], [1, 1]]
    check_transpose(x, w, (1, 3, 14, 14), strides=2, padding=padding, data_format="NCHW")


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_041_every_image_of_the_batch(dtype: str) -> None:
    x, w = random(5, 4, 3, 2, dtype=dtype), random(3, 3, 3, 2, seed=1, dtype=dtype)
    whole = check_transpose(x, w, padding="VALID")
    for index in range(5):
        alone = conv2d_transpose(x[index : index + 1], w, padding="VALID")
        assert np.array_equal(whole[index], alone[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_043_dilated_strided_padded_filter_gradient(dtype: str) -> None:
    x = np.array([[7, 3], [3, 2]]).reshape(2, 1, 2, 1).astype(dtype_of(dtype))
    g = np.ones((2, 1, 1, 2), dtype_of(dtype))
    padding = [[0, 0], [0, 0], [1, 1], [0, 0]]
    result = filter_grad(x, (1, 2, 1, 2), g, strides=2, dilations=(1, 2), padding=padding)
    assert result.reshape(2, 2).tolist() == [[0, 0], [5, 5]]


def test_report_044_stride_2_with_padding() -> None:
    x = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    g = np.ones((1, 4, 2, 2), np.float32)
    padding = [[0, 0], [0, 0], [1, 1], [1, 1]]
    result = filter_grad(x, (3, 3, 4, 1), g, strides=2, padding=padding, data_format="NCHW")
    first = np.array([[5, 10, 12], [10, 20, 24], [18, 36, 40]])
    step = np.array([[16, 32, 32], [32, 64, 64], [32, 64, 64]])
    for channel in range(4):
        assert result[:, :, channel, 0].tolist() == (first + channel * step).tolist()


def test_report_046_a_channel_depends_on_itself_alone() -> None:
    x, g = random(2, 6, 5, 3), random(2, 6, 5, 6, seed=1)
    before = filter_grad(x, (3, 2, 3, 2), g)
    for channel in range(3):
        other = x.copy()
        other[..., channel] += 1
        changed = filter_grad(other, (3, 2, 3, 2), g) != before
        assert changed[:, :, channel].all()
        assert not np.delete(changed, channel, axis=2).any()
    for output in range(6):
        other = g.copy()
        other[..., output] += 1
        changed = (filter_grad(x, (3, 2, 3, 2), other) != before).reshape(6, 6)
        assert changed[:, output].all()
        assert not np.delete(changed, output, axis=1).any()


def test_report_047_dilated_filter_gradient_of_one_position() -> None:
    x = np.arange(25, dtype=np.float64).reshape(1, 5, 5, 1)
    result = filter_grad(x, (3, 3), np.full((1, 1, 1, 1), 3.0), dilations=2, padding="VALID")
    assert np.array_equal(result[:, :, 0, 0], 3 * x[0, ::2, ::2, 0])


def test_report_049_dilation_is_not_ignored() -> None:
    x, g = random(1, 3, 3, 3), random(1, 1, 1, 3, seed=1)
    result = filter_grad(x, (2, 2), g, dilations=2, padding="VALID")
    assert np.array_equal(result[..., 0], x[0, ::2, ::2] * g[0, 0, 0])


def test_report_053_stride_larger_than_kernel() -> None:
    x, g = random(64, 32, 32, 3), random(64, 16, 16, 3, seed=1)
    result = check_filter_grad(x, (1, 1, 3, 1), g, strides=2)
    assert result[0, 0, :, 0] == pytest.approx((x[:, ::2, ::2] * g).sum(axis=(0, 1, 2)), rel=1e-12)


def test_report_054_kernel_wider_than_the_input_gives_zeros() -> None:
    x, g = np.ones((2, 15, 1, 1)), np.ones((2, 7, 0, 1))
    result = filter_grad(x, (3, 3, 1, 1), g, strides=2, padding="VALID")
    assert result.shape == (3, 3, 1, 1)
    assert (result == 0).all()
    back = conv2d_transpose(g, np.ones((3, 3, 1, 1)), (2, 15, 1, 1), strides=2, padding="VALID")
    assert back.shape == (2, 15, 1, 1)
    assert (back == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_055_kernel_wider_than_the_input_same(dtype: str) -> None:
    ones = np.ones((1, 2, 2, 5), dtype_of(dtype))
    result = filter_grad(ones, (3, 3, 5, 1), ones)
    for channel in range(5):
        assert result[:, :, channel, 0].tolist() == [[1, 2, 1], [2, 4, 2], [1, 2, 1]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_056_strided_padded_depthwise(dtype: str) -> None:
    x, g = random(1, 6, 6, 24, dtype=dtype), random(1, 3, 3, 24, seed=1, dtype=dtype)
    check_filter_grad(x, (3, 3, 24, 1), g, strides=2, padding=[[0, 0], [1, 1], [1, 1], [0, 0]])


def test_report_058_all_nine_taps() -> None:
    padding = [[0, 0], [2, 2], [2, 2], [0, 0]]
    x, g = random(1, 5, 5, 4), random(1, 5, 5, 4, seed=1)
    assert (check_filter_grad(x, (3, 3, 4, 1), g, dilations=2, padding=padding) != 0).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_report_059_nchw_channel_order(dtype: str) -> None:
    x = np.arange(600).reshape(2, 3, 10, 10).astype(dtype)
    w = np.arange(24).reshape(2, 2, 3, 2).astype(dtype)
    g = reference.depthwise_conv2d(x, w, padding="VALID", data_format="NCHW")
    assert g.shape == (2, 6, 9, 9)
    check_filter_grad(x, (2, 2, 3, 2), g.astype(dtype), padding="VALID", data_format="NCHW")


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_060_nchw_equals_nhwc(dtype: str) -> None:
    x, w = random(1, 2, 3, 4, dtype=dtype), random(3, 3, 5, 2, seed=1, dtype=dtype)
    nchw = check_transpose(x, w, strides=(1, 1, 1, 16), data_format="NCHW")
    nhwc = conv2d_transpose(np.moveaxis(x, 1, 3), w, strides=(1, 1, 16, 1))
    assert np.array_equal(np.moveaxis(nchw, 1, 3), nhwc)


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_040_126_127_batch_of_zero(dtype: str) -> None:
    """The result is new, not what the buffer held before."""
    kind = dtype_of(dtype)
    stale = np.full((5, 5, 1, 16), 7, kind)
    result = filter_grad(
        np.ones((0, 7, 7, 1), kind), (5, 5, 1, 16), np.ones((0, 4, 4, 16), kind), 2, out=stale
    )
    assert result is stale
    assert (stale == 0).all()
    empty = conv2d_transpose(np.ones((0, 7, 7, 1), kind), np.ones((5, 5, 16, 1), kind), strides=2)
    assert empty.shape == (0, 14, 14, 16)
    assert empty.dtype == kind


def test_report_072_no_input_channels_gives_zeros() -> None:
    result = conv2d_transpose(np.ones((52, 1, 1, 0)), np.ones((1, 1, 5, 0)), (52, 1, 1, 5))
    assert result.shape == (52, 1, 1, 5)
    assert (result == 0).all()


def test_report_075_no_output_channels_gives_an_empty_result() -> None:
    assert conv2d_transpose(np.ones((2, 8, 8, 8)), np.ones((3, 3, 0, 8))).shape == (2, 8, 8, 0)


def test_report_074_no_channels_at_all() -> None:
    x, g = np.ones((2, 6, 6, 0), np.float32), np.ones((2, 6, 6, 0), np.float32)
    assert filter_grad(x, (3, 3, 0, 2), g).shape == (3, 3, 0, 2)
    with pytest.raises(convgrad.ConvgradError, match="filter_sizes"):
        filter_grad(x, (3, 3), g)


def test_report_078_the_column_matrix_is_not_built() -> None:
    """A column matrix of 2^31 bytes in float32; operands and result take 2.2 MB."""
    x, w = np.ones((1, 512, 512, 1), np.float32), np.ones((32, 64, 1, 1), np.float32)
    result = conv2d_transpose(x, w)
    assert result.shape == (1, 512, 512, 1)
    assert (result[0, 100:-100, 100:-100] == 32 * 64).all()


@pytest.mark.parametrize(("dtype", "past"), [("float16", 2048), ("bfloat16", 256), ("float32", 2048)])
def test_report_080_sums_of_ones_do_not_stall(dtype: str, past: int) -> None:
    ones = np.ones((1, 64, 64, 1), dtype_of(dtype))
    assert filter_grad(ones, (1, 1), ones).item() == 4096 > past
    channels = np.ones((1, 1, 1, 4096), dtype_of(dtype))
    assert conv2d_transpose(channels, channels).item() == 4096


def test_report_081_bfloat16_across_the_batch() -> None:
    ones = np.ones((512, 1, 1, 1), BFLOAT16)
    assert filter_grad(ones, (1, 1), ones).item() == 512


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_083_infinite_filter(dtype: str) -> None:
    x = random(1, 1, 4, 4, dtype=dtype)
    w = np.full((3, 3, 1, 1), np.inf).astype(dtype_of(dtype))
    result = check_transpose(x, w, padding="VALID", data_format="NCHW")[0, 0].astype(np.float64)
    sign = np.sign(x[0, 0].astype(np.float64))
    for corner in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        assert result[corner] == sign[corner] * np.inf
    for i, j in np.ndindex(6, 6):
        signs = set(sign[max(i - 2, 0) : i + 1, max(j - 2, 0) : j + 1].ravel())
        assert np.isnan(result[i, j]) == (len(signs) == 2)


def test_report_083_inserted_zeros_do_not_meet_an_infinite_filter() -> None:
    x = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    result = conv2d_transpose(x, np.full((1, 1, 1, 1), np.inf), (1, 3), strides=2, padding="VALID")
    assert result.ravel().tolist() == [np.inf, 0, np.inf]
    grad = filter_grad(np.full((1, 2, 2, 1), np.inf), (3, 3), np.ones((1, 2, 2, 1)))
    assert (grad == np.inf).all()


def test_report_085_constant_half_data() -> None:
    x, g = np.full((1, 22, 28, 28), 0.2, np.float16), np.full((1, 22, 22, 22), 0.1, np.float16)
    result = filter_grad(x, (7, 7, 22, 1), g, padding="VALID", data_format="NCHW")
    exact = 484 * float(np.float16(0.2)) * float(np.float16(0.1))
    assert_matches(result, np.full(result.shape, exact), np.full(result.shape, exact), np.float16)
    assert len(np.unique(result)) == 1
    again = filter_grad(x, (7, 7, 22, 1), g, padding="VALID", data_format="NCHW")
    assert result.tobytes() == again.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_report_086_087_two_runs_give_the_same_bits(dtype: str) -> None:
    x, w = random(2, 64, 9, 8, dtype=dtype), random(4, 4, 24, 64, seed=1, dtype=dtype)
    runs = [conv2d_transpose(x, w, strides=2, data_format="NCHW").tobytes() for _ in range(3)]
    assert len(set(runs)) == 1
    g = random(2, 128, 9, 8, seed=2, dtype=dtype)
    runs = [filter_grad(x, (3, 3), g, data_format="NCHW").tobytes() for _ in range(3)]
    assert len(set(runs)) == 1


def test_report_088_134_long_bfloat16_reductions() -> None:
    """The bound comes from the terms, per element; a fixed tolerance would be too tight or too loose."""
    rng = np.random.default_rng(8)
    x = (rng.standard_normal((6, 24, 24, 4)) * 10.0 ** rng.integers(-3, 4, (6, 1, 24, 4))).astype(BFLOAT16)
    g = rng.standard_normal((6, 24, 24, 8)).astype(BFLOAT16)
    check_filter_grad(x, (3, 2, 4, 2), g)


def test_report_089_true_float32() -> None:
    x, w = random(4, 16, 16, 32, dtype="float32"), random(3, 3, 32, 32, seed=1, dtype="float32")
    check_transpose(x, w, padding=[[0, 0], [1, 1], [1, 1], [0, 0]])


def test_report_091_bfloat16_up_sampling() -> None:
    x, w = random(1, 64, 32, 4, dtype="bfloat16"), random(4, 4, 64, 64, seed=1, dtype="bfloat16")
    padding = [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert check_transpose(x, w, strides=2, padding=padding, data_format="NCHW").shape == (1, 64, 64, 8)


def test_report_093_one_position_is_a_matrix_product() -> None:
    x, w = random(200, 1, 1, 50), random(28, 28, 1, 50, seed=1)
    result = conv2d_transpose(x, w, padding="VALID")
    product = (x.reshape(200, 50) @ w.reshape(784, 50).T).reshape(200, 28, 28, 1)
    scale = (np.abs(x.reshape(200, 50)) @ np.abs(w.reshape(784, 50)).T).reshape(200, 28, 28, 1)
    assert_matches(result, product, scale, np.float64)


@pytest.mark.parametrize("operation", ["transpose", "filter-grad"])
def test_report_094_memory_stays_near_operands_and_result(operation: str) -> None:
    """Operands and result take 9 MB, the column matrix of a 5x5 kernel would take 105 MB."""
    x, w = np.ones((1, 128, 128, 64), np.float32), np.ones((5, 5, 64, 64), np.float32)
    tracemalloc.start()
    try:
        result = conv2d_transpose(x, w)[0, 9, 9] if operation == "transpose" else filter_grad(x, (5, 5), x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes * 25 / 2
    assert result.max() == (25 * 64 if operation == "transpose" else 128 * 128)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_report_125_every_bit_pattern_passes_through(dtype: str) -> None:
    """A filter of one number, 1, gives back every one of 65,536 values."""
    patterns = np.arange(65536, dtype=np.uint16).view(dtype_of(dtype)).reshape(1, 256, 256, 1)
    result = conv2d_transpose(patterns, np.ones((1, 1, 1, 1), dtype_of(dtype)))
    with np.errstate(invalid="ignore"):  # signalling NaNs are among them
        got, wanted = result.astype(np.float64), patterns.astype(np.float64)
    assert np.array_equal(got, wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_report_125_rounding_to_nearest_even(dtype: str) -> None:
    """Half-way between every two neighbours, and one float64 step to either side."""
    from convgrad.dtypes import round_to

    kind = dtype_of(dtype)
    patterns = np.arange(65536, dtype=np.uint16).view(kind)
    with np.errstate(invalid="ignore"):  # signalling NaNs are among them
        values = patterns.astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    low, high = finite[:-1], finite[1:]
    middle = (low + high) / 2  # exact in float64
    even = np.where(low.astype(kind).view(np.uint16) % 2 == 0, low, high)
    assert np.array_equal(round_to(middle, kind).astype(np.float64), even)
    assert np.array_equal(round_to(np.nextafter(middle, -np.inf), kind).astype(np.float64), low)
    assert np.array_equal(round_to(np.nextafter(middle, np.inf), kind).astype(np.float64), high)


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 65504.0), ("bfloat16", 2.0**128 - 2.0**120)])
def test_report_125_rounding_at_the_end_of_the_range(dtype: str, largest: float) -> None:
    from convgrad.dtypes import round_to

    kind = dtype_of(dtype)
    edge = largest + (largest - float(np.nextafter(kind.type(largest), kind.type(0)))) / 2
    values = np.array(
        [largest, np.nextafter(edge, 0), edge, math.inf, -edge, 1e300, -1e300, math.nan, 0.0, -0.0]
    )
    rounded = round_to(values, kind).astype(np.float64)
    inf = math.inf
    wanted = [largest, largest, inf, inf, -inf, inf, -inf, math.nan, 0.0, 0.0]
    assert np.array_equal(rounded, wanted, equal_nan=True)
    assert np.signbit(rounded[-1])


def test_report_131_explicit_padding_in_both_commands_alike() -> None:
    """The filter gradient is linear in each operand, so its own gradients are the two convolutions."""
    padding = [[0, 0], [0, 3], [1, 1], [0, 0]]
    options = {"strides": (2, 1), "padding": padding}
    x, g, v = random(2, 7, 5, 2), random(2, 4, 6, 2, seed=1), random(3, 2, 2, 1, seed=2)
    grad = check_filter_grad(x, (3, 2, 2, 1), g, **options)
    forward = reference.depthwise_conv2d(x, v, **options)
    assert np.vdot(grad, v) == pytest.approx(np.vdot(g, forward), rel=1e-12)
    dense = np.zeros((3, 2, 2, 2))
    dense[:, :, [0, 1], [0, 1]] = v[..., 0]
    back = check_transpose(g, dense, (7, 5), **options)
    assert np.vdot(x, back) == pytest.approx(np.vdot(g, forward), rel=1e-12)


def test_report_133_depthwise_transpose_channel_by_channel() -> None:
    """A grouped transposed convolution is one conv2d_transpose per channel, with channels as the batch."""
    padding = [[0, 0], [0, 0], [2, 2], [2, 2]]
    x, w = random(2, 3, 8, 8), random(8, 8, 3, seed=1)
    for channel in range(3):
        one = x[:, channel : channel + 1]
        result = check_transpose(one, w[:, :, [[channel]]], strides=4, padding=padding, data_format="NCHW")
        assert result.shape == (2, 1, 32, 32)
