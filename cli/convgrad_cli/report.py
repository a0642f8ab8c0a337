"""What a job says of itself: shape tables or one JSON object on standard output, notes on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeAlias

from convgrad import ConvgradError, ShapeReport

from .checksum import Summary
from .errors import StorageError
from .memory import Way
from .text import printable, silence

#: Address of each role; none where a dry run names no output.
Addresses: TypeAlias = dict[str, str | None]


class Reporter:
    """Where and how a job's diagnostics go.

    Parameters
    ----------
    stream : for tables and JSON
    as_json : one JSON object instead of tables
    quiet : no tables, notes or progress; a JSON object that was asked for stays
    verbose : blocks, bytes and times on standard error
    """

    def __init__(self, *, stream: TextIO, as_json: bool, quiet: bool, verbose: bool) -> None:
        self._stream = stream
        self._as_json = as_json
        self.quiet = quiet
        self._verbose = verbose

    @property
    def silent(self) -> bool:
        """Whether nothing of a finished job is shown."""
        return self.quiet and not self._as_json

    def notes(self, notes: Iterable[str]) -> None:
        """Tell the user something that is not an error."""
        if not self.quiet:
            for note in notes:
                self._aside(f"Note: {printable(note)}")

    def refused(self, verb: str, error: Exception, addresses: Addresses) -> None:
        """Show what is known of a job that cannot run; the error itself goes to standard error."""
        report = error.report if isinstance(error, ConvgradError) else None
        if self._as_json:
            shapes = _with_addresses(report.to_dict(), addresses) if report else {}
            told = {
                "message": getattr(error, "message", str(error)),
                "hint": getattr(error, "hint", None),
                "candidates": getattr(error, "candidates", []),
            }
            self._json({"command": verb, **shapes, "error": told})
        elif report is not None:
            self._tables(report, addresses)

    def planned(self, verb: str, way: Way, addresses: Addresses) -> None:
        """Show the plan of a job that was not run."""
        plan = way.slabs.plan
        if self._verbose:
            sizes = plan.block_sizes
            self._aside(
                f"convgrad: blocks of {sizes.images} images, {sizes.rows} rows, {sizes.columns} columns, "
                f"{sizes.channels} channels"
            )
        if self._as_json:
            self._json({**plan_as_dict(verb, way, addresses), "dry_run": True})
            return
        self._tables(plan.report, addresses)
        self._line(f"plan: {_in_words(way)}; nothing computed")

    def done(self, verb: str, way: Way, addresses: Addresses, summary: Summary, seconds: float) -> None:
        """Show a finished job."""
        plan = way.slabs.plan
        if self._verbose:
            self._aside(f"convgrad: {_in_words(way)}; {seconds:.3f} s")
        if self._as_json:
            result = summary.to_dict()
            self._json({**plan_as_dict(verb, way, addresses), "dry_run": False, "result": result})
            return
        self._tables(plan.report, addresses)
        unusual = f"  not finite: {summary.non_finite:,}" if summary.non_finite else ""
        self._line(f"result: sum {summary.sum:.9g}  abs_sum {summary.abs_sum:.9g}{unusual}")

    def _aside(self, text: str) -> None:
        """Say something on standard error; nothing depends on its being read."""
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)

    def _json(self, value: dict[str, Any]) -> None:
        import json  # tables do without it

        with reader_may_leave(self._stream):
            self._stream.write(json.dumps(value) + "\n")
            self._stream.flush()

    def _line(self, text: str) -> None:
        if not self.quiet:
            with reader_may_leave(self._stream):
                self._stream.write(text + "\n")
                self._stream.flush()

    def _tables(self, report: ShapeReport, addresses: Addresses) -> None:
        if not self.quiet:
            from .tables import print_tables

            with reader_may_leave(self._stream):
                print_tables(report, addresses, self._stream)


@contextlib.contextmanager
def reader_may_leave(stream: TextIO) -> Iterator[None]:
    """Take a reader's leaving for its right: what a job did or refused is not changed by it.

    Raises
    ------
    StorageError
        The stream cannot be written for another reason.
    """
    try:
        yield
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        silence(stream)
        raise StorageError(f"standard output: {error.strerror or error}") from error


def _in_words(way: Way) -> str:
    slabs, plan = way.slabs, way.slabs.plan
    words = (
        f"{plan.multiply_adds:,} multiply-adds by {plan.strategy} in {plan.block_count:,} "
        f"block{'s' * (plan.block_count != 1)}, about {plan.seconds:.2g} s on one core, "
        f"{plan.total_bytes:,} bytes in all, {way.array_bytes:,} at a time "
        f"and {slabs.scratch_bytes:,} a thread"
    )
    if slabs.count > 1:
        rows = plan.problem.cut_sizes[1]
        cut = (
            f"{slabs.images} images" if slabs.rows >= rows else f"{slabs.rows} rows of {slabs.images} images"
        )
        words += f", in {slabs.count:,} parts of {cut}"
        for tensor, times in zip(plan.operands, slabs.passes, strict=True):
            words += f", {tensor.role} read {times:.3g} times" if times > 1 else ""
    return words


def plan_as_dict(verb: str, way: Way, addresses: Addresses) -> dict[str, Any]:
    """Return a job's plan as JSON can hold it."""
    slabs, plan = way.slabs, way.slabs.plan
    return {
        "command": verb,
        **_with_addresses(plan.to_dict(), addresses),
        "held_bytes": way.array_bytes,
        "scratch_bytes": slabs.scratch_bytes,
        "parts": {"count": slabs.count, "images": slabs.images, "rows": slabs.rows, "threads": slabs.threads},
        "passes": dict(zip((tensor.role for tensor in plan.operands), slabs.passes, strict=True)),
    }


def _with_addresses(report: dict[str, Any], addresses: Addresses) -> dict[str, Any]:
    tensors = [{**tensor, "address": addresses.get(tensor["role"])} for tensor in report["tensors"]]
    return {**report, "tensors": tensors}
