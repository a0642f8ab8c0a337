"""Two ways to run the command line: `run` in a process of its own, `call` in this one, which is fast."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

COMMAND = [sys.executable, "-m", "convgrad_cli"]


@dataclass(frozen=True)
class Completed:
    """What a run left: exit status, both streams as text, standard output also as bytes."""

    returncode: int
    stdout: str
    stderr: str
    output: bytes

    @property
    def error(self) -> str:
        """The line that starts with `Error: `, without that word; there must be exactly one."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, f"not one line of error: {self.stderr!r}"
        return lines[0].removeprefix("Error: ")

    @property
    def hint(self) -> str:
        """The line that starts with `Hint: `, without that word, or nothing."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("Hint: ")]
        assert len(lines) <= 1, f"more than one hint: {self.stderr!r}"
        return lines[0].removeprefix("Hint: ") if lines else ""

    def refused(self, status: int, *words: str) -> None:
        """Assert a clean refusal: exit status, one line of error with all the words (any case)."""
        assert self.returncode == status, f"exit status {self.returncode}, not {status}: {self.stderr}"
        assert "Traceback" not in self.stderr
        text = f"{self.error} {self.hint}".lower()
        missing = [word for word in words if word.lower() not in text]
        assert not missing, f"the message lacks {missing}: {self.stderr!r}"

    def succeeded(self) -> Completed:
        """Assert exit status 0."""
        assert self.returncode == 0, f"exit status {self.returncode}: {self.stderr}"
        return self


def run(
    *args: object, stdin: bytes | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Completed:
    """Run the real command in a subprocess; `env` is added to the environment."""
    done = subprocess.run(
        [*COMMAND, *map(str, args)],
        input=b"" if stdin is None else stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=120,
        check=False,
    )
    text = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return Completed(done.returncode, *text, done.stdout)


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    output, error = io.BytesIO(), io.BytesIO()
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"),
        "stdout": io.TextIOWrapper(output, encoding="utf-8", write_through=True),
        "stderr": io.TextIOWrapper(error, encoding="utf-8", write_through=True),
    }
    with contextlib.ExitStack() as stack:
        for name, stream in streams.items():
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield output, error
        for name in ("stdout", "stderr"):
            if not streams[name].closed:
                streams[name].detach()


def call(*args: object, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> Completed:
    """Run the command's main function in this process, as `run` does in another."""
    main = importlib.import_module("convgrad_cli.main").main
    status: object = 0
    handler = signal.getsignal(signal.SIGTERM)
    with _streams(stdin or b"") as (output, error), mock.patch.dict(os.environ, env or {}):
        try:
            main([str(arg) for arg in args])
        except SystemExit as stop:
            status = stop.code
        finally:
            signal.signal(signal.SIGTERM, handler)
    code = status if isinstance(status, int) else int(status is not None)
    text = (stream.getvalue().decode("utf-8", "replace") for stream in (output, error))
    return Completed(code, *text, output.getvalue())
