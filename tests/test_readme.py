"""README.md says what is so: its reference is fresh and every example in it gives the output shown."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_reference import README, with_reference
from commandline import call
from convgrad_cli.group import VERBS

SAMPLES = README.parent / "samples"
TEXT = README.read_text()
#: A line no example prints: it comes after each command's output.
MARK = "\x01"


def blocks(language: str) -> list[object]:
    """Return the code blocks of one language, each with the heading above it as its id."""
    found = []
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        heading = re.findall(r"^#+ (.*)$", TEXT[: match.start()], re.MULTILINE)[-1]
        found.append(pytest.param(match[1], id=heading.replace("`", "")))
    return found


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A copy of the samples to work in."""
    copy = tmp_path / "samples"
    shutil.copytree(SAMPLES, copy, ignore=shutil.ignore_patterns("build"))
    return copy


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands after `$ ` (continued by a backslash) and the output below each."""
    pairs: list[list[str]] = []
    continued = False
    for line in block.splitlines():
        if line.startswith("$ ") or continued:
            text = line.removeprefix("$ ") if not continued else line.removeprefix("> ")
            if continued:
                pairs[-1][0] += "\n" + text
            else:
                pairs.append([text, ""])
            continued = line.endswith("\\")
        else:
            pairs[-1][1] += line + "\n"
    return [(command, output) for command, output in pairs]


#: A number with a point: its last digits are the machine's, whose BLAS adds in an order of its own.
NUMBER = re.compile(r"(-?[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?)")


def parts(text: str) -> list[Any]:
    """Split output at its numbers, which may be off by rounding errors of float32 sums."""
    found = NUMBER.split(text)
    return [pytest.approx(float(part), rel=1e-5, abs=1e-6) if i % 2 else part for i, part in enumerate(found)]


@pytest.mark.parametrize("block", blocks("console"))
def test_session(block: str, samples: Path) -> None:
    """Each command prints exactly what the README shows, but for rounding errors."""
    script = "".join(f"{command}\nstatus=$?; echo {MARK}; (exit $status)\n" for command, _ in commands(block))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=samples,
        env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    *outputs, rest = done.stdout.split(f"{MARK}\n")
    assert rest == ""
    for (command, expected), got in zip(commands(block), outputs, strict=True):
        found = [float(part) if i % 2 else part for i, part in enumerate(NUMBER.split(got))]
        assert found == parts(expected), f"$ {command}"


@pytest.mark.parametrize("block", blocks("make"))
def test_makefile_example(block: str, samples: Path) -> None:
    """The rule makes what it says of the files in the samples."""
    (samples / "Makefile").write_text(block)
    for folder in ("input", "out_backprop"):
        shutil.copytree(samples / "shards" / folder, samples / folder)
    (samples / "build").mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["make", "build/00.npy"], cwd=samples, env={**os.environ, "PATH": path}, check=True, timeout=60
    )
    assert np.load(samples / "build" / "00.npy").shape == (3, 3, 8, 2)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_example(block: str, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interpreter session prints exactly what the README shows."""
    monkeypatch.chdir(samples)
    parsed = doctest.DocTestParser().get_doctest(block, {}, "README.md", None, None)
    assert parsed.examples, "an example without a prompt tests nothing"
    assert doctest.DocTestRunner().run(parsed).failed == 0


@pytest.mark.skipif(
    tuple(map(int, version("click").split(".")[:2])) < (8, 5), reason="made with the newest click"
)
def test_reference_is_fresh() -> None:
    """`make docs` would change nothing."""
    assert with_reference(TEXT) == TEXT, "run `make docs`"


def test_first_commands_are_the_promised_two() -> None:
    """The first block of the README is `make demo` and `make test`."""
    first = re.search(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_an_example_and_its_place_in_the_readme(verb: str) -> None:
    help_text = call(verb, "--help").succeeded().stdout
    assert "Examples:" in help_text
    assert f"convgrad {verb} " in help_text.partition("Examples:")[2]
    assert f"### `convgrad {verb}`" in TEXT
