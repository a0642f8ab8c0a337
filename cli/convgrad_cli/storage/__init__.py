"""Arrays in files: `open_source` reads .npy and HDF5, `open_target` writes them.

Nothing outside this package knows the formats. h5py is imported only for an HDF5 file, ml_dtypes only for
bfloat16.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import BinaryIO

from convgrad_cli.address import Address, parse_address
from convgrad_cli.errors import AddressError, StorageError

from .failures import storage_errors
from .protocols import Hdf5Options, Sink, Source, Target
from .signature import is_hdf5

__all__ = ["Hdf5Options", "Sink", "Source", "Target", "open_source", "open_target"]

_HDF5_SUFFIXES = (".h5", ".hdf5", ".he5")


def open_source(text: str, *, as_bfloat16: bool = False) -> Source:
    """Open an array to read: its header now, its data when sliced. The kind is told from the first bytes.

    Parameters
    ----------
    text : str
        Address as the user gave it; `-` is .npy from standard input.
    as_bfloat16 : bool
        Whether two-byte void (or opaque) or uint16 data is bfloat16; other data is read as it is.

    Raises
    ------
    AddressError
        The address does not say which array is meant.
    StorageError
        The file cannot be read, or does not hold a numeric array.
    """
    address = parse_address(text)
    if address.file == "-":
        if not address.is_pipe:
            raise AddressError(f"{address}: standard input carries .npy, which has no datasets")
        return _open_npy(sys.stdin.buffer, address, seekable=False, as_bfloat16=as_bfloat16)
    path = Path(address.file)
    before, colon, after = text.partition(":/")
    if colon and not path.exists() and Path(before).is_file():
        raise StorageError(f"{address}: cannot be read: no such file", hint=f"write {before}::/{after}")
    with storage_errors(str(address), "cannot be read"):
        is_regular = stat.S_ISREG(path.stat().st_mode)
        # Unbuffered: blocks are large, and go straight into the array. The source closes it.
        file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115
    if is_regular and _is_hdf5(file, address):
        file.close()
        from .hdf5.read import Hdf5Source

        return Hdf5Source(address, as_bfloat16=as_bfloat16)
    return _open_npy(file, address, seekable=is_regular, as_bfloat16=as_bfloat16)


def _is_hdf5(file: BinaryIO, address: Address) -> bool:
    with storage_errors(str(address), "cannot be read"):
        found = is_hdf5(file)
        file.seek(0)
    return found


def _open_npy(file: BinaryIO, address: Address, *, seekable: bool, as_bfloat16: bool) -> Source:
    from .npy.read import open_npy

    try:
        with storage_errors(str(address), "cannot be read"):
            source = open_npy(file, str(address), seekable=seekable, as_bfloat16=as_bfloat16)
        if address.dataset is not None:
            raise AddressError(f"{address}: {address.file} is a .npy file, which has no datasets")
    except BaseException:
        file.close()
        raise
    return source


def open_target(
    text: str, *, overwrite: bool = False, append: bool = False, hdf5: Hdf5Options | None = None
) -> Target:
    """Check an output address; `FILE::dataset` will be HDF5, `FILE` and `-` .npy. Nothing is written yet.

    Parameters
    ----------
    text : str
        Address as the user gave it; the file gets exactly that name.
    overwrite : bool
        Whether to replace a .npy file, or a dataset, that is there.
    append : bool
        Whether to add the dataset to an HDF5 file that is there.
    hdf5 : Hdf5Options, optional
        Layout of the dataset.

    Raises
    ------
    AddressError
        The address cannot be written, or an option does not fit it.
    OutputExistsError
        It exists, and no option allows changing it.
    StorageError
        An existing HDF5 file cannot be read.
    """
    address = parse_address(text)
    options = hdf5 or Hdf5Options()
    if address.dataset is not None:
        return _hdf5_target(address, overwrite, append, options)
    if Path(address.file).suffix.lower() in _HDF5_SUFFIXES:
        raise AddressError(
            f"{address}: an HDF5 file needs a dataset path",
            hint=f"write {address.file}::/name, or give a .npy file another suffix",
        )
    if append:
        raise AddressError(f"{address}: --append adds to HDF5 files (FILE.h5::/name), and this is .npy")
    if options.flags:
        flags = ", ".join(options.flags)
        raise AddressError(f"{address}: {flags} is for HDF5 files (FILE.h5::/name), and this is .npy")
    from .npy.write import NpyTarget

    target = NpyTarget(address, overwrite)
    target.check()
    return target


def _hdf5_target(address: Address, overwrite: bool, append: bool, options: Hdf5Options) -> Target:
    if address.file == "-":
        raise AddressError(f"{address}: standard output carries .npy; HDF5 needs a file")
    from .hdf5.write import Hdf5Target

    target = Hdf5Target(address, overwrite, append, options)
    target.check()
    return target
