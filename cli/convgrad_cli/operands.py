"""The two operands of a job: opened, read as asked, cast if asked."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from convgrad import DTypeError
from convgrad.dtypes import dtype_from_name, round_to, to_float64

from .errors import AddressError
from .storage import Source, open_source
from .storage.protocols import box, pieces

#: Elements converted at a time, so that a cast needs little more than its result.
_PIECE = 2**20


class Operand(Protocol):
    """A source that the engine can read, with its address for display."""

    @property
    def address(self) -> str:
        """Address in full, pasteable."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Chunk sizes of an HDF5 dataset."""

    @property
    def kept_bytes(self) -> int:
        """Bytes held in memory once anything has been read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told."""

    def __getitem__(self, key: Any, /) -> npt.NDArray[Any]:
        """Return a part: a slice of the first axis, or slices of some leading axes."""


def open_operands(
    addresses: dict[str, str],
    *,
    as_bfloat16: bool,
    cast: str | None,
    reverse_axes: bool,
    stack: contextlib.ExitStack,
) -> tuple[Operand, Operand]:
    """Open both operands; they are closed with `stack`.

    Parameters
    ----------
    addresses : address of each role, in the operation's order
    as_bfloat16 : read 2-byte void and uint16 as bfloat16, where there is any
    cast : name of the dtype to convert to, or None
    reverse_axes : reverse the axes of MATLAB's arrays, of both if neither is known to be MATLAB's

    Raises
    ------
    AddressError, StorageError
        As `open_source`; also when both operands are standard input, or `as_bfloat16` fits neither.
    DTypeError
        If an operand cannot be cast.
    """
    if list(addresses.values()).count("-") > 1:
        roles = " and ".join(addresses)
        raise AddressError(f"-: standard input can be one operand, not both {roles}")
    sources: list[Source] = []
    for text in addresses.values():
        sources.append(stack.enter_context(contextlib.closing(open_source(text, as_bfloat16=as_bfloat16))))
    if as_bfloat16 and not any(source.dtype.name == "bfloat16" for source in sources):
        found = " and ".join(
            f"{role} is {source.dtype.name}" for role, source in zip(addresses, sources, strict=True)
        )
        raise AddressError(
            f"{sources[0].address}: --as bfloat16 reads 2-byte void or uint16 data; {found}",
            hint="--cast bfloat16 converts numbers of another dtype",
        )
    from_matlab = any(source.matlab for source in sources)
    opened: list[Operand] = []
    for role, source in zip(addresses, sources, strict=True):
        operand: Operand = source
        if reverse_axes and (source.matlab or not from_matlab):
            operand = Reversed(operand)
        if cast is not None:
            operand = Cast(operand, role, dtype_from_name(cast))
        opened.append(operand)
    return opened[0], opened[1]


class Reversed:
    """An operand with its axes in reverse order, as MATLAB and Fortran programs store them.

    The first axis here is the last one stored. Where chunks make that no matter it is read part by part;
    otherwise any part would need a pass over the file, and it is read whole.
    """

    def __init__(self, operand: Operand) -> None:
        self._operand = operand
        self._whole: npt.NDArray[Any] | None = None
        self.address = operand.address
        self.shape = operand.shape[::-1]
        self.dtype = operand.dtype
        self.chunks = operand.chunks[::-1] if operand.chunks else None
        self.notes = ()
        self.kept_bytes = 0 if self.chunks else math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, key: Any, /) -> npt.NDArray[Any]:
        part = tuple(slice(one.start, one.stop) for one in box(key, self.shape))
        if self.chunks:
            return self._operand[part[::-1]].transpose()
        if self._whole is None:
            self._whole = self._operand[0 : self._operand.shape[0]].transpose()
        return self._whole[part]


class Cast:
    """An operand converted to another dtype, each number rounded once, to nearest even.

    Integers beyond 2^53 reach bfloat16 by way of float64.

    Raises
    ------
    DTypeError
        If its dtype is not a real number's.
    """

    def __init__(self, operand: Operand, role: str, dtype: np.dtype[Any]) -> None:
        if operand.dtype.kind not in "fiub" and operand.dtype.name != "bfloat16":
            hint = "if these 2-byte values are bfloat16, add --as bfloat16" if operand.dtype == "V2" else None
            raise DTypeError(f"{role}: {operand.dtype.name} cannot be cast to {dtype.name}", hint=hint)
        self._operand = operand
        self.address = operand.address
        self.shape = operand.shape
        self.dtype = dtype
        self.chunks = operand.chunks
        self.notes = operand.notes
        self.kept_bytes = operand.kept_bytes + _PIECE * (operand.dtype.itemsize + 4 * 8)

    def __getitem__(self, key: Any, /) -> npt.NDArray[Any]:
        result = np.empty(tuple(map(len, box(key, self.shape))), self.dtype)
        self.read_into(key, result)
        return result

    def read_into(self, key: Any, out: npt.NDArray[Any]) -> None:
        """Fill a C-contiguous array of this dtype with a part."""
        for part, place in pieces(box(key, self.shape), self.chunks, _PIECE):
            values = self._operand[tuple(slice(one.start, one.stop) for one in part)]
            values, converted = np.ascontiguousarray(values).reshape(-1), out[place].reshape(-1)
            for at in range(0, values.size, _PIECE):
                converted[at : at + _PIECE] = self._converted(values[at : at + _PIECE])

    def _converted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.dtype.name == "bfloat16":
            return round_to(to_float64(values), self.dtype)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(self.dtype)
