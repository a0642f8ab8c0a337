"""NaN and inf planted at random places reach exactly the results whose sum contains them, by every kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import forced
from assertions import assert_matches
from convgrad.blocks import BlockSizes
from forced import DTYPES, Problem

#: Plants of one non-finite value for each problem, and of several.
SINGLE, SEVERAL = 45, 10
BAD = (np.nan, np.inf, -np.inf)


def planted(problem: Problem, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Operands with one bad value at a random place of one of them, then with several anywhere."""
    counts = [1] * SINGLE + rng.integers(2, 6, SEVERAL).tolist()
    for number, count in enumerate(counts):
        arrays = [rng.standard_normal(shape) for shape in (problem.first, problem.second)]
        # Zeros, too: inf times zero is NaN where the term exists, and nothing where it does not.
        arrays[0][rng.random(problem.first) < 0.3] = 0
        arrays[1][rng.random(problem.second) < 0.1] = 0
        for one in range(count):
            # Each kind of value in each operand in turn, where there is one.
            target = arrays[(number + one) % 2]
            target.flat[rng.integers(target.size)] = BAD[(number // 2 + one) % 3]
        yield arrays[0], arrays[1]


def dtype_of_plant(number: int) -> str:
    """Each dtype for one plant of each kind of value in each operand, and so on."""
    return DTYPES[(number // 6 + 1) % 4]


def kinds(array: np.ndarray) -> np.ndarray:
    """0 where finite, else which of the three."""
    values = array.astype(np.float64)
    return np.select([np.isnan(values), values == np.inf, values == -np.inf], [1, 2, 3])


@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_planted_values_reach_their_sums(problem: Problem) -> None:
    rng = np.random.default_rng(len(str(problem)))
    reached = np.zeros(4, int)
    for number, arrays in enumerate(planted(problem, rng)):
        first, second = problem.laid(*arrays, dtype=dtype_of_plant(number))
        expected = problem.exact(first, second)
        wanted = kinds(expected.values)
        reached += np.bincount(wanted.ravel(), minlength=4)
        for name, result in forced.each(problem.plan(first, second), first, second):
            np.testing.assert_array_equal(kinds(result), wanted)
            assert_matches(result, *forced.bound(name, expected), first.dtype)
    assert (reached > 0).all(), "neither all results nor none"


@pytest.mark.parametrize("name", sorted({*forced.TRANSPOSE, *forced.FILTER_GRAD}))
def test_every_kernel_has_two_hundred_plants(name: str) -> None:
    dtypes = Counter(map(dtype_of_plant, range(SINGLE + SEVERAL)))
    count = 0
    for problem in forced.PROBLEMS:
        for dtype, plants in dtypes.items():
            arrays = problem.laid(np.zeros(problem.first), np.zeros(problem.second), dtype=dtype)
            count += plants * (name in problem.plan(*arrays).strategies)
    assert count >= 200


@pytest.mark.parametrize("problem", forced.PROBLEMS, ids=str)
def test_small_blocks(problem: Problem) -> None:
    """A bad value at the corners of each operand, in blocks of which most are without it."""
    rng = np.random.default_rng(4)
    for which, corner, bad in [(0, 0, np.nan), (0, -1, np.inf), (1, 0, -np.inf), (1, -1, np.nan)]:
        arrays = [rng.standard_normal(shape) for shape in (problem.first, problem.second)]
        arrays[which].flat[corner] = bad
        first, second = problem.laid(*arrays, dtype="float32")
        wanted = kinds(problem.exact(first, second).values)
        plan = problem.plan(first, second)
        for _, result in forced.each(plan, first, second, blocks=BlockSizes(1, 3, 5, 7)):
            np.testing.assert_array_equal(kinds(result), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tap_that_reaches_nothing_adds_nothing(dtype: str) -> None:
    """Padding is not zeros: an inf filter over it is no NaN, and neither is an inf pixel under no window."""
    w = np.ones((5, 5, 16, 16))
    w[0] = w[:, 0] = np.inf
    w[4] = w[:, 4] = np.nan
    problem = Problem("5x5-on-one-pixel", (1, 1, 1, 16), w.shape)
    first, second = problem.laid(np.ones(problem.first), w, dtype=dtype)
    for _, result in forced.each(problem.plan(first, second), first, second):
        assert (result.astype(np.float64) == 16).all()
    x = np.ones((1, 6, 6, 3))
    x[:, 5] = x[:, :, 5] = np.nan
    problem = Problem(
        "beyond-the-last-window", x.shape, (1, 2, 2, 3), (2, 2), {"strides": 3, "padding": "VALID"}
    )
    first, second = problem.laid(x, np.ones(problem.second), dtype=dtype)
    for _, result in forced.each(problem.plan(first, second), first, second):
        assert (result.astype(np.float64) == 4).all()
