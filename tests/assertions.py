"""The one way results are compared: shape, then dtype, then values within the numeric contract."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def dtype_of(name: str) -> np.dtype:
    """A NumPy dtype from its name, bfloat16 included."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


#: Per dtype: unit of the final rounding, allowance per unit of scale, half the smallest subnormal.
CONTRACT = {
    np.dtype(np.float64): (0.0, 1e-14, 0.0),
    np.dtype(np.float32): (0.0, 1e-6, 2.0**-150),
    np.dtype(np.float16): (2.0**-11, 1e-6, 2.0**-25),
    BFLOAT16: (2.0**-8, 1e-6, 2.0**-134),
}


def assert_matches(
    result: np.ndarray, expected: np.ndarray, scale: np.ndarray, dtype: np.typing.DTypeLike
) -> None:
    """Assert that `result` has the shape of `expected`, the dtype `dtype` and values within the contract.

    NaN and inf must stand where `expected` has them; inf may also stand where the exact value, within its
    allowed error, rounds beyond the largest finite number of the dtype.
    """
    dtype = np.dtype(dtype)
    assert result.shape == expected.shape, f"shape {result.shape}, expected {expected.shape}"
    assert result.dtype == dtype, f"dtype {result.dtype}, expected {dtype}"
    unit, floor, tiny = CONTRACT[dtype]
    got = result.astype(np.float64)
    with np.errstate(all="ignore"):
        allowed = unit * np.abs(expected) + floor * scale + tiny
        error = np.abs(got - expected)
        largest = ml_dtypes.finfo(dtype)
        overflow = float(largest.max) * (1 + float(largest.eps) / 4)
        rounds_to_inf = (
            np.isinf(got) & (np.sign(got) == np.sign(expected)) & (np.abs(expected) + allowed >= overflow)
        )
        same = (got == expected) | (np.isnan(got) & np.isnan(expected)) | rounds_to_inf
        ratio = np.where(same, 0.0, error / np.where(allowed > 0, allowed, np.finfo(float).tiny))
        ratio = np.where(np.isfinite(got) & np.isfinite(expected) | same, ratio, np.inf)
    if not (ratio <= 1).all():
        worst = np.unravel_index(np.argmax(ratio), ratio.shape)
        raise AssertionError(
            f"{np.count_nonzero(~(ratio <= 1))} of {ratio.size} values are out of bounds; the worst is "
            f"{ratio[worst]:.3g} times the allowed error at {tuple(map(int, worst))}: got {got[worst]!r}, "
            f"expected {expected[worst]!r} ± {allowed[worst]:.3g}, scale {scale[worst]:.3g}"
        )
