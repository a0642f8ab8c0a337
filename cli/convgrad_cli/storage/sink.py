"""What every sink checks: no file with rows missing or in the wrong place must come into being."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from .elements import to_disk
from .protocols import Sink, rows

if TYPE_CHECKING:
    from .protocols import Array, DType


class OrderedSink(Sink):
    """Takes rows in increasing order, each once, and hands them on as they lie on disk.

    Parameters
    ----------
    shape : tuple of int
        Sizes of the whole array.
    dtype : numpy.dtype
        Dtype every block must have.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self._next_row = 0

    def __setitem__(self, key: slice, value: Array) -> None:
        start, stop = rows(key, self.shape[0])
        expected = (self._next_row, (stop - start, *self.shape[1:]), self.dtype)
        got = (start, value.shape, value.dtype)
        if got != expected:
            raise ValueError(f"expected (row, shape, dtype) {expected}, got {got}")
        if value.size:
            self._write(start, to_disk(value))
        self._next_row = stop

    def finish(self) -> None:
        """Check that no row is missing.

        Raises
        ------
        ValueError
            Rows are missing.
        """
        if self._next_row < self.shape[0] and 0 not in self.shape:
            raise ValueError(f"{self._next_row} of {self.shape[0]} rows were written")

    @abstractmethod
    def _write(self, start: int, block: Array) -> None:
        """Write a non-empty block from row `start` on: C order, little-endian, bfloat16 as uint16 bits."""
