"""Opening an HDF5 file to read it, and saying in plain words why that failed."""

from __future__ import annotations

import re
from os import PathLike

import h5py

from convgrad_cli.errors import StorageError
from convgrad_cli.storage.failures import reason

_TRUNCATED = re.compile(r"eof = (\d+), sblock->base_addr = (\d+), stored_eof = (\d+)")


def open_hdf5(path: str | PathLike[str], label: str, *, to_change: bool = False) -> h5py.File:
    """Open read-only: a writer is kept out where the file system can lock, other readers are not.

    Parameters
    ----------
    path : str or path
        The file.
    label : str
        Address or file name as the user gave it, for the error message.
    to_change : bool
        Whether the file will be replaced: then another writer's lock is not to be got round.

    Raises
    ------
    StorageError
        The file is truncated, damaged, not closed, or another process writes to it.
    """
    try:
        return h5py.File(path, "r", locking="best-effort")
    except OSError as error:
        raise _explain(error, label, to_change) from error


def _explain(error: OSError, label: str, to_change: bool) -> StorageError:
    text = str(error)
    if match := _TRUNCATED.search(text):
        end, base, stored_end = map(int, match.groups())
        return StorageError(
            f"{label} is truncated: HDF5 header promises {stored_end} bytes, found {base + end}"
        )
    if "unable to lock file" in text:
        # EAGAIN: somebody holds the lock. Anything else: the file system has none to give.
        busy = isinstance(error, BlockingIOError)
        cause = "another process has it open for writing" if busy else "the file system cannot lock it"
        unlocked = "HDF5_USE_FILE_LOCKING=FALSE in the environment reads it without a lock"
        return StorageError(f"{label}: {cause}", hint=None if to_change and busy else unlocked)
    if "already open for write" in text:
        return StorageError(
            f"{label}: still being written, or its writer ended without closing it",
            hint="if nothing writes to it any more, `h5clear -s FILE` clears the mark",
        )
    return StorageError(f"{label}: damaged HDF5 file: {reason(error)}")
