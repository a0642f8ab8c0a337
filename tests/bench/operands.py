"""Operands of a layer, its result in float64, and how far another result is from it."""

from __future__ import annotations

import functools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from layers import LAYERS, Layer

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return a NumPy dtype by name, bfloat16 too."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


@functools.lru_cache(maxsize=1)  # a worker is asked for all variants of one layer in a row
def operands(name: str, dtype: str) -> tuple[Array, Array]:
    """Return both operands of a layer, channels last: standard normal, the same in every process."""
    layer = LAYERS[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    first, second = (
        rng.standard_normal(shape, dtype=np.float32).astype(numpy_dtype(dtype))
        for shape in (layer.first_shape, layer.second_shape)
    )
    return first, second


def errors(name: str, dtype: str, result: Array, folder: Path) -> dict[str, float]:
    """Return a result's largest error, on the scale of its own terms and on that of the largest result.

    Parameters
    ----------
    result : of the layer's `result_shape`
    folder : where float64 results are kept, so that only the first process computes them
    """
    stored = [folder / f"{name}-{dtype}-{part}.npy" for part in ("exact", "scale")]
    if not stored[-1].exists():
        for path, values in zip(stored, exact(LAYERS[name], *operands(name, dtype)), strict=True):
            np.save(path, values)
    values, scale = (np.load(path, mmap_mode="r") for path in stored)
    difference = np.abs(result.astype(np.float64) - values)
    return {
        "error": float((difference / scale).max()),
        "error_of_largest": float(difference.max() / scale.max()),
    }


def exact(layer: Layer, first: Array, second: Array) -> tuple[Float64, Float64]:
    """Return a layer's result in float64, tap by tap, and the same sums over absolute values."""
    one, other = first.astype(np.float64), second.astype(np.float64)
    compute = _transpose if layer.operation == "transpose" else _filter_grad
    return compute(layer, one, other), compute(layer, np.abs(one), np.abs(other))


def _transpose(layer: Layer, input: Float64, filters: Float64) -> Float64:
    out = np.zeros(layer.result_shape)
    for u in range(layer.kernel):
        i, row = layer.meeting(0, u)
        for v in range(layer.kernel):
            j, column = layer.meeting(1, v)
            out[:, row, column] += input[:, i, j] @ filters[u, v].T
    return out


def _filter_grad(layer: Layer, input: Float64, out_backprop: Float64) -> Float64:
    out = np.zeros(layer.result_shape)
    gradient = out_backprop.reshape(*out_backprop.shape[:3], layer.channels, layer.outputs)
    for u in range(layer.kernel):
        i, row = layer.meeting(0, u)
        for v in range(layer.kernel):
            j, column = layer.meeting(1, v)
            out[u, v] = np.einsum("nijc,nijcm->cm", input[:, row, column], gradient[:, i, j])
    return out
