"""What all tables and files of results have in common."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

#: Results that nobody asked to have elsewhere.
RESULTS = Path(__file__).resolve().parents[2] / ".bench"


def console() -> Console:
    """Return a console that cuts no table when it is not a terminal."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=200)


def machine() -> str:
    """Return the CPU's model and how many cores this process may use."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.MULTILINE)
        model = found[1] if found else model
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}"


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the mean for ratios; NaN of none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def milliseconds(seconds: float) -> str:
    """Return a time with three digits or all of its whole ones."""
    value = 1e3 * seconds
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def ratio(value: float | None) -> str:
    """Return a ratio as text, empty where there is none."""
    return "" if value is None or math.isnan(value) else f"{value:.2f}"


def write_json(path: Path, content: Any) -> None:
    """Write results where a later comparison finds them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
