"""Matrix products whose sums are made of short chains: see `sums`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.geometry import ceil_div
from convgrad.scratch import Scratch

from .sums import CHAIN

Array = npt.NDArray[Any]


class Products:
    """Products ``left @ right`` with one number of terms, their sums made pairwise of chains.

    Parameters
    ----------
    terms : columns of `left`, rows of `right`
    elements : of the largest product
    dtype : of everything
    scratch : for the parts
    """

    def __init__(self, terms: int, elements: int, dtype: np.dtype[Any], scratch: Scratch) -> None:
        pieces = max(ceil_div(terms, CHAIN), 1)
        bounds = [terms * piece // pieces for piece in range(pieces + 1)]
        self._cuts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        # As many parts are alive at a time as a binary tree of the pieces is deep.
        levels = range((pieces - 1).bit_length() + 1)
        self._buffers = [scratch.array(f"product {level}", (elements,), dtype) for level in levels]

    def parts(self, left: Array, right: Array) -> list[Array]:
        """Return one or two arrays whose sum is ``left @ right``; they are given up at the next call.

        The last addition is left to the caller, who has something to add the sum to, or a place to store it.

        Parameters
        ----------
        left, right : (..., m, terms) and (..., terms, n); fast with unit strides along either axis

        Returns
        -------
        C-contiguous (..., m, n)
        """
        batch = left.shape[:-2] if right.ndim == 2 else np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        shape = (*batch, left.shape[-2], right.shape[-1])
        size = 1
        for length in shape:
            size *= length
        places = [buffer[:size].reshape(shape) for buffer in self._buffers]
        if len(self._cuts) == 1:
            self._product(left, right, places[0])
            return places[:1]
        half = len(self._cuts) // 2
        self._sum(left, right, self._cuts[:half], places)
        self._sum(left, right, self._cuts[half:], places[1:])
        return places[:2]

    def _product(self, left: Array, right: Array, out: Array) -> None:
        # NumPy does not hand products of a column and a row to BLAS; each is one multiplication.
        (np.multiply if left.shape[-1] == 1 else np.matmul)(left, right, out=out)

    def _sum(self, left: Array, right: Array, cuts: list[slice], places: list[Array]) -> None:
        if len(cuts) == 1:
            self._product(left[..., cuts[0]], right[..., cuts[0], :], places[0])
            return
        half = len(cuts) // 2
        self._sum(left, right, cuts[:half], places)
        self._sum(left, right, cuts[half:], places[1:])
        np.add(places[0], places[1], out=places[0])


def put(target: Array, parts: list[Array], *, add: bool) -> None:
    """Store the sum of one or two `parts` in `target`, or add it there. The parts are given up."""
    if not add:
        if len(parts) == 2:
            np.add(parts[0], parts[1], out=target)
        else:
            np.copyto(target, parts[0])
        return
    for part in parts:
        np.add(target, part, out=target)
