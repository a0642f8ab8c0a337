"""A batch from its manifest to its exit status."""

from __future__ import annotations

import contextlib
import gc
import sys

import click

from convgrad_cli.interrupts import check, unwinding
from convgrad_cli.process import FAILED

from .ledger import Ledger
from .manifest import read_manifest
from .report import BatchReporter
from .run import run_here, run_in_processes
from .tasks import tasks_of


def run_batch(
    manifest: str,
    *,
    dry_run: bool,
    keep_going: bool,
    workers: int,
    memory: int | None,
    progress: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run a manifest's jobs and say what became of them.

    Raises
    ------
    ManifestError, StorageError
        Before the first job, if the manifest is wrong or cannot be read.
    click.exceptions.Exit
        With status 1 if a job failed.
    """
    tasks = tasks_of(manifest, read_manifest(manifest))
    ledger = Ledger(manifest)
    if not dry_run:
        ledger.tidy()
    gc.enable()
    reporter = BatchReporter(sys.stdout, as_json=as_json, quiet=quiet, progress=progress, total=len(tasks))
    if workers == 1:
        outcomes = run_here(tasks, ledger, dry_run=dry_run, memory=memory)
    else:
        outcomes = run_in_processes(
            tasks, manifest, workers=workers, dry_run=dry_run, keep_going=keep_going, memory=memory
        )
    try:
        with unwinding(), contextlib.closing(outcomes):
            for number, outcome in outcomes:
                check()
                if outcome.made is not None:
                    ledger.add(tasks[number].output, outcome.made)
                reporter.outcome(tasks[number], outcome)
                if outcome.status == "failed" and not keep_going:
                    break
    finally:
        reporter.close()
    reporter.finish()
    if reporter.counts["failed"]:
        raise click.exceptions.Exit(FAILED)
