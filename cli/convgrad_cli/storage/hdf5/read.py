"""Reading a dataset of an HDF5 file part by part."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5s, h5t

from convgrad_cli.address import Address
from convgrad_cli.errors import StorageError
from convgrad_cli.interrupts import check
from convgrad_cli.storage.elements import is_bfloat16, read_dtype
from convgrad_cli.storage.failures import storage_errors
from convgrad_cli.storage.protocols import Source, box, pieces

from .elsewhere import require_sources
from .file import open_hdf5
from .filters import require_filters
from .find import find_dataset
from .types import element_dtype

if TYPE_CHECKING:
    from convgrad_cli.storage.protocols import Array

_PIECE_BYTES = 1 << 24
_MATLAB_NOTE = "MATLAB v7.3 stores axes in reverse order; --reverse-axes reads them as MATLAB shows them"


class Hdf5Source(Source):
    """A dataset: contiguous, chunked, compressed or virtual; reached directly or through links.

    Parameters
    ----------
    address : Address
        The dataset may be left out where the file holds exactly one.
    as_bfloat16 : bool
        Whether two-byte opaque or uint16 data is bfloat16; other data is read as it is.

    Raises
    ------
    AddressError
        The address names no dataset.
    StorageError
        The file or something the dataset needs is damaged or missing, or its elements are not numbers.
    """

    def __init__(self, address: Address, *, as_bfloat16: bool) -> None:
        self._file = open_hdf5(address.file, str(address))
        try:
            with storage_errors(str(address), "cannot be read"):
                self._descriptor = self._file.id.get_vfd_handle()
                self._size = os.fstat(self._descriptor).st_size
                self._open_dataset(address, as_bfloat16)
        except BaseException:
            self._file.close()
            raise

    def _open_dataset(self, address: Address, as_bfloat16: bool) -> None:
        dataset, address = find_dataset(self._file, address)
        self._dataset = dataset
        self.address = str(address)
        if dataset.shape is None:
            raise StorageError(f"{address}: dataset is empty (null dataspace)")
        stored = element_dtype(dataset, self.address)
        require_filters(dataset, self.address)
        require_sources(dataset, self.address)
        self._stored = stored
        self._raw_bits = is_bfloat16(stored)
        self.shape = dataset.shape
        self.dtype = read_dtype(stored, as_bfloat16=as_bfloat16)
        self.chunks = dataset.chunks
        self.matlab = _is_matlab(dataset)
        self.notes = (f"{address}: {_MATLAB_NOTE}",) if self.matlab else ()

    def __getitem__(self, key: Any) -> Array:
        array = np.empty(tuple(map(len, box(key, self.shape))), self.dtype)
        self.read_into(key, array)
        return array

    def read_into(self, key: Any, out: Array) -> None:
        """Fill a C-contiguous array of this dtype with a part."""
        part = box(key, self.shape)
        with storage_errors(self.address, "cannot be read"):
            # In pieces of whole chunks, between which an interrupt is heard: decompressing takes its time.
            for piece, place in pieces(part, self.chunks, _PIECE_BYTES // out.itemsize) if out.size else ():
                check()
                if self._raw_bits:
                    self._read_bits(piece, out[place].view(np.uint16))
                else:
                    where = tuple(slice(one.start, one.stop) for one in piece)
                    self._dataset.read_direct(out[place].view(self._stored.newbyteorder("=")), where)
            size = os.fstat(self._descriptor).st_size
        # HDF5 reads zeros where a file has ended meanwhile.
        if size < self._size:
            raise StorageError(
                f"{self.address} became shorter while it was read: {self._size} bytes before, now {size}"
            )

    def _read_bits(self, part: tuple[range, ...], out: Array) -> None:
        """Read the bits of stored bfloat16 elements, past h5py's and HDF5's conversions."""
        stored = self._dataset.id.get_type()
        selection = self._dataset.id.get_space()
        selection.select_hyperslab(tuple(one.start for one in part), out.shape)
        self._dataset.id.read(h5s.create_simple(out.shape), selection, out, mtype=stored)
        if (stored.get_order() == h5t.ORDER_BE) != (sys.byteorder == "big"):
            out.byteswap(inplace=True)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _is_matlab(dataset: h5py.Dataset) -> bool:
    if "MATLAB_class" in dataset.attrs:
        return True
    # MATLAB introduces itself in the block before the HDF5 data.
    with open(dataset.file.filename, "rb") as file:
        return file.read(10) == b"MATLAB 7.3"
