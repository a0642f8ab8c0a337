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
