"""Running the jobs of a batch: one after the other, or in several processes."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from convgrad import ConvgradError
from convgrad.execution import available_cores
from convgrad_cli.interrupts import Unwound, check
from convgrad_cli.job import OPERATIONS, CommonOptions, perform
from convgrad_cli.memory import FRACTION, available_bytes
from convgrad_cli.process import Process

from .ledger import Ledger, states_of
from .manifest import parameters_of
from .tasks import Outcome, Task, grouped


class _Quiet:
    """Stands in for a reporter: a batch has one table for all jobs. Keeps a plan that is shown."""

    quiet = silent = True

    def __init__(self) -> None:
        self.plan: dict[str, Any] | None = None

    def notes(self, notes: Any) -> None:
        """Leave out what a job would note."""

    def planned(self, verb: str, way: Any, addresses: Any) -> None:
        """Keep the plan of a dry run."""
        from convgrad_cli.report import plan_as_dict

        way.check()
        self.plan = plan_as_dict(verb, way, addresses)

    def done(self, *_: Any) -> None:
        """Say nothing."""


def attempt(task: Task, ledger: Ledger, *, dry_run: bool = False, memory: int | None = None) -> Outcome:
    """Run one job; whatever goes wrong with it is its outcome.

    Parameters
    ----------
    task : the job
    ledger : of the manifest
    dry_run : only plan it
    memory : bytes for the whole process, where the job does not say
    """
    started, begun = time.perf_counter(), False
    try:
        if ledger.up_to_date(task.output, task.recipe, task.operands):
            return Outcome("skipped", time.perf_counter() - started)
        states = states_of(task.operands)
        replaced = ["--overwrite"] if ledger.may_replace(task.output) else []
        begun = not dry_run and ledger.begin(task.output)
        dry = ["--dry-run"] if dry_run else []
        words = [*task.words, *replaced, *dry, "-o", task.output, "--", *task.operands]
        quiet = _Quiet()
        _perform(task.verb, task.operands, words, quiet, memory)
        seconds = time.perf_counter() - started
        if dry_run:
            return Outcome("planned", seconds, plan=quiet.plan)
        made = ledger.entry(task.output, task.recipe, task.operands, states)
        return Outcome("done", seconds, made=made)
    except (ConvgradError, MemoryError, OSError) as error:
        outcome = _failed(error, task.output)
    except Exception as error:
        check()  # what became of an interrupt on the way is of no interest
        outcome = Outcome("failed", 0.0, f"internal error: {type(error).__name__}: {error}")
    if begun:
        ledger.forget(task.output)
    return outcome._replace(seconds=time.perf_counter() - started)


def _failed(error: Exception, output: str) -> Outcome:
    if isinstance(error, ConvgradError):
        candidates = "; ".join(getattr(error, "candidates", ()))
        return Outcome("failed", 0.0, f"{error.message} {candidates}".strip(), error.hint)
    if isinstance(error, MemoryError):
        return Outcome("failed", 0.0, f"not enough memory: {error}")
    assert isinstance(error, OSError)
    return Outcome("failed", 0.0, f"{error.filename or output}: {error.strerror or error}")


def _perform(
    verb: str, operands: tuple[str, ...], words: list[str], quiet: _Quiet, memory: int | None
) -> None:
    operation = OPERATIONS[verb]
    given = parameters_of(verb, words)
    addresses = dict(zip(operation.roles, operands, strict=True))
    for role in operation.roles:
        given.pop(role)
    own = {operation.sizes: given.pop(operation.sizes)}
    if "fast" in given:
        own["fast"] = given.pop("fast")
    options = CommonOptions(**given)
    if options.memory is None:
        options = options._replace(memory=memory)
    named = {**addresses, "output": options.output}
    perform(operation, named, own, options, quiet, Process())  # type: ignore[arg-type]


def run_here(
    tasks: list[Task], ledger: Ledger, *, dry_run: bool, memory: int | None
) -> Generator[tuple[int, Outcome], None, None]:
    """Yield the number and outcome of each job, one after the other."""
    for number, task in enumerate(tasks):
        yield number, attempt(task, ledger, dry_run=dry_run, memory=memory)


def run_in_processes(
    tasks: list[Task], manifest: str, *, workers: int, dry_run: bool, keep_going: bool, memory: int | None
) -> Generator[tuple[int, Outcome], None, None]:
    """Yield the number and outcome of each job as they end, from `workers` processes.

    A worker that dies takes the jobs that were under way with it; they fail, and so do those not yet begun.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    groups = grouped(list(enumerate(tasks)))
    if memory is None and (available := available_bytes()) is not None:
        memory = int(FRACTION * available)
    share = None if memory is None else memory // workers
    context = multiprocessing.get_context("spawn")
    threads = max(available_cores() // workers, 1)
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (manifest, threads))
    try:
        # Not all at once: what is queued is not easily taken back.
        waiting = {pool.submit(_work, group, dry_run, keep_going, share): group for group in groups}
        for future in as_completed(waiting):
            try:
                yield from future.result()
            except BrokenProcessPool:
                for number, _ in waiting[future]:
                    yield number, Outcome("failed", 0.0, "the process that worked on it died")
    finally:
        for child in multiprocessing.active_children():
            child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


_worker_ledger: Ledger | None = None


def _begin_worker(manifest: str, threads: int) -> None:
    import os
    import signal

    global _worker_ledger
    os.environ.setdefault("CONVGRAD_THREADS", str(threads))
    _worker_ledger = Ledger(manifest)
    # Ctrl-C goes to the whole group; the process that began the batch decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(
    group: list[tuple[int, Task]], dry_run: bool, keep_going: bool, memory: int | None
) -> list[tuple[int, Outcome]]:
    assert _worker_ledger is not None
    outcomes = []
    try:
        for number, task in group:
            outcomes.append((number, attempt(task, _worker_ledger, dry_run=dry_run, memory=memory)))
            if outcomes[-1][1].status == "failed" and not keep_going:
                break
        return outcomes
    except Unwound as signalled:
        raise SystemExit(signalled.status) from None
