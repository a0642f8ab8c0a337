"""Replacing a file all at once: written beside under another name, flushed to disk, renamed over the target.

Whatever happens, the target is what it was before or complete. Only a process killed outright leaves its
temporary behind, under a name that says what it is; the next job that writes the same target removes it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convgrad_cli.errors import AddressError, OutputExistsError
from convgrad_cli.interrupts import held, temporaries

from .failures import storage_errors

OVERWRITE_HINT = "--overwrite replaces it"

_LONGEST_NAME = 255  # bytes, on every file system in common use


def check_place(file: str, label: str) -> None:
    """Find out before anything is computed whether a file can be put in its place.

    Parameters
    ----------
    file : str
        Name of the file to write; it need not exist.
    label : str
        Address as the user gave it.

    Raises
    ------
    AddressError
        The name is that of a directory, or the folder is missing or not writable.
    """
    target = real_path(file)
    with storage_errors(label, "cannot be written"):
        if target.is_dir() or file.endswith(os.sep):
            raise AddressError(f"{label}: names a directory, expected a file")
        if not target.parent.is_dir():
            raise AddressError(f"{label}: the folder {target.parent} does not exist")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise AddressError(f"{label}: the folder {target.parent} is not writable")


def is_written_directly(file: str) -> bool:
    """Whether a file is there and is a pipe or a device, such as `/dev/null`: not to be renamed over."""
    try:
        mode = Path(file).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def real_path(file: str) -> Path:
    """The file itself where its name is a symbolic link: the link stays, what it points to is replaced."""
    return Path(os.path.realpath(file))


def beside(target: Path, ending: str) -> Path:
    """Hidden name in the folder of `target`, shortened where it would be longer than a name may be."""
    room = _LONGEST_NAME - len(f".{ending}")
    stem = os.fsencode(target.name)[:room].decode("utf-8", "ignore")
    return target.with_name(f".{stem}{ending}")


@contextmanager
def replacing(file: str, label: str, *, overwrite: bool) -> Iterator[Path]:
    """Temporary file that takes the place of `file` when the block ends without an exception.

    Parameters
    ----------
    file : str
        Name of the file to write. If it exists, its permission bits are kept.
    label : str
        Address as the user gave it.
    overwrite : bool
        Whether a file that has appeared there by the end may be replaced.

    Yields
    ------
    Path
        An empty file to fill, closed.

    Raises
    ------
    OutputExistsError
        The file exists and may not be replaced.
    StorageError
        The temporary cannot be made, flushed to disk, or renamed.
    """
    target = real_path(file)
    made: list[tuple[Path, int]] = []
    try:
        with storage_errors(label, "cannot be written"), held():
            made.append(_create(target))
            temporary = made[0][0]
            temporaries.add(str(temporary))
        yield temporary
        with storage_errors(label, "cannot be written"):
            _flush(temporary)
            if target.exists():
                if not overwrite:
                    raise OutputExistsError(f"{label}: has appeared since the job began", hint=OVERWRITE_HINT)
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
    except BaseException:
        with held():
            for temporary, _ in made:
                temporary.unlink(missing_ok=True)
        raise
    finally:
        with held():
            for temporary, lock in made:
                os.close(lock)
                temporaries.discard(str(temporary))
    # The rename is an entry of the folder. Some network file systems cannot flush folders; the file is whole.
    with suppress(OSError):
        _flush(target.parent)


def _create(target: Path) -> tuple[Path, int]:
    """Create a temporary beside `target`, and remove those that killed processes have left.

    They are numbered from 0, so that a few names are all that is looked for. Who works on one holds its lock;
    a lock that can be had is that of a process that is gone.

    Returns
    -------
    the temporary, and a descriptor that holds its lock
    """
    # At no time readable to more people than the target; writable to us even if the target is not.
    mode = stat.S_IMODE(target.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR if target.exists() else 0o666
    number, mine = 0, None
    while True:
        path = beside(target, f".{number}.convgrad-tmp")
        if mine is None:
            # An interrupt may come as soon as it is there.
            temporaries.add(str(path))
            with suppress(FileExistsError):
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
                if _locked(descriptor) and not is_there(path, descriptor):
                    os.close(descriptor)  # taken for a leftover before it was locked
                    continue
                mine = path, descriptor
            if mine is None:
                temporaries.discard(str(path))
        elif not path.exists():
            return mine
        if mine is None or mine[0] != path:
            _remove_leftover(path)
            if mine is None and not path.exists():
                continue
        number += 1


def _remove_leftover(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            if _locked(descriptor, or_raise=True) and is_there(path, descriptor):
                path.unlink()
        finally:
            os.close(descriptor)


def _locked(descriptor: int, *, or_raise: bool = False) -> bool:
    """Lock a file for as long as `descriptor` is open; False where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if or_raise:
            raise
        return False
    return True


def is_there(path: Path, descriptor: int) -> bool:
    """Whether the file that is open as `descriptor` is the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
