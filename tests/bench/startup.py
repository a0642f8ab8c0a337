"""Start-up, as ratios: whole processes timed in turn in one run, medians compared.

The yardstick is an interpreter that only imports what a job needs: `import numpy, click, rich.table,
rich.console`. A tiny .npy job may take 1.5 times as long, `convgrad --help` 0.6 times.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from children import installed_environment
from rich.console import Console
from rich.table import Table

ROUNDS = 25
CONVGRAD = str(Path(sys.executable).with_name("convgrad"))
YARDSTICK = [sys.executable, "-c", "import numpy, click, rich.table, rich.console"]


def main() -> int:
    """Time, print a table, and return 1 if a ratio is over its limit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x, w, dy = (str(folder / f"{word}.npy") for word in ("x", "w", "dy"))
        np.save(x, np.ones((1, 4, 4, 2), np.float32))
        np.save(w, np.ones((3, 3, 2, 2), np.float32))
        np.save(dy, np.ones((1, 4, 4, 2), np.float32))
        out = ["-o", str(folder / "out.npy"), "--overwrite"]
        sizes = ["--filter-sizes", "3x3"]
        commands = {
            "transpose, tiny .npy job": ([CONVGRAD, "transpose", x, w, *out], 1.5),
            "filter-grad, tiny .npy job": ([CONVGRAD, "filter-grad", x, dy, *sizes, *out], 1.5),
            "convgrad --help": ([CONVGRAD, "--help"], 0.6),
            "convgrad transpose --help": ([CONVGRAD, "transpose", "--help"], 0.6),
        }
        yardstick: list[float] = []
        times: dict[str, list[float]] = {label: [] for label in commands}
        for _ in range(ROUNDS):
            yardstick.append(seconds(YARDSTICK))
            for label, (command, _) in commands.items():
                times[label].append(seconds(command))
    table = Table("process", "median ms", "ratio", "at most", title=f"start-up, {ROUNDS} rounds in turn")
    base = statistics.median(yardstick)
    table.add_row("imports alone (yardstick)", f"{1e3 * base:.1f}", "1.00", "")
    over = False
    for label, (_, limit) in commands.items():
        median = statistics.median(times[label])
        over |= median / base > limit
        table.add_row(label, f"{1e3 * median:.1f}", f"{median / base:.2f}", f"{limit:.2f}")
    Console().print(table)
    return int(over)


def seconds(command: list[str]) -> float:
    """Return the wall time of one process, from start to end."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=installed_environment())
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
