"""Reading ahead and writing behind: while one slab is computed, the next is read and the last is written.

One thread reads and one writes. Slabs take turns in two sets of buffers, so memory is bounded and its pages
are touched once: fresh ones for each slab would cost as much as the reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from .scratch import Scratch

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Array = npt.NDArray[Any]
Item = TypeVar("Item")
Read = TypeVar("Read")


@contextmanager
def _one_thread(name: str) -> Iterator[ThreadPoolExecutor]:
    """A thread that does one thing after another; what it has not begun when the block ends is dropped."""
    from concurrent.futures import ThreadPoolExecutor  # most jobs are small, and do without

    pool = ThreadPoolExecutor(1, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def read_ahead(
    items: Iterable[Item], read: Callable[[Item, Scratch], Read], depth: int
) -> Iterator[tuple[Item, Read]]:
    """Yield each item with ``read(item, buffers)``, which is done in a thread while the one before is used.

    What is yielded is given up when the next is asked for.

    Parameters
    ----------
    depth : 2, or 1 to read when asked
    """
    buffers = [Scratch() for _ in range(depth)]
    if depth == 1:
        for item in items:
            yield item, read(item, buffers[0])
        return
    with _one_thread("reader") as pool:
        begun: deque[tuple[Item, Future[Read]]] = deque()
        for number, item in enumerate(items):
            begun.append((item, pool.submit(read, item, buffers[number % depth])))
            if len(begun) == depth:
                first, reading = begun.popleft()
                yield first, reading.result()
        for last, reading in begun:
            yield last, reading.result()


class WriteBehind:
    """Results on their way to a sink: filled in one buffer while the other is written."""

    def __init__(self, sink: Any, pool: ThreadPoolExecutor | None) -> None:
        self._sink, self._pool = sink, pool
        self._buffers = [Scratch()] if pool is None else [Scratch(), Scratch()]
        self._writing: deque[Future[None]] = deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return room for the next result, once the one that had it before is written."""
        if len(self._writing) == len(self._buffers):
            self._writing.popleft().result()
        self._buffers.append(self._buffers.pop(0))
        return self._buffers[-1].array("result", shape, dtype)

    def write(self, key: Any, result: Array) -> None:
        """Write `result`, the last room given, as ``sink[key]``."""
        if self._pool is None:
            self._sink[key] = result
        else:
            self._writing.append(self._pool.submit(self._sink.__setitem__, key, result))

    def finish(self) -> None:
        """Wait until everything is written."""
        while self._writing:
            self._writing.popleft().result()


@contextmanager
def write_behind(sink: Any, depth: int) -> Iterator[WriteBehind]:
    """Write results to `sink` in their order, in a thread of their own if `depth` is 2."""
    if depth == 1:
        yield WriteBehind(sink, None)
        return
    with _one_thread("writer") as pool:
        writing = WriteBehind(sink, pool)
        yield writing
        writing.finish()
