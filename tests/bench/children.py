"""The parent's side of a worker: start it, ask it, stop it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Every library's way of being told.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "CONVGRAD_THREADS",
)


def installed_environment() -> dict[str, str]:
    """Return this environment as users have it: what is imported is compiled once, and kept."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Child:
    """One implementation in a process of its own, with a number of threads and as many cores.

    It is frozen while others are measured: threads that spin when they have nothing to do would take cores.
    """

    def __init__(self, name: str, threads: int, folder: Path) -> None:
        self.name = name
        self.threads = threads
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("worker.py"), name, str(threads), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | dict.fromkeys(THREADS, str(threads)) | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.about = self._read()

    def ask(self, request: Any) -> dict[str, Any]:
        """Return the reply to one request."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self.name} ended:\n{self._errors.read()[-2000:]}")
        self._process.send_signal(signal.SIGSTOP)
        reply: dict[str, Any] = json.loads(line)
        return reply

    def can(self, operation: str, layout: str, dtype: str) -> bool:
        """Whether the implementation has this at all."""
        about = self.about
        return operation in about["operations"] and layout in about["layouts"] and dtype in about["dtypes"]

    def close(self) -> None:
        """End the process, frozen or not."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
