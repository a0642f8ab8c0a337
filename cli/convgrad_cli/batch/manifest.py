"""Reading a manifest: `[defaults]` and `[[job]]` tables whose keys are the commands' own option names.

Everything that can be wrong with the words is found here, with the line, before the first job.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from convgrad_cli.commands import filter_grad, transpose
from convgrad_cli.errors import AddressError, StorageError
from convgrad_cli.job import STDOUT
from convgrad_cli.process import Process

COMMANDS: dict[str, click.Command] = {"transpose": transpose.command, "filter-grad": filter_grad.command}
#: Options that are about a whole process and its screen, not about one job.
_NOT_HERE = {"dry_run", "report_format", "quiet", "verbose", "debug", "help", "progress"}

#: Strings of several lines, strings of one (the group), comments.
_TOKENS = re.compile(
    r""""{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|("(?:\\.|[^"\\\n])*"|'[^'\n]*')|\#[^\n]*""", re.DOTALL
)


class ManifestError(AddressError):
    """A manifest that is wrong in itself: exit status 2. The message begins with the file and the line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One `[[job]]` with the defaults filled in.

    Attributes
    ----------
    line : where it begins, from 1
    verb : ``"transpose"`` or ``"filter-grad"``
    operands : addresses or patterns by role, in the verb's order
    output : address or template
    words : options as the command line has them
    """

    line: int
    verb: str
    operands: dict[str, str]
    output: str
    words: tuple[str, ...]


