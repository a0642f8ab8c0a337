"""How far a job is: a bar on a terminal, lines now and then if asked for, nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

#: Seconds before a bar appears: short jobs end without one, and without importing its code.
_PATIENCE = 1.0
#: Seconds between plain lines.
_INTERVAL = 5.0


class Progress:
    """A context in which `update` shows how many blocks are computed, on standard error.

    Parameters
    ----------
    kind : ``"auto"``, ``"plain"`` or ``"none"``
    total_bytes : of operands and result together
    quiet : whether nothing is to be said
    """

    def __init__(self, kind: str = "auto", *, total_bytes: int = 0, quiet: bool = False) -> None:
        self._shows_bar = kind == "auto" and not quiet and sys.stderr.isatty()
        self._shows_lines = kind == "plain" and not quiet
        self._bytes = total_bytes
        self._started = self._last = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        """Show that `done` blocks of `total` are computed."""
        if self._shows_lines:
            self._line(done, total)
        if not self._shows_bar:
            return
        if self._bar is None:
            if time.monotonic() - self._started < _PATIENCE:
                return
            self._begin()
        if self._bar is not None and self._task is not None:
            moved = self._bytes * done // max(total, 1)
            self._bar.update(self._task, completed=moved, description=f"{done:,} of {total:,} blocks")

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
        bar = RichProgress(
            *columns,
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar, self._task = bar, bar.add_task("", total=self._bytes)
        bar.start()

    def _line(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < _INTERVAL and done < total:
            return
        self._last = now
        seconds = max(now - self._started, 1e-9)
        moved = self._bytes * done // max(total, 1)
        left = seconds * (total - done) / max(done, 1)
        line = (
            f"convgrad: {done:,} of {total:,} blocks, {moved:,} of {self._bytes:,} bytes, "
            f"{moved / seconds / 1e6:.0f} MB/s, {left:.0f} s left"
        )
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
