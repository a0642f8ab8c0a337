"""The sums that a job shows of its result."""

from __future__ import annotations

import math

import numpy as np
import pytest

from convgrad_cli import checksum
from convgrad_cli.checksum import Checksummed


class Rows(list):
    """A sink that keeps what it gets."""

    def __setitem__(self, key: slice, value: np.ndarray) -> None:
        self.append((key.start, key.stop, value.copy()))


def summed(array: np.ndarray, together: int) -> Checksummed:
    sink = Checksummed(Rows(), wanted=True)
    for start in range(0, len(array), together):
        sink[start : start + together] = array[start : start + together]
    return sink


@pytest.mark.parametrize("piece", [7, 100, 2**20])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_do_not_depend_on_slabs(dtype: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_PIECE", piece)
    array = np.random.default_rng(0).standard_normal((60, 5, 7, 3)).astype(dtype)
    first = summed(array, 60).summary
    assert first.sum == pytest.approx(math.fsum(array.ravel().astype(float)), rel=1e-12)
    assert first.abs_sum == pytest.approx(math.fsum(np.abs(array).ravel().astype(float)), rel=1e-12)
    assert all(summed(array, together).summary == first for together in (1, 7, 30))


def test_what_is_not_finite_is_counted() -> None:
    array = np.zeros((4, 2, 2, 2), np.float32)
    array[1, 0, 0, 0], array[3, 1, 1, 1], array[3, 0, 0, 0] = np.inf, np.nan, -np.inf
    summary = summed(array, 2).summary
    assert summary.non_finite == 3
    assert summary.to_dict() == {"sum": None, "abs_sum": None, "non_finite": 3}


def test_slices_are_passed_on_untouched() -> None:
    rows, array = Rows(), np.arange(24.0).reshape(4, 3, 2)
    sink = Checksummed(rows, wanted=True)
    sink[0:4] = array
    assert [(start, stop) for start, stop, _ in rows] == [(0, 4)]
    assert np.array_equal(rows[0][2], array)


def test_nothing_is_summed_unless_wanted() -> None:
    sink = Checksummed(Rows(), wanted=False)
    sink[0:1] = np.ones((1, 2))
    assert sink.summary.abs_sum == 0


def test_overflow_of_the_absolute_sum_is_no_element() -> None:
    """Two elements of 1.5e308: each is finite, their sum is not."""
    summary = summed(np.full((2, 1), 1.5e308), 2).summary
    assert summary.non_finite == 0
    assert summary.to_dict()["abs_sum"] is None
