"""Patterns in addresses: which files and datasets they match, and what they matched in other names.

``acts/*.npy`` matches files, ``acts.h5::/layers/*/input`` datasets; ``*``, ``?`` and ``[...]`` stay within a
part of a path, ``**`` does not. In the other names of a job ``{stem}`` is the matched file's name without its
suffix, ``{name}`` what the first wildcard of the dataset's path matched, or the file's name where that has
none, and ``{1}``, ``{2}``, ... what each wildcard matched. ``{{`` is a brace.
"""

from __future__ import annotations

import fnmatch
import glob
import os.path
import re
from collections.abc import Iterator
from pathlib import Path

from convgrad_cli.address import SEPARATOR

_WILD = re.compile(r"[*?\[]")


class UnknownNameError(ValueError):
    """A template names what no pattern has matched."""


def is_pattern(text: str) -> bool:
    """Whether an address has wildcards; one that names an existing file has none."""
    return bool(_WILD.search(text)) and not os.path.exists(text)  # noqa: PTH110


def matches(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the addresses that a pattern matches, in the order of their names, with what they matched.

    Raises
    ------
    ConvgradError
        An HDF5 file that is to be searched cannot be read.
    """
    file, separator, dataset = re.sub("//+", "/", text).partition(SEPARATOR)
    # Not Path.glob: that does not take absolute patterns.
    files = sorted(glob.glob(file, recursive=True)) if is_pattern(file) else [file]  # noqa: PTH207
    for found in files:
        # A folder called x.npy, or a link to nowhere, is for the job to complain of.
        if Path(found).is_dir() and not Path(found).suffix:
            continue
        parts = _groups(file, found) if is_pattern(file) else []
        names = {"stem": Path(found).stem, "name": Path(found).name}
        if not separator:
            yield found, _numbered(names, parts)
        elif not _WILD.search(dataset):
            yield f"{found}{SEPARATOR}{dataset}", _numbered(names, parts)
        else:
            for path in _datasets(found, dataset):
                inside = _groups(dataset, path)
                whole = f"{found}{SEPARATOR}{path}"
                yield whole, _numbered(names | {"name": inside[0]}, parts + inside)


def names_of(text: str) -> dict[str, str]:
    """Return the names that an address without wildcards gives to others: of its file, or of its dataset."""
    file, _, dataset = text.partition(SEPARATOR)
    return {"stem": Path(file).stem, "name": Path(dataset or file).name}


def filled(template: str, names: dict[str, str]) -> str:
    """Return a template with its names filled in.

    Raises
    ------
    UnknownNameError
        Says which names there are.
    """

    def fill(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] not in names:
            known = ", ".join(f"{{{name}}}" for name in names) or "none, for no operand is a pattern"
            raise UnknownNameError(f"unknown name {match[0]}; there are {known}")
        return names[match[1]]

    return re.sub(r"\{\{|\}\}|\{([^{}]*)\}", fill, template)


def _numbered(names: dict[str, str], parts: list[str]) -> dict[str, str]:
    return names | {str(number): part for number, part in enumerate(parts, 1)}


def _groups(pattern: str, path: str) -> list[str]:
    found = re.fullmatch(_regular(pattern), path)
    return [part or "" for part in found.groups()] if found else []


def _regular(pattern: str) -> str:
    """Return a pattern as a regular expression with a group for each wildcard."""
    text, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        bracket = re.match(r"\[!?\]?[^\]/]*\]", rest)
        if rest.startswith("**/"):
            text, at = text + "(?:(.*)/)?", at + 3
        elif rest.startswith("**"):
            text, at = text + "(.*)", at + 2
        elif rest[0] in "*?":
            text, at = text + ("([^/]*)" if rest[0] == "*" else "([^/])"), at + 1
        elif bracket:
            # fnmatch knows which ranges are empty; what is around its expression varies among versions.
            one = fnmatch.translate(bracket[0]).removeprefix("(?s:")[: -len(r")\Z")]
            text, at = f"{text}((?!/){one})", at + bracket.end()
        else:
            text, at = text + re.escape(rest[0]), at + 1
    return text


def _datasets(file: str, pattern: str) -> list[str]:
    """Return the paths of a file's datasets that match, however they and the pattern begin."""
    from convgrad_cli.storage.hdf5.file import open_hdf5
    from convgrad_cli.storage.hdf5.find import dataset_paths

    regular = re.compile(_regular("/" + pattern.lstrip("/")))
    with open_hdf5(file, file) as opened:
        paths = [path for path in dataset_paths(opened) if regular.fullmatch(path)]
    begin = "/" if pattern.startswith("/") else ""
    return sorted(begin + path.lstrip("/") for path in paths)
