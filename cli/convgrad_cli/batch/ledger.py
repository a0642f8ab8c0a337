"""What earlier runs of a manifest made, so that a run need not make it again.

The ledger lies beside the manifest, a line of JSON for each result. A result is up to date if the ledger says
that it was made by the same operation with the same parameters from the same addresses, the operands' files
still have the size and time of change that they had, and the result is there: a .npy file with the size and
time it was left with, a dataset that still says it was made so. What a killed run left of a line is no line.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from convgrad_cli.address import parse_address
from convgrad_cli.storage.atomic import replacing

#: Entry of a result that is being made.
_BEGUN: dict[str, Any] = {"begun": True}


class Ledger:
    """The ledger of one manifest.

    Parameters
    ----------
    manifest : path of the manifest
    """

    def __init__(self, manifest: str) -> None:
        path = Path(manifest)
        self.path = path.with_name(f".{path.name}.convgrad-done")
        self._made: dict[str, Any] = {}
        # What was made before that which was begun.
        self._before: dict[str, Any] = {}
        lines, line = 0, b"\n"
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            for line in file:
                lines += 1
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self._made[entry["output"]] = entry["made"]
        self._torn = not line.endswith(b"\n")
        self._stale = lines > 2 * len(self._made) + 100

    def up_to_date(self, output: str, recipe: list[Any], operands: Iterable[str]) -> bool:
        """Whether a result need not be made again; see the module."""
        made = self._made.get(output)
        if not made or made.get("recipe") != recipe:
            return False
        return bool(made["operands"] == states_of(operands) and made["result"] == _result(output))

    def may_replace(self, output: str) -> bool:
        """Whether what lies at an address, if anything, is what an earlier run left there.

        That is also what it had begun to make when it was killed: perhaps after the result was in its place.
        """
        made, there = self._made.get(output), _result(output)
        return there is not None and made is not None and (made == _BEGUN or made.get("result") == there)

    def begin(self, output: str) -> bool:
        """Write down that a result is about to be made, if nothing of others is in its place."""
        if not self.may_replace(output) and _result(output) is not None:
            return False
        self._before[output] = self._made.get(output, {})
        self.add(output, _BEGUN)
        return True

    def forget(self, output: str) -> None:
        """Write down that a result was not made after all; the earlier one, if any, is still the batch's."""
        before = self._before.pop(output, {})
        self.add(output, before if _result(output) is not None else {})

    def entry(
        self, output: str, recipe: list[Any], operands: Iterable[str], states: list[Any]
    ) -> dict[str, Any]:
        """Return the entry of a result that has just been made from operands that were in these states.

        An operand that somebody has changed meanwhile makes it outdated; writing into the operand's own file
        does not.
        """
        file = os.path.realpath(parse_address(output).file)
        known = [
            now if os.path.realpath(parse_address(operand).file) == file else before
            for operand, before, now in zip(operands, states, states_of(operands), strict=True)
        ]
        return {"recipe": recipe, "operands": known, "result": _result(output)}

    def add(self, output: str, made: dict[str, Any]) -> None:
        """Write down a result at once. If that is impossible, the next run makes it again."""
        self._made[output] = made
        line = "\n" * self._torn + json.dumps({"output": output, "made": made}) + "\n"
        self._torn = False
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def tidy(self) -> None:
        """Leave one line for each result where most are outdated."""
        if self._stale:
            with (
                contextlib.suppress(OSError),
                replacing(str(self.path), str(self.path), overwrite=True) as new,
            ):
                lines = (json.dumps({"output": o, "made": made}) + "\n" for o, made in self._made.items())
                new.write_text("".join(lines))


def states_of(addresses: Iterable[str]) -> list[Any]:
    """Return what tells whether operands' files have changed."""
    return [_state(parse_address(address).file) for address in addresses]


def _state(file: str) -> list[int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _result(output: str) -> Any:
    """Return what tells a result from another: of a dataset what it says of its origin."""
    address = parse_address(output)
    if address.dataset is None or not Path(address.file).exists():
        return _state(address.file)
    import h5py

    try:
        with h5py.File(address.file, "r", locking="best-effort") as file:
            dataset = file[address.dataset]
            return [list(dataset.shape), {name: str(value) for name, value in dataset.attrs.items()}]
    except (OSError, KeyError, RuntimeError, AttributeError, TypeError):
        return None
