"""Blocks over threads: taken in order, computed together, finished in order.

The thread that asks is one of the workers, so one thread costs nothing, and signals that arrive there end the
work: the other workers stop after the block they are at. NumPy lets go of the interpreter inside its loops
and products, which is where the time goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

from .scratch import Scratch, borrowed

Item = TypeVar("Item")
Result = TypeVar("Result")


class Work(Generic[Item, Result]):
    """Items to compute.

    Parameters
    ----------
    items : taken one by one
    compute : computes one, in the scratch of whoever does it
    finish : takes one result, in the order of the items, never two at a time; None where order is of no
        interest
    report : called by the asking thread after each of its own items, with how many are done in all
    """

    def __init__(
        self,
        items: Iterator[Item],
        compute: Callable[[Item, Scratch], Result],
        finish: Callable[[Item, Result], None] | None,
        report: Callable[[int], None],
    ) -> None:
        self._items, self._compute, self._finish, self._report = items, compute, finish, report
        self._changed = threading.Condition()
        self._taken = 0
        #: Items finished.
        self.done = 0
        self._helping = 0
        self._error: BaseException | None = None

    def run(self, threads: int) -> None:
        """Do everything with this many threads. The first error of any is raised when all have stopped."""
        others = [threading.Thread(target=self._help, daemon=True) for _ in range(threads - 1)]
        try:
            for other in others:
                self._start(other)
            self._loop(self._report)
        except BaseException as error:
            self._stop(error)
        self._wait()
        for other in others:
            if other.ident is not None:
                other.join()
        if self._error is not None:
            raise self._error

    def _start(self, other: threading.Thread) -> None:
        with self._changed:
            self._helping += 1
        try:
            other.start()
        except BaseException:
            if other.ident is None:
                with self._changed:
                    self._helping -= 1
            raise

    def _wait(self) -> None:
        # Not by joining: an interrupted join takes a thread for stopped that is not.
        while True:
            try:
                with self._changed:
                    while self._helping > 0:
                        self._changed.wait()
                return
            except BaseException as error:
                self._stop(error)

    def _help(self) -> None:
        try:
            self._loop(None)
        except BaseException as error:
            self._stop(error)
        finally:
            with self._changed:
                self._helping -= 1
                self._changed.notify_all()

    def _stop(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _loop(self, report: Callable[[int], None] | None) -> None:
        # The error state belongs to the thread.
        with borrowed() as scratch, np.errstate(all="ignore"):
            while True:
                with self._changed:
                    if self._error is not None:
                        return
                    number = self._taken
                    try:
                        item = next(self._items)
                    except StopIteration:
                        return
                    self._taken += 1
                result = self._compute(item, scratch)
                with self._changed:
                    if self._finish is not None:
                        while self.done != number and self._error is None:
                            self._changed.wait()
                        if self._error is not None:
                            return
                        self._finish(item, result)
                    self.done += 1
                    done = self.done
                    self._changed.notify_all()
                if report is not None:
                    report(done)
