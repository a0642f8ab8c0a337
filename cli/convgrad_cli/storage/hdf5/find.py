"""Finding the dataset an address means, and saying what there is instead when it means none."""

from __future__ import annotations

import difflib
import shlex

import h5py

from convgrad.errors import ConvgradError
from convgrad_cli.address import Address
from convgrad_cli.errors import AddressError, StorageError
from convgrad_cli.storage.failures import reason

from .types import element_name

_MOST_LISTED = 20


def find_dataset(file: h5py.File, address: Address) -> tuple[h5py.Dataset, Address]:
    """Dataset an address names, and the address with its dataset filled in.

    Raises
    ------
    AddressError
        The address names no dataset, or leaves it out where the file holds none or several.
    StorageError
        The way to the dataset leads through a link that is broken.
    """
    if address.dataset is None:
        try:
            paths = dataset_paths(file)
        except (KeyError, RuntimeError) as error:
            raise StorageError(f"{address}: damaged HDF5 file: {reason(error)}") from error
        if len(paths) != 1:
            raise _listing(file, address, "the file")
        address = Address(address.file, paths[0])
    try:
        found = file[address.dataset]
    except (KeyError, OSError, ValueError):
        raise _why_not_found(file, address) from None
    if isinstance(found, h5py.Group):
        raise _listing(found, address, "a group")
    if not isinstance(found, h5py.Dataset):
        raise AddressError(f"{address}: a named datatype, expected a dataset")
    return found, address


def dataset_paths(group: h5py.Group) -> list[str]:
    """Paths of all datasets below a group, each once: soft and external links are not followed."""
    prefix = group.name.rstrip("/")
    paths: list[str] = []

    def collect(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            paths.append(f"{prefix}/{name}")

    group.visititems(collect)
    return paths


def _listing(group: h5py.Group, address: Address, what: str) -> AddressError:
    """Error that lists the datasets below a group by addresses that can be pasted back."""
    paths = dataset_paths(group)
    if not paths:
        return AddressError(f"{address}: {what} holds no dataset")
    # Through an external link, paths in the other file go below the address as given.
    prefix, drop = (address.dataset or "").rstrip("/"), len(group.name.rstrip("/"))
    candidates = []
    for path in paths[:_MOST_LISTED]:
        dataset = group.file[path]
        shape = "empty" if dataset.shape is None else dataset.shape
        candidate = shlex.quote(str(Address(address.file, prefix + path[drop:])))
        candidates.append(f"{candidate}  {shape} {element_name(dataset)}")
    if len(paths) > _MOST_LISTED:
        candidates.append(f"... and {len(paths) - _MOST_LISTED} more")
    message = f"{address}: {what} holds {len(paths)} dataset{'s' * (len(paths) > 1)}; name one:"
    return AddressError(message, candidates=candidates)


def _why_not_found(file: h5py.File, address: Address) -> ConvgradError:
    """Walk down the path as far as it goes; the first part that does not open is the reason."""
    item: h5py.HLObject = file
    for part in address.parts:
        if not isinstance(item, h5py.Group):
            return AddressError(f"{address}: {item.name} is a dataset, nothing can be below it")
        try:
            link = item.get(part, getlink=True)
        except ValueError:  # not UTF-8
            link = None
        if link is None:
            return AddressError(f"{address}: no {part!r} in {item.name}", hint=_suggestion(file, address))
        try:
            item = item[part]
        except (KeyError, OSError) as error:
            if isinstance(link, h5py.ExternalLink):
                there = Address(link.filename, link.path)
                return StorageError(f"{address}: external link to {there}, where nothing can be opened")
            if isinstance(link, h5py.SoftLink):
                return StorageError(f"{address}: soft link to {link.path}, where nothing can be opened")
            return StorageError(f"{address}: damaged HDF5 object: {error}")
    return StorageError(f"{address}: cannot be opened")


def _suggestion(file: h5py.File, address: Address) -> str | None:
    """Datasets whose path is close to the one asked for."""
    wanted = "/" + (address.dataset or "").strip("/")
    close = difflib.get_close_matches(wanted, dataset_paths(file))
    return "did you mean " + " or ".join(f"{address.file}::{path}" for path in close) if close else None
