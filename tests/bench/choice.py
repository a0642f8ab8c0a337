"""The cost model's choice: every kernel that applies, timed on random problems, one core, one thread.

How far the chosen kernel is from the fastest one, and from the general one that always applies.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from display import RESULTS, console, machine, milliseconds, ratio, write_json
from geometries import Problem, problems
from operands import numpy_dtype
from rich.console import Console
from rich.table import Table

import convgrad
from convgrad.execution import execute

SEED = 20260101
#: The kernels that apply to everything.
GENERAL = {"transpose": "taps", "filter-grad": "sums"}
FAST = "fir"
#: Wall time that a problem's kernels get together, and the rounds they get at least.
SECONDS, ROUNDS = 0.5, 5
#: A ratio above this may be noise: the problem is timed again, for longer.
SUSPICIOUS = 1.15


@dataclass(frozen=True, slots=True)
class Choice:
    """One problem with the least and the estimated seconds of every kernel."""

    problem: Problem
    chosen: str
    measured: dict[str, float]
    estimated: dict[str, float]
    plan: convgrad.Plan

    @property
    def best(self) -> str:
        """The fastest kernel."""
        return min(self.measured, key=self.measured.__getitem__)

    @property
    def to_best(self) -> float:
        """Time of the chosen kernel over that of the fastest."""
        return self.measured[self.chosen] / self.measured[self.best]

    @property
    def to_general(self) -> float:
        """Time of the chosen kernel over that of the general one."""
        return self.measured[self.chosen] / self.measured[GENERAL[self.problem.operation]]


def main() -> None:
    """Measure, print tables, write files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--fast", action="store_true", help=f"with {FAST!r} among the kernels")
    parser.add_argument("--json", type=Path, default=RESULTS / "choice.json", metavar="FILE")
    parser.add_argument("--fit", type=Path, metavar="FILE", help="also write one line per kernel and problem")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    out = console()
    out.print(machine(), markup=False)
    choices = []
    for problem in problems(options.count, options.seed):
        choices.append(judged(problem, options.dtype, options.fast))
        if out.is_terminal:
            out.print(f"{len(choices)} of {options.count}", end="\r")
    report(out, choices)
    write_json(options.json, [to_dict(choice) for choice in choices])
    if options.fit:
        rows = [row for choice in choices for row in fit_rows(choice)]
        write_json(options.fit, rows)


def judged(problem: Problem, dtype: str, fast: bool) -> Choice:
    """Time every kernel on one problem."""
    rng = np.random.default_rng(0)
    numbers = numpy_dtype(dtype)
    first, second = (rng.standard_normal(shape, np.float32).astype(numbers) for shape in problem.shapes)
    plan = planned(problem, first, second, fast)
    out = np.empty(plan.output.shape, plan.output.dtype)
    plans = {name: plan.using(name) for name in plan.strategies if fast or name != FAST}
    calls = {name: _call(one, first, second, out) for name, one in plans.items()}
    measured = interleaved(calls, SECONDS)
    if measured[plan.strategy] > SUSPICIOUS * min(measured.values()):
        again = interleaved(calls, 3 * SECONDS)
        measured = {name: min(seconds, again[name]) for name, seconds in measured.items()}
    return Choice(problem, plan.strategy, measured, {name: one.seconds for name, one in plans.items()}, plan)


def planned(problem: Problem, first: Any, second: Any, fast: bool) -> convgrad.Plan:
    """Return the library's plan of a problem."""
    if problem.operation == "transpose":
        return convgrad.plan_conv2d_transpose(first, second, problem.wide, **problem.options, fast=fast)
    return convgrad.plan_depthwise_conv2d_backprop_filter(first, problem.kernel, second, **problem.options)


def _call(plan: convgrad.Plan, first: Any, second: Any, out: Any) -> Callable[[], None]:
    return lambda: execute(plan, first, second, out, threads=1)


