"""A sink that sums what passes through it, so that two results can be held against each other at a glance."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

#: Elements converted to float64 at a time (8 MB).
_PIECE = 2**20


class _Sink(Protocol):
    def __setitem__(self, key: slice, value: npt.NDArray[Any], /) -> None: ...


class Summary(NamedTuple):
    """Sum and sum of absolute values in float64, and how many elements are inf or NaN."""

    sum: float
    abs_sum: float
    non_finite: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the summary as JSON can hold it: a sum that is not finite becomes null."""
        sums = {"sum": self.sum, "abs_sum": self.abs_sum}
        finite = {name: value if math.isfinite(value) else None for name, value in sums.items()}
        return {**finite, "non_finite": self.non_finite}


class Checksummed:
    """Pass slices on to `sink`, adding them up on the way if `wanted`."""

    def __init__(self, sink: _Sink, *, wanted: bool) -> None:
        self._sink = sink
        self._wanted = wanted
        self._sum = self._abs_sum = 0.0
        self._non_finite = 0

    def __setitem__(self, key: slice, value: npt.NDArray[Any], /) -> None:
        if self._wanted:
            flat = value.reshape(-1)
            for start in range(0, flat.size, _PIECE):
                self._add(flat[start : start + _PIECE].astype(np.float64))
        self._sink[key] = value

    def _add(self, piece: npt.NDArray[np.float64]) -> None:
        with np.errstate(all="ignore"):
            self._sum += float(piece.sum())
            self._abs_sum += float(np.abs(piece, out=piece).sum())
        if not math.isfinite(self._abs_sum):
            self._non_finite += int(np.count_nonzero(~np.isfinite(piece)))

    @property
    def summary(self) -> Summary:
        """What has passed so far."""
        return Summary(self._sum, self._abs_sum, self._non_finite)
