"""Ctrl-C, SIGTERM and SIGHUP: leave at once while there is nothing to clean up, unwind while there is.

Importing NumPy takes a tenth of a second, in which an exception would surface as a traceback from anywhere.
Only around a half-written output is it worth raising one. Python swallows exceptions in some places, such as
weak references' callbacks, or code turns them into others: so a signal is remembered, and asked for between
blocks.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .process import HUNG_UP, INTERRUPTED, TERMINATED

_signalled: list[int] = []
#: How many contexts of this module there are around what runs.
_depth = 0
#: Names of files that must not be left behind.
temporaries: set[str] = set()
#: One for each context in which a signal waits.
_holding: list[bool] = []
_STATUS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


class Unwound(BaseException):
    """A signal has arrived; `status` is what to exit with once everything is cleaned up."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _leave(signum: int, frame: FrameType | None) -> None:
    os._exit(_STATUS[signal.Signals(signum)])


def _unwind(signum: int, frame: FrameType | None) -> None:
    status = _STATUS[signal.Signals(signum)]
    if _signalled:
        # Somebody is impatient: the least of cleaning up, and out.
        for path in tuple(temporaries):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        os._exit(status)
    _signalled.append(status)
    if not _holding and not _swallowing(frame):
        check()


def _swallowing(frame: FrameType | None) -> bool:
    """Whether something is at work in `frame` or above that swallows exceptions, and complains.

    That is the import system, and C calling back into threadpoolctl.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or name.endswith("threadpoolctl.py"):
            return True
        frame = frame.f_back
    return False


def signalled() -> int | None:
    """Return what to exit with because of a signal, if one has come."""
    return _signalled[0] if _signalled else None


def check() -> None:
    """Raise for a signal that has come, also if an exception has been raised for it and was lost.

    Raises
    ------
    Unwound
        If there was one.
    """
    if _signalled:
        raise Unwound(_signalled[0])


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Context in which a signal waits for the end, where it is raised: for steps that belong together."""
    before = len(_signalled)
    _holding.append(True)
    try:
        yield
    finally:
        _holding.pop()
    if len(_signalled) > before:
        check()


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    global _depth
    _depth += 1
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
        _depth -= 1
        # Within another of these, a signal that has come and is still to be heard must not be forgotten.
        if not _depth:
            _signalled.clear()


def leaving_at_once() -> contextlib.AbstractContextManager[None]:
    """Context in which a signal ends the process there and then, with its status."""
    return _handled_by(_leave)


def unwinding() -> contextlib.AbstractContextManager[None]:
    """Context in which a signal raises `Unwound`, so that temporaries are removed."""
    return _handled_by(_unwind)
