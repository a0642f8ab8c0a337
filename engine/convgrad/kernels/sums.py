"""Sums that stay exact enough at any length.

A running sum of `n` float64 terms may be off by `n` units of roundoff (1.1e-16). For operands narrower than
float64 that is harmless up to 10^9 terms. For float64 operands the contract leaves about 90 units, so chains
are kept to `CHAIN` terms and the chains are added with TwoSum, whose error does not grow.

Source: D. E. Knuth, The Art of Computer Programming vol. 2, section 4.2.2 (TwoSum).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convgrad.dtypes import Float64

#: Longest chain of plain additions for float64 operands, in terms.
CHAIN = 64


class RunningSum:
    """A float64 array that parts are added to, in the order of the calls.

    Parameters
    ----------
    shape : of the sum
    compensated : keep the rounding error of every addition and add it at the end
    """

    def __init__(self, shape: tuple[int, ...], *, compensated: bool) -> None:
        self._total = np.zeros(shape)
        self._lost = np.zeros(shape) if compensated else None

    def add(self, part: Float64, where: Any = ...) -> None:
        """Add `part` to the region `where` (an index that selects a view)."""
        total = self._total[where]
        if self._lost is None:
            total += part
            return
        new = total + part
        added = new - total
        self._lost[where] += (total - (new - added)) + (part - added)
        total[...] = new

    def result(self) -> Float64:
        """Return the sum."""
        if self._lost is None:
            return self._total
        # Where the sum is inf or NaN, so is the compensation, and it means nothing.
        return np.where(np.isfinite(self._total), self._total + self._lost, self._total)
