"""Errors: what was asked, what would work, and which argument to change.

Every error that a caller can provoke is a `ConvgradError`. Each subclass also has the built-in parent
that a NumPy user would catch, so `except ValueError` keeps working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .shapes import ShapeReport


class ConvgradError(Exception):
    """Root of all errors raised on purpose.

    Attributes
    ----------
    message : str
        One line: the argument, what was got, what would work.
    hint : str or None
        One line: what was probably meant, where that can be derived.
    report : ShapeReport or None
        The shapes as far as they are known, the axes that disagree marked.
    """

    def __init__(self, message: str, *, hint: str | None = None, report: ShapeReport | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nHint: {hint}")
        self.message = message
        self.hint = hint
        self.report = report


class ArgumentError(ConvgradError, ValueError):
    """An option is malformed whatever the arrays are: a stride of 0, an unknown padding."""


class ShapeError(ConvgradError, ValueError):
    """The shapes and the options do not fit together."""


class DTypeError(ConvgradError, TypeError):
    """An array's dtype is not supported, or two arrays' dtypes differ."""
