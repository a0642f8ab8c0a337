"""Running sums and short chains: how much error is left, and what NaN, inf and overflow do."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from assertions import CONTRACT, dtype_of
from convgrad.kernels.products import Products, put
from convgrad.kernels.sums import CHAIN, GROUP, RunningSum, ShortChains
from convgrad.scratch import Scratch

UNIT = 2.0**-53
LARGEST = np.finfo(float).max


# Running sums.


def total(terms: Iterable[float]) -> float:
    running = RunningSum(())
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
def test_a_running_sum_is_nearly_correctly_rounded(name: str) -> None:
    """Within 4 units in the last place, and a second-order term of the size of the terms.

    Source of the bound: T. Ogita, S. M. Rump, S. Oishi, "Accurate sum and dot product", SIAM J. Sci.
    Comput. 26 (2005), proposition 4.5.
    """
    terms = series(name)
    exact = sum(map(Fraction, terms))  # math.fsum overflows half-way where the sum does not
    second_order = Fraction(len(terms) * UNIT) ** 2 * sum(abs(Fraction(term)) for term in terms)
    error = abs(Fraction(total(terms)) - exact)
    assert error <= 4 * Fraction(math.ulp(float(exact))) + second_order


@pytest.mark.parametrize("name", ["tiny-after-large", "tenths", "large-then-cancelled", "half-units"])
def test_the_series_are_hard(name: str) -> None:
    """A plain loop is off by more than is asked of a running sum."""
    plain, terms = 0.0, series(name)
    for term in terms:
        plain += term
    exact = math.fsum(terms)
    assert abs(plain - exact) > 4 * math.ulp(exact)


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
        pytest.param([LARGEST, 1.0, -LARGEST], 1.0, id="largest-and-one"),
        pytest.param([LARGEST, LARGEST * UNIT / 4, -1e300], LARGEST - 1e300, id="at-the-edge"),
        pytest.param([-1e300, LARGEST, 1e-300], LARGEST - 1e300, id="from-below"),
        pytest.param([], 0.0, id="nothing"),
        pytest.param([-0.0], 0.0, id="negative-zero"),
    ],
)
def test_special_values(terms: list[float], expected: float) -> None:
    """Never NaN where the sum is a number: the compensation of an infinite sum means nothing."""
    assert np.array_equal(total(terms), expected, equal_nan=True)


def test_special_values_stay_in_their_place() -> None:
    running = RunningSum((4,))
    with np.errstate(all="ignore"):
        for part in ([np.nan, np.inf, 1.0, LARGEST], [1.0, 1.0, 1e-17, LARGEST], [1.0, 1.0, 1e-17, -1.0]):
            running.add(np.array(part))
    result = running.result()
    assert np.array_equal(result[[0, 1, 3]], [np.nan, np.inf, np.inf], equal_nan=True)
    assert result[2] == 1.0 + 2e-17


def test_regions_are_independent() -> None:
    """Strided regions, in any overlap, against one exact sum per element."""
    rng = np.random.default_rng(2)
    regions: list[Any] = [
        np.s_[...],
        np.s_[::2, :, 1:],
        np.s_[1],
        np.s_[:, 1:3:2],
        np.s_[2:2],
        np.s_[:, :, ::3],
    ]
    running = RunningSum((3, 4, 5))
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
        allowed = 4 * math.ulp(exact) + (len(terms) * UNIT) ** 2 * size
        assert abs(result[place] - exact) <= allowed


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 2)], ids=str)
def test_empty(shape: tuple[int, ...]) -> None:
    running = RunningSum(shape)
    running.add(np.zeros(shape))
    assert running.result().shape == shape


def test_adding_a_strided_part() -> None:
    part = np.arange(24.0).reshape(2, 3, 4)
    running = RunningSum((3, 2))
    running.add(part[:, :, 1].T)
    running.add(np.broadcast_to(1.0, (3, 2)))
    assert np.array_equal(running.result(), part[:, :, 1].T + 1)


def test_finite_sums_warn_of_nothing() -> None:
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        running = RunningSum((3,))
        for part in ([1e308, 5e-324, -0.0], [-1e308, 5e-324, 0.0]):
            running.add(np.array(part))
        running.result()


# Short chains.

#: Numbers of parts around those that are folded.
COUNTS = [1, 2, GROUP, GROUP + 1, GROUP + 2, 2 * GROUP, 2 * GROUP + 1, 100, 10_000]
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def chained(parts: Iterable[np.ndarray], most: int, dtype: str, shape: tuple[int, ...] = ()) -> np.ndarray:
    """The sum of parts for everything, in an array whose content before is NaN."""
    sums = np.full(shape, np.nan, dtype)
    chains = ShortChains(sums, most, Scratch())
    with np.errstate(all="ignore"):
        for part in parts:
            view = chains.target(..., clear=True)
            np.add(view, part, out=view)
        chains.finish()
    return sums


@pytest.mark.parametrize("count", COUNTS)
@every_dtype
def test_chains_are_as_short_as_a_group(count: int, dtype: str) -> None:
    """Off by a rounding for each part of a group, and a last one, whatever the number of parts."""
    unit = np.finfo(dtype).eps / 2
    parts = (np.random.default_rng(3).random((count, 6)) + 0.1).astype(dtype)
    result = chained(parts, count, dtype, (6,))
    for column, got in enumerate(result):
        exact = math.fsum(map(float, parts[:, column]))
        assert abs(float(got) - exact) <= (GROUP + 1) * unit * exact


@every_dtype
def test_a_plain_loop_is_longer(dtype: str) -> None:
    """What is asked above is not what any sum does."""
    unit = np.finfo(dtype).eps / 2
    parts = np.full(10_000, 0.1, dtype)
    plain = np.zeros((), dtype)
    for part in parts:
        plain += part
    exact = math.fsum(map(float, parts))
    assert abs(float(plain) - exact) > (GROUP + 1) * unit * exact


@pytest.mark.parametrize("count", [1, 2, GROUP, GROUP + 1])
@every_dtype
def test_few_parts_are_added_in_their_order(count: int, dtype: str) -> None:
    """The bits of a loop, and no memory beside the sum."""
    rng = np.random.default_rng(4)
    parts = (rng.standard_normal((count, 50)) * 10.0 ** rng.uniform(-4, 4, (count, 50))).astype(dtype)
    expected = np.zeros(50, dtype)
    for part in parts:
        expected = expected + part
    assert chained(parts, count, dtype, (50,)).tobytes() == expected.tobytes()
    scratch = Scratch()
    ShortChains(np.empty(50, dtype), count, scratch)
    assert scratch.nbytes == 0


@every_dtype
def test_many_parts_are_added_by_groups_in_their_order(dtype: str) -> None:
    """Each group as a loop adds it, and the groups without loss."""
    rng = np.random.default_rng(5)
    parts = (rng.standard_normal((5 * GROUP + 3, 50)) * 10.0 ** rng.uniform(-2, 2, 50)).astype(dtype)
    groups = []
    for start in range(0, len(parts), GROUP):
        group = np.zeros(50, dtype)
        for part in parts[start : start + GROUP]:
            group = group + part
        groups.append(group)
    result = chained(parts, len(parts), dtype, (50,))
    unit = float(np.finfo(dtype).eps) / 2
    for column, got in enumerate(result):
        terms = [float(group[column]) for group in groups]
        exact, second_order = math.fsum(terms), (10 * unit) ** 2 * math.fsum(map(abs, terms))
        assert abs(float(got) - exact) <= 2 * unit * abs(exact) + second_order


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        pytest.param((0, 1, 2), 0, id="one-group"),
        pytest.param((GROUP - 3, GROUP - 2, GROUP), 0, id="with-the-first"),
        pytest.param((GROUP - 1, GROUP, 2 * GROUP), 1, id="three-groups"),
    ],
)
@every_dtype
def test_groups_are_folded_without_loss(places: tuple[int, int, int], expected: int, dtype: str) -> None:
    """A one is lost beside a large number of its own group, which the last takes away, and of no other."""
    large = 4 / np.finfo(dtype).eps
    parts = np.zeros(3 * GROUP, dtype)
    parts[list(places)] = large, 1, -large
    assert chained(parts, len(parts), dtype) == expected


@pytest.mark.parametrize("most", [3, GROUP + 1, GROUP + 2, 1000])
@every_dtype
def test_regions_of_chains_are_independent(most: int, dtype: str) -> None:
    """Strided regions of a strided sum, in any overlap, against one exact sum per element."""
    rng = np.random.default_rng(6)
    regions: list[Any] = [
        np.s_[::2, :, 1:],
        np.s_[...],
        np.s_[1],
        np.s_[:, 1:3:2],
        np.s_[2:2],
        np.s_[:, :, ::3],
    ]
    whole = np.full((6, 4, 9), np.nan, dtype)
    sums = whole[::2, :, 2:7]
    chains = ShortChains(sums, most, Scratch())
    added: dict[tuple[int, ...], list[float]] = {place: [] for place in np.ndindex(3, 4, 5)}
    for number in range(most):
        region = regions[number % len(regions)]
        places = np.arange(60).reshape(3, 4, 5)[region]
        part = rng.standard_normal(places.shape).astype(dtype)
        view = chains.target(region, clear=True)
        assert view.shape == part.shape
        view += part
        for place, value in zip(places.ravel(), part.ravel(), strict=True):
            added[np.unravel_index(place, (3, 4, 5))].append(float(value))
    chains.finish()
    unit = np.finfo(dtype).eps / 2
    for place, terms in added.items():
        allowed = (GROUP + 1) * unit * math.fsum(map(abs, terms))
        assert abs(float(sums[place]) - math.fsum(terms)) <= allowed
    assert np.isnan(whole[1::2]).all()
    assert np.isnan(whole[..., :2]).all()


@pytest.mark.parametrize("most", [0, 1, 1000])
def test_nothing_added_is_zero(most: int) -> None:
    assert np.array_equal(chained([], most, "float32", (2, 3)), np.zeros((2, 3)))


def test_a_first_part_for_everything_can_be_stored() -> None:
    """It takes the place of what was there, and the next ones are added."""
    sums = np.full(4, np.nan, np.float32)
    chains = ShortChains(sums, 3, Scratch())
    assert chains.fresh
    chains.target(..., clear=False)[...] = [1, 2, 3, 4]
    assert not chains.fresh
    chains.target(np.s_[1:], clear=True)[...] += 10
    chains.finish()
    assert sums.tolist() == [1, 12, 13, 14]


def test_chains_with_many_parts_are_never_stored() -> None:
    assert not ShortChains(np.empty(4), GROUP + 2, Scratch()).fresh


def test_chains_one_after_the_other_share_their_scratch() -> None:
    scratch, results = Scratch(), []
    for value in (1.0, 2.0):
        sums = np.full(5, np.nan)
        chains = ShortChains(sums, 100, scratch)
        for _ in range(100):
            chains.target(..., clear=True)[...] += value
        chains.finish()
        results.append(sums.tolist())
    assert results == [[100.0] * 5, [200.0] * 5]


@pytest.mark.parametrize("most", [5, 1000], ids=["plain", "folded"])
@every_dtype
def test_special_values_of_chains_stay_in_their_place(most: int, dtype: str) -> None:
    largest = float(np.finfo(dtype).max)
    parts = [[np.nan, np.inf, np.inf, largest, 1.0], [1.0, 1.0, -np.inf, largest, 2.0], [0.0] * 5]
    result = chained([np.array(part, dtype) for part in parts], most, dtype, (5,))
    assert np.array_equal(result, [np.nan, np.inf, np.nan, np.inf, 3.0], equal_nan=True)


# Products.


@pytest.mark.parametrize("terms", [0, 1, 47, 48, 49, 64, 65, 129, 1000, 4096, 100_000])
@every_dtype
def test_products_of_any_length_keep_the_contract(terms: int, dtype: str) -> None:
    """Equal terms, where every addition in one chain would round the same way."""
    left, right = np.full((3, terms), 0.1, dtype), np.full((terms, 5), 0.7, dtype)
    products = Products(terms, 15, dtype_of(dtype), Scratch())
    for add in (False, True):
        target = np.full((3, 5), 0 if add else np.nan, dtype)
        put(target, products.parts(left, right), add=add)
        exact = terms * np.longdouble(left.flat[0] if terms else 0) * np.longdouble(dtype_of(dtype).type(0.7))
        assert (np.abs(target - exact) <= CONTRACT[dtype_of(dtype)][1] * exact).all()


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 200), (200, 6)), ((3, 4, 200), (200, 6)), ((3, 1, 4, 200), (2, 200, 6))],
    ids=["matrices", "one-right-side", "broadcast"],
)
def test_products_are_those_of_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Integers, whose sums are exact, and operands in any order in memory."""
    rng = np.random.default_rng(7)
    one, other = (rng.integers(-9, 9, shape).astype(np.float32) for shape in (left, right))
    expected = (one.astype(int) @ other.astype(int)).astype(np.float32)
    products = Products(200, expected.size, np.dtype(np.float32), Scratch())
    target = np.ones(expected.shape, np.float32)
    put(target, products.parts(one, np.asfortranarray(other)), add=True)
    assert np.array_equal(target, expected + 1)


@every_dtype
def test_a_chain_stays_within_the_contract(dtype: str) -> None:
    """Rounding all one way, which is a quarter of a unit an addition, uses up a chain's part of it at most.

    The additions of a group round, too, as do the last one and the products.
    """
    unit = float(np.finfo(dtype).eps) / 2
    assert ((CHAIN + GROUP) / 4 + 1) * unit <= CONTRACT[dtype_of(dtype)][1]
