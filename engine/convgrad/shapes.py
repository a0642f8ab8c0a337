"""What is known of a job's shapes: its tensors and its two spatial axes, right or wrong.

A plan holds one for a job that can run, a `ShapeError` one for a job that cannot, with the disagreements
marked; both print alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .geometry import Axis


@dataclass(frozen=True, slots=True)
class Tensor:
    """One array of a job.

    Attributes
    ----------
    role : ``"input"``, ``"filters"``, ``"out_backprop"`` or ``"output"``
    letters : name of each axis, e.g. ``("N", "h", "w", "Cin")``
    shape : sizes in elements
    dtype : native byte order
    wrong : axes (indices) that disagree with the rest of the job
    """

    role: str
    letters: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    wrong: frozenset[int] = frozenset()

    @property
    def elements(self) -> int:
        """Number of elements; none where a size is wrongly negative."""
        return math.prod(max(size, 0) for size in self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self.elements * self.dtype.itemsize

    def labels(self) -> list[str]:
        """Return each axis as ``letter=size``, or the bare size where the number of axes is wrong."""
        if len(self.letters) != len(self.shape):
            return [str(size) for size in self.shape]
        return [f"{letter}={size}" for letter, size in zip(self.letters, self.shape, strict=True)]

    def labelled_shape(self) -> str:
        """Return e.g. ``(N=1, h=4, w=4, Cin=16)``, wrong axes marked ``!``."""
        marked = (label + "!" * (axis in self.wrong) for axis, label in enumerate(self.labels()))
        return f"({', '.join(marked)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the tensor as JSON can hold it."""
        return {
            "role": self.role,
            "axes": list(self.letters),
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "bytes": self.nbytes,
            "disagrees": sorted(self.wrong),
        }


@dataclass(frozen=True, slots=True)
class ShapeReport:
    """The tensors of a job and, as far as they could be worked out, its axes."""

    tensors: tuple[Tensor, ...]
    axes: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        cells = [(t.role, t.labelled_shape(), t.dtype.name, str(t.nbytes)) for t in self.tensors]
        text = _columns([("tensor", "shape", "dtype", "bytes"), *cells])
        if self.axes:
            text += "\n" + _columns([AXIS_HEADINGS, *map(axis_cells, self.axes)])
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        return {
            "tensors": [tensor.to_dict() for tensor in self.tensors],
            "geometry": [axis_to_dict(axis) for axis in self.axes],
        }


AXIS_HEADINGS = (
    "axis",
    "wide",
    "kernel",
    "effective kernel",
    "stride",
    "dilation",
    "pad before / after",
    "narrow",
    "legal wide",
)


def axis_cells(axis: Axis) -> tuple[str, ...]:
    """Return the cells of one axis under `AXIS_HEADINGS`; an illegal wide size is marked ``!``."""
    return (
        axis.name,
        f"{axis.wide}{'' if axis.legal else '!'}",
        str(axis.kernel),
        str(axis.effective_kernel),
        str(axis.stride),
        str(axis.dilation),
        f"{axis.pad_before}/{axis.pad_after}",
        str(axis.narrow),
        axis.legal_wide_text,
    )


def axis_to_dict(axis: Axis) -> dict[str, Any]:
    """Return one axis as JSON can hold it."""
    return {
        "axis": axis.name,
        "wide": axis.wide,
        "kernel": axis.kernel,
        "effective_kernel": axis.effective_kernel,
        "stride": axis.stride,
        "dilation": axis.dilation,
        "pad_before": axis.pad_before,
        "pad_after": axis.pad_after,
        "narrow": axis.narrow,
        "legal_wide": list(axis.legal_wide),
        "legal": axis.legal,
    }


def _columns(rows: Iterable[Sequence[str]]) -> str:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)
