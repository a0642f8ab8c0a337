"""The four dtypes: recognised by name, widened exactly, rounded once to nearest even."""

from __future__ import annotations

import struct
import warnings
from fractions import Fraction
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from assertions import BFLOAT16, dtype_of
from convgrad.dtypes import NAMES, common, dtype_from_name, round_to, supported, to_float64

ALL_BITS = np.arange(2**16, dtype=np.uint16)
every_dtype = pytest.mark.parametrize("name", NAMES)
narrow_dtype = pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
half_dtype = pytest.mark.parametrize("name", ["float16", "bfloat16"])


def decoded(bits: int, exponent_bits: int, mantissa_bits: int) -> Fraction | None:
    """The value of a 16-bit pattern from its fields; None for NaN and inf."""
    sign = -1 if bits >> 15 else 1
    exponent = (bits >> mantissa_bits) & (2**exponent_bits - 1)
    mantissa = bits & (2**mantissa_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 2**exponent_bits - 1:
        return None
    if exponent == 0:
        return sign * Fraction(mantissa) * Fraction(2) ** (1 - bias - mantissa_bits)
    return sign * Fraction(2**mantissa_bits + mantissa) * Fraction(2) ** (exponent - bias - mantissa_bits)


FIELDS = {"float16": (5, 10), "bfloat16": (8, 7)}


def positive(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All finite values from +0 up as float64, and 2 times as far for inf; and their bit patterns.

    The last one is where inf begins for rounding: one step past the largest finite value.
    """
    exponent_bits, mantissa_bits = FIELDS[name]
    infinite = (2**exponent_bits - 1) << mantissa_bits
    values = [decoded(bits, exponent_bits, mantissa_bits) for bits in range(infinite)]
    exact = [float(value) for value in values if value is not None]
    exact.append(2 * exact[-1] - exact[-2])
    return np.array(exact), np.arange(infinite + 1, dtype=np.uint16)


def bits_of(values: np.ndarray, name: str) -> np.ndarray:
    rounded = round_to(values, dtype_of(name))
    assert rounded.dtype == dtype_of(name)
    assert rounded.shape == values.shape
    return rounded.view(np.uint16)


# Names.


def test_dtype_from_name() -> None:
    assert [dtype_from_name(name) for name in NAMES] == [
        np.dtype("f2"),
        np.dtype(ml_dtypes.bfloat16),
        np.dtype("f4"),
        np.dtype("f8"),
    ]


@pytest.mark.parametrize("name", ["int8", "float8_e4m3fn", "float", "half", "", "Float32"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(convgrad.DTypeError, match=r"^dtype: .*float16, bfloat16, float32, float64") as caught:
        dtype_from_name(name)
    assert name in caught.value.message


@every_dtype
def test_supported(name: str) -> None:
    assert supported("input", dtype_of(name)) == dtype_of(name)


@pytest.mark.parametrize("code", ["e", "f", "d"])
def test_either_byte_order_is_supported(code: str) -> None:
    for order in "<>=":
        result = supported("input", np.dtype(order + code))
        assert result == np.dtype(code)
        assert result.isnative


@pytest.mark.parametrize(
    ("dtype", "shown", "hint"),
    [
        pytest.param("i4", "int32", "cast", id="int32"),
        pytest.param("u1", "uint8", "cast", id="uint8"),
        pytest.param("?", "bool", "cast", id="bool"),
        pytest.param("u2", "uint16", "cast", id="uint16"),
        pytest.param("V2", "2-byte void", "bfloat16", id="V2"),
        pytest.param("c8", "complex64", None, id="complex64"),
        pytest.param("O", "object", None, id="object"),
        pytest.param("U3", "str96", None, id="string"),
        pytest.param("S2", "bytes16", None, id="bytes"),
        pytest.param("M8[s]", "datetime64[s]", None, id="datetime"),
        pytest.param(np.longdouble, np.dtype(np.longdouble).name, None, id="longdouble"),
        pytest.param([("a", "f4")], "void32", None, id="record"),
        pytest.param(ml_dtypes.float8_e4m3fn, "float8_e4m3fn", None, id="float8"),
    ],
)
def test_unsupported(dtype: Any, shown: str, hint: str | None) -> None:
    with pytest.raises(convgrad.DTypeError, match=r"^out_backprop: ") as caught:
        supported("out_backprop", np.dtype(dtype))
    assert shown in caught.value.message
    assert all(name in caught.value.message for name in NAMES)
    assert isinstance(caught.value, TypeError)
    if hint is None:
        assert caught.value.hint is None
    else:
        assert hint in (caught.value.hint or "")


@every_dtype
def test_common(name: str) -> None:
    assert common(("input", dtype_of(name)), ("filters", dtype_of(name))) == dtype_of(name)


def test_common_looks_past_the_byte_order() -> None:
    result = common(("input", np.dtype(">f4")), ("filters", np.dtype("<f4")))
    assert result == np.dtype("f4")


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("second", NAMES)
def test_two_dtypes_are_not_promoted(first: str, second: str) -> None:
    if first == second:
        return
    with pytest.raises(convgrad.DTypeError, match=r"^filters: ") as caught:
        common(("input", dtype_of(first)), ("filters", dtype_of(second)))
    assert first in caught.value.message
    assert second in caught.value.message
    assert "input" in caught.value.message
    assert "cast" in (caught.value.hint or "")


def test_common_names_the_unsupported_operand() -> None:
    with pytest.raises(convgrad.DTypeError, match=r"^input: dtype int64"):
        common(("input", np.dtype("i8")), ("filters", np.dtype("i8")))
    with pytest.raises(convgrad.DTypeError, match=r"^filters: dtype int64"):
        common(("input", np.dtype("f8")), ("filters", np.dtype("i8")))


# Widening.


@half_dtype
def test_widening_is_exact_for_every_pattern(name: str) -> None:
    values = ALL_BITS.view(dtype_of(name))
    with np.errstate(invalid="ignore"):
        wide = to_float64(values)
    assert wide.dtype == np.float64
    for bits, got in enumerate(wide.tolist()):
        exact = decoded(bits, *FIELDS[name])
        if exact is not None:
            assert Fraction(got) == exact
        elif bits & (2 ** FIELDS[name][1] - 1):
            assert np.isnan(got)
        else:
            assert got == (-np.inf if bits >> 15 else np.inf)
    assert np.signbit(wide[0x8000])
    assert not np.signbit(wide[0])


@pytest.mark.parametrize("code", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
def test_widening_reads_either_byte_order(code: str) -> None:
    values = np.array([[0.0, -0.0, 1.5, -(2.0**-14)], [np.inf, -np.inf, np.nan, 60000]])
    wide = to_float64(values.astype(code))
    assert wide.dtype.isnative
    assert np.array_equal(wide, values, equal_nan=True)
    assert np.array_equal(np.signbit(wide[0]), np.signbit(values[0]))


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda a: a[::-1, ::-2], id="negative-strides"),
        pytest.param(lambda a: np.broadcast_to(a[:1], a.shape), id="broadcast"),
        pytest.param(lambda a: a[:0], id="empty"),
        pytest.param(lambda a: a[0, 0], id="0-d"),
    ],
)
def test_widening_copies_to_c_order(view: Any) -> None:
    values = view(np.arange(12.0).reshape(3, 4))
    wide = to_float64(np.asarray(values))
    assert wide.flags.c_contiguous
    assert np.array_equal(wide, values)
    assert not np.may_share_memory(wide, values)


# Rounding.


@half_dtype
def test_every_pattern_rounds_to_itself(name: str) -> None:
    values = ALL_BITS.view(dtype_of(name))
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    nan = np.isnan(wide)
    assert np.array_equal(bits_of(wide, name)[~nan], ALL_BITS[~nan])
    rounded = round_to(wide, dtype_of(name)).astype(np.float64)
    assert np.isnan(rounded[nan]).all()
    assert np.array_equal(np.signbit(rounded[nan]), np.signbit(wide[nan]))


@half_dtype
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_midpoints_go_to_even_and_their_neighbours_to_the_nearer_side(name: str, sign: int) -> None:
    """Between all adjacent values, the last midpoint being where inf begins.

    One float64 step beside a midpoint is where rounding to float32 first goes wrong.
    """
    values, bits = positive(name)
    middle = (values[:-1] + values[1:]) / 2  # exact in float64
    lower, upper = bits[:-1], bits[1:]
    signed = np.uint16(0x8000 if sign < 0 else 0)
    even = np.where(lower % 2 == 0, lower, upper)
    assert np.array_equal(bits_of(sign * middle, name), even | signed)
    assert np.array_equal(bits_of(sign * np.nextafter(middle, 0), name), lower | signed)
    assert np.array_equal(bits_of(sign * np.nextafter(middle, np.inf), name), upper | signed)


@half_dtype
def test_random_values_round_to_the_nearest(name: str) -> None:
    """The midpoints as a sorted table decide for any other value."""
    values, bits = positive(name)
    middle = (values[:-1] + values[1:]) / 2
    rng = np.random.default_rng(1)
    span = np.log2(values[1]) - 4, np.log2(values[-1]) + 4
    sample = 2.0 ** rng.uniform(*span, 100_000)
    assert np.array_equal(bits_of(sample, name), bits[np.searchsorted(middle, sample)])


def float32_neighbours(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bit patterns of float32 values, and the next ones up: random and at the ends of every range."""
    rng = np.random.default_rng(2)
    lower = rng.integers(0, 0x7F7FFFFF, count, dtype=np.uint32)
    special = [0, 1, 2, 0x7FFFFE, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x7F7FFFFE]
    lower = np.concatenate([lower, np.array(special, np.uint32)])
    return lower, lower + np.uint32(1)


def test_float32_midpoints() -> None:
    lower, upper = float32_neighbours(50_000)
    low, high = lower.view(np.float32).astype(float), upper.view(np.float32).astype(float)
    middle = (low + high) / 2
    for sign, signed in ((1, np.uint32(0)), (-1, np.uint32(2**31))):
        for values, expected in (
            (middle, np.where(lower % 2 == 0, lower, upper)),
            (np.nextafter(middle, 0), lower),
            (np.nextafter(middle, np.inf), upper),
        ):
            rounded = round_to(sign * values, np.dtype(np.float32))
            assert np.array_equal(rounded.view(np.uint32), expected | signed)


def test_float64_is_kept_bit_for_bit() -> None:
    rng = np.random.default_rng(3)
    values = np.frombuffer(rng.bytes(8000), np.float64)
    assert round_to(values, np.dtype(np.float64)).tobytes() == values.tobytes()


@narrow_dtype
def test_the_range_ends_at_half_a_step_past_the_largest(name: str) -> None:
    dtype = dtype_of(name)
    largest = Fraction(float(ml_dtypes.finfo(dtype).max))
    step = largest - Fraction(float(np.nextafter(ml_dtypes.finfo(dtype).max, dtype.type(0))))
    threshold = float(largest + step / 2)
    values = np.array([threshold, np.nextafter(threshold, 0), float(largest), 1e300, np.inf])
    expected = np.array([np.inf, float(largest), float(largest), np.inf, np.inf])
    for sign in (1, -1):
        assert np.array_equal(round_to(sign * values, dtype).astype(float), sign * expected)


@narrow_dtype
def test_the_smallest_subnormal(name: str) -> None:
    dtype = dtype_of(name)
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    half = tiny / 2
    values = np.array([half, np.nextafter(half, 1), np.nextafter(half, 0), 1.5 * tiny, 2.5 * tiny, 5e-324])
    expected = np.array([0, tiny, 0, 2 * tiny, 2 * tiny, 0])
    for sign in (1, -1):
        rounded = round_to(sign * values, dtype).astype(float)
        assert np.array_equal(rounded, sign * expected)
        assert np.array_equal(np.signbit(rounded), np.full(len(values), sign < 0))


@every_dtype
def test_signed_zeros_inf_and_nan(name: str) -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    rounded = round_to(values, dtype_of(name)).astype(float)
    assert np.array_equal(rounded, values, equal_nan=True)
    assert np.array_equal(np.signbit(rounded[:4]), np.signbit(values[:4]))


@every_dtype
def test_nan_stays_nan_whatever_its_payload(name: str) -> None:
    """Dropping the low bits of a payload must not leave inf; a payload may look like a tie, too."""
    payloads = [1, 2**28, 2**29, 2**44, 2**45, 2**51, 2**51 + 2**28, 2**51 + 2**44, 2**52 - 1]
    bits = [sign << 63 | 0x7FF << 52 | payload for payload in payloads for sign in (0, 1)]
    values = np.array(bits, np.uint64).view(np.float64)
    assert np.isnan(round_to(values, dtype_of(name)).astype(float)).all()


@narrow_dtype
def test_nothing_is_warned_of(name: str) -> None:
    values = np.array([1e300, -1e300, 1e-300, np.inf, np.nan, 5e-324])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        round_to(values, dtype_of(name))


@every_dtype
@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0, 2), (2, 3, 4)], ids=str)
def test_shapes_are_kept(name: str, shape: tuple[int, ...]) -> None:
    rounded = round_to(np.full(shape, 1.5), dtype_of(name))
    assert (rounded.shape, rounded.dtype) == (shape, dtype_of(name))
    assert (rounded == dtype_of(name).type(1.5)).all()


