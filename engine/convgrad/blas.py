"""One BLAS thread while anything is computed here, so that no result depends on how many there are.

The number of threads belongs to the process, not to a call: of several calls at a time the first takes the
threads away and the last gives them back.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_calls = 0
_before: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread inside the context."""
    global _calls, _before
    with _lock:
        if _calls == 0:
            _take_control()
            _before = _controller().limit(limits=1)
        _calls += 1
    try:
        yield
    finally:
        with _lock:
            _calls -= 1
            if _calls == 0:
                _take_control()
                _before.restore_original_limits()


def _take_control() -> None:
    # threadpoolctl 3.8 heeds only the first thread that sets a limit, which need not be this one.
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@functools.cache
def _controller() -> Any:
    # Finding the loaded libraries takes milliseconds: once per process, and not before it is needed.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
