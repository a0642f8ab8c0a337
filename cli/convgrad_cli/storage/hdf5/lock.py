"""One process at a time may copy, change and replace a file: otherwise what one adds, the other one loses.

The lock is a file of its own beside the target. The target itself will not do: HDF5 keeps a lock on it while
it is open for reading, in this process among others, and the rename would leave the lock on the old file.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convgrad_cli.interrupts import temporaries
from convgrad_cli.storage.atomic import beside, real_path
from convgrad_cli.storage.failures import storage_errors
from convgrad_cli.text import printable


@contextmanager
def exclusive(file: str, label: str) -> Iterator[None]:
    """Wait until no other process is in such a block for the same file; the lock file is gone afterwards.

    Parameters
    ----------
    file : str
        The file to be replaced; it need not exist.
    label : str
        Address as the user gave it.
    """
    path = beside(real_path(file), ".convgrad-lock")
    with storage_errors(label, "cannot be locked"):
        descriptor = _acquire(path, label)
    temporaries.add(str(path))
    try:
        yield
    finally:
        temporaries.discard(str(path))
        # Removed before it is let go, so that nobody can hold the lock of a removed file and believe in it.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, label: str) -> int:
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        # A file system without locks is used without them, as HDF5 does.
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(
                    f"Note: {printable(label)}: waiting for another job to finish with the file",
                    file=sys.stderr,
                )
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_still_there(path, descriptor):
            return descriptor
        os.close(descriptor)  # its holder has removed it while we waited


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
