"""Sums that stay exact enough at any length.

A chain of `n` additions in one accumulator may be off by `n` units of roundoff `u`, and on equal terms, where
every addition rounds the same way, `n*u/4` is soon found. float32 has ``u = 6e-8`` and the contract allows
``1e-6 * scale``, float64 has ``u = 1.1e-16`` and the contract allows ``1e-14 * scale``. So a matrix product
sums at most `CHAIN` terms at a time; its parts are added pairwise, whose error grows with the logarithm
alone; and of such sums at most `GROUP` are added plainly before they go into a total by TwoSum, whose error
does not grow.

Source: D. E. Knuth, The Art of Computer Programming vol. 2, section 4.2.2 (TwoSum); N. J. Higham, Accuracy
and Stability of Numerical Algorithms, chapter 4 (pairwise and blocked sums).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.dtypes import Float64
from convgrad.scratch import Scratch

#: Longest chain of additions inside one matrix product, in terms.
CHAIN = 48
#: Most partial sums that are added plainly to one result.
GROUP = 8

Array = npt.NDArray[Any]


class RunningSum:
    """A float64 array that parts are added to by TwoSum, in the order of the calls.

    Parameters
    ----------
    shape : of the sum
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._total = np.zeros(shape)
        self._lost = np.zeros(shape)

    def add(self, part: Float64, where: Any = ...) -> None:
        """Add `part` to the region `where` (an index that selects a view)."""
        _two_sum(self._total[where], self._lost[where], part)

    def result(self) -> Float64:
        """Return the sum."""
        return _with_lost(self._total, self._lost)


class ShortChains:
    """Partial sums added into an array, never more than `GROUP` in a row.

    Parameters
    ----------
    total : the array, any content, any strides
    most : the most parts that any one element gets
    scratch : for what is added up beside it, if there are more than `GROUP`
    """

    def __init__(self, total: Array, most: int, scratch: Scratch) -> None:
        self._total = self._part = total
        self._plain = most <= GROUP + 1
        self._waiting = 0
        #: Whether nothing has been written yet, so that a part for everything can be stored as it is.
        self.fresh = True
        if not self._plain:
            self._part = scratch.array("part of sum", total.shape, total.dtype)
            self._lost = scratch.array("lost of sum", total.shape, total.dtype)
            self._lost[...] = total[...] = self._part[...] = 0
            self.fresh = False

    def target(self, where: Any, *, clear: bool) -> Array:
        """Return the view that a part for `where` belongs in.

        Parameters
        ----------
        where : an index that selects a view
        clear : the part is going to be added, not stored
        """
        if self.fresh:
            if clear:
                self._total[...] = 0
            self.fresh = False
        elif not self._plain:
            if self._waiting == GROUP:
                self._fold()
            self._waiting += 1
        view: Array = self._part[where]
        return view

    def finish(self) -> None:
        """Bring `total` to its final value."""
        if self.fresh:
            self._total[...] = 0
        elif not self._plain:
            self._fold()
            self._total[...] = _with_lost(self._total, self._lost)

    def _fold(self) -> None:
        _two_sum(self._total, self._lost, self._part)
        self._part[...] = 0
        self._waiting = 0


def _two_sum(total: Array, lost: Array, part: Array) -> None:
    new = total + part
    added = new - total
    lost += (total - (new - added)) + (part - added)
    total[...] = new


def _with_lost(total: Array, lost: Array) -> Array:
    # Where the sum is inf or NaN, so is what was lost, and it means nothing.
    return np.where(np.isfinite(total), total + lost, total)