def interleaved(calls: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Return the least time of each call, made in turn; hopeless ones are given up after two rounds."""
    least = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
    start, turn = time.perf_counter(), 0
    while turn < ROUNDS or (time.perf_counter() - start < seconds and turn < 200):
        for name, call in calls.items():
            if turn < 2 or least[name] < 2 * min(least.values()):
                before = time.perf_counter()
                call()
                least[name] = min(least[name], time.perf_counter() - before)
        turn += 1
    return least


def report(out: Console, choices: list[Choice]) -> None:
    """Print what the choices cost, the worst ones, and how good the estimates are."""
    table = Table("problems", title="chosen kernel's time", caption="general kernels: taps, sums")
    for name in ("over the best: median", "90 %", "worst", "over the general: worst"):
        table.add_column(name, justify="right")
    for operation in (None, *GENERAL):
        some = [choice for choice in choices if operation in (None, choice.problem.operation)]
        if some:
            ratios = sorted(choice.to_best for choice in some)
            nine = ratios[math.ceil(0.9 * len(ratios)) - 1]
            values = (statistics.median(ratios), nine, ratios[-1], max(choice.to_general for choice in some))
            table.add_row(f"{len(some)} {operation or 'in all'}", *map(ratio, values))
    out.print(table)
    by_best = sorted(choices, key=lambda choice: choice.to_best, reverse=True)[:15]
    out.print(_worst("farthest from the best", by_best, lambda choice: choice.best))
    by_general = sorted(choices, key=lambda choice: choice.to_general, reverse=True)[:5]
    out.print(
        _worst("slowest over the general", by_general, lambda choice: GENERAL[choice.problem.operation])
    )
    out.print(_estimates(choices))


def _worst(title: str, choices: list[Choice], other: Callable[[Choice], str]) -> Table:
    table = Table(
        "kind", "problem", "chosen", "ms", "estimate", "other", "ms", "estimate", "ratio", title=title
    )
    for choice in choices:
        cells = []
        for name in (choice.chosen, other(choice)):
            cells += [name, milliseconds(choice.measured[name]), milliseconds(choice.estimated[name])]
        value = choice.measured[choice.chosen] / choice.measured[other(choice)]
        table.add_row(choice.problem.kind, str(choice.problem), *cells, ratio(value))
    return table


def _estimates(choices: list[Choice]) -> Table:
    """Return measured over estimated time per kernel: what the cost model's constants are off by."""
    table = Table("operation", "kernel", "applies", "chosen", "best", title="measured over estimated time")
    for name in ("10 %", "median", "90 %"):
        table.add_column(name, justify="right")
    for operation in GENERAL:
        some = [choice for choice in choices if choice.problem.operation == operation]
        for name in sorted({name for choice in some for name in choice.measured}):
            ratios = [c.measured[name] / c.estimated[name] for c in some if name in c.measured]
            counts = (
                len(ratios),
                sum(choice.chosen == name for choice in some),
                sum(choice.best == name for choice in some),
            )
            quantiles = np.quantile(ratios, (0.1, 0.5, 0.9)).tolist()
            table.add_row(operation, name, *map(str, counts), *map(ratio, quantiles))
    return table


def to_dict(choice: Choice) -> dict[str, Any]:
    """Return a choice as JSON can hold it."""
    return {
        **asdict(choice.problem),
        "text": str(choice.problem),
        "multiply_adds": choice.plan.multiply_adds,
        "chosen": choice.chosen,
        "best": choice.best,
        "measured": choice.measured,
        "estimated": choice.estimated,
    }


def fit_rows(choice: Choice) -> list[dict[str, Any]]:
    """Return one row per kernel, with all that a cost may depend on."""
    plan = choice.plan
    geometry = {
        **asdict(choice.problem),
        "height": asdict(plan.height),
        "width": asdict(plan.width),
        "dtype": plan.output.dtype.name,
        "multiply_adds": plan.multiply_adds,
        "total_bytes": plan.total_bytes,
    }
    return [
        {"strategy": name, "estimated": choice.estimated[name], "measured": seconds, "geometry": geometry}
        for name, seconds in choice.measured.items()
    ]


if __name__ == "__main__":
    main()
