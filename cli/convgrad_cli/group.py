"""The `convgrad` group: its verbs, loaded when named, and what becomes of errors.

This module imports click and nothing heavier, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from .interrupts import signalled
from .process import FAILED, INTERRUPTED, USAGE, Process
from .text import printable

#: Verb -> module that defines its `command`.
VERBS = {
    "transpose": "convgrad_cli.commands.transpose",
    "filter-grad": "convgrad_cli.commands.filter_grad",
    "batch": "convgrad_cli.commands.batch",
}

#: Set by the shell's completion script.
COMPLETE = "_CONVGRAD_COMPLETE"


class _LazyGroup(click.Group):
    """A group that imports a verb's module when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name]).command
        return command


@click.group(
    cls=_LazyGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  convgrad transpose x.npy w.npy -s 2 -o y.npy\n",
)
@click.version_option(package_name="convgrad")
def convgrad() -> None:
    """Transposed convolutions and depthwise filter gradients on saved arrays.

    Computes what tf.nn.conv2d_transpose and tf.nn.depthwise_conv2d_backprop_filter compute, on arrays in
    .npy and HDF5 files, with every option on any CPU.
    """


def run(args: list[str], process: Process) -> int:
    """Run one command and return its exit status; errors become lines on standard error."""
    try:
        if instruction := os.environ.get(COMPLETE):
            return _complete(instruction)
        # Not convgrad.main(): that takes a closed pipe for a failure.
        with convgrad.make_context("convgrad", args, obj=process) as context:
            convgrad.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        verb = [arg for arg in args[:1] if arg in VERBS]
        return _failed(error.format_message(), f"see {' '.join(['convgrad', *verb])} --help", USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        if (status := signalled()) is not None:  # what became of it on the way is of no interest
            return status
        if process.debug:
            import traceback

            traceback.print_exc()
        return _explained(error)
    return 0


def _complete(instruction: str) -> int:
    """Answer a shell's completion script."""
    from click.shell_completion import shell_complete

    from . import shells

    shells.install()
    try:
        return shell_complete(convgrad, {}, "convgrad", COMPLETE, instruction)
    except KeyError:  # not called by a completion script, which would say what has been typed
        return FAILED


def _explained(error: Exception) -> int:
    """Report an error that is not about the words of the command line."""
    from convgrad import ConvgradError

    from .errors import AddressError, StorageError

    if isinstance(error, AddressError):
        return _failed(error.message, error.hint, USAGE, error.candidates)
    if isinstance(error, ConvgradError):
        return _failed(error.message, error.hint, FAILED if isinstance(error, StorageError) else USAGE)
    if isinstance(error, MemoryError):
        return _failed(f"not enough memory: {error}" if str(error) else "not enough memory", None, FAILED)
    if isinstance(error, OSError):
        # Files are storage's, and its errors name them: without a name it is the help that had no room.
        return _failed(f"{error.filename or 'standard output'}: {error.strerror or error}", None, FAILED)
    return _failed(f"internal error: {type(error).__name__}: {error}", "--debug shows where", FAILED)


def _failed(message: str, hint: str | None, status: int, candidates: Sequence[str] = ()) -> int:
    lines = [f"Error: {printable(message)}", *(f"  {candidate}" for candidate in candidates)]
    if hint is not None:
        lines.append(f"Hint: {printable(hint)}")
    with contextlib.suppress(OSError):  # nobody to tell; the status says it too
        print("\n".join(lines), file=sys.stderr, flush=True)
    return status
