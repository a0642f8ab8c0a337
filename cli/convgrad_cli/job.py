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
from .interrupts import check, unwinding
from .memory import way_through_memory
from .operands import Operand, open_operands
from .process import Process
from .progress import Progress
from .report import Addresses, Reporter
from .storage import Hdf5Options, Target, open_target
from .text import printable

#: Names of standard output, which tables then leave to the array.
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class Operation(NamedTuple):
    """What a verb computes.

    Attributes
    ----------
    verb : on the command line
    roles : of the two operands
    sizes : the parameter that only this operation has
    plan : from two operands, the parameters that only this operation has, and the common ones
    """

    verb: str
    roles: tuple[str, str]
    sizes: str
    plan: Callable[..., Plan]


def _plan_filter_grad(
    input: Operand, out_backprop: Operand, filter_sizes: tuple[int, ...], **options: Any
) -> Plan:
    return plan_depthwise_conv2d_backprop_filter(input, filter_sizes, out_backprop, **options)


OPERATIONS = {
    "transpose": Operation("transpose", ("input", "filters"), "output_shape", plan_conv2d_transpose),
    "filter-grad": Operation("filter-grad", ("input", "out_backprop"), "filter_sizes", _plan_filter_grad),
}


class CommonOptions(NamedTuple):
    """Values of the options that both commands have, under the names of `options.py`."""

    strides: tuple[int, ...]
    padding: Any
    data_format: str
    dilations: tuple[int, ...]
    as_dtype: str | None
    cast: str | None
    reverse_axes: bool
    threads: int | None
    memory: int | None
    progress: str
    output: str | None
    overwrite: bool
    append: bool
    chunks: tuple[int, ...] | bool | None
    compression: str | None
    compression_level: int | None
    shuffle: bool
    dry_run: bool
    report_format: str
    quiet: bool
    verbose: bool

    @property
    def hdf5(self) -> Hdf5Options:
        """Layout of an HDF5 result."""
        return Hdf5Options(self.chunks, self.compression, self.compression_level, self.shuffle)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that both operations have, under the library's names."""
        # What is no known word is passed on as typed, for the message.
        data_format, padding = _known(self.data_format, "NHWC", "NCHW"), self.padding
        if isinstance(padding, str):
            padding = _known(padding, "SAME", "VALID")
        elif isinstance(padding, tuple):
            top, bottom, left, right = padding
            pairs = {"N": [0, 0], "H": [top, bottom], "W": [left, right], "C": [0, 0]}
            padding = [pairs[axis] for axis in (data_format if data_format == "NCHW" else "NHWC")]
        return {
            "strides": self.strides,
            "padding": padding,
            "data_format": data_format,
            "dilations": self.dilations,
        }


def run_each(
    operation: Operation,
    inputs: tuple[str, ...],
    other: str,
    sizes: tuple[int, ...] | None,
    options: CommonOptions,
    **own: Any,
) -> None:
    """Run one job for each of several inputs, whose names the output names.

    Parameters
    ----------
    inputs, other : addresses of the first operand of each job, and of the second of all
    operation, sizes, options, own : as for `run`

    Raises
    ------
    ConvgradError, MemoryError
        As `run`, for the first job that fails.
    """
    if len(inputs) == 1:
        run(operation, (inputs[0], other), sizes, options, **own)
        return
    from .batch.patterns import UnknownNameError, filled, names_of

    outputs: list[str | None] = [None] * len(inputs)
    if options.output is not None:
        try:
            outputs = [filled(options.output, names_of(input)) for input in inputs]
        except UnknownNameError as error:
            raise AddressError(f"{options.output}: {error}") from None
        if len(set(outputs)) < len(outputs):
            twice = next(output for output in outputs if outputs.count(output) > 1)
            raise AddressError(
                f"{options.output}: {len(inputs)} inputs, and more than one would be written to {twice}",
                hint="{stem} in the output is an input's name without its suffix, {name} with it",
            )
    for input, output in zip(inputs, outputs, strict=True):
        run(operation, (input, other), sizes, options._replace(output=output), **own)


