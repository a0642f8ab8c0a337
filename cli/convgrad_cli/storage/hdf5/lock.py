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

from convgrad_cli.interrupts import held, temporaries
from convgrad_cli.storage.atomic import beside, is_there, real_path
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
    taken: list[int] = []
    try:
        with storage_errors(label, "cannot be locked"):
            while not _acquire(path, label, taken):
                pass
        yield
    finally:
        with held():
            for descriptor in taken:
                # Removed before it is let go, so that nobody can hold the lock of a removed file and believe
                # in it; not if an interrupt ends the wait for another job's.
                if _locked(descriptor) and is_there(path, descriptor):
                    path.unlink(missing_ok=True)
                os.close(descriptor)
            temporaries.discard(str(path))


def _acquire(path: Path, label: str, taken: list[int]) -> bool:
    """Lock the file, created if need be, and put its descriptor in `taken`; False if it has been removed."""
    with held():
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        taken.append(descriptor)
        if locked := _locked(descriptor):
            temporaries.add(str(path))
    if not locked:
        print(f"Note: {printable(label)}: waiting for another job to finish with the file", file=sys.stderr)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    with held():
        if is_there(path, descriptor):
            temporaries.add(str(path))
            return True
        temporaries.discard(str(path))
        os.close(descriptor)  # its holder has removed it while we waited
        taken.clear()
    return False


def _locked(descriptor: int) -> bool:
    """Whether nobody else holds the lock: then it is ours. A file system without locks is used without."""
    with suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
