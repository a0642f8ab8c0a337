"""The jobs of a manifest, each with its addresses filled in: what a worker takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from convgrad import ConvgradError
from convgrad_cli.storage.atomic import real_path

from . import patterns
from .manifest import Entry, ManifestError


@dataclass(frozen=True, slots=True)
class Task:
    """One job.

    Attributes
    ----------
    line : of the manifest, where its `[[job]]` begins
    verb : ``"transpose"`` or ``"filter-grad"``
    operands : addresses in the verb's order
    output : address
    words : options as the command line has them
    """

    line: int
    verb: str
    operands: tuple[str, ...]
    output: str
    words: tuple[str, ...]

    @property
    def recipe(self) -> list[Any]:
        """What the result depends on but for the operands' content."""
        words, rest = [], iter(self.words)
        for word in rest:
            if word in ("--threads", "--memory"):
                next(rest)
            elif word not in ("--overwrite", "--append"):
                words.append(word)
        return [self.verb, list(self.operands), words]


class Outcome(NamedTuple):
    """What became of a job: ``done``, ``skipped``, ``planned`` or ``failed`` with a reason."""

    status: str
    seconds: float
    message: str = ""
    hint: str | None = None
    made: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None


def tasks_of(path: str, entries: list[Entry]) -> list[Task]:
    """Return the jobs of all entries, in their order.

    Raises
    ------
    ManifestError
        A pattern matches nothing, a template names what is not there, or two jobs have one output.
    """
    found: list[Task] = []
    by_output: dict[str, Task] = {}
    for entry in entries:
        for task in _tasks_of(entry, f"{path}:{entry.line}"):
            file, separator, dataset = task.output.partition("::")
            parts = [part for part in dataset.split("/") if part not in ("", ".")]
            key = f"{real_path(file)}{separator}{'/'.join(parts)}"
            if (other := by_output.get(key)) is not None:
                raise ManifestError(
                    f"{path}:{task.line}: two jobs would write {task.output}: {other.operands[0]} (line "
                    f"{other.line}) and {task.operands[0]}"
                )
            by_output[key] = task
            found.append(task)
    return found


def _tasks_of(entry: Entry, place: str) -> list[Task]:
    wild = [role for role, text in entry.operands.items() if patterns.is_pattern(text)]
    if len(wild) > 1:
        raise ManifestError(
            f"{place}: {wild[0]} and {wild[1]} are both patterns",
            hint="one operand is a pattern, the others name what it matched: {stem}, {name}, {1}",
        )
    found: list[tuple[str | None, dict[str, str]]] = [(None, {})]
    if wild:
        try:
            found = list(patterns.matches(entry.operands[wild[0]]))
        except ConvgradError as error:
            raise ManifestError(f"{place}: {wild[0]}: {error.message}", hint=error.hint) from None
        if not found:
            raise ManifestError(f"{place}: {wild[0]}: {entry.operands[wild[0]]} matches nothing")
    tasks = []
    for address, names in found:
        try:
            operands = tuple(
                address if role in wild and address is not None else patterns.filled(text, names)
                for role, text in entry.operands.items()
            )
            output = patterns.filled(entry.output, names)
        except patterns.UnknownNameError as error:
            raise ManifestError(f"{place}: {error}") from None
        tasks.append(Task(entry.line, entry.verb, operands, output, entry.words))
    return tasks


def grouped(tasks: list[tuple[int, Task]]) -> list[list[tuple[int, Task]]]:
    """Return jobs in groups for one worker each: those that write into one HDF5 file must take turns."""
    groups: dict[str, list[tuple[int, Task]]] = {}
    for number, task in tasks:
        file, separator, _ = task.output.partition("::")
        groups.setdefault(str(real_path(file)) if separator else f"job {number}", []).append((number, task))
    return list(groups.values())
