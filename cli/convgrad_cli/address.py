"""Addresses: how an array in a file is named on the command line."""

from __future__ import annotations

import os.path
from typing import NamedTuple

from .errors import AddressError

SEPARATOR = "::"


class Address(NamedTuple):
    """`FILE`, or `FILE::dataset` for a dataset inside an HDF5 file.

    Attributes
    ----------
    file : str
        The file's name exactly as given; `-` is standard input or output.
    dataset : str or None
        Path of the dataset inside the file exactly as given, or None where it was left out.
    """

    file: str
    dataset: str | None = None

    def __str__(self) -> str:
        return self.file if self.dataset is None else f"{self.file}{SEPARATOR}{self.dataset}"

    @property
    def parts(self) -> list[str]:
        """Names on the way to the dataset; HDF5 takes `/p//q/` for `p/q`."""
        return [part for part in (self.dataset or "").split("/") if part not in ("", ".")]

    @property
    def is_pipe(self) -> bool:
        """Whether this is `-`: standard input or standard output."""
        return self.file == "-" and self.dataset is None


def parse_address(text: str) -> Address:
    """Split at the first `::`; nothing is decoded, and a string that names an existing file is that file.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    Address
        `str(address)` is `text` again.

    Raises
    ------
    AddressError
        The file name or the dataset path is empty.
    """
    # Not Path.exists: that raises for a name the file system finds too long, this says False.
    if os.path.exists(text):  # noqa: PTH110
        return Address(text)
    file, separator, dataset = text.partition(SEPARATOR)
    if not file:
        raise AddressError(f"{text!r}: no file name", hint="write FILE.npy or FILE.h5::/dataset")
    if not separator:
        return Address(file)
    if not dataset.strip("/"):
        raise AddressError(f"{text}: no dataset after '::'", hint=f"write {file}::/dataset")
    return Address(file, dataset)
