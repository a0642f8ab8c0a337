"""The progress bar: on a terminal, after a second, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from convgrad_cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, patience: float, enabled: bool = True
) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    with progress.Progress(total_bytes=10**6, quiet=not enabled) as bar:
        for done in range(1, 6):
            bar.update(done, 5)
    return stream.getvalue()


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "100%" in shown(monkeypatch, Terminal(), patience=0)


def test_none_before_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), patience=1e9) == ""


def test_none_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO(), patience=0) == ""


def test_none_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), patience=0, enabled=False) == ""
