"""From sums in groups of a stride to the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.kernels.transposition import copy_pixels

Array = npt.NDArray[Any]


def store_groups(out: Array, sums: Array, first: int) -> None:
    """Copy sums (rows, groups, n, stride, outputs) to `out` (n, rows, columns, outputs).

    Parameters
    ----------
    out : any strides
    sums : any strides; what lies before column `first` and beyond the last column is left out
    first : column of the sums that is column 0 of `out`
    """
    by_image = sums.transpose(2, 0, 1, 3, 4)
    n, rows, groups, stride, outputs = by_image.shape
    columns = out.shape[2]
    if stride == 1 or n == 1:
        # Groups and phases are one axis then, without a copy.
        flat = by_image.reshape(n, rows, groups * stride, outputs)
        copy_pixels(out, flat[:, :, first : first + columns])
        return
    whole = columns // stride if first == 0 else 0
    split = out[:, :, : whole * stride].reshape(n, rows, whole, stride, outputs)
    np.copyto(split, by_image[:, :, :whole])
    for column in range(whole * stride, columns):
        group, phase = divmod(column + first, stride)
        np.copyto(out[:, :, column], by_image[:, :, group, phase])
