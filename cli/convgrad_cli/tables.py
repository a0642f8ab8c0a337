"""The two shape tables, drawn with Rich.

Off a terminal a table is as wide as it needs to be, whatever COLUMNS says; on one, cells fold. Either way
nothing is cut. Names are literal text, never markup. What disagrees is marked with `!` as well as in colour.
"""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convgrad import ShapeReport, Tensor
from convgrad.shapes import AXIS_HEADINGS, axis_cells

from .text import printable

_WRONG = "bold red"
#: Headings of columns of words.
_WORDS = ("address", "shape", "dtype", "command", "output", "status", "reason")


def print_tables(report: ShapeReport, addresses: dict[str, str | None], stream: TextIO) -> None:
    """Print the tensors table and, where the axes are known, the geometry table.

    Parameters
    ----------
    report : shapes and axes
    addresses : address of each role
    stream : where to
    """
    print_rich([_tensors(report, addresses)] + [_geometry(report)] * bool(report.axes), stream)


def print_rich(tables: list[Table], stream: TextIO) -> None:
    """Print tables, each with an empty line after it."""
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    # Asked of the stream itself: FORCE_COLOR makes Rich call anything a terminal.
    if not stream.isatty():
        console.width = 1_000_000
    # Rich ends the process where it finds a pipe closed, so it does not write itself.
    with console.capture() as captured:
        for table in tables:
            console.print(table)
            console.print()
    stream.write(captured.get())
    stream.flush()  # before an error line on the other stream


def _tensors(report: ShapeReport, addresses: dict[str, str | None]) -> Table:
    table = plain_table("tensor", "address", "shape", "dtype", "bytes")
    for tensor in report.tensors:
        table.add_row(
            tensor.role,
            Text(printable(addresses.get(tensor.role) or "(none)")),
            _labelled_shape(tensor),
            tensor.dtype.name,
            f"{tensor.nbytes:,}",
        )
    return table


def _labelled_shape(tensor: Tensor) -> Text:
    text = Text("(")
    for axis, label in enumerate(tensor.labels()):
        wrong = axis in tensor.wrong
        text.append(", " if axis else "").append(label + "!" * wrong, _WRONG if wrong else None)
    return text.append(")")


def _geometry(report: ShapeReport) -> Table:
    table = plain_table(*AXIS_HEADINGS)
    for axis in report.axes:
        table.add_row(*(Text(cell, _WRONG if cell.endswith("!") else "") for cell in axis_cells(axis)))
    return table


def plain_table(*headings: str) -> Table:
    """Return an empty table in the one style there is."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        # Sizes are compared down a column, so they are set right; words left.
        words = number == 0 or heading in _WORDS
        table.add_column(heading, justify="left" if words else "right", overflow="fold")
    return table
