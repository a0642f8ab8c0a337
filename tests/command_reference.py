"""The command reference in README.md, made from --help: `python tests/command_reference.py --write`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from convgrad_cli.group import VERBS, convgrad

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- reference: made by `make docs` -->\n", "<!-- end of reference -->\n"
#: Columns of the help text in the README, whatever the terminal.
WIDTH = 100


def help_text(verb: str | None) -> str:
    """Return what `convgrad [VERB] --help` prints on a terminal of `WIDTH` columns."""
    # A context made by hand leaves out the group's own settings, -h among them.
    wide = {"terminal_width": WIDTH, "max_content_width": WIDTH, **convgrad.context_settings}
    group = click.Context(convgrad, info_name="convgrad", **wide)
    if verb is None:
        return convgrad.get_help(group)
    command = convgrad.get_command(group, verb)
    assert command is not None
    context = click.Context(command, parent=group, info_name=verb, **wide)
    return command.get_help(context)


def reference() -> str:
    """Return the reference of all commands as Markdown."""
    sections = [f"### `convgrad`\n\n```text\n{help_text(None)}\n```\n"]
    sections += [f"### `convgrad {verb}`\n\n```text\n{help_text(verb)}\n```\n" for verb in VERBS]
    return "\n".join(sections)


def with_reference(readme: str) -> str:
    """Return the README's text with its reference made anew."""
    before, rest = readme.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    fresh = with_reference(README.read_text())
    if sys.argv[1:] == ["--write"]:
        README.write_text(fresh)
    else:
        sys.stdout.write(reference())
