"""What a caller may write for strides, dilations, padding and sizes, and the one form used from there on.

Sizes are Python integers throughout: nothing wraps at 32 or 64 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from .errors import ArgumentError
from .geometry import AxisPadding

#: One integer, ``(H, W)``, or all four axes in `data_format` order.
Sizes: TypeAlias = int | Sequence[int]
#: ``"SAME"``, ``"VALID"`` or four ``[before, after]`` pairs in `data_format` order.
Padding: TypeAlias = str | Sequence[Sequence[int]]

_AXIS_NAMES = {"N": "batch", "H": "height", "W": "width", "C": "channels"}


def integer(argument: str, value: object) -> int:
    """Return `value` as a Python integer.

    Raises
    ------
    ArgumentError
        If it is not an integer; a bool or a float is not.
    """
    if isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{argument}: must be an integer, got {value}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"{argument}: must be an integer, got {_shown(value)}") from None


def _shown(value: object) -> str:
    """Return a wrong value on one line of reasonable length."""
    if isinstance(value, np.ndarray):
        if value.ndim > 1:
            return f"an array of shape {value.shape}"
        value = value.tolist()
    text = repr(value).encode("unicode_escape").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def integers(argument: str, values: object) -> list[int]:
    """Return a list, tuple or 1-D array of integers as a list of Python integers.

    Raises
    ------
    ArgumentError
        If it is not a sequence of integers.
    """
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ArgumentError(f"{argument}: must be integers, got {_shown(values)}")
    return [integer(argument, value) for value in values]


def sizes_2_or_4(argument: str, value: object) -> tuple[int, ...]:
    """Return `output_shape` or `filter_sizes` as 2 or 4 Python integers.

    Raises
    ------
    ArgumentError
        If it is anything else.
    """
    try:
        sizes = tuple(integers(argument, value))
    except ArgumentError:
        raise ArgumentError(f"{argument}: must be 2 or 4 integers, got {_shown(value)}") from None
    if len(sizes) not in (2, 4):
        raise ArgumentError(
            f"{argument}: must be 2 or 4 integers, got {len(sizes)} ({','.join(map(str, sizes))})"
        )
    return sizes


def height_width(argument: str, value: Sizes, data_format: str) -> tuple[int, int]:
    """Return strides or dilations as ``(height, width)``, each at least 1.

    Parameters
    ----------
    argument : name for messages
    value : one integer, ``(H, W)``, or four integers in `data_format` order with 1 for batch and channels

    Raises
    ------
    ArgumentError
        On another number of entries, an entry below 1, or batch or channels other than 1.
    """
    if isinstance(value, Sequence) or np.ndim(value) > 0:
        entries = integers(argument, value)
        shown = ",".join(map(str, entries))
    else:
        entries = [integer(argument, value)]
        shown = str(entries[0])
    if len(entries) == 1:
        entries *= 2
    if len(entries) == 2:
        named = dict(zip("HW", entries, strict=True))
    elif len(entries) == 4:
        named = dict(zip(data_format, entries, strict=True))
    else:
        raise ArgumentError(
            f"{argument}: needs 1, 2 (height, width) or 4 ({data_format}) sizes, got {len(entries)} ({shown})"
        )
    for axis in "NC":
        if named.get(axis, 1) != 1:
            raise ArgumentError(
                f"{argument}: must be 1 on the {_AXIS_NAMES[axis]} axis, got {named[axis]} ({shown})"
            )
    for axis in "HW":
        if named[axis] < 1:
            raise ArgumentError(
                f"{argument}: must be at least 1, got {named[axis]} for {_AXIS_NAMES[axis]} ({shown})"
            )
    return named["H"], named["W"]


def padding_rules(value: Padding, data_format: str) -> tuple[AxisPadding, AxisPadding]:
    """Return the padding rules of height and width.

    Parameters
    ----------
    value : ``"SAME"`` or ``"VALID"`` in any case, or four ``[before, after]`` pairs in `data_format` order,
        in elements, with ``[0, 0]`` for batch and channels
    data_format : ``"NHWC"`` or ``"NCHW"``

    Raises
    ------
    ArgumentError
        On another word, another number of pairs, a negative pad, or pads on batch or channels.
    """
    if isinstance(value, str):
        word = value.upper()
        if word == "SAME":
            return "SAME", "SAME"
        if word == "VALID":
            return "VALID", "VALID"
        raise ArgumentError(f"padding: must be SAME, VALID or explicit pads, got {_shown(value)}")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence):
        raise ArgumentError(f"padding: must be SAME, VALID or explicit pads, got {_shown(value)}")
    if len(value) != 4:
        raise ArgumentError(
            f"padding: explicit pads are 4 [before, after] pairs ({data_format}), got {len(value)} entries"
        )
    named: dict[str, tuple[int, int]] = {}
    for axis, pair in zip(data_format, value, strict=True):
        if isinstance(pair, int | bytes):
            raise ArgumentError(f"padding: explicit pads are 4 [before, after] pairs, got {_shown(value)}")
        pads = integers("padding", pair)
        if len(pads) != 2:
            raise ArgumentError(
                f"padding: {_AXIS_NAMES[axis]} needs [before, after], got {len(pads)} entries"
            )
        if min(pads) < 0:
            raise ArgumentError(f"padding: must not be negative, got {min(pads)} for {_AXIS_NAMES[axis]}")
        named[axis] = (pads[0], pads[1])
    for axis in "NC":
        if named[axis] != (0, 0):
            raise ArgumentError(
                f"padding: the {_AXIS_NAMES[axis]} axis cannot be padded, got {list(named[axis])}"
            )
    return named["H"], named["W"]


def check_threads(value: object) -> int:
    """Return `value` if it is a number of threads.

    Raises
    ------
    ArgumentError
        If it is not an integer of at least 1.
    """
    return _check_count("threads", value)


def check_memory(value: object) -> int:
    """Return `value` if it is a number of bytes.

    Raises
    ------
    ArgumentError
        If it is not an integer of at least 1.
    """
    return _check_count("memory", value)


def _check_count(name: str, value: object) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return int(value)
    raise ArgumentError(f"{name}: must be an integer of at least 1, got {value!r:.40}")