@every_dtype
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda a: a.transpose(1, 2, 0), id="transposed"),
        pytest.param(lambda a: np.moveaxis(a, 1, 0), id="moved-axis"),
        pytest.param(lambda a: a[::-1, :, ::-3], id="negative-strides"),
        pytest.param(lambda a: a[:, 1:2, 1::4], id="pieces"),
        pytest.param(lambda a: np.broadcast_to(a[:1], a.shape), id="broadcast"),
    ],
)
def test_strides_do_not_matter(name: str, view: Any) -> None:
    """Every value of the array is next to a tie, so that each place is corrected on its own."""
    rng = np.random.default_rng(4)
    ties = 1 + (2 * rng.integers(0, 64, (5, 6, 7)) + 1) * 2.0**-8
    values = view(np.nextafter(ties, rng.choice([0, np.inf], ties.shape)))
    before = values.copy()
    rounded = round_to(values, dtype_of(name))
    # One value at a time is what the midpoint tests have proved.
    singly = [round_to(np.array([value]), dtype_of(name))[0] for value in values.ravel()]
    assert rounded.ravel().tolist() == [one.item() for one in singly]
    assert np.array_equal(values, before)


def test_double_rounding_by_hand() -> None:
    """1 + 2^-8 is a tie of bfloat16; a float64 step above it is not, but float32 cannot tell."""
    above = np.array([1 + 2.0**-8 + 2.0**-40])
    assert above.astype(np.float32).astype(float) == 1 + 2.0**-8
    assert float(round_to(above, BFLOAT16)[0]) == 1 + 2.0**-7
    below = np.array([1 + 3 * 2.0**-8 - 2.0**-40])
    assert float(round_to(below, BFLOAT16)[0]) == 1 + 2.0**-7


@narrow_dtype
def test_rounding_never_decreases(name: str) -> None:
    values = np.sort(np.random.default_rng(5).standard_normal(10_000) * 10.0 ** np.arange(10_000) ** 0.1)
    rounded = round_to(values, dtype_of(name)).astype(float)
    assert all(one <= other for one, other in pairwise(rounded.tolist()))


def test_float16_against_the_standard_library() -> None:
    values = np.random.default_rng(6).standard_normal(5000) * 2.0 ** np.random.default_rng(7).integers(
        -24, 15, 5000
    )
    expected = [struct.unpack("<H", struct.pack("<e", value))[0] for value in values.tolist()]
    assert bits_of(values, "float16").tolist() == expected
