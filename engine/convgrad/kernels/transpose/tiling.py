"""How fast FIR cuts an axis into tiles: stride phases as correlations of one window, a few groups at a time.

Count wide positions from an offset ``b``, ``y + b = g*s + p`` with group ``g`` and stride phase ``p``. A tap
``u`` has ``u*d - before + b = shift*s + p``: it belongs to one phase, where

    out[g, p] = sum over its taps of input[g - shift] * filters[u].

So each phase is a correlation along the same narrow positions, whose window is as wide as the taps' shifts
differ: ``T = 3`` for 3 taps at stride 1 or 5 at stride 2, ``T = 2`` for 3 or 4 at stride 2. `m` groups, a
tile, take ``n = m + T - 1`` products of a phase instead of ``m*T`` (see `toom_cook`). A phase that lacks the
first or the last tap of the window is zero at the point 0 or infinity and skips it: 5 taps at stride 2 take
4 + 3 products for two groups, not 10. The offset and `m` are those that need the fewest products.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from convgrad.geometry import Axis, ceil_div

from . import toom_cook

Array = npt.NDArray[Any]

#: Strides above have so many phases that the transformed filters outweigh all else.
MOST_STRIDE = 8
#: A sum of sources, as (number of the source, np.add or np.subtract), a positive one first.
Terms: TypeAlias = tuple[tuple[int, np.ufunc], ...]


class Place(NamedTuple):
    """The results of one phase at one position in their tiles: where they are, and which tiles these are."""

    phase: int
    position: int
    here: slice
    tiles: slice


class Tiling(NamedTuple):
    """One axis in tiles.

    Attributes
    ----------
    axis : its geometry
    offset : ``b``
    lead : narrow positions that a tile's window begins before its first group
    step : ``m``, groups of a tile
    filters : rows of G (rows, kernel), of one phase after another, without those that are zero
    rows : of each phase, which rows of `filters` are its own
    points : of each phase, which of the ``n`` points these rows are
    inputs : rows of B, of samples of a tile
    outputs : of each phase, rows of A, of products at its own points
    """

    axis: Axis
    offset: int
    lead: int
    step: int
    filters: Array
    rows: tuple[slice, ...]
    points: tuple[range, ...]
    inputs: tuple[Terms, ...]
    outputs: tuple[tuple[Terms, ...], ...]

    def tiles(self, wide: range) -> int:
        """Return how many tiles reach from the first to the last of the positions `wide`."""
        groups = ceil_div(wide.stop + self.offset, self.axis.stride) - self._first(wide)
        return ceil_div(groups, self.step)

    @property
    def products(self) -> int:
        """Number of products for the whole axis."""
        return self.tiles(range(self.axis.wide)) * len(self.filters)

    def wide(self, tiles: int) -> int:
        """Return how many positions, from any multiple of that on, need no more than so many tiles."""
        whole = self.axis.stride * self.step * tiles
        return whole if self.offset == 0 else whole - self.axis.stride + 1

    def samples(self, wide: range) -> tuple[int, int]:
        """Return the narrow position where the tiles of `wide` begin, and how many have each rest mod `m`."""
        return self._first(wide) - self.lead, self.tiles(wide) + ceil_div(len(self.inputs), self.step) - 1

    def places(self, wide: range) -> list[Place]:
        """Return where the sums of the tiles of `wide` belong among these positions."""
        places: list[Place] = []
        for phase, position in itertools.product(range(self.axis.stride), range(self.step)):
            first = (self._first(wide) + position) * self.axis.stride + phase - self.offset - wide.start
            here, tiles = meeting(first, self.axis.stride * self.step, self.tiles(wide), len(wide))
            places.append(Place(phase, position, here, tiles))
        return places

    def _first(self, wide: range) -> int:
        """Return the group of the first of the positions `wide`."""
        return (wide.start + self.offset) // self.axis.stride


@functools.lru_cache(maxsize=256)
def tiling(axis: Axis) -> Tiling | None:
    """Return the tiling of an axis with the fewest products, None if its window is too wide or its stride."""
    if axis.stride > MOST_STRIDE:
        return None
    every = (
        _tiling(axis, offset, step) for offset in range(axis.stride) for step in range(1, toom_cook.MOST)
    )
    possible = [one for one in every if one is not None]
    return min(possible, key=lambda one: (one.products, len(one.filters)), default=None)


def _tiling(axis: Axis, offset: int, step: int) -> Tiling | None:
    reach = [
        divmod(tap * axis.dilation - axis.pad_before + offset, axis.stride) for tap in range(axis.kernel)
    ]
    lead = max(shift for shift, _ in reach)
    window = lead - min(shift for shift, _ in reach) + 1
    # With one tap, or for one result, there is nothing to save.
    if step + window - 1 > toom_cook.MOST or (step == 1) != (window == 1):
        return None
    outputs, filters, inputs = toom_cook.transforms(step, window)
    every = np.zeros((axis.stride, len(inputs), axis.kernel))
    for tap, (shift, phase) in enumerate(reach):
        every[phase, :, tap] = filters[:, lead - shift]
    # Only the first and the last point can be zero for a phase that has taps: those left are in a row.
    kept = np.any(every != 0, axis=2)
    points = [range(mask.argmax(), mask.argmax() + mask.sum()) for mask in kept]
    ends = itertools.accumulate(len(own) for own in points)
    return Tiling(
        axis,
        offset,
        lead,
        step,
        every[kept],
        tuple(slice(end - len(own), end) for end, own in zip(ends, points, strict=True)),
        tuple(points),
        tuple(_terms(row) for row in inputs),
        tuple(tuple(_terms(row[own.start : own.stop]) for row in outputs) for own in points),
    )


def _terms(signs: Array) -> Terms:
    """Return a row of 1, 0 and -1 as a sum."""
    kinds = ((np.add, np.flatnonzero(signs > 0)), (np.subtract, np.flatnonzero(signs < 0)))
    return tuple((int(index), kind) for kind, some in kinds for index in some)


def meeting(first: int, step: int, count: int, size: int) -> tuple[slice, slice]:
    """Return which of ``first, first + step, ...`` lie in ``0 .. size``, and which of `count` these are."""
    start = min(max(ceil_div(-first, step), 0), count)
    stop = max(min(ceil_div(size - first, step), count), start)
    return slice(max(first + start * step, 0), max(first + stop * step, 0), step), slice(start, stop)
