"""How one element lies in a file and in memory: byte order, and bfloat16 as its 16 raw bits.

Little-endian is what is written. A two-byte void, the form of bfloat16 in .npy, has no byte order of its own
and is little-endian too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from convgrad.dtypes import dtype_from_name

if TYPE_CHECKING:
    from .protocols import Array, DType


def is_bfloat16(dtype: DType) -> bool:
    """Whether a dtype is bfloat16, asked without importing ml_dtypes."""
    return dtype.name == "bfloat16"


def read_dtype(stored: DType, *, as_bfloat16: bool) -> DType:
    """Native dtype of the blocks read from elements stored as `stored`.

    Parameters
    ----------
    stored : numpy.dtype
        As in the file, either byte order.
    as_bfloat16 : bool
        Whether two-byte void or uint16 data holds the bits of bfloat16 numbers.
    """
    if as_bfloat16 and stored.itemsize == 2 and stored.kind in "uV" and not is_bfloat16(stored):
        return dtype_from_name("bfloat16")
    return stored.newbyteorder("=")


def from_disk(block: Array, dtype: DType) -> Array:
    """A block just read, in native byte order and as `dtype` of the same size, in the memory it has."""
    if block.dtype.kind == "V" and is_bfloat16(dtype):
        block = block.view("<u2")
    if not block.dtype.isnative:
        block = block.byteswap(inplace=True).view(block.dtype.newbyteorder("="))
    return block.view(dtype)


def swap_bytes(array: Array) -> None:
    """Turn the byte order of every element, in place."""
    # ml_dtypes before 0.5 do not turn their own; 16 bytes are two numbers.
    swapped = array if array.dtype.kind == "c" else array.view(f"u{array.itemsize}")
    swapped.byteswap(inplace=True)


def to_disk(block: Array) -> Array:
    """A block as it is written: C order, little-endian, bfloat16 as uint16 bits."""
    block = np.ascontiguousarray(block)
    if is_bfloat16(block.dtype):
        block = block.view(np.uint16)
    return block.astype(block.dtype.newbyteorder("<"), copy=False)
