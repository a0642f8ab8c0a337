"""A progress bar for long jobs on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

#: Seconds before a bar appears: short jobs end without one, and without importing its code.
_PATIENCE = 1.0


class Progress:
    """A context in which `update` moves a bar on standard error."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._started = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        """Show that `done` blocks of `total` are computed."""
        if not self._enabled:
            return
        if self._bar is None:
            if time.monotonic() - self._started < _PATIENCE:
                return
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("blocks", total=total)
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, completed=done)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
