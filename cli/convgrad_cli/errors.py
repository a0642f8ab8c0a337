"""Errors of the command line: addresses and files. Each knows the exit status it leads to."""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.errors import ConvgradError

from .text import printable


class AddressError(ConvgradError, ValueError):
    """An address does not say which array is meant, or may not be written: exit status 2.

    Attributes
    ----------
    candidates : list of str
        What might have been meant, an address each with shape and dtype.
    """

    def __init__(self, message: str, *, hint: str | None = None, candidates: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        # A line break in a dataset's name must not look like another line of the list.
        self.candidates = [printable(candidate) for candidate in candidates]

    def __str__(self) -> str:
        lines = [self.message, *(f"  {candidate}" for candidate in self.candidates)]
        return "\n".join(lines if self.hint is None else [*lines, f"Hint: {self.hint}"])


class OutputExistsError(AddressError):
    """The output is there already and nothing allows replacing it: exit status 2."""


class StorageError(ConvgradError, OSError):
    """A file cannot be read or written, or is not what it claims to be: exit status 1.

    The message starts with the address or the file name.
    """

    # OSError.__str__ would show errno fields instead of the message.
    __str__ = Exception.__str__
