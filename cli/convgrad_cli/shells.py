"""Completion of words with colons: what bash and zsh need for `FILE.h5::/dataset` beyond what click does.

bash ends a word at every colon and a completion with a space. click's script hands over the words as bash
splits them, so `net.h5::/x` would arrive as three; the one here hands over the line, gives back only what
follows the last colon, and lets a group be gone into. zsh takes what follows a colon for a description.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ZshComplete,
    add_completion_class,
    split_arg_string,
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


class LineComplete(BashComplete):
    """bash, by the line instead of the words."""

    source_template = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one at the cursor, and that one."""
        line = os.environ.get("COMP_LINE")
        if line is None:  # words from click's own script
            return super().get_completion_args()
        words = split_arg_string(line)
        return (words[1:], "") if re.search(r"(?<!\\)\s$", line) else (words[1:-1], words[-1])

    def format_completion(self, item: CompletionItem) -> str:
        """Return the part of the completion that bash puts in place of the part it takes for the word."""
        if "COMP_LINE" not in os.environ or item.type != "plain":
            return super().format_completion(item)
        typed = self.get_completion_args()[1]
        colons = typed.count(":") if ":" in os.environ.get("COMP_WORDBREAKS", "") else 0
        rest = item.value.split(":", colons)[-1]
        quoted = re.sub(r"([^-A-Za-z0-9_./:,+=@%^])", r"\\\1", rest)
        return f"{item.type},{quoted}"


class ColonComplete(ZshComplete):
    """zsh, with colons escaped where it splits at them: only newer versions of click do that themselves."""

    def format_completion(self, item: CompletionItem) -> str:
        """Return kind, value and description, a line each; `_` stands for no description."""
        value = item.value.replace(":", r"\:") if item.help else item.value
        return f"{item.type}\n{value}\n{item.help or '_'}"


def install() -> None:
    """Use these for their shells."""
    add_completion_class(LineComplete)
    add_completion_class(ColonComplete)
