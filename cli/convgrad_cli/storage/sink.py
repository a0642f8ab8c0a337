"""What every sink checks: no file with rows missing or in the wrong place must come into being."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from .elements import to_disk
from .protocols import Sink, box

if TYPE_CHECKING:
    from .protocols import Array, DType


class OrderedSink(Sink):
    """Takes parts in rising order, each once, and hands them on as they lie on disk.

    A part is some rows along axis 0, or of some of these, the same part of a later axis each time until there
    is no more of it.

    Parameters
    ----------
    shape : tuple of int
        Sizes of the whole array.
    dtype : numpy.dtype
        Dtype every part must have.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self._next_row = 0
        self._next_within = 0

    def __setitem__(self, key: Any, value: Array) -> None:
        part = box(key, self.shape)
        # The axis that is cut, if rows of axis 0 come in parts.
        axis = next((axis for axis in range(1, len(part)) if len(part[axis]) < self.shape[axis]), 0)
        begins = (part[0].start, part[axis].start if axis else 0)
        expected = ((self._next_row, self._next_within), tuple(map(len, part)), self.dtype)
        got = (begins, value.shape, value.dtype)
        if got != expected:
            raise ValueError(f"expected (place, shape, dtype) {expected}, got {got}")
        if value.size:
            self._write(part, axis, to_disk(value))
        self._next_within = part[axis].stop if axis and part[axis].stop < self.shape[axis] else 0
        self._next_row = part[0].start if self._next_within else part[0].stop

    def finish(self) -> None:
        """Check that nothing is missing.

        Raises
        ------
        ValueError
            Rows are missing.
        """
        if self._next_row < self.shape[0] and 0 not in self.shape:
            raise ValueError(f"{self._next_row} of {self.shape[0]} rows were written")

    @abstractmethod
    def _write(self, part: tuple[range, ...], axis: int, block: Array) -> None:
        """Write a non-empty part, cut along `axis`: C order, little-endian, bfloat16 as uint16 bits."""
