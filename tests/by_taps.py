"""The two operations as loops over taps: `reference` for larger arrays, held against it in test_hostile.

Positions and pads come from `reference.Axis`; nothing is shared with the engine. Sums run in
`numpy.longdouble` and without BLAS, so that NaN and inf reach what they should.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import reference
from reference import Axis, Expected


def _places(axis: Axis, wide: int) -> Iterator[tuple[int, list[int], list[int]]]:
    """Every tap with the narrow positions it meets and the wide positions it meets them at."""
    by_tap: dict[int, tuple[list[int], list[int]]] = {}
    for tap, narrow, place in axis.terms(wide):
        narrows, wides = by_tap.setdefault(tap, ([], []))
        narrows.append(narrow)
        wides.append(place)
    return ((tap, *places) for tap, places in by_tap.items())


def _wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float64).astype(np.longdouble)


def transpose(
    x: np.ndarray,
    w: np.ndarray,
    output_shape: Sequence[int] | None = None,
    strides: Any = 1,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    dilations: Any = None,
) -> Expected:
    """out[n, i*sh + u*dh - top, j*sw + v*dw - left, o] += x[n,i,j,c] * w[u,v,o,c]."""
    rows, columns = reference.axes(w.shape, strides, padding, data_format, dilations)
    x = x if data_format == "NHWC" else np.moveaxis(x, 1, 3)
    n, h, w_narrow, _ = x.shape
    size = (rows.default_wide(h), columns.default_wide(w_narrow))
    if output_shape is not None:
        place = {2: 0, 4: 1 if data_format == "NHWC" else 2}[len(output_shape)]
        size = output_shape[place], output_shape[place + 1]

    def operation(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        out = np.zeros((n, *size, w.shape[2]), np.longdouble)
        for u, i, there in _places(rows, size[0]):
            for v, j, across in _places(columns, size[1]):
                out[np.ix_(range(n), there, across)] += np.einsum("nijc,oc->nijo", x[:, i][:, :, j], w[u, v])
        out = out if data_format == "NHWC" else np.moveaxis(out, 3, 1)
        return out.astype(np.float64)

    with np.errstate(all="ignore"):
        return Expected(operation(_wide(x), _wide(w)), operation(np.abs(_wide(x)), np.abs(_wide(w))))


def filter_grad(
    x: np.ndarray,
    sizes: Sequence[int],
    g: np.ndarray,
    strides: Any = 1,
    padding: Any = "SAME",
    data_format: str = "NHWC",
    dilations: Any = None,
) -> Expected:
    """out[u,v,c,m] = sum x[n, i*sh + u*dh - top, j*sw + v*dw - left, c] * g[n,i,j,c*M+m]."""
    rows, columns = reference.axes(sizes, strides, padding, data_format, dilations)
    if data_format == "NCHW":
        x, g = np.moveaxis(x, 1, 3), np.moveaxis(g, 1, 3)
    _, height, width, channels = x.shape

    def operation(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        g = g.reshape(*g.shape[:3], channels, -1)
        out = np.zeros((*sizes[:2], channels, g.shape[4]), np.longdouble)
        for u, i, there in _places(rows, height):
            for v, j, across in _places(columns, width):
                met = x[:, there][:, :, across]
                out[u, v] = (met[..., None] * g[:, i][:, :, j]).sum(axis=(0, 1, 2))
        return out.astype(np.float64)

    with np.errstate(all="ignore"):
        return Expected(operation(_wide(x), _wide(g)), operation(np.abs(_wide(x)), np.abs(_wide(g))))
