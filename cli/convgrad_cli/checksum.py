"""A sink that sums what passes through it, so that two results can be held against each other at a glance."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: Elements converted to float64 at a time (8 MB).
_PIECE = 2**20


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
    """Pass parts on to `sink`, adding them up on the way if `wanted`.

    Each line, one row of one image, is summed by itself and the lines in their order, so the sums do not
    depend on how many images or rows come at a time.

    Parameters
    ----------
    sink : where the parts go
    wanted : whether to add them up
    data_format : of results by image; filters have rows second too
    """

    def __init__(self, sink: Any, *, wanted: bool, data_format: str = "NHWC") -> None:
        self._sink = sink
        self._wanted = wanted
        self._channels_first = data_format == "NCHW"
        self._sum = self._abs_sum = 0.0
        self._non_finite = 0

    def __setitem__(self, key: Any, value: npt.NDArray[Any], /) -> None:
        if self._wanted and value.size:
            self._add(value)
        self._sink[key] = value

    def _add(self, value: npt.NDArray[Any]) -> None:
        for image in value:
            # (rows, width, channels), or (channels, rows, width)
            rows = image.swapaxes(0, 1) if self._channels_first and image.ndim == 3 else image
            each = max(math.prod(rows.shape[1:]), 1)
            step = max(_PIECE // each, 1)
            for first in range(0, len(rows), step):
                self._add_rows(rows[first : first + step].reshape(-1, each))

    def _add_rows(self, rows: npt.NDArray[Any]) -> None:
        sums, abs_sums = np.zeros(len(rows)), np.zeros(len(rows))
        with np.errstate(all="ignore"):
            for at in range(0, rows.shape[1], _PIECE):
                piece = rows[:, at : at + _PIECE].astype(np.float64)
                sums += piece.sum(axis=1)
                if not np.isfinite(sums).all():
                    self._non_finite += int(np.count_nonzero(~np.isfinite(piece)))
                abs_sums += np.abs(piece, out=piece).sum(axis=1)
            # One after the other: a pairwise sum would pair differently in other slabs.
            self._sum = float(np.add.accumulate([self._sum, *sums])[-1])
            self._abs_sum = float(np.add.accumulate([self._abs_sum, *abs_sums])[-1])

    @property
    def summary(self) -> Summary:
        """What has passed so far."""
        return Summary(self._sum, self._abs_sum, self._non_finite)
