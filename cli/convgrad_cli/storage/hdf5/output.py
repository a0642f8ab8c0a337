"""The file HDF5 writes into.

HDF5 crashes the process if a write fails while it closes a file, so it must never see one fail. The file
takes every write and keeps the error for later. And HDF5 runs in a thread of its own: an interrupt from the
keyboard, which Python raises in the main thread only, would be such a failure too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, TypeVar

import h5py

from convgrad_cli.storage.failures import storage_errors

_T = TypeVar("_T")


class Run(Protocol):
    """Calls a function that makes HDF5 write; raises `StorageError` if it could not."""

    def __call__(self, act: Callable[..., _T], *arguments: object) -> _T:
        """`act(*arguments)`."""
        ...


@contextmanager
def hdf5_output(path: Path, label: str, *, exists: bool) -> Iterator[tuple[h5py.File, Run]]:
    """HDF5 file open for writing, and the way to write to it.

    Parameters
    ----------
    path : Path
        An HDF5 file where `exists`, otherwise an empty file.
    label : str
        Address as the user gave it.

    Raises
    ------
    StorageError
        Something could not be written.
    """
    output = _Output(path, "r+")
    with ThreadPoolExecutor(max_workers=1) as thread:

        def run(act: Callable[..., _T], *arguments: object) -> _T:
            with storage_errors(label, "cannot be written"):
                result = thread.submit(act, *arguments).result()
                if output.error is not None:
                    raise output.error
            return result

        # Opened and closed in the thread, in this order, wherever the main thread is interrupted.
        opening = thread.submit(h5py.File, output, "r+" if exists else "w")
        try:
            yield run(opening.result), run
        finally:
            run(_close, opening, output)


def _close(opening: Future[h5py.File], output: _Output) -> None:
    with output:
        opening.result().close()


class _Output(FileIO):
    """A file that seems to take every write. After the first error its content is of no use, and not used."""

    error: Exception | None = None

    def write(self, data: Any) -> int:
        self._attempt(self._write_all, memoryview(data))
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        self._attempt(super().truncate, size)
        return size or 0

    def _write_all(self, data: memoryview) -> None:
        while data:  # one write takes at most 2 GiB, and what a full disk still has room for
            data = data[super().write(data) :]

    def _attempt(self, act: Callable[..., object], argument: object) -> None:
        try:
            act(argument)
        except Exception as error:  # whatever it is, it is raised where HDF5 is not on the way
            self.error = self.error or error
