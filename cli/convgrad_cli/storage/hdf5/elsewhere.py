"""Data a dataset keeps elsewhere: virtual sources and raw files. HDF5 reads zeros where they are missing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import h5py

from convgrad_cli.errors import StorageError
from convgrad_cli.storage.failures import storage_errors

from .file import open_hdf5


def require_sources(dataset: h5py.Dataset, address: str) -> None:
    """Check that everything a dataset is put together from is there, through any number of virtual levels.

    Raises
    ------
    StorageError
        A source file or dataset is missing, or a raw file is too short.
    """
    _require(dataset, address, set())


def _require(dataset: h5py.Dataset, address: str, seen: set[tuple[str, str]]) -> None:
    _require_raw_files(dataset, address)
    if not dataset.is_virtual:
        return
    here = dataset.file.filename
    for source in dataset.virtual_sources():
        file_name, name = _first_block(source.file_name), _first_block(source.dset_name)
        path = Path(here) if file_name == "." else _find(file_name, Path(here))
        if path is None:
            raise StorageError(f"{address}: the file of its virtual source {file_name}::{name} is missing")
        if (str(path), name) not in seen:
            seen.add((str(path), name))
            with open_hdf5(path, f"{address}: its virtual source {path}") as file:
                _require_dataset(file, name, address, seen)


def _require_dataset(file: h5py.File, name: str, address: str, seen: set[tuple[str, str]]) -> None:
    try:
        dataset = file[name]
    except (KeyError, OSError):
        dataset = None
    if not isinstance(dataset, h5py.Dataset):
        raise StorageError(f"{address}: its virtual source {file.filename}::{name} is missing")
    _require(dataset, address, seen)


def _first_block(name: str) -> str:
    """A source's name. Where it counts blocks (`%b`), any number of them may be there, from the first on."""
    return re.sub("%[b%]", lambda match: "0" if match[0] == "%b" else "%", name)


def _find(name: str, virtual_file: Path) -> Path | None:
    """Where HDF5 looks: the folder of the virtual file, the working folder, the folder behind a link."""
    folders = [virtual_file.parent, Path(), virtual_file.resolve().parent]
    if prefix := os.environ.get("HDF5_VDS_PREFIX"):
        folders.insert(0, Path(prefix))
    # Joining with an absolute path gives that path; if nothing is there, its last part is looked for.
    names = [name, Path(name).name] if Path(name).is_absolute() else [name]
    return next((folder / each for each in names for folder in folders if (folder / each).is_file()), None)


def _require_raw_files(dataset: h5py.Dataset, address: str) -> None:
    remaining = dataset.size * dataset.id.get_type().get_size() if dataset.external else 0
    for name, offset, size in dataset.external or ():
        path = Path(os.environ.get("HDF5_EXTFILE_PREFIX", "")) / name
        needed = min(size, remaining)
        with storage_errors(address, f"its raw data file {name} cannot be read"):
            found = max(path.stat().st_size - offset, 0)
        if found < needed:
            raise StorageError(
                f"{address}: its raw data file {name} is truncated: {needed} bytes needed, found {found}"
            )
        remaining -= needed
