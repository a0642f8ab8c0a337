"""Speed on the layers of published networks, against TensorFlow, PyTorch and ONNX Runtime.

Every implementation runs in processes of its own, one per number of threads, on as many cores. They are
asked in turn, layer by layer, and every round starts with another one, so that what disturbs the machine
for a while disturbs all of them.
"""

from __future__ import annotations

import argparse
import itertools
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

from children import Child
from display import RESULTS, console, machine, write_json
from layers import HALF_PRECISION, LAYERS, Layer
from records import OURS, Comparison, Record, comparisons, scaling
from rich.console import Console
from speed_tables import Rates, comparison_table, print_refusals, scaling_table, summary_table
from tasks import IMPLEMENTATIONS, Task


def main() -> None:
    """Measure, print tables, write a file."""
    options = parsed()
    layers = [
        layer
        for layer in LAYERS.values()
        if re.search(options.layers, layer.name) and options.op in ("both", layer.operation)
    ]
    out = console()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        children = [
            stack.enter_context(closing(Child(implementation, threads, Path(name))))
            for implementation in (OURS, *options.peers)
            for threads in options.threads
        ]
        about = {child.name: child.about for child in children}
        rates = {child.threads: child.ask("yardsticks") for child in children if child.name == OURS}
        print_setting(out, about, rates)
        records = measure(children, layers, options)
    groups = [
        rows
        for dtype, layout, operation, threads in itertools.product(
            options.dtypes, options.layouts, ("transpose", "filter-grad"), options.threads
        )
        if (rows := comparisons(records, operation, layout, dtype, threads))
    ]
    for rows in groups:
        out.print(comparison_table(rows, rates))
    if pairs := scaling(records):
        out.print(scaling_table(pairs))
    out.print(summary_table(groups))
    print_refusals(out, records)
    write_json(options.json, content(about, rates, records, groups, options.rounds))
    out.print(f"written: {options.json}", markup=False)


def parsed() -> argparse.Namespace:
    """Return the command line's options."""

    def words(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", default="", metavar="REGEX", help="only layers whose name it finds")
    parser.add_argument("--op", choices=("both", "transpose", "filter-grad"), default="both")
    parser.add_argument("--threads", type=numbers, default=[1, 2], metavar="N,...")
    parser.add_argument("--layouts", type=words, default=["NHWC", "NCHW"])
    parser.add_argument("--dtypes", type=words, default=["float32", "float16", "bfloat16"])
    parser.add_argument("--peers", type=words, default=list(IMPLEMENTATIONS[1:]))
    parser.add_argument("--json", type=Path, default=RESULTS / "speed.json", metavar="FILE")
    return parser.parse_args()


def measure(children: list[Child], layers: list[Layer], options: argparse.Namespace) -> list[Record]:
    """Ask every child for every task in every round."""
    records: dict[tuple[str, int, Task], Record] = {}
    for turn in range(options.rounds):
        for layer, dtype, threads in itertools.product(layers, options.dtypes, options.threads):
            some = [child for child in children if child.threads == threads]
            for child in some[turn % len(some) :] + some[: turn % len(some)]:
                for task in tasks(child, layer, dtype, options.layouts):
                    key = child.name, threads, task
                    record = records.setdefault(key, Record(*key))
                    if not record.refused:
                        record.add(child.ask(asdict(task) | {"check": turn == 0}))
    return sorted(records.values(), key=lambda record: IMPLEMENTATIONS.index(record.name))


def tasks(child: Child, layer: Layer, dtype: str, layouts: list[str]) -> Iterator[Task]:
    """Yield a child's variants of a layer: convgrad's as asked for, all that a peer has."""
    half = dtype != "float32"
    if half and layer.name not in HALF_PRECISION:
        return
    wanted = (layouts[:1] if half else layouts) if child.name == OURS else ["NHWC", "NCHW"]
    for layout in wanted:
        if child.can(layer.operation, layout, dtype):
            yield Task(layer.name, layout, dtype)
            if child.name == OURS and layer.operation == "transpose" and not half:
                yield Task(layer.name, layout, dtype, fast=True)


def print_setting(out: Console, about: dict[str, dict[str, str]], rates: Rates) -> None:
    """Say on what machine and with what software this is."""
    out.print(machine(), markup=False)
    out.print(", ".join(f"{name} {said['version']}" for name, said in about.items()), markup=False)
    out.print(f"BLAS of NumPy: {about[OURS]['blas']}", markup=False)
    for threads, rate in rates.items():
        measured = f"sgemm {rate['flops'] / 1e9:.0f} GFLOP/s, copy {rate['bytes'] / 1e9:.1f} GB/s"
        out.print(f"threads {threads}: {measured} (read and written)", markup=False)


def content(
    about: dict[str, dict[str, str]],
    rates: Rates,
    records: list[Record],
    groups: list[list[Comparison]],
    rounds: int,
) -> dict[str, object]:
    """Return everything that was measured."""
    return {
        "machine": machine(),
        "versions": {name: said["version"] for name, said in about.items()},
        "blas": about[OURS]["blas"],
        "rates": rates,
        "rounds": rounds,
        "comparisons": [row.to_dict() for rows in groups for row in rows],
        "records": [record.to_dict() for record in records],
    }


if __name__ == "__main__":
    main()
