"""One job from words to files: check the target, read headers, plan, compute, write, report.

Everything that can be refused is refused before the first byte is computed or written, in this order: words,
target, operands, shapes, memory.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from convgrad import (
    ConvgradError,
    Plan,
    __version__,
    execute,
    plan_conv2d_transpose,
    plan_depthwise_conv2d_backprop_filter,
)

from .checksum import Checksummed
from .errors import AddressError, StorageError
from .interrupts import unwinding
from .memory import check_memory
from .operands import Operand, open_operands
from .options import Settings
from .progress import Progress
from .report import Addresses, Reporter
from .storage import Hdf5Options, Target, open_target

#: Outputs that share the stream with tables, which then go to standard error.
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class Operation(NamedTuple):
    """What a verb computes.

    Attributes
    ----------
    verb : on the command line
    roles : of the two operands
    sizes : the parameter that only this operation has
    plan : from two operands, the value of `sizes`, and the common parameters
    """

    verb: str
    roles: tuple[str, str]
    sizes: str
    plan: Callable[..., Plan]


def _plan_filter_grad(input: Operand, out_backprop: Operand, sizes: tuple[int, ...], **options: Any) -> Plan:
    return plan_depthwise_conv2d_backprop_filter(input, sizes, out_backprop, **options)


OPERATIONS = {
    "transpose": Operation("transpose", ("input", "filters"), "output_shape", plan_conv2d_transpose),
    "filter-grad": Operation("filter-grad", ("input", "out_backprop"), "filter_sizes", _plan_filter_grad),
}


def run(
    operation: Operation, addresses: tuple[str, str], sizes: tuple[int, ...] | None, given: dict[str, Any]
) -> None:
    """Run one job.

    Parameters
    ----------
    operation : one of `OPERATIONS`
    addresses : of the two operands
    sizes : value of ``operation.sizes``
    given : values of the common options, by name

    Raises
    ------
    ConvgradError, MemoryError
        Whatever is wrong; its class decides the exit status.
    """
    dry_run, output = given["dry_run"], given["output"]
    if output is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output'.", click.get_current_context())
    settings = click.get_current_context().find_object(Settings) or Settings()
    settings.array_on_stdout = output in _STDOUT and not dry_run
    reporter = Reporter(
        stream=sys.stderr if settings.array_on_stdout else sys.stdout,
        as_json=given["report_format"] == "json",
        quiet=given["quiet"],
        verbose=given["verbose"],
    )
    named = {**dict(zip(operation.roles, addresses, strict=True)), "output": output}
    try:
        with contextlib.ExitStack() as stack:
            _check_streams(named, settings)
            target = None if output is None else open_target(output, **_target_options(given))
            _plan_and_run(operation, named, target, sizes, given, reporter, stack)
    except (ConvgradError, MemoryError) as error:
        reporter.refused(operation.verb, error, named)
        raise


def _plan_and_run(
    operation: Operation,
    named: Addresses,
    target: Target | None,
    sizes: tuple[int, ...] | None,
    given: dict[str, Any],
    reporter: Reporter,
    stack: contextlib.ExitStack,
) -> None:
    started = time.perf_counter()
    first, second = open_operands(
        {role: str(named[role]) for role in operation.roles},
        as_bfloat16=given["as_dtype"] == "bfloat16",
        cast=given["cast"],
        reverse_axes=given["reverse_axes"],
        stack=stack,
    )
    for operand in (first, second):
        reporter.notes(operand.notes)
    parameters = _parameters(given)
    plan = operation.plan(first, second, sizes, **parameters)
    shown = {**named, operation.roles[0]: first.address, operation.roles[1]: second.address}
    if given["dry_run"] or target is None:
        reporter.planned(operation.verb, plan, shown)
        return
    check_memory(plan, first.kept_bytes + second.kept_bytes)
    attributes = _attributes(plan, operation, {operation.sizes: sizes, **parameters}, given, shown)
    gc.enable()
    with (
        unwinding(),
        target.open(plan.output.shape, plan.output.dtype, attributes) as sink,
        Progress(enabled=not reporter.quiet) as progress,
    ):
        checksummed = Checksummed(sink, wanted=not reporter.silent)
        execute(plan, first, second, checksummed, progress.update)
    reporter.done(operation.verb, plan, shown, checksummed.summary, time.perf_counter() - started)


def _check_streams(named: Addresses, settings: Settings) -> None:
    """Refuse empty addresses and standard streams that are not open.

    Raises
    ------
    AddressError, StorageError
        As said.
    """
    for role, text in named.items():
        if text == "":
            raise AddressError(f"{role}: the address is empty")
        stream = "stdout" if role == "output" else "stdin"
        if text == "-" and stream in settings.closed:
            raise StorageError(f"-: {stream} is closed")


def _target_options(given: dict[str, Any]) -> dict[str, Any]:
    names = ("chunks", "compression", "compression_level", "shuffle")
    return {
        "overwrite": given["overwrite"],
        "append": given["append"],
        "hdf5": Hdf5Options(**{name: given[name] for name in names}),
    }


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that both operations have, under the library's names."""
    # What is no known word is passed on as typed, for the message.
    data_format, padding = _known(given["data_format"], "NHWC", "NCHW"), given["padding"]
    if isinstance(padding, str):
        padding = _known(padding, "SAME", "VALID")
    elif isinstance(padding, tuple):
        top, bottom, left, right = padding
        pairs = {"N": [0, 0], "H": [top, bottom], "W": [left, right], "C": [0, 0]}
        padding = [pairs[axis] for axis in (data_format if data_format == "NCHW" else "NHWC")]
    return {
        "strides": given["strides"],
        "padding": padding,
        "data_format": data_format,
        "dilations": given["dilations"],
    }


def _known(word: str, *words: str) -> str:
    return word.upper() if word.upper() in words else word


def _attributes(
    plan: Plan, operation: Operation, parameters: dict[str, Any], given: dict[str, Any], addresses: Addresses
) -> dict[str, str]:
    """Return what an HDF5 result says of its origin. No time stamp: the same job gives the same file."""
    import json  # most results are .npy, and tables do without it

    reading = {"as": given["as_dtype"], "cast": given["cast"], "reverse_axes": given["reverse_axes"]}
    used = {name: value for name, value in reading.items() if value}
    return {
        "operation": plan.operation,
        "parameters": json.dumps(parameters | used),
        **{role: str(addresses[role]) for role in operation.roles},
        "convgrad_version": __version__,
    }
