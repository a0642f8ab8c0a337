"""The tables of `speed.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from display import geometric_mean, milliseconds, ratio
from operands import numpy_dtype
from records import Comparison, Record
from rich.console import Console
from rich.table import Table

#: A machine's rates by number of threads: {"flops": ..., "bytes": ...}, per second.
Rates = dict[int, dict[str, float]]

TITLES = {"transpose": "transposed convolution", "filter-grad": "depthwise filter gradient"}


def comparison_table(rows: list[Comparison], rates: Rates) -> Table:
    """Return a table of one operation, layout, dtype and number of threads."""
    task, threads = rows[0].ours.task, rows[0].ours.threads
    title = f"{TITLES[rows[0].layer.operation]}, {task.layout}, {task.dtype}, {_threads(threads)}"
    fast = any(row.fast for row in rows)
    table = Table(title=title, caption="ratios: peer's time over convgrad's, best of all rounds")
    for name in ("layer", "convgrad ms", "strategy", "peer ms", "peer", "ratio", "by medians", "to TF"):
        table.add_column(name, justify="left" if name in ("layer", "strategy", "peer") else "right")
    for name in (*(["--fast"] if fast else []), "GFLOP/s", "share", "error"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*_cells(row, fast, rates[threads]))
    ratios = zip(*(_ratios(row, fast) for row in rows), strict=True)
    means = [geometric_mean(value for value in values if not math.isnan(value)) for values in ratios]
    table.add_section()
    table.add_row("geometric mean", "", "", "", "", *map(ratio, means))
    return table


def _cells(row: Comparison, fast: bool, rates: dict[str, float]) -> list[str]:
    peer = [milliseconds(row.peer.best), f"{row.peer.name} {row.peer.task.layout}"] if row.peer else ["", ""]
    flops = 2 * row.layer.multiply_adds / row.ours.best
    return [
        row.layer.name,
        milliseconds(row.ours.best),
        row.ours.strategy,
        *peer,
        *map(ratio, _ratios(row, fast)),
        f"{flops / 1e9:.1f}",
        _share(row, flops, rates),
        f"{row.ours.error:.1e}",
    ]


def _ratios(row: Comparison, fast: bool) -> list[float]:
    always = [row.ratio, row.ratio_of_medians, row.ratio_to_tensorflow]
    return [*always, row.ratio_fast] if fast else always


def _share(row: Comparison, flops: float, rates: dict[str, float]) -> str:
    """Return which of the machine's limits the layer comes nearer to, and how near."""
    moved = row.layer.bytes(numpy_dtype(row.ours.task.dtype).itemsize) / row.ours.best
    shares = {"sgemm": flops / rates["flops"], "memory": moved / rates["bytes"]}
    limit = max(shares, key=shares.__getitem__)
    return f"{shares[limit]:.0%} {limit}"


def summary_table(groups: Iterable[list[Comparison]]) -> Table:
    """Return one row per table: mean, worst layer, and how many layers are faster than every peer."""
    table = Table("operation", "layout", "dtype", "threads", "against", title="summary")
    for name in ("geometric mean", "worst", "faster on"):
        table.add_column(name, justify="right")
    for rows in groups:
        task = rows[0].ours.task
        head = (rows[0].layer.operation, task.layout, task.dtype, str(rows[0].ours.threads))
        ratios = {
            "fastest peer": [row.ratio for row in rows],
            "fastest peer, --fast": [row.ratio_fast for row in rows],
            "TensorFlow": [row.ratio_to_tensorflow for row in rows],
        }
        for against, values in ratios.items():
            found = [(v, row.layer.name) for v, row in zip(values, rows, strict=True) if not math.isnan(v)]
            if found:
                least, layer = min(found)
                above = sum(value > 1 for value, _ in found)
                mean = ratio(geometric_mean(value for value, _ in found))
                table.add_row(*head, against, mean, f"{ratio(least)} {layer}", f"{above} of {len(found)}")
    return table


def scaling_table(pairs: list[tuple[Record, Record]]) -> Table:
    """Return how much faster convgrad is on two threads."""
    table = Table(
        "layer", "layout", "dtype", "strategy", title="two threads over one, layers of 10 ms or more"
    )
    for name in ("1 thread ms", "2 threads ms", "ratio"):
        table.add_column(name, justify="right")
    for one, two in pairs:
        task = one.task
        times = milliseconds(one.best), milliseconds(two.best), ratio(one.best / two.best)
        layer = f"{task.layer} --fast" if task.fast else task.layer
        table.add_row(layer, task.layout, task.dtype, one.strategy, *times)
    table.add_section()
    mean = geometric_mean(one.best / two.best for one, two in pairs)
    table.add_row("geometric mean", "", "", "", "", "", ratio(mean))
    return table


def print_refusals(out: Console, records: Iterable[Record]) -> None:
    """Say what an implementation would not do; nothing is left out silently."""
    for record in records:
        if record.refused:
            task = record.task
            what = f"{record.name} {task.layer} {task.layout} {task.dtype}, {_threads(record.threads)}"
            out.print(f"refused: {what}: {record.refused}", markup=False)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
