"""Running sums: how much error is left, and what NaN, inf and overflow do."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

from convgrad.kernels.sums import CHAIN, RunningSum

UNIT = 2.0**-53
LARGEST = np.finfo(float).max


def total(terms: Iterable[float], *, compensated: bool) -> float:
    running = RunningSum((), compensated=compensated)
    with np.errstate(all="ignore"):
        for term in terms:
            running.add(np.float64(term))
        return float(running.result())


def series(name: str) -> list[float]:
    """Series that a plain sum gets wrong, each in its own way."""
    rng = np.random.default_rng(1)
    count = 3000
    match name:
        case "tiny-after-large":
            return [1.0] + [1e-16] * count
        case "tiny-before-large":
            return [1e-16] * count + [1.0]
        case "tenths":
            return [0.1] * count
        case "alternating":
            return [sign * 1e16 if index % 3 else 1.0 for index in range(count) for sign in (1, -1)]
        case "large-then-cancelled":
            return [1e20, *([3.0] * count), -1e20]
        case "growing":
            return [1.5**power for power in range(200)]
        case "shrinking":
            return [1.5**-power for power in range(200)]
        case "harmonic":
            return [1 / n for n in range(1, count)]
        case "random-signs":
            return (rng.standard_normal(count) * 10.0 ** rng.uniform(-8, 8, count)).tolist()
        case "random-positive":
            return rng.random(count).tolist()
        case "half-units":
            # Every addition but the first is a tie that rounds to even, that is, away.
            return [1.0] + [UNIT] * count
        case "nearly-overflowing":
            return [LARGEST / 2, LARGEST / 4, -LARGEST / 8, 1e290, -LARGEST / 2]
        case "subnormal":
            return [5e-324] * count + [2.0**-1030] * count
        case "exactly-zero":
            values = (rng.standard_normal(count) * 10.0 ** rng.uniform(-5, 5, count)).tolist()
            return values + [-value for value in values]
    raise AssertionError(name)


SERIES = [
    "tiny-after-large",
    "tiny-before-large",
    "tenths",
    "alternating",
    "large-then-cancelled",
    "growing",
    "shrinking",
    "harmonic",
    "random-signs",
    "random-positive",
    "half-units",
    "nearly-overflowing",
    "subnormal",
    "exactly-zero",
]


@pytest.mark.parametrize("name", SERIES)
def test_compensated_sum_is_nearly_correctly_rounded(name: str) -> None:
    """Within 4 units in the last place, and a second-order term of the size of the terms.

    Source of the bound: T. Ogita, S. M. Rump, S. Oishi, "Accurate sum and dot product", SIAM J. Sci.
    Comput. 26 (2005), proposition 4.5.
    """
    terms = series(name)
    exact = sum(map(Fraction, terms))  # math.fsum overflows half-way where the sum does not
    second_order = Fraction(len(terms) * UNIT) ** 2 * sum(abs(Fraction(term)) for term in terms)
    error = abs(Fraction(total(terms, compensated=True)) - exact)
    assert error <= 4 * Fraction(math.ulp(float(exact))) + second_order


@pytest.mark.parametrize("name", SERIES)
def test_plain_sum_is_that_of_a_loop(name: str) -> None:
    expected = 0.0
    for term in series(name):
        expected += term
    assert total(series(name), compensated=False) == expected


@pytest.mark.parametrize("name", ["tiny-after-large", "tenths", "large-then-cancelled", "half-units"])
def test_the_series_are_hard(name: str) -> None:
    """A plain sum is off by more than is asked of the compensated one."""
    exact = math.fsum(series(name))
    assert abs(total(series(name), compensated=False) - exact) > 4 * math.ulp(exact)


@pytest.mark.parametrize("compensated", [True, False], ids=["compensated", "plain"])
@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([1.0, np.inf, 2.0], np.inf, id="inf"),
        pytest.param([1.0, -np.inf, 2.0], -np.inf, id="negative-inf"),
        pytest.param([np.inf, np.inf], np.inf, id="inf-twice"),
        pytest.param([np.inf, 1.0, -np.inf], np.nan, id="inf-minus-inf"),
        pytest.param([1.0, np.nan, 2.0], np.nan, id="nan"),
        pytest.param([np.nan, np.inf], np.nan, id="nan-and-inf"),
        pytest.param([LARGEST, LARGEST], np.inf, id="overflow"),
        pytest.param([-LARGEST, -LARGEST, -1.0], -np.inf, id="negative-overflow"),
        pytest.param([LARGEST, LARGEST, 1.0, -1.0, 0.1], np.inf, id="terms-after-overflow"),
        pytest.param([LARGEST, -LARGEST], 0.0, id="largest-cancelled"),
        pytest.param([LARGEST, 1.0, -LARGEST], None, id="largest-and-one"),
        pytest.param([LARGEST, LARGEST * UNIT / 4, -1e300], LARGEST - 1e300, id="at-the-edge"),
        pytest.param([-1e300, LARGEST, 1e-300], LARGEST - 1e300, id="from-below"),
        pytest.param([], 0.0, id="nothing"),
        pytest.param([-0.0], 0.0, id="negative-zero"),
    ],
)
def test_special_values(terms: list[float], expected: float | None, compensated: bool) -> None:
    """Never NaN where the sum is a number: the compensation of an infinite sum means nothing."""
    if expected is None:
        expected = 1.0 if compensated else 0.0
    assert np.array_equal(total(terms, compensated=compensated), expected, equal_nan=True)


def test_special_values_stay_in_their_place() -> None:
    running = RunningSum((4,), compensated=True)
    with np.errstate(all="ignore"):
        for part in ([np.nan, np.inf, 1.0, LARGEST], [1.0, 1.0, 1e-17, LARGEST], [1.0, 1.0, 1e-17, -1.0]):
            running.add(np.array(part))
    result = running.result()
    assert np.array_equal(result[[0, 1, 3]], [np.nan, np.inf, np.inf], equal_nan=True)
    assert result[2] == 1.0 + 2e-17


@pytest.mark.parametrize("compensated", [True, False], ids=["compensated", "plain"])
def test_regions_are_independent(compensated: bool) -> None:
    """Strided regions, in any overlap, against one exact sum per element."""
    rng = np.random.default_rng(2)
    regions = [np.s_[...], np.s_[::2, :, 1:], np.s_[1], np.s_[:, 1:3:2], np.s_[2:2], np.s_[:, :, ::3]]
    running = RunningSum((3, 4, 5), compensated=compensated)
    added: dict[tuple[int, ...], list[float]] = {place: [] for place in np.ndindex(3, 4, 5)}
    for _ in range(20):
        for region in regions:
            places = np.arange(60).reshape(3, 4, 5)[region]
            part = rng.standard_normal(places.shape) * 10.0 ** rng.uniform(-8, 8)
            before = part.copy()
            running.add(part, region)
            assert np.array_equal(part, before)
            for place, value in zip(places.ravel(), part.ravel(), strict=True):
                added[np.unravel_index(place, (3, 4, 5))].append(float(value))
    result = running.result()
    assert result.shape == (3, 4, 5)
    for place, terms in added.items():
        exact, size = math.fsum(terms), math.fsum(map(abs, terms))
        allowed = 4 * math.ulp(exact) + (len(terms) * UNIT) ** 2 * size if compensated else 100 * UNIT * size
        assert abs(result[place] - exact) <= allowed


@pytest.mark.parametrize("compensated", [True, False], ids=["compensated", "plain"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 2)], ids=str)
def test_empty(shape: tuple[int, ...], compensated: bool) -> None:
    running = RunningSum(shape, compensated=compensated)
    running.add(np.zeros(shape))
    assert running.result().shape == shape


def test_adding_a_strided_part() -> None:
    part = np.arange(24.0).reshape(2, 3, 4)
    running = RunningSum((3, 2), compensated=True)
    running.add(part[:, :, 1].T)
    running.add(np.broadcast_to(1.0, (3, 2)))
    assert np.array_equal(running.result(), part[:, :, 1].T + 1)


def test_finite_sums_warn_of_nothing() -> None:
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        running = RunningSum((3,), compensated=True)
        for part in ([1e308, 5e-324, -0.0], [-1e308, 5e-324, 0.0]):
            running.add(np.array(part))
        running.result()


def test_a_chain_stays_within_the_float64_contract() -> None:
    """CHAIN plain additions are off by CHAIN units at most; the contract leaves 1e-14."""
    assert CHAIN * UNIT < 1e-14