def read_manifest(path: str) -> list[Entry]:
    """Read and check a manifest.

    Raises
    ------
    ManifestError
        Not TOML, an unknown key, a value that the option does not take, a role that is missing.
    StorageError
        The file cannot be read.
    """
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"\(at line (\d+), column \d+\)", str(error))
        where = f"{path}:{line[1] if line else max(len(text.splitlines()), 1)}"  # or at the end
        reason = re.sub(r" *\(at .*\)$", "", str(error))
        raise ManifestError(f"{where}: not TOML: {reason}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise ManifestError(f"{path}: cannot be read as TOML: {error}") from None
    places = _Places(path, text)
    for key in content:
        if key not in ("defaults", "job"):
            raise ManifestError(f"{places.of(key)}: unknown table {key!r}; there are [defaults] and [[job]]")
    defaults, jobs = content.get("defaults", {}), content.get("job", [])
    if not isinstance(defaults, dict):
        raise ManifestError(f"{places.of('defaults')}: must be a table, [defaults]")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise ManifestError(f"{places.of('job')}: must be tables, [[job]]")
    if not jobs:
        raise ManifestError(f"{path}: no [[job]]")
    return [_entry(defaults, job, number, places) for number, job in enumerate(jobs)]


def _entry(defaults: dict[str, Any], job: dict[str, Any], number: int, places: _Places) -> Entry:
    here = {_plain(key): (value, places.of(key, number)) for key, value in job.items()}
    given = {_plain(key): (value, places.of(key, None)) for key, value in defaults.items()} | here
    begins = places.of_job(number)
    verb, place = given.pop("operation", (None, begins))
    if not isinstance(verb, str) or verb not in COMMANDS:
        got = f"got {verb!r:.40}" if verb is not None else "it is missing"
        raise ManifestError(f"{place}: operation must be one of {', '.join(COMMANDS)}; {got}")
    options = {option.name: option for option in COMMANDS[verb].params if option.name not in _NOT_HERE}
    every = {o.name for c in COMMANDS.values() for o in c.params if o.name not in _NOT_HERE}
    roles = [name for name, option in options.items() if isinstance(option, click.Argument)]
    named: dict[str, str] = {}
    words: list[str] = []
    for key, (value, place) in given.items():
        key = "as_dtype" if key == "as" else key
        if key not in options:
            if key in every and key not in here:
                continue  # a default for the other operation
            known = ", ".join(sorted(str(name) for name in options))
            raise ManifestError(f"{place}: {key} is no option of {verb}; there are {known}")
        option = options[key]
        if key in roles or key == "output":
            if not isinstance(value, str) or not value:
                raise ManifestError(f"{place}: {key} must be an address, got {value!r:.40}")
            named[key] = value
            continue
        words += _words(option, value, place)
    for role in (*roles, "output"):
        if role is not None and role not in named:
            raise ManifestError(f"{begins}: {role} is missing")
    if named["output"] in STDOUT or "-" in named.values():
        stream = named["output"] if named["output"] in STDOUT else "-"
        raise ManifestError(f"{begins}: {stream} is a stream, and a batch has none to spare")
    _check_words(verb, [named[str(role)] for role in roles], named["output"], words, begins)
    operands = {str(role): named[str(role)] for role in roles}
    return Entry(places.line_of_job(number), verb, operands, named["output"], tuple(words))


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _words(option: click.Parameter, value: Any, place: str) -> list[str]:
    """Return an option as it is written on the command line."""
    flag = max(option.opts, key=len)
    if isinstance(option, click.Option) and option.is_flag:
        if not isinstance(value, bool):
            raise ManifestError(f"{place}: {option.name} must be true or false, got {value!r:.40}")
        return [flag] if value else []
    if isinstance(value, list) and all(type(item) is int for item in value):
        return [flag, ",".join(map(str, value))]
    if isinstance(value, list):
        try:
            return [flag, json.dumps(value)]
        except TypeError:  # TOML has dates, JSON has none
            raise ManifestError(f"{place}: {option.name} cannot be {value!r:.40}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ManifestError(f"{place}: {option.name} cannot be {value!r:.40}")
    return [flag, str(value)]


def parameters_of(verb: str, words: list[str]) -> dict[str, Any]:
    """Return what a command makes of the words after it.

    Raises
    ------
    click.UsageError
        It does not take them.
    """
    # As under the group: a command keeps the help option it has been asked for first.
    context = COMMANDS[verb].make_context(verb, words, help_option_names=["-h", "--help"], obj=Process())
    return dict(context.params)


def _check_words(verb: str, operands: list[str], output: str, words: list[str], place: str) -> None:
    try:
        parameters_of(verb, [*words, "-o", output, "--", *operands])
    except click.UsageError as error:
        raise ManifestError(f"{place}: {error.format_message()}") from None


class _Places:
    """Lines of tables and keys, which a TOML parser does not tell."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._keys: dict[tuple[str, str], int] = {}
        self._jobs: list[int] = []
        table = ""
        # What is inside a string of several lines or a comment is no key; other strings may be.
        text = _TOKENS.sub(lambda match: match[0] if match[1] else "\n" * match[0].count("\n"), text)
        for number, line in enumerate(text.split("\n"), 1):
            header = re.match(r"\s*(\[\[?)\s*([A-Za-z_-]+)\s*\]\]?", line)
            if header and header[1] == "[[" and header[2] == "job":
                self._jobs.append(number)
                table = f"job {len(self._jobs) - 1}"
            elif header:
                table = header[2]
                self._keys.setdefault(("", table), number)
            elif key := re.match(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[.=]""", line):
                self._keys.setdefault((table, key[1]), number)

    def of(self, key: str, job: int | None = None) -> str:
        """Return ``file:line`` of a key: of a job, of the defaults, or of the file."""
        tables = ("defaults", "") if job is None else (f"job {job}",)
        line = next((self._keys[table, key] for table in tables if (table, key) in self._keys), None)
        return f"{self._path}:{line}" if line else self._path if job is None else self.of_job(job)

    def of_job(self, number: int) -> str:
        """Return ``file:line`` of a job."""
        return f"{self._path}:{self.line_of_job(number)}"

    def line_of_job(self, number: int) -> int:
        """Return the line where a job begins."""
        return self._jobs[number] if number < len(self._jobs) else self._keys.get(("", "job"), 1)
