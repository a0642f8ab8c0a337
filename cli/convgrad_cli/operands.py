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

    def __getitem__(self, key: slice, /) -> npt.NDArray[Any]:
        """Return elements start..stop of the first axis."""


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
    as_bfloat16 : read 2-byte void and uint16 as bfloat16
    cast : name of the dtype to convert to, or None
    reverse_axes : reverse the axes of MATLAB's arrays, of both if neither is known to be MATLAB's

    Raises
    ------
    AddressError, StorageError
        As `open_source`; also when both operands are standard input.
    DTypeError
        If an operand cannot be cast.
    """
    if list(addresses.values()).count("-") > 1:
        roles = " and ".join(addresses)
        raise AddressError(f"-: standard input can be one operand, not both {roles}")
    sources: list[Source] = []
    for text in addresses.values():
        sources.append(stack.enter_context(contextlib.closing(open_source(text, as_bfloat16=as_bfloat16))))
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
    """An operand with its axes in reverse order, as MATLAB and Fortran programs store them."""

    def __init__(self, operand: Operand) -> None:
        self._operand = operand
        self._whole: npt.NDArray[Any] | None = None
        self.address = operand.address
        self.shape = operand.shape[::-1]
        self.dtype = operand.dtype
        self.chunks = None
        self.notes = ()
        self.kept_bytes = math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, key: slice, /) -> npt.NDArray[Any]:
        # The first axis here is the last one stored, so any part of it needs a pass over the file.
        if self._whole is None:
            self._whole = self._operand[0 : self._operand.shape[0]].transpose()
        return self._whole[key]


class Cast:
    """An operand converted slice by slice to another dtype, rounded once to nearest even.

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
        self.kept_bytes = operand.kept_bytes

    def __getitem__(self, key: slice, /) -> npt.NDArray[Any]:
        values = self._operand[key]
        if self.dtype.name == "bfloat16":
            return round_to(to_float64(values), self.dtype)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(self.dtype)
