"""Completion of addresses: files by the shell, datasets inside HDF5 files by us.

This runs at every <TAB>, so nothing heavy is imported before an HDF5 file is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.shell_completion import CompletionItem


def complete_address(incomplete: str) -> list[CompletionItem]:
    """Complete `FILE` as a file name, and what follows `FILE::` as a group or dataset of that file."""
    file, separator, path = incomplete.partition("::")
    if not separator:
        if _is_hdf5(file):
            return [CompletionItem(f"{file}::/")]
        return [CompletionItem(incomplete, type="file")]
    if not _is_hdf5(file):
        return []
    return [CompletionItem(f"{file}::{member}", help=shape) for member, shape in _members(file, path)]


def _is_hdf5(file: str) -> bool:
    try:
        with Path(file).open("rb") as stream:
            # Not storage's own check: that loads NumPy, too slow for a key.
            starts = (stream.read(8) for at in (0, 512, 1024, 2048) if stream.seek(at) == at)
            return b"\x89HDF\r\n\x1a\n" in starts
    except (OSError, ValueError):
        return False


def _members(file: str, path: str) -> list[tuple[str, str | None]]:
    """Return the members of the group that `path` has got to, whose path starts with `path`."""
    import h5py

    parent, slash, _ = path.rpartition("/")
    try:
        with h5py.File(file, "r") as opened:
            group: Any = opened[parent or "/"]
            found: list[tuple[str, str | None]] = []
            for name in group:
                member = f"{parent}{slash if path else '/'}{name}"
                if not member.startswith(path):
                    continue
                kind = group.get(name, getclass=True)
                if kind is h5py.Group:
                    found.append((f"{member}/", None))
                elif kind is h5py.Dataset:
                    found.append((member, "×".join(map(str, group[name].shape or ()))))
            return found
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError):
        return []
