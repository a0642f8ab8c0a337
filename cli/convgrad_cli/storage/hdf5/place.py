"""Whether a dataset may be created at a path inside an existing HDF5 file."""

from __future__ import annotations

import h5py

from convgrad_cli.address import Address
from convgrad_cli.errors import AddressError, OutputExistsError


def check_dataset(file: h5py.File, address: Address, *, overwrite: bool, append: bool) -> None:
    """Refuse a path that leads through or names something that must stay.

    Parameters
    ----------
    file : h5py.File
        The existing file.
    address : Address
        The dataset to be written.
    overwrite, append : bool
        Whether an existing dataset may be replaced; whether one may be added.

    Raises
    ------
    AddressError
        The path runs through a dataset, a broken link or into another file, or it names a group.
    OutputExistsError
        The file, or the dataset, exists and may not be changed.
    """
    if not (overwrite or append):
        raise OutputExistsError(
            f"{address}: {address.file} exists already",
            hint="--append adds the dataset; --overwrite replaces it, and all else in the file stays",
        )
    parts = address.parts
    if not parts:
        raise AddressError(f"{address}: names a group, expected a dataset")
    group: h5py.Group = file
    for part in parts[:-1]:
        if _link(group, part) is None:
            return  # the groups from here on are made
        found = _follow(group, part)
        if found is None:
            raise AddressError(f"{address}: the link {part!r} in {group.name} is broken")
        if not isinstance(found, h5py.Group):
            raise AddressError(f"{address}: {found.name} is a dataset, nothing can be below it")
        if found.file.filename != file.filename:
            raise AddressError(f"{address}: {part!r} is a link into another file, {found.file.filename}")
        group = found
    if _link(group, parts[-1]) is None:
        return
    found = _follow(group, parts[-1])
    if found is not None and not isinstance(found, h5py.Dataset):
        raise AddressError(f"{address}: names a group or a datatype, expected a dataset")
    if not overwrite:
        raise OutputExistsError(f"{address}: exists already", hint="add --overwrite to replace it")


def is_all_there_is(file: h5py.File, address: Address) -> bool:
    """Whether the file holds the dataset, the groups that lead to it, and nothing else worth keeping."""
    item: h5py.HLObject | None = file
    if file.userblock_size:
        return False
    for part in address.parts:
        if not isinstance(item, h5py.Group) or len(item) != 1 or len(item.attrs):
            return False
        if not isinstance(_link(item, part), h5py.HardLink):
            return False
        item = _follow(item, part)
    return isinstance(item, h5py.Dataset)


def _link(group: h5py.Group, name: str) -> object | None:
    link: object | None = group.get(name, getlink=True)
    return link


def _follow(group: h5py.Group, name: str) -> h5py.HLObject | None:
    """The object a link leads to; None where it leads nowhere."""
    try:
        return group[name]
    except (KeyError, OSError):
        return None
