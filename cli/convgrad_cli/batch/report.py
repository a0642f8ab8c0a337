"""What a batch says: a line of JSON for each job or a table at the end, and where it is meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from typing import TextIO

from convgrad_cli.report import reader_may_leave
from convgrad_cli.text import printable

from .tasks import Outcome, Task

#: Jobs that are done are listed up to so many; those that failed always.
_MOST_LISTED = 50
#: Seconds between lines of plain progress, and before a bar appears.
_INTERVAL, _PATIENCE = 5.0, 1.0


class BatchReporter:
    """Takes outcomes as they come.

    Parameters
    ----------
    stream : for the table or JSON
    as_json : one line of JSON for each job and one for all
    quiet : only failures; JSON that was asked for stays
    progress : ``"auto"`` (a bar on a terminal), ``"plain"`` (a line now and then) or ``"none"``
    total : number of jobs
    """

    def __init__(self, stream: TextIO, *, as_json: bool, quiet: bool, progress: str, total: int) -> None:
        self._stream, self._as_json, self._quiet, self._total = stream, as_json, quiet, total
        self._rows: list[tuple[Task, Outcome]] = []
        self.counts: Counter[str] = Counter()
        self._started = self._last = time.monotonic()
        self._plain = progress == "plain" and not quiet
        self._bar = progress == "auto" and not quiet and sys.stderr.isatty()
        self._live: tuple[object, object] | None = None

    def outcome(self, task: Task, outcome: Outcome) -> None:
        """Take what became of one job."""
        self.counts[outcome.status] += 1
        if self._as_json:
            told = {"job": sum(self.counts.values()), "line": task.line, "status": outcome.status}
            told |= {"command": task.verb, "operands": list(task.operands), "output": task.output}
            told |= {"seconds": round(outcome.seconds, 6)}
            if outcome.status == "failed":
                told["error"] = {"message": outcome.message, "hint": outcome.hint}
            if outcome.plan is not None:
                told["plan"] = outcome.plan
            self._write(json.dumps(told) + "\n")
        elif outcome.status == "failed" or len(self._rows) < _MOST_LISTED:
            self._rows.append((task, outcome))
        self._show()

    def finish(self) -> None:
        """Show everything."""
        self.close()
        seconds = time.monotonic() - self._started
        counts = {name: self.counts[name] for name in ("done", "planned", "skipped", "failed")}
        left = self._total - sum(counts.values())
        if self._as_json:
            self._write(
                json.dumps({"summary": {**counts, "left": left, "seconds": round(seconds, 3)}}) + "\n"
            )
            return
        failed = [row for row in self._rows if row[1].status == "failed"]
        rows = failed if self._quiet else [row for row in self._rows if row[1].status != "failed"] + failed
        if rows:
            self._table(rows)
        told = [f"{count:,} {name}" for name, count in counts.items() if count]
        told += [f"{left:,} not begun"] if left else []
        if not self._quiet:
            self._write(f"{', '.join(told) or 'nothing to do'} of {self._total:,} jobs in {seconds:.1f} s\n")

    def close(self) -> None:
        """Take the bar away."""
        if self._live is not None:
            self._live[0].stop()  # type: ignore[attr-defined]
            self._live = None

    def _show(self) -> None:
        now, done = time.monotonic(), sum(self.counts.values())
        if self._plain and now - self._last >= _INTERVAL:
            self._last = now
            rate = done / (now - self._started)
            left = (self._total - done) / rate
            failed = f", {self.counts['failed']:,} failed" if self.counts["failed"] else ""
            line = (
                f"convgrad: {done:,} of {self._total:,} jobs{failed}, {rate:.1f} a second, {left:.0f} s left"
            )
            with contextlib.suppress(OSError):
                print(line, file=sys.stderr, flush=True)
        if not self._bar or now - self._started < _PATIENCE:
            return
        if self._live is None:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            self._live = bar, bar.add_task("jobs", total=self._total)
            bar.start()
        self._live[0].update(self._live[1], completed=done)  # type: ignore[attr-defined]

    def _table(self, rows: list[tuple[Task, Outcome]]) -> None:
        from rich.text import Text

        from convgrad_cli.tables import plain_table, print_rich

        table = plain_table("line", "command", "output", "status", "seconds", "reason")
        for task, outcome in rows:
            reason = outcome.message + (f"  Hint: {outcome.hint}" if outcome.hint else "")
            cells = (
                str(task.line),
                task.verb,
                printable(task.output),
                outcome.status,
                f"{outcome.seconds:.3f}",
            )
            table.add_row(*map(Text, cells), Text(printable(reason)))
        unlisted = sum(self.counts.values()) - len(self._rows)
        with reader_may_leave(self._stream):
            print_rich([table], self._stream)
        if unlisted > 0 and not self._quiet:
            self._write(f"... and {unlisted:,} more without an error\n")

    def _write(self, text: str) -> None:
        with reader_may_leave(self._stream):
            self._stream.write(text)
            self._stream.flush()
