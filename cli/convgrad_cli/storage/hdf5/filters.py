"""Compression filters a dataset needs: HDF5 itself only complains about a directory it cannot open."""

from __future__ import annotations

import importlib

import h5py
from h5py import h5z

from convgrad_cli.errors import StorageError

# https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
_NAMES = {
    4: "szip",
    307: "bzip2",
    32000: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32026: "blosc2",
}


def require_filters(dataset: h5py.Dataset, address: str) -> None:
    """Make every filter of a dataset available, with the help of hdf5plugin where it is installed.

    Raises
    ------
    StorageError
        A filter is not available.
    """
    creation = dataset.id.get_create_plist()
    for index in range(creation.get_nfilters()):
        code, _, _, stored_name = creation.get_filter(index)
        if not _is_available(code):
            name = _NAMES.get(code) or stored_name.decode("utf8", "replace") or "unknown"
            raise StorageError(
                f"{address}: compressed with filter {name} (id {code}), which is not installed",
                hint="pip install 'convgrad[hdf5plugin]'",
            )


def _is_available(code: int) -> bool:
    if h5z.filter_avail(code):
        return True
    try:
        importlib.import_module("hdf5plugin")  # registers its filters
    except ImportError:
        return False
    return bool(h5z.filter_avail(code))
