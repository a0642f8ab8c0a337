"""A child process that times one implementation: ``worker.py NAME THREADS FOLDER``.

Requests come on standard input and replies go to standard output, one JSON object per line. The first line
out says what the implementation can do. Preparing operands is never timed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

#: A request is timed until either is reached.
SECONDS, CALLS = 0.3, 30


def main() -> None:
    """Answer requests until standard input ends."""
    name, threads, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    # Before any library looks how many cores there are. The last ones: the first also serves interrupts.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    # Whatever a library prints must not end up between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    adapter = import_module(f"adapter_{name}").Adapter(threads)
    hello = {part: getattr(adapter, part) for part in ("version", "operations", "layouts", "dtypes")}
    print(json.dumps(hello | {"blas": blas()}), file=replies)
    for line in sys.stdin:
        request = json.loads(line)
        reply = yardsticks(threads) if request == "yardsticks" else answer(adapter, request, folder)
        print(json.dumps(reply), file=replies)


def answer(adapter: Any, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a request's times in seconds, or why it was refused."""
    from operands import errors, operands
    from tasks import Task

    check = request.pop("check")
    task = Task(**request)
    try:
        prepared = adapter.prepare(task, *operands(task.layer, task.dtype))
        warm = prepared.call()
    except Exception as refusal:  # each library has its own
        return {"refused": f"{type(refusal).__name__}: {refusal}".splitlines()[0]}
    reply: dict[str, Any] = {"strategy": prepared.strategy}
    if check:
        reply |= errors(task.layer, task.dtype, prepared.channels_last(warm), folder)
    del warm
    times = timed(prepared.call)
    return reply | {"best": min(times), "median": statistics.median(times)}


def timed(call: Callable[[], Any], seconds: float = SECONDS, calls: int = CALLS) -> list[float]:
    """Return the wall times of repeated calls."""
    times: list[float] = []
    while sum(times) < seconds and len(times) < calls:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def yardsticks(threads: int) -> dict[str, float]:
    """Return what the machine can do with NumPy: float32 matrix products, and bytes read and written.

    The product is one thread's rate times `threads`; a copy is cut into one part per thread.
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    one, other, product = (np.ones((1024, 1024), np.float32) for _ in range(3))
    source, target = (np.ones((threads, 2**26 // threads), np.float32) for _ in range(2))
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        matmul = min(timed(lambda: np.matmul(one, other, out=product))[1:])
        copy = min(timed(lambda: list(pool.map(np.copyto, target, source)))[1:])
    return {"flops": threads * 2 * 1024**3 / matmul, "bytes": 2 * source.nbytes / copy}


def blas() -> str:
    """Return the BLAS that NumPy has loaded in this process and the kernel it chose for this CPU."""
    import numpy as np  # loads it
    from threadpoolctl import threadpool_info

    found = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return (
        ", ".join(
            f"{info['internal_api']} {info.get('version')} {info.get('architecture', '')}" for info in found
        )
        or f"none that threadpoolctl knows, NumPy {np.__version__}"
    )


if __name__ == "__main__":
    main()
