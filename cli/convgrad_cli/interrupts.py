"""Ctrl-C, SIGTERM and SIGHUP: leave at once while there is nothing to clean up, unwind while there is.

Importing NumPy takes a tenth of a second, in which an exception would surface as a traceback from anywhere,
or be swallowed. Only around a half-written output is it worth raising one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .process import HUNG_UP, INTERRUPTED, TERMINATED

_STATUS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


class Unwound(BaseException):
    """A signal has arrived; `status` is what to exit with once everything is cleaned up."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _leave(signum: int, frame: FrameType | None) -> None:
    os._exit(_STATUS[signal.Signals(signum)])


def _unwind(signum: int, frame: FrameType | None) -> None:
    # Another signal would interrupt the cleaning up, which is short.
    for number in _STATUS:
        signal.signal(number, signal.SIG_IGN)
    raise Unwound(_STATUS[signal.Signals(signum)])


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    for number in _STATUS:
        # A shell without job control has background jobs ignore Ctrl-C, and nohup means it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread: whoever runs it handles signals
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def leaving_at_once() -> contextlib.AbstractContextManager[None]:
    """Context in which a signal ends the process there and then, with its status."""
    return _handled_by(_leave)


def unwinding() -> contextlib.AbstractContextManager[None]:
    """Context in which a signal raises `Unwound`, so that temporaries are removed."""
    return _handled_by(_unwind)
