"""Writing a dataset into an HDF5 file: into a copy of the file, which then takes the file's place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import h5py
from h5py import h5s

from convgrad_cli.address import Address
from convgrad_cli.errors import AddressError
from convgrad_cli.interrupts import check
from convgrad_cli.storage.atomic import check_place, is_written_directly, replacing
from convgrad_cli.storage.elements import is_bfloat16
from convgrad_cli.storage.failures import storage_errors
from convgrad_cli.storage.protocols import Hdf5Options, Sink, pieces
from convgrad_cli.storage.signature import is_hdf5
from convgrad_cli.storage.sink import OrderedSink

from .file import open_hdf5
from .layout import check_options, layout
from .lock import exclusive
from .output import Run, hdf5_output
from .place import check_dataset, is_all_there_is
from .types import bfloat16_type

if TYPE_CHECKING:
    from convgrad_cli.storage.protocols import Array, DType

_PIECE_BYTES = 1 << 24


@dataclass(frozen=True)
class Hdf5Target:
    """A dataset to be written, in a new or an existing HDF5 file.

    Attributes
    ----------
    address : Address
        File and dataset.
    overwrite : bool
        Whether a dataset that is there may be replaced; everything else in the file stays.
    append : bool
        Whether a dataset may be added to a file that is there.
    options : Hdf5Options
        Layout of the dataset.
    """

    keeps_attributes: ClassVar[bool] = True

    address: Address
    overwrite: bool
    append: bool
    options: Hdf5Options

    def check(self) -> None:
        """Find out before anything is computed whether the dataset may be written.

        Raises
        ------
        AddressError
            There is no place for it, or the options contradict one another.
        OutputExistsError
            The file or the dataset exists, and no flag allows changing it.
        StorageError
            The existing file cannot be read.
        """
        check_options(self.options)
        try:
            (self.address.dataset or "").encode()
        except UnicodeEncodeError:
            raise AddressError(
                f"{self.address}: names in HDF5 files are UTF-8, and this one is not"
            ) from None
        check_place(self.address.file, str(self.address))
        if is_written_directly(self.address.file):
            raise AddressError(f"{self.address}: not a regular file, which HDF5 needs")
        with self._existing():
            pass

    @property
    def streams(self) -> bool:
        """HDF5 needs a file."""
        return False

    def check_layout(self, shape: tuple[int, ...]) -> None:
        """Find out whether the options fit the result's sizes.

        Raises
        ------
        AddressError
            The chunks do not fit.
        """
        layout(self.options, shape, str(self.address))

    def chunks(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Chunk sizes of such an array, those of h5py's choice too."""
        keywords = layout(self.options, shape, str(self.address))
        if not keywords:
            return None
        with h5py.File("layout", "w", driver="core", backing_store=False) as file:
            chunks: tuple[int, ...] | None = file.create_dataset("x", shape, "f4", **keywords).chunks
        return chunks

    @contextmanager
    def open(self, shape: tuple[int, ...], dtype: DType, attributes: Mapping[str, str]) -> Iterator[Sink]:
        """Sink for the array's rows; `attributes` become those of the dataset."""
        keywords = layout(self.options, shape, str(self.address))
        name, label = self.address.file, str(self.address)
        # The lock first: what is there now may not be what `check` saw.
        with (
            exclusive(name, label),
            self._existing() as (exists, keep),
            replacing(name, label, overwrite=exists) as temporary,
        ):
            if keep:
                with storage_errors(label, "cannot be copied"):
                    shutil.copyfile(name, temporary)
            with hdf5_output(temporary, label, exists=keep) as (file, run):
                dataset = run(self._create, file, shape, dtype, keywords)
                run(dataset.attrs.update, attributes)
                sink = _Hdf5Sink(dataset, run, shape, dtype)
                yield sink
                sink.finish()

    @contextmanager
    def _existing(self) -> Iterator[tuple[bool, bool]]:
        """Whether the file is there, and whether anything in it must be kept.

        If it is there, it is checked and held open, which keeps other writers out.
        """
        label = str(self.address)
        if not Path(self.address.file).exists():
            yield False, False
            return
        with storage_errors(label, "cannot be read"), open(self.address.file, "rb") as file:
            if not is_hdf5(file):
                raise AddressError(f"{label}: {self.address.file} is there and is not an HDF5 file")
        with open_hdf5(self.address.file, label, to_change=True) as file:
            with storage_errors(label, "cannot be read"):
                check_dataset(file, self.address, overwrite=self.overwrite, append=self.append)
                # HDF5 does not shrink a file: alone in it, a dataset made again and again would make it grow.
                keep = not is_all_there_is(file, self.address)
            yield True, keep

    def _create(
        self, file: h5py.File, shape: tuple[int, ...], dtype: DType, keywords: Mapping[str, Any]
    ) -> h5py.Dataset:
        path = "/".join(self.address.parts)  # HDF5 creates nothing under an empty name
        if file.get(path, getlink=True) is not None:
            del file[path]
        stored = h5py.Datatype(bfloat16_type()) if is_bfloat16(dtype) else dtype.newbyteorder("<")
        try:
            return file.create_dataset(path, shape, stored, track_times=False, **keywords)
        except (ValueError, TypeError) as error:  # a layout that only HDF5 itself knows to be impossible
            raise AddressError(f"{self.address}: {error}") from error


class _Hdf5Sink(OrderedSink):
    def __init__(self, dataset: h5py.Dataset, run: Run, shape: tuple[int, ...], dtype: DType) -> None:
        super().__init__(shape, dtype)
        self._dataset = dataset.id
        self.chunks = dataset.chunks
        self._run = run

    def _write(self, part: tuple[range, ...], axis: int, block: Array) -> None:
        # In pieces of whole chunks, between which an interrupt is heard: compressing takes its time.
        for piece, place in pieces(part, self.chunks, _PIECE_BYTES // block.itemsize):
            check()
            self._write_piece(piece, block[place])

    def _write_piece(self, part: tuple[range, ...], block: Array) -> None:
        memory = h5s.create_simple(block.shape)
        selection = self._dataset.get_space()
        selection.select_hyperslab(tuple(one.start for one in part), block.shape)
        # The stored type as the type in memory: the bytes go to disk as they are.
        self._run(self._dataset.write, memory, selection, block, self._dataset.get_type())
