"""The two operations, their forward convolutions and the shape rule, written as loops from the equations.

Nothing is shared with the engine and nothing is fast. Every sum is accumulated in `numpy.longdouble`
(64 bits of mantissa on x86), so that it is more exact than what is held against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Padding = str | Sequence[Sequence[int]]
Sizes = int | Sequence[int] | None


class Expected(NamedTuple):
    """An exact result, float64, and the same operation on absolute values."""

    values: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True)
class Axis:
    """One spatial axis: a kernel of size `kernel` slides over the `wide` side and gives the `narrow` side."""

    kernel: int
    stride: int
    dilation: int
    padding: str | tuple[int, int]

    @property
    def window(self) -> int:
        """Effective kernel size."""
        return (self.kernel - 1) * self.dilation + 1

    def narrow(self, wide: int) -> int:
        """Narrow size from the wide one; negative where there is no such convolution."""
        if self.padding == "SAME":
            return -(-wide // self.stride)
        if self.padding == "VALID":
            return -(-(wide - self.window + 1) // self.stride)
        before, after = self.padding
        return (wide + before + after - self.window) // self.stride + 1

    def legal_wide(self, narrow: int) -> range:
        """All wide sizes that give `narrow`, found by trying."""
        limit = narrow * self.stride + self.window + self.stride
        sizes = [wide for wide in range(limit + 1) if self.narrow(wide) == narrow]
        return range(sizes[0], sizes[-1] + 1) if sizes else range(0)

    def default_wide(self, narrow: int) -> int:
        """The wide size when none is asked for."""
        if self.padding == "SAME":
            return narrow * self.stride
        if self.padding == "VALID":
            return narrow * self.stride + max(self.window - self.stride, 0)
        return self.legal_wide(narrow)[0]

    def before(self, wide: int) -> int:
        """Padding before the first element of the wide side."""
        if self.padding == "SAME":
            return max((self.narrow(wide) - 1) * self.stride + self.window - wide, 0) // 2
        return 0 if self.padding == "VALID" else self.padding[0]

    def terms(self, wide: int) -> Iterator[tuple[int, int, int]]:
        """Every (tap, narrow position, wide position) that exists."""
        before = self.before(wide)
        for tap in range(self.kernel):
            for position in range(self.narrow(wide)):
                place = position * self.stride + tap * self.dilation - before
                if 0 <= place < wide:
                    yield tap, position, place


def axes(
    kernel: Sequence[int], strides: Sizes, padding: Padding, data_format: str, dilations: Sizes
) -> tuple[Axis, Axis]:
    """The two spatial axes, rows first."""
    places = (1, 2) if data_format == "NHWC" else (2, 3)

    def both(value: Sizes) -> tuple[int, int]:
        if value is None or isinstance(value, int):
            return (value or 1,) * 2
        return (value[0], value[1]) if len(value) == 2 else (value[places[0]], value[places[1]])

    if isinstance(padding, str):
        pads: list[Any] = [padding.upper()] * 2
    else:
        pads = [tuple(padding[place]) for place in places]
    rows, columns = (
        Axis(int(k), s, d, p)
        for k, s, d, p in zip(kernel[:2], both(strides), both(dilations), pads, strict=True)
    )
    return rows, columns


def _last(array: np.ndarray, data_format: str) -> np.ndarray:
    """The array with channels last, in longdouble."""
    return _wide(array if data_format == "NHWC" else np.moveaxis(array, 1, 3))


def _wide(array: np.ndarray) -> np.ndarray:
    # ml_dtypes' bfloat16 converts to float64 only.
    return np.asarray(array).astype(np.float64).astype(np.longdouble)


def _back(array: np.ndarray, data_format: str) -> np.ndarray:
    return np.asarray(array if data_format == "NHWC" else np.moveaxis(array, 3, 1), np.float64)


def _with_scale(operation: Any, first: np.ndarray, second: np.ndarray) -> Expected:
    with np.errstate(all="ignore"):  # inf - inf is part of the job
        return Expected(operation(first, second), operation(np.abs(_wide(first)), np.abs(_wide(second))))


def transpose(
    input: np.ndarray,
    filters: np.ndarray,
    output_shape: Sequence[int] | None = None,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes = None,
) -> Expected:
    """out[n, i*sh + u*dh - top, j*sw + v*dw - left, o] += input[n,i,j,c] * filters[u,v,o,c]."""
    rows, columns = axes(filters.shape, strides, padding, data_format, dilations)

    def operation(input: np.ndarray, filters: np.ndarray) -> np.ndarray:
        x, w = _last(input, data_format), _wide(filters)
        batch, height, width, _ = x.shape
        if output_shape is None:
            size = rows.default_wide(height), columns.default_wide(width)
        elif len(output_shape) == 2:
            size = output_shape[0], output_shape[1]
        else:
            place = 1 if data_format == "NHWC" else 2
            size = output_shape[place], output_shape[place + 1]
        assert (rows.narrow(size[0]), columns.narrow(size[1])) == (height, width), "an illegal output size"
        out = np.zeros((batch, *size, w.shape[2]), np.longdouble)
        for u, i, row in rows.terms(size[0]):
            for v, j, column in columns.terms(size[1]):
                out[:, row, column] += x[:, i, j] @ w[u, v].T
        return _back(out, data_format)

    return _with_scale(operation, input, filters)


def filter_grad(
    input: np.ndarray,
    filter_sizes: Sequence[int],
    out_backprop: np.ndarray,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes = None,
) -> Expected:
    """out[u,v,c,m] = sum input[n, i*sh + u*dh - top, j*sw + v*dw - left, c] * out_backprop[n,i,j,c*M+m]."""
    rows, columns = axes(filter_sizes, strides, padding, data_format, dilations)

    def operation(input: np.ndarray, out_backprop: np.ndarray) -> np.ndarray:
        x, g = _last(input, data_format), _last(out_backprop, data_format)
        channels = x.shape[3]
        multiplier = filter_sizes[3] if len(filter_sizes) == 4 else g.shape[3] // channels
        narrow = rows.narrow(x.shape[1]), columns.narrow(x.shape[2])
        assert narrow == g.shape[1:3], "an illegal out_backprop"
        g = g.reshape(*g.shape[:3], channels, multiplier)
        out = np.zeros((*filter_sizes[:2], channels, multiplier), np.longdouble)
        for u, i, row in rows.terms(x.shape[1]):
            for v, j, column in columns.terms(x.shape[2]):
                out[u, v] += (x[:, row, column, :, np.newaxis] * g[:, i, j]).sum(axis=0)
        return out.astype(np.float64)

    return _with_scale(operation, input, out_backprop)


def conv2d(
    x: np.ndarray,
    filters: np.ndarray,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes = None,
) -> np.ndarray:
    """y[n,i,j,c] = sum of x[n, i*sh + u*dh - top, j*sw + v*dw - left, o] * filters[u,v,o,c]."""
    rows, columns = axes(filters.shape, strides, padding, data_format, dilations)
    x, w = _last(x, data_format), _wide(filters)
    batch, height, width, _ = x.shape
    y = np.zeros((batch, rows.narrow(height), columns.narrow(width), w.shape[3]), np.longdouble)
    for u, i, row in rows.terms(height):
        for v, j, column in columns.terms(width):
            y[:, i, j] += x[:, row, column] @ w[u, v]
    return _back(y, data_format)


def depthwise_conv2d(
    x: np.ndarray,
    filters: np.ndarray,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes = None,
) -> np.ndarray:
    """y[n,i,j,c*M+m] = sum of x[n, i*sh + u*dh - top, j*sw + v*dw - left, c] * filters[u,v,c,m]."""
    rows, columns = axes(filters.shape, strides, padding, data_format, dilations)
    x, w = _last(x, data_format), _wide(filters)
    batch, height, width, channels = x.shape
    multiplier = w.shape[3]
    y = np.zeros((batch, rows.narrow(height), columns.narrow(width), channels, multiplier), np.longdouble)
    for u, i, row in rows.terms(height):
        for v, j, column in columns.terms(width):
            y[:, i, j] += x[:, row, column, :, np.newaxis] * w[u, v]
    return _back(y.reshape(*y.shape[:3], channels * multiplier), data_format)
