"""Where the channel axis of a data tensor is: `NHWC` or `NCHW`. Filters are not concerned."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from .errors import ArgumentError

DATA_FORMATS = ("NHWC", "NCHW")


def check_data_format(value: object) -> str:
    """Return `value` if it is a data format this library knows.

    Raises
    ------
    ArgumentError
        Otherwise.
    """
    if not isinstance(value, str) or value not in DATA_FORMATS:
        raise ArgumentError(f"data_format: must be NHWC or NCHW, got {value!r:.40}")
    return value


def axis_letters(data_format: str, height: str, width: str, channels: str) -> tuple[str, ...]:
    """Return the letters of a data tensor's axes in `data_format` order, e.g. ``("N", "h", "w", "Cin")``."""
    letters = {"N": "N", "H": height, "W": width, "C": channels}
    return tuple(letters[axis] for axis in data_format)


def sizes_nhwc(shape: tuple[int, ...], data_format: str) -> tuple[int, int, int, int]:
    """Reorder four sizes from `data_format` order to N, H, W, C."""
    n, h, w, c = (shape[data_format.index(axis)] for axis in "NHWC")
    return n, h, w, c


def sizes_in(data_format: str, n: int, h: int, w: int, c: int) -> tuple[int, ...]:
    """Order four sizes as `data_format` has them."""
    sizes = {"N": n, "H": h, "W": w, "C": c}
    return tuple(sizes[axis] for axis in data_format)


def as_nhwc(array: npt.NDArray[Any], data_format: str) -> npt.NDArray[Any]:
    """View a 4-D data tensor with its axes in N, H, W, C order. Nothing is copied."""
    return array.transpose([data_format.index(axis) for axis in "NHWC"])


class Band:
    """Some rows of images, addressed as if all of their rows were there.

    Parameters
    ----------
    rows : (n, some rows, w, ...)
    first : position of the first of them
    height : how many rows the images have
    """

    def __init__(self, rows: npt.NDArray[Any], first: int, height: int) -> None:
        self._rows, self._first = rows, first
        self.shape = (len(rows), height, *rows.shape[2:])
        self.dtype, self.strides, self.flags, self.itemsize = (
            rows.dtype,
            rows.strides,
            rows.flags,
            rows.itemsize,
        )

    def __len__(self) -> int:
        """Return n."""
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        """Return a part: slices, the second of rows that are there, or `...` for all axes but the last.

        Raises
        ------
        IndexError
            If some of the rows are not there.
        """
        if key[1] is Ellipsis:
            part = self._rows[key]
            return Band(part, self._first, self.shape[1])
        asked = range(*key[1].indices(self.shape[1]))
        first, here = asked.start - self._first, self._rows.shape[1]
        if asked and not 0 <= first <= asked[-1] - self._first < here:
            raise IndexError(
                f"rows {asked.start} to {asked[-1]} of {self._first} to {self._first + here - 1}"
            )
        rows = slice(first, asked[-1] - self._first + 1, asked.step) if asked else slice(0, 0)
        return self._rows[(key[0], rows, *key[2:])]