def run(
    operation: Operation,
    addresses: tuple[str, str],
    sizes: tuple[int, ...] | None,
    options: CommonOptions,
    **own: Any,
) -> None:
    """Run one job.

    Parameters
    ----------
    operation : one of `OPERATIONS`
    addresses : of the two operands
    sizes : value of ``operation.sizes``
    own : further parameters that only this operation has, under the library's names

    Raises
    ------
    ConvgradError, MemoryError
        Whatever is wrong; its class decides the exit status.
    """
    if options.output is None and not options.dry_run:
        raise click.UsageError("Missing option '-o' / '--output'.", click.get_current_context())
    if options.output is None and options.hdf5.flags:
        flags = ", ".join(options.hdf5.flags)
        raise click.UsageError(f"{flags} goes with -o FILE.h5::/name.", click.get_current_context())
    process = click.get_current_context().find_object(Process) or Process()
    output = "-" if options.output in STDOUT else options.output
    reporter = Reporter(
        stream=sys.stderr if output == "-" and not options.dry_run else sys.stdout,
        as_json=options.report_format == "json",
        quiet=options.quiet,
        verbose=options.verbose,
    )
    named = {**dict(zip(operation.roles, addresses, strict=True)), "output": output}
    try:
        # A dry run leaves standard output to its tables.
        _check_streams({**named, "output": None} if options.dry_run else named, process)
        perform(operation, named, {operation.sizes: sizes, **own}, options, reporter, process)
    except (ConvgradError, MemoryError) as error:
        reporter.refused(operation.verb, error, named)
        raise


def perform(
    operation: Operation,
    named: Addresses,
    own: dict[str, Any],
    options: CommonOptions,
    reporter: Reporter,
    process: Process,
) -> None:
    """Run one job whose words are in order.

    Parameters
    ----------
    operation : one of `OPERATIONS`
    named : addresses of the operands and the output
    own : parameters that only this operation has, under the library's names
    options, reporter, process : of the job, its diagnostics, and the process

    Raises
    ------
    ConvgradError, MemoryError
        Whatever is wrong.
    """
    target, output = None, named["output"]
    if output is not None:
        target = open_target(output, overwrite=options.overwrite, append=options.append, hdf5=options.hdf5)
        process.streams_array = target.streams and not options.dry_run
    with contextlib.ExitStack() as stack:
        _plan_and_run(operation, named, target, own, options, reporter, stack)


def _plan_and_run(
    operation: Operation,
    named: Addresses,
    target: Target | None,
    own: dict[str, Any],
    options: CommonOptions,
    reporter: Reporter,
    stack: contextlib.ExitStack,
) -> None:
    started = time.perf_counter()
    operands = open_operands(
        {role: str(named[role]) for role in operation.roles},
        as_bfloat16=options.as_dtype == "bfloat16",
        cast=options.cast,
        reverse_axes=options.reverse_axes,
        stack=stack,
    )
    for operand in operands:
        reporter.notes(operand.notes)
    plan = operation.plan(*operands, **own, **options.parameters)
    shown = {**named, **{role: o.address for role, o in zip(operation.roles, operands, strict=True)}}
    if target is not None:
        target.check_layout(plan.output.shape)
    way = way_through_memory(plan, operands, target, budget=options.memory, threads=options.threads)
    if options.dry_run or target is None:
        reporter.planned(operation.verb, way, shown)
        return
    way.check()
    attributes = _attributes(plan, operation, own, options, shown) if target.keeps_attributes else {}
    gc.enable()  # everything is imported: from here on there may be garbage
    with (
        unwinding(),
        target.open(plan.output.shape, plan.output.dtype, attributes) as sink,
        Progress(options.progress, total_bytes=plan.total_bytes, quiet=reporter.quiet) as progress,
    ):
        checksummed = Checksummed(sink, wanted=not reporter.silent, data_format=plan.data_format)

        def after_block(done: int, total: int) -> None:
            check()
            progress.update(done, total)

        execute(plan, *operands, checksummed, after_block, slabs=way.slabs)
        check()
    seconds = time.perf_counter() - started
    reporter.done(operation.verb, way, shown, checksummed.summary, seconds)


def _check_streams(named: Addresses, process: Process) -> None:
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
        if text == "-" and stream in process.closed:
            raise StorageError(f"-: {stream} is closed")
        if role == "output" and text == "-" and sys.stdout.isatty():
            raise AddressError("-: standard output is a terminal, which an array would garble")


def _known(word: str, *words: str) -> str:
    return word.upper() if word.upper() in words else word


def _attributes(
    plan: Plan,
    operation: Operation,
    own: dict[str, Any],
    options: CommonOptions,
    addresses: Addresses,
) -> dict[str, str]:
    """Return what an HDF5 result says of its origin. No time stamp: the same job says the same."""
    import json  # most results are .npy, which has no attributes

    reading = {"as": options.as_dtype, "cast": options.cast, "reverse_axes": options.reverse_axes}
    used = {name: value for name, value in reading.items() if value}
    # What changes nothing where it is left out is not told there.
    own = {name: value for name, value in own.items() if name == operation.sizes or value}
    return {
        "operation": plan.operation,
        "parameters": json.dumps({**own, **options.parameters, **used}),
        **{role: printable(str(addresses[role])) for role in operation.roles},
        "convgrad_version": __version__,
    }
