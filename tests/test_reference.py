"""The reference is held against the golden values (TensorFlow's) before anything is held against it."""

from __future__ import annotations

import numpy as np
import pytest

import golden_cases
import reference
from assertions import assert_matches, dtype_of


@pytest.mark.parametrize("case", golden_cases.CASES, ids=str)
def test_reference_agrees_with_golden(case: golden_cases.Case) -> None:
    expected, scale = golden_cases.expected(case)
    got = golden_cases.call(case, reference.transpose, reference.filter_grad)
    assert got.values.shape == expected.shape
    assert (np.abs(got.values - expected) <= 4e-16 * scale).all()
    assert (np.abs(got.scale - scale) <= 1e-15 * scale).all()


def test_default_sizes() -> None:
    same, valid, explicit = (reference.Axis(3, 2, 2, padding) for padding in ("SAME", "VALID", (1, 2)))
    assert [axis.default_wide(4) for axis in (same, valid, explicit)] == [8, 11, 8]
    assert [axis.legal_wide(4) for axis in (same, valid, explicit)] == [
        range(7, 9),
        range(11, 13),
        range(8, 10),
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_assert_matches_notices(dtype: str) -> None:
    """The comparison is itself tested: shape, dtype, value, inf and NaN."""
    kind = dtype_of(dtype)
    expected = np.array([1.0, 2.0, np.inf, np.nan])
    assert_matches(expected.astype(kind), expected, np.abs(expected), kind)
    for wrong in ([1.1, 2, np.inf, np.nan], [1, np.inf, np.inf, np.nan], [1, np.nan, np.inf, np.nan],
                  [1, 2, -np.inf, np.nan], [1, 2, 3, np.nan], [1, 2, np.inf, 3]):  # fmt: skip
        with pytest.raises(AssertionError, match="allowed error"):
            assert_matches(np.array(wrong).astype(kind), expected, np.abs(expected), kind)
    with pytest.raises(AssertionError, match="shape"):
        assert_matches(expected.astype(kind)[:3], expected, np.abs(expected), kind)
    with pytest.raises(AssertionError, match="dtype"):
        assert_matches(np.zeros(4, np.int8), expected, np.abs(expected), kind)


def test_assert_matches_takes_overflow_as_infinite() -> None:
    expected = np.array([1e39, -1e39])
    assert_matches(np.array([np.inf, -np.inf], np.float32), expected, np.abs(expected), np.float32)
    with pytest.raises(AssertionError):
        assert_matches(np.array([-np.inf, -np.inf], np.float32), expected, np.abs(expected), np.float32)
