"""Writing .npy: version 1.0, C order, little-endian; to a file all at once, or straight into a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, ClassVar

import numpy as np

from convgrad_cli.address import Address
from convgrad_cli.errors import AddressError, OutputExistsError
from convgrad_cli.storage.atomic import OVERWRITE_HINT, check_place, is_written_directly, replacing
from convgrad_cli.storage.elements import is_bfloat16
from convgrad_cli.storage.failures import storage_errors
from convgrad_cli.storage.protocols import Sink, runs
from convgrad_cli.storage.signature import is_hdf5
from convgrad_cli.storage.sink import OrderedSink

if TYPE_CHECKING:
    from convgrad_cli.storage.protocols import Array, DType


@dataclass(frozen=True)
class NpyTarget:
    """A .npy file to be written.

    Attributes
    ----------
    address : Address
        The file, or `-` for standard output.
    overwrite : bool
        Whether a file that is there may be replaced.
    """

    keeps_attributes: ClassVar[bool] = False

    address: Address
    overwrite: bool

    @property
    def streams(self) -> bool:
        """Whether it is standard output, a pipe or a device."""
        return self.address.is_pipe or is_written_directly(self.address.file)

    def check(self) -> None:
        """Find out before anything is computed whether the file may be written.

        Raises
        ------
        AddressError
            There is no place for it, or an HDF5 file in its place.
        OutputExistsError
            It exists, and may not be overwritten.
        """
        if self.streams:
            return
        file = self.address.file
        check_place(file, str(self.address))
        try:
            with open(file, "rb") as existing:
                holds_datasets = is_hdf5(existing)
        except FileNotFoundError:
            return
        except PermissionError:  # not to be read, but the folder allows replacing it
            holds_datasets = False
        if holds_datasets:
            raise AddressError(
                f"{self.address}: is an HDF5 file, which a .npy file would replace with all it holds",
                hint=f"write {file}::/dataset, or remove the file first",
            )
        if not self.overwrite:
            raise OutputExistsError(f"{self.address}: exists already", hint=OVERWRITE_HINT)

    def check_layout(self, shape: tuple[int, ...]) -> None:
        """There is only one layout."""

    def chunks(self, shape: tuple[int, ...]) -> None:
        """There are none."""

    @contextmanager
    def open(self, shape: tuple[int, ...], dtype: DType, attributes: Mapping[str, str]) -> Iterator[Sink]:
        """Sink for the array's rows. A .npy file has no place for attributes."""
        with self._file() as file:
            sink = _NpySink(file, str(self.address), shape, dtype, in_order=self.streams)
            yield sink
            sink.finish()

    @contextmanager
    def _file(self) -> Iterator[BinaryIO]:
        # Unbuffered: nothing is left to be written, and to fail, when the file is closed.
        name, label = self.address.file, str(self.address)
        if self.address.is_pipe:
            yield sys.stdout.buffer
            with storage_errors(label, "cannot be written"):
                sys.stdout.buffer.flush()
        elif self.streams:
            with storage_errors(label, "cannot be written"):
                stream = open(name, "wb", buffering=0)  # noqa: SIM115
            with stream:
                yield stream
        else:
            with (
                replacing(name, label, overwrite=self.overwrite) as temporary,
                open(temporary, "wb", buffering=0) as file,
            ):
                yield file


class _NpySink(OrderedSink):
    def __init__(
        self, file: BinaryIO, label: str, shape: tuple[int, ...], dtype: DType, *, in_order: bool
    ) -> None:
        super().__init__(shape, dtype)
        self._file = file
        self._label = label
        self._in_order = in_order
        header = _header(shape, dtype)
        self._start = len(header)
        self._written = 0
        self._write_all(memoryview(header), 0)

    def _write(self, part: tuple[range, ...], axis: int, block: Array) -> None:
        data = block.reshape(-1).view(np.uint8).data
        length, places = runs(part, self.shape)
        size = block.itemsize
        for number, place in enumerate(places):
            run = data[number * length * size : (number + 1) * length * size]
            self._write_all(run, self._start + place * size)

    def _write_all(self, data: memoryview, place: int) -> None:
        if self._in_order and place != self._written:
            raise ValueError(f"a stream has no way back to byte {place} from {self._written}")
        self._written = place + len(data)
        with storage_errors(self._label, "cannot be written"):
            while data:  # one write takes at most 2 GiB, and what a full disk still has room for
                if self._in_order:
                    done = self._file.write(data)
                else:
                    done = os.pwrite(self._file.fileno(), data, place)
                data, place = data[done:], place + done


def _header(shape: tuple[int, ...], dtype: DType) -> bytes:
    """What `numpy.save` would begin with: bfloat16, which .npy has no name for, is `<V2`."""
    descr = "<V2" if is_bfloat16(dtype) else dtype.newbyteorder("<").str
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue()
