"""`convgrad batch`: many jobs from one manifest."""

from __future__ import annotations

import click

from convgrad_cli import options


@click.command(
    "batch",
    short_help="Many jobs from a manifest; what is up to date is skipped.",
    epilog="""\b
Examples:
  convgrad batch jobs.toml --dry-run
  convgrad batch jobs.toml --workers 2 --format json

\b
jobs.toml:
  [defaults]
  operation = "filter-grad"
  filter_sizes = [3, 3]
  [[job]]
  input = "acts/*.npy"
  out_backprop = "grads/{stem}.npy"
  output = "dw/{stem}.npy"
  [[job]]
  input = "acts.h5::/layers/*/input"
  out_backprop = "acts.h5::/layers/{name}/out_backprop"
  output = "dw.h5::/{name}"
  append = true

\b
Keys are the commands' option names: strides = 2, padding = "SAME", data_format, as, cast, ...
{stem}: the matched file's name without suffix. {name}: what the first * of the dataset's path
matched, or the file's name. {1}, {2}: what each wildcard matched.
""",
)
@click.argument("manifest", type=click.Path())
@click.option("-n", "--dry-run", is_flag=True, help="Plan every job and compute nothing.")
@click.option(
    "--keep-going/--fail-fast",
    default=True,
    show_default=True,
    help="Go on after a job that failed, or begin no further one.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that work."
)
@options.memory
@options.progress
@options.report_format
@options.quiet
@options.debug
def command(
    manifest: str,
    dry_run: bool,
    keep_going: bool,
    workers: int,
    memory: int | None,
    progress: str,
    report_format: str,
    quiet: bool,
) -> None:
    """Run the jobs of MANIFEST, a TOML file of [defaults] and [[job]] tables.

    The manifest is checked whole before the first job. A result that an earlier run made from the same
    operands with the same parameters is skipped, so running a batch again resumes it. Exit status 1 if any
    job failed.
    """
    from convgrad_cli.batch.command import run_batch

    run_batch(
        manifest,
        dry_run=dry_run,
        keep_going=keep_going,
        workers=workers,
        memory=memory,
        progress=progress,
        as_json=report_format == "json",
        quiet=quiet,
    )
