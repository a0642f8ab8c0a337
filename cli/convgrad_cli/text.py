"""Text from outside made safe for a terminal, and streams that nobody reads any more made harmless."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO


def printable(text: str) -> str:
    """Return `text` on one line with control characters and undecodable bytes escaped.

    Names are otherwise literal: brackets, spaces, percent signs and letters of any script stay.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def silence(stream: TextIO) -> None:
    """Send what is still buffered, and what comes, nowhere: the interpreter flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
