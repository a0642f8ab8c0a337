"""How one element lies in a file and in memory: byte order, and bfloat16 as its 16 raw bits.

Little-endian is what is written. A two-byte void, the form of bfloat16 in .npy, has no byte order of its own
and is little-endian too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from convgrad_cli.errors import AddressError

if TYPE_CHECKING:
    from .protocols import Array, DType


def bfloat16_dtype() -> DType:
    """ml_dtypes' bfloat16; imported here, so that no other job pays for it."""
    import ml_dtypes

    dtype: DType = np.dtype(ml_dtypes.bfloat16)
    return dtype


def is_bfloat16(dtype: DType) -> bool:
    """Whether a dtype is bfloat16, asked without importing ml_dtypes."""
    return dtype.name == "bfloat16"


def read_dtype(stored: DType, address: str, *, as_bfloat16: bool) -> DType:
    """Native dtype of the blocks read from elements stored as `stored`.

    Parameters
    ----------
    stored : numpy.dtype
        As in the file, either byte order.
    address : str
        For the error message.
    as_bfloat16 : bool
        Whether two-byte void or uint16 data holds the bits of bfloat16 numbers.

    Raises
    ------
    AddressError
        `as_bfloat16` with data of any other dtype.
    """
    if not as_bfloat16 or is_bfloat16(stored):
        return stored.newbyteorder("=")
    if stored.itemsize == 2 and stored.kind in "uV":
        return bfloat16_dtype()
    raise AddressError(
        f"{address}: --as bfloat16 reads 2-byte void or uint16 data; this is {stored.name}",
        hint="--cast bfloat16 converts numbers of another dtype",
    )


def from_disk(block: Array, dtype: DType) -> Array:
    """A block just read, in native byte order and as `dtype` of the same size, in the memory it has."""
    if block.dtype.kind == "V" and is_bfloat16(dtype):
        block = block.view("<u2")
    if not block.dtype.isnative:
        block = block.byteswap(inplace=True).view(block.dtype.newbyteorder("="))
    return block.view(dtype)


def to_disk(block: Array) -> Array:
    """A block as it is written: C order, little-endian, bfloat16 as uint16 bits."""
    block = np.ascontiguousarray(block)
    if is_bfloat16(block.dtype):
        block = block.view(np.uint16)
    return block.astype(block.dtype.newbyteorder("<"), copy=False)
