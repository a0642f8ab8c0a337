"""The `convgrad` command: its verbs, loaded when named, and what becomes of errors.

Importing this module imports click and nothing heavier, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from .options import Settings
from .text import printable, silence

#: Verb -> module that defines its `command`.
VERBS = {
    "transpose": "convgrad_cli.commands.transpose",
    "filter-grad": "convgrad_cli.commands.filter_grad",
}

#: Set by the shell's completion script.
COMPLETE = "_CONVGRAD_COMPLETE"
FAILED, USAGE, INTERRUPTED, BROKEN_PIPE, TERMINATED = 1, 2, 130, 141, 143


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


class _Terminated(BaseException):
    """SIGTERM arrived: unwind, so that temporaries are removed."""


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise _Terminated


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status.

    Parameters
    ----------
    args : words after the program's name; those of this process by default
    """
    # Imports make objects, not garbage: collecting among them costs a twentieth of a short job.
    gc.disable()
    settings = Settings(closed=_fill_closed_streams())
    # A name that the terminal's encoding lacks is shown escaped rather than as a traceback.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with contextlib.suppress(ValueError):  # not the main thread: whoever runs it handles signals
        signal.signal(signal.SIGTERM, _terminate)
    try:
        status = _run(sys.argv[1:] if args is None else list(args), settings)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of help or tables went away, which is its right; an array cut short is another matter.
        silence(sys.stdout)
        status = BROKEN_PIPE if settings.array_on_stdout else 0
    except OSError as error:
        silence(sys.stdout)
        status = _failed(f"standard output: {error.strerror or error}", None, FAILED)
    sys.exit(status)


def _run(args: list[str], settings: Settings) -> int:
    """Run one command and return its exit status; errors become lines on standard error."""
    try:
        if instruction := os.environ.get(COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(convgrad, {}, "convgrad", COMPLETE, instruction)
        # Not convgrad.main(): that takes a closed pipe for a failure.
        with convgrad.make_context("convgrad", args, obj=settings) as context:
            convgrad.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        words = error.ctx.command_path if error.ctx else "convgrad"
        return _failed(error.format_message(), f"see {words} --help", USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except _Terminated:
        return TERMINATED
    except BrokenPipeError:
        raise
    except Exception as error:
        if settings.debug:
            import traceback

            traceback.print_exc()
        return _explained(error)
    return 0


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


def _fill_closed_streams() -> frozenset[str]:
    """Open standard streams that were closed onto nothing, or files opened later would take their places.

    Returns
    -------
    names of those that were closed
    """
    names = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in names:
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    return frozenset(names)
