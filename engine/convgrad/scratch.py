"""Memory that blocks work in, kept from block to block: fresh pages cost more than the work done in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

#: Bytes that buffers start at a multiple of: a cache line, and the widest vector register.
_LINE = 64


class Scratch:
    """Named buffers, each as large as the largest array asked of it so far."""

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[np.uint8]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a C-contiguous array of any content in buffer `name`, whose last array is given up."""
        dtype = np.dtype(dtype)
        count = 1
        for size in shape:
            count *= size
        needed = count * dtype.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < needed:
            self._buffers.pop(name, None)  # before there is another
            raw = np.empty(needed + _LINE, np.uint8)
            start = -raw.ctypes.data % _LINE
            buffer = self._buffers[name] = raw[start : start + needed]
        return buffer[:needed].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(buffer.nbytes for buffer in self._buffers.values())


_lock = threading.Lock()
_idle: list[Scratch] = []


@contextmanager
def borrowed() -> Iterator[Scratch]:
    """Lend a scratch that nobody else uses meanwhile; one is kept for the next call in this process."""
    with _lock:
        scratch = _idle.pop() if _idle else Scratch()
    try:
        yield scratch
    finally:
        with _lock:
            _idle.append(scratch)
