"""Turning the errors of the operating system and of HDF5 into one line that names the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from convgrad.errors import ConvgradError
from convgrad_cli.errors import StorageError


def reason(error: BaseException) -> str:
    """What went wrong in the fewest words: the system's own, or the inner part of HDF5's message."""
    if isinstance(error, OSError) and error.errno:
        text = os.strerror(error.errno)
        return text[:1].lower() + text[1:]
    text = str(error).partition("\n")[0]
    # HDF5: "Can't synchronously read data (inflate() failed)". The part in parentheses says it.
    inner = re.fullmatch(r"[^(]*\((.*)\)", text)
    return inner[1] if inner else text or type(error).__name__


@contextmanager
def storage_errors(label: str, act: str) -> Iterator[None]:
    """Raise what fails inside as `StorageError("label: act: reason")`.

    Parameters
    ----------
    label : str
        Address or file name as the user gave it.
    act : str
        What did not succeed, such as `cannot be read`.

    Raises
    ------
    StorageError
        In place of an `OSError`, or of a `RuntimeError` as h5py raises it. A `BrokenPipeError` stays one.
    """
    try:
        yield
    except (ConvgradError, BrokenPipeError):
        raise
    except (OSError, RuntimeError) as error:
        raise StorageError(f"{label}: {act}: {reason(error)}") from error
