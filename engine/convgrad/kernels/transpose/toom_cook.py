"""Short correlations with few multiplications: the matrices of Toom and Cook, exactly.

A correlation of a window ``d`` with filter ``g``, ``y[k] = sum over t of d[k + t] * g[t]`` for ``k < m`` and
``t < T``, is the transpose of multiplying two polynomials, which evaluation at ``n = m + T - 1`` points,
``n`` products and interpolation does. Hence, with a row or column for each point,

    y = A @ ((G @ g) * (B @ d))

where at a finite point ``a``, and for the product ``P`` of all other finite ``x - b``,

    A[k] = a**k        G[t] = a**t / P(a)        B[i] = coefficient of x**i in P,

and at infinity ``A`` and ``G`` hold 1 for the highest power alone, and ``P`` is the product of all.
The points 0, 1, -1 and infinity make ``A`` and ``B`` of 1, 0 and -1: transforms are additions.

Source: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin and S. Gray, Fast algorithms for
convolutional neural networks (2016).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Finite points in the order they are taken; infinity is always the last one.
POINTS = (0, 1, -1)
#: Most points whose transforms are additions.
MOST = len(POINTS) + 1

Matrix = npt.NDArray[np.float64]


class Transforms(NamedTuple):
    """The three matrices for `m` results and `T` taps; their entries are exact.

    Attributes
    ----------
    outputs : A (m, n)
    filters : G (n, T)
    inputs : B (n, n)
    """

    outputs: Matrix
    filters: Matrix
    inputs: Matrix


@functools.cache
def transforms(results: int, taps: int) -> Transforms:
    """Return the matrices for `results` results of a filter of `taps` taps, ``results + taps - 1 <= MOST``.

    Examples
    --------
    >>> transforms(2, 2).inputs
    array([[-1.,  1.,  0.],
           [ 0.,  1.,  0.],
           [ 0., -1.,  1.]])
    """
    finite = POINTS[: results + taps - 2]
    others = [_with_roots(b for b in finite if b != a) for a in finite]
    at = [sum(c * a**i for i, c in enumerate(p)) for a, p in zip(finite, others, strict=True)]
    outputs = [[a**k for a in finite] + [int(k == results - 1)] for k in range(results)]
    filters = [[Fraction(a**t, p) for t in range(taps)] for a, p in zip(finite, at, strict=True)]
    filters.append([Fraction(t == taps - 1) for t in range(taps)])
    inputs = [[*p, 0] for p in others] + [_with_roots(finite)]
    return Transforms(*(np.array(matrix, np.float64) for matrix in (outputs, filters, inputs)))


def _with_roots(roots: Iterable[int]) -> list[int]:
    """Return the coefficients, lowest power first, of the product of ``x - root``."""
    product = [1]
    for root in roots:
        product = [high - root * low for high, low in zip([0, *product], [*product, 0], strict=True)]
    return product
