"""The registry of options: each flag once, with the one meaning it has in every command.

Nothing here imports NumPy or h5py: this module is loaded for `--help`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .process import Process

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = ("float16", "bfloat16", "float32", "float64")


class SizesType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.5 only
    """Integers: ``2``, ``2,2``, ``2x2`` or ``1,2,2,1``. make's $(call) eats commas, hence ``x``."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as integers; fail with a usage error."""
        if not isinstance(value, str):
            return value
        words = re.split(r"[,x]", value)
        if len(value) > 1000 or not all(re.fullmatch(r"\s*[+-]?[0-9]+\s*", word) for word in words):
            self.fail(f"{value[:100]!r} is not a list of integers such as 2, 2,2 or 2x2.", param, ctx)
        return tuple(int(word) for word in words)


class ChunksType(SizesType):
    """Integers, or ``auto``."""

    name = "chunks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as integers or True; fail with a usage error."""
        return True if value == "auto" else super().convert(value, param, ctx)


class MemoryType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.5 only
    """Bytes: ``512M``, ``2G``, ``1.5GB`` (decimal), or ``512Mi``, ``2GiB`` (binary)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a number of bytes; fail with a usage error."""
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kKmMgGtT])(i?))?[bB]?\s*", value)
        if match is None:
            self.fail(f"{value[:100]!r} is not a size such as 512M, 2G or 512Mi.", param, ctx)
        number, unit, binary = match.groups()
        size = float(number) * (1024 if binary else 1000) ** (" kmgt".index(unit.lower()) if unit else 0)
        if not 1 <= size < 2**63:
            self.fail(f"{value[:100]!r} is not a size that a machine could have.", param, ctx)
        return int(size)


class PaddingType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.5 only
    """``SAME``, ``VALID``, ``top,bottom,left,right``, or four pairs in data format order as JSON."""

    name = "padding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as integers, a word or lists; fail with a usage error."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            import json

            try:
                return json.loads(value)
            except (ValueError, RecursionError):
                self.fail(f"{value[:100]!r} is not a JSON list of [before, after] pairs.", param, ctx)
        if re.match(r"\s*[+-]?[0-9]", value):
            pads = SizesType().convert(value, param, ctx)
            if len(pads) != 4:
                self.fail(f"{value[:100]!r} has {len(pads)} pads, not 4: top,bottom,left,right.", param, ctx)
            return pads
        return value


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and (process := ctx.find_object(Process)):
        process.debug = True


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from .complete import complete_address

    return complete_address(incomplete)


class _Address(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.5 only
    """An address; see `complete.py` for what <TAB> offers."""

    name = "address"


def operands(first: str, second: str, *, several: bool = False) -> Callable[[F], F]:
    """Add the two positional operands; of the first there may be `several`."""

    def decorate(function: F) -> F:
        for name in (second, first):  # decorators apply from the bottom up
            many: dict[str, Any] = {"nargs": -1} if several and name == first else {}
            argument = click.argument(name, type=_Address(), shell_complete=_complete, **many)
            function = argument(function)
        return function

    return decorate


geometry = [
    click.option(
        "-s",
        "--strides",
        type=SizesType(),
        default="1",
        show_default=True,
        help="One, H,W, or all four axes.",
    ),
    click.option(
        "-p",
        "--padding",
        type=PaddingType(),
        default="SAME",
        show_default=True,
        help="SAME, VALID, top,bottom,left,right, or [[0,0],[top,bottom],[left,right],[0,0]]: "
        "that of the forward convolution.",
    ),
    click.option(
        "--data-format",
        metavar="NHWC|NCHW",
        default="NHWC",
        show_default=True,
        help="Axes of input, out_backprop and output; filters do not change.",
    ),
    click.option(
        "-d",
        "--dilations",
        type=SizesType(),
        default="1",
        show_default=True,
        help="One, H,W, or all four axes.",
    ),
]

operand_reading = [
    click.option(
        "--as",
        "as_dtype",
        type=click.Choice(["bfloat16"]),
        help="Read 2-byte void or uint16 data as bfloat16.",
    ),
    click.option("--cast", type=click.Choice(DTYPES), help="Convert both operands first."),
    click.option(
        "--reverse-axes",
        is_flag=True,
        help="Reverse the axes of operands stored by MATLAB (v7.3); of both, if neither says it is.",
    ),
]

memory = click.option(
    "--memory",
    type=MemoryType(),
    envvar="CONVGRAD_MEMORY",
    show_envvar=True,
    metavar="SIZE",
    help="Budget for the whole process, such as 512M, 2G (decimal) or 512Mi (binary); half of what is "
    "available where left out. What is larger is read and written part by part. "
    "The result is the same to the bit.",
)

progress = click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "none"]),
    default="auto",
    show_default=True,
    help="A bar on a terminal and nothing elsewhere; a line now and then on standard error; or nothing.",
)

computing = [
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        envvar="CONVGRAD_THREADS",
        show_envvar=True,
        metavar="N",
        help="Threads that compute; one for each core this process may use where left out. "
        "The result is the same to the bit.",
    ),
    memory,
    progress,
]

output = [
    click.option(
        "-o",
        "--output",
        metavar="ADDRESS",
        shell_complete=_complete,
        help="FILE (.npy), FILE.h5::/dataset, or - for .npy on standard output. Required unless --dry-run.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace an existing file, or dataset of an HDF5 file."),
    click.option("--append", is_flag=True, help="Add the dataset to an existing HDF5 file."),
    click.option(
        "--chunks", type=ChunksType(), help="HDF5: chunk sizes, one for each axis, or auto for h5py's choice."
    ),
    click.option("--compression", metavar="NAME", help="HDF5: gzip, lzf or szip."),
    click.option("--compression-level", type=int, metavar="N", help="HDF5: 0 to 9, for gzip."),
    click.option("--shuffle", is_flag=True, help="HDF5: shuffle bytes before compression."),
]

report_format = click.option(
    "--format",
    "report_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables, or JSON: one object for each job.",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="No tables, notes or progress; errors only.")
debug = click.option(
    "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_debug, help="Show tracebacks."
)

diagnostics = [
    click.option("-n", "--dry-run", is_flag=True, help="Read headers only and print the plan."),
    report_format,
    quiet,
    click.option("-v", "--verbose", is_flag=True, help="Kernel, blocks, memory and times on standard error."),
    debug,
]


def common(function: F) -> F:
    """Add every option that both commands share."""
    for option in reversed([*geometry, *operand_reading, *computing, *output, *diagnostics]):
        function = option(function)
    return function
