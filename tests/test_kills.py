"""A few tries of `torture.py` on small jobs: files are old or complete after any signal, nothing is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from torture import Kind, prepare, tries

TRIES = 8


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    return prepare(tmp_path_factory.mktemp("kinds"), images=1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_targets_survive_a_signal_at_any_moment(
    tmp_path: Path, kinds: list[Kind], number: signal.Signals
) -> None:
    # Operands are addressed from the folder beside theirs.
    folder = kinds[0].start.with_name(tmp_path.name)
    problems = [
        f"{one}"
        for one in tries(kinds, {number: TRIES}, int(number), folder)
        # What Python itself may say of an exception in a callback is for the large test: here it is chance.
        if any(not problem.startswith("said ") for problem in one.problems)
    ]
    assert not problems, "\n".join(problems)
