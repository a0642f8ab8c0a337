"""The entry point: signals and streams made ready before anything heavy is imported, then the command.

This module imports the standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .interrupts import Unwound, leaving_at_once
from .process import BROKEN_PIPE, FAILED, Process
from .text import silence


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status.

    Parameters
    ----------
    args : words after the program's name; those of this process by default
    """
    own_process = args is None
    collecting = gc.isenabled()
    # Imports make objects, not garbage: collecting among them costs a twentieth of a short job.
    gc.disable()
    try:
        with leaving_at_once():
            status = _run(sys.argv[1:] if args is None else list(args))
    finally:
        if collecting:
            gc.enable()
    if own_process:
        # Everything is written, flushed and closed: taking NumPy apart piece by piece would be a tenth of a
        # short job's time.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run(args: list[str]) -> int:
    """Return the exit status of the command, its output flushed."""
    closed = _fill_closed_streams()
    # A name that the terminal's encoding lacks is shown escaped rather than as a traceback.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    from .group import run

    process = Process(closed)
    try:
        status = run(args, process)
        sys.stdout.flush()
    except Unwound as signalled:
        return signalled.status
    except BrokenPipeError:
        # The reader of the help went away, which is its right; an array cut short is another matter.
        silence(sys.stdout)
        return BROKEN_PIPE if process.streams_array else 0
    except OSError as error:
        silence(sys.stdout)
        with contextlib.suppress(OSError):
            print(f"Error: standard output: {error.strerror or error}", file=sys.stderr)
        return FAILED
    return status


def _fill_closed_streams() -> frozenset[str]:
    """Open standard streams that were closed onto nothing, or files opened later would take their places.

    Returns
    -------
    names of those that were closed
    """
    names = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in names:
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    return frozenset(names)
