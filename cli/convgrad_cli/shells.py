"""Completion of words with colons: what bash and zsh need for `FILE.h5::/dataset` beyond what click does.

bash ends a word at every colon and a completion with a space. click's script hands over the words as bash
splits them, so `net.h5::/x` would arrive as three; the one here hands over the line, gives back only what
follows the last colon, and lets a group be gone into. zsh takes what follows a colon for a description.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ZshComplete,
    add_completion_class,
)

_SCRIPT = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
            *) COMPREPLY+=("$value"); [[ $value == */ ]] && compopt -o nospace ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Line(NamedTuple):
    """A command line up to the cursor.

    Attributes
    ----------
    words : the words, quotes taken off; the last one is at the cursor, and may be empty
    kept : how many characters of the last word bash leaves as they are, and replaces those after them
    quote : the quote that is open at the cursor, or nothing
    """

    words: list[str]
    kept: int
    quote: str


def _read(line: str, breaks: str) -> _Line:
    """Read a line as bash does; `breaks` are the characters after which bash begins another replacement."""
    words, word, kept, quote = [], "", 0, ""
    started = escaped = False
    for character in line:
        if escaped:
            word, escaped = word + character, False
        elif character == "\\" and quote != "'":
            escaped = started = True
        elif character == quote or (not quote and character in "\"'"):
            quote, kept, started = "" if quote else character, len(word), True
        elif not quote and character.isspace():
            words += [word] if started else []
            word, kept, started = "", 0, False
        else:
            word, started = word + character, True
            kept = len(word) if not quote and character in breaks else kept
    return _Line([*words, word], kept, quote)


class LineComplete(BashComplete):
    """bash, by the line instead of the words."""

    source_template = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one at the cursor, and that one."""
        if "COMP_LINE" not in os.environ:  # words from click's own script
            return super().get_completion_args()
        *words, last = self._line().words
        return words[1:], last

    def format_completion(self, item: CompletionItem) -> str:
        """Return the part of the completion that bash puts in place of the part it takes for the word."""
        if "COMP_LINE" not in os.environ or item.type != "plain":
            return super().format_completion(item)
        line = self._line()
        option, equals, _ = line.words[-1].partition("=")
        # Of --option=value click completes the value alone.
        before = len(option) + 1 if equals and option.startswith("--") else 0
        rest = item.value[max(line.kept - before, 0) :]
        quoted = rest if line.quote else re.sub(r"([^-A-Za-z0-9_./:,+=@%^])", r"\\\1", rest)
        return f"{item.type},{quoted}"

    def _line(self) -> _Line:
        return _read(os.environ["COMP_LINE"], os.environ.get("COMP_WORDBREAKS", ""))


class ColonComplete(ZshComplete):
    """zsh, with colons escaped where it splits at them: only newer versions of click do that themselves."""

    # What has no description is a group, which the user will go on into: no space after it.
    source_template = ZshComplete.source_template.replace("compadd -U", "compadd -S '' -U")

    def format_completion(self, item: CompletionItem) -> str:
        """Return kind, value and description, a line each; `_` stands for no description."""
        value = item.value.replace(":", r"\:") if item.help else item.value
        return f"{item.type}\n{value}\n{item.help or '_'}"


def install() -> None:
    """Use these for their shells."""
    add_completion_class(LineComplete)
    add_completion_class(ColonComplete)
