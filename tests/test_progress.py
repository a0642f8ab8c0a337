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
    text = shown(monkeypatch, Terminal(), patience=0)
    assert "5 of 5 blocks" in text
    assert "1.0/1.0 MB" in text


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One now and then, and the last."""
    stream, clock = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.Progress("plain", total_bytes=1000) as plain:
        for done in range(1, 11):
            clock[0] += 1
            plain.update(done, 10)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "convgrad: 5 of 10 blocks, 500 of 1,000 bytes, 0 MB/s, 5 s left",
        "convgrad: 10 of 10 blocks, 1,000 of 1,000 bytes, 0 MB/s, 0 s left",
    ]


@pytest.mark.parametrize(("kind", "quiet"), [("none", False), ("plain", True), ("auto", True)])
def test_nothing_if_so_asked(kind: str, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress(kind, total_bytes=1, quiet=quiet) as silent:
        silent.update(1, 1)
    assert stream.getvalue() == ""


def test_none_before_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), patience=1e9) == ""


def test_none_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO(), patience=0) == ""


def test_none_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), patience=0, enabled=False) == ""
