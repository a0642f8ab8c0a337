"""The four dtypes: recognised by name, widened exactly, rounded once.

float32 holds every product of two float16 or bfloat16 values exactly, float64 that of two float32 values too,
and their sums neither overflow nor underflow there. Sums are kept in float32 where the operands are no wider;
what float32 could not hold is computed again in float64. The only rounding to a narrower dtype is the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DTypeError

NAMES = ("float16", "bfloat16", "float32", "float64")

Float64 = npt.NDArray[np.float64]


def dtype_from_name(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype for one of `NAMES`.

    Raises
    ------
    DTypeError
        If the name is not one of them.
    """
    if name not in NAMES:
        raise DTypeError(f"dtype: must be one of {', '.join(NAMES)}, got {name}")
    if name == "bfloat16":
        # Imported when needed only: most jobs do without it.
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def supported(argument: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return `dtype` in native byte order.

    Raises
    ------
    DTypeError
        If it is not one of `NAMES`; the message names `argument`.
    """
    if dtype.name in NAMES:
        native: np.dtype[Any] = dtype.newbyteorder("=")
        return native
    hint = None
    if dtype.kind in "iub":
        hint = "cast it to a floating-point dtype first (--cast float32 on the command line)"
        if dtype.kind == "u" and dtype.itemsize == 2:
            hint += ", or say that it holds bfloat16 (--as bfloat16)"
    elif dtype.kind == "V" and dtype.itemsize == 2:
        hint = "if these 2-byte values are bfloat16, say so (--as bfloat16 on the command line)"
    name = "2-byte void" if dtype == np.dtype("V2") else dtype.name
    raise DTypeError(f"{argument}: dtype {name} is not one of {', '.join(NAMES)}", hint=hint)


def common(first: tuple[str, np.dtype[Any]], second: tuple[str, np.dtype[Any]]) -> np.dtype[Any]:
    """Return the one supported dtype that both operands have.

    Parameters
    ----------
    first, second : (argument name, dtype)

    Raises
    ------
    DTypeError
        If either is not supported or the two differ: nothing is promoted silently.
    """
    one, other = supported(*first), supported(*second)
    if one != other:
        raise DTypeError(
            f"{second[0]}: dtype {other.name} differs from {first[0]}'s {one.name}",
            hint="cast both to one dtype first (--cast DTYPE on the command line)",
        )
    return one


def to_float64(array: npt.NDArray[Any]) -> Float64:
    """Return a C-contiguous float64 copy of `array`, exact for every supported dtype."""
    result = np.empty(array.shape, np.float64)
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
        np.copyto(result, array, casting="unsafe")
    return result


def convert(out: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copy `source` to `out`, exactly; float16 to float32 four times as fast as NumPy does.

    Parameters
    ----------
    out : float32 or float64, any strides
    source : same shape, any supported dtype no wider than `out`, any strides
    """
    fast = out.dtype == np.float32 and source.dtype == np.float16 and source.dtype.isnative
    if not fast or source.ndim == 0 or source.strides[-1] != 2 or out.strides[-1] != 4:
        np.copyto(out, source, casting="unsafe")
        return
    # Sign, exponent and fraction where float32 has them; the product makes up for the exponent's bias, and
    # makes normal numbers of subnormal ones.
    bits = out.view(np.int32)
    np.copyto(bits, source.view(np.int16))
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, np.int32(-0x70002000), out=bits)
    np.multiply(out, np.float32(2.0**112), out=out)
    # The exponent of inf and NaN has become an ordinary one.
    if out.size and max(out.max(), -out.min()) >= 2.0**16:
        np.copyto(out, source)


def round_to(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Round `values` once, to nearest even, to `dtype`.

    Parameters
    ----------
    values : float32 or float64 array of any shape
    dtype : one of the four supported dtypes

    Returns
    -------
    array of `dtype`, same shape; values beyond its range are ±inf.
    """
    if dtype.name == "bfloat16":
        if values.dtype == np.float32:
            return _to_bfloat16(np.atleast_1d(values)).reshape(values.shape).view(dtype)
        return _bfloat16_bits(values).view(dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(dtype)


def _bfloat16_bits(values: Float64) -> npt.NDArray[np.uint16]:
    """Round float64 to bfloat16 bit patterns, to nearest even.

    Going through float32 rounds twice, which is wrong exactly when the first rounding lands on a tie
    of the second (low half 0x8000) from one side. Those few are moved back off the tie first.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = np.atleast_1d(values).astype(np.float32)
    bits = single.view(np.uint32).copy()
    tie = np.flatnonzero((bits & 0xFFFF) == 0x8000)
    if tie.size:
        true = np.abs(np.atleast_1d(values).ravel()[tie])
        rounded = np.abs(single.ravel()[tie].astype(np.float64))
        off = (true > rounded).astype(np.int64) - (true < rounded)
        bits.ravel()[tie] = (bits.ravel()[tie] + off).astype(np.uint32)
    nudged = bits.view(np.float32)
    return _to_bfloat16(nudged).reshape(values.shape)


def _to_bfloat16(single: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16 bit patterns, to nearest even; NaN keeps its sign and is quiet."""
    bits = single.view(np.uint32)
    half = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    nan = np.isnan(single)
    if nan.any():
        half[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x0040
    return half
