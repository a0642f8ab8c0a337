"""Reading .npy: regular files part by part, pipes and Fortran-ordered files whole."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from convgrad_cli.errors import StorageError
from convgrad_cli.interrupts import check
from convgrad_cli.storage.elements import from_disk, read_dtype, swap_bytes
from convgrad_cli.storage.failures import storage_errors
from convgrad_cli.storage.protocols import Source, box, runs

from .header import NpyHeader, read_header

if TYPE_CHECKING:
    from convgrad_cli.storage.protocols import Array

_PIECE_BYTES, _READ_BYTES = 1 << 20, 1 << 25


def open_npy(file: BinaryIO, address: str, *, seekable: bool, as_bfloat16: bool) -> Source:
    """Source for a .npy file of which only the header is read here.

    Parameters
    ----------
    file : binary file
        At its first byte; the source takes it over.
    address : str
        As the user gave it.
    seekable : bool
        Whether this is a regular file, whose size is known and which can be read in any order.
    as_bfloat16 : bool
        Whether two-byte void or uint16 data is bfloat16.
    """
    header = read_header(file, address)
    if seekable:
        check_size(address, header.data_bytes, os.fstat(file.fileno()).st_size - header.data_start)
    kind = _NpyBlocks if seekable and not header.fortran_order else _NpyWhole
    return kind(file, address, header, as_bfloat16)


def check_size(address: str, promised: int, found: int) -> None:
    """Compare the data's size in bytes with what the header promises.

    Raises
    ------
    StorageError
        Too few bytes, or too many.
    """
    if found < promised:
        raise StorageError(f"{address} is truncated: header promises {promised} bytes of data, found {found}")
    if found > promised:
        raise StorageError(
            f"{address}: header promises {promised} bytes of data, found {found}: "
            f"they are followed by {found - promised} bytes that the header does not account for"
        )


class _Npy(Source):
    """What both ways of reading share."""

    _keeps = False

    def __init__(self, file: BinaryIO, address: str, header: NpyHeader, as_bfloat16: bool) -> None:
        self.address = address
        self.shape = header.shape
        self.dtype = read_dtype(header.dtype, as_bfloat16=as_bfloat16)
        self.chunks = None
        self.matlab = False
        self.notes = ()
        self.kept_bytes = header.data_bytes if self._keeps else 0
        self._file = file
        self._header = header
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class _NpyBlocks(_Npy):
    """C order in a regular file. Not memory-mapped: a file that shrinks is to be an error, not a SIGBUS."""

    def __getitem__(self, key: Any) -> Array:
        array = np.empty(tuple(map(len, box(key, self.shape))), self.dtype)
        self.read_into(key, array)
        return array

    def read_into(self, key: Any, out: Array) -> None:
        """Fill a C-contiguous array of this dtype with a part."""
        if not out.size:
            return
        space = out.reshape(-1).view(np.uint8).data
        length, places = runs(box(key, self.shape), self.shape)
        size = out.itemsize
        with storage_errors(self.address, "cannot be read"):
            for number, place in enumerate(places):
                run = space[number * length * size : (number + 1) * length * size]
                self._fill(run, self._header.data_start + place * size)
        if not self._header.dtype.isnative:
            swap_bytes(out)

    def _fill(self, space: memoryview, place: int) -> None:
        # In pieces, between which an interrupt is heard: disks may be slow.
        while space and (more := os.preadv(self._file.fileno(), [space[:_READ_BYTES]], place)):
            check()
            space, place = space[more:], place + more
        if space:
            size = os.fstat(self._file.fileno()).st_size - self._header.data_start
            raise StorageError(
                f"{self.address} became shorter while it was read: "
                f"header promises {self._header.data_bytes} bytes of data, found {size}"
            )


class _NpyWhole(_Npy):
    """A pipe, or a file in Fortran order: read once from front to back when first asked for, then kept."""

    _keeps = True
    _array: Array | None = None

    def __getitem__(self, key: Any) -> Array:
        with self._lock, storage_errors(self.address, "cannot be read"):
            if self._array is None:
                self._array = self._read()
        return self._array[tuple(slice(one.start, one.stop) for one in box(key, self.shape))]

    def _read(self) -> Array:
        # Grown piece by piece: through a pipe, a header can promise any size and nothing contradicts it.
        data = bytearray()
        promised = self._header.data_bytes
        while more := self._file.read(min(promised - len(data), _PIECE_BYTES)):
            data += more
        surplus = 0
        while more := self._file.read(_PIECE_BYTES):
            surplus += len(more)
        check_size(self.address, promised, len(data) + surplus)
        flat = np.frombuffer(data, self._header.dtype) if data else np.empty(0, self._header.dtype)
        flat = from_disk(flat, self.dtype)
        array = flat.reshape(self.shape, order="F" if self._header.fortran_order else "C")
        array.setflags(write=False)  # every block is a view of it
        return array
