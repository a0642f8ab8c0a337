"""Completion: options and files by click and the shell, groups and datasets inside HDF5 files by convgrad."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from arrays_on_disk import save
from commandline import Completed, call, run

X = np.zeros((1, 2, 3, 4), np.float32)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("net.h5", "w") as file:
        for name in ("top", "group/x", "group/deep/w", "grand", "with space/a b", "a::b[0]"):
            file[name] = X
    save(tmp_path / "x.npy", X)
    Path("damaged.h5").write_bytes(Path("net.h5").read_bytes()[:500])
    Path("bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\xff" * 2000)


def completed(shell: str, *words: str, in_process: bool = True) -> Completed:
    """What the shell's completion function gets when <TAB> is pressed at the end of the last word."""
    env = {
        "_CONVGRAD_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": shlex.join(["convgrad", *words])
        if words[-1]
        else shlex.join(["convgrad", *words[:-1]]),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
    }
    done = (call if in_process else run)(env=env)
    assert done.returncode in (0, 1)  # click's is 0 or, with nothing to say, either
    assert done.stderr == ""
    return done


def offered(*words: str) -> list[str]:
    """Completions of the last word, as bash gets them: those of kind `plain`."""
    lines = [line.split(",", 1) for line in completed("bash", *words).stdout.splitlines() if line]
    return [value for kind, value in lines if kind == "plain"]


def leaves_files_to_the_shell(*words: str) -> bool:
    return completed("bash", *words).stdout.startswith("file,")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("net.h5", ["net.h5::/"]),
        (
            "net.h5::",
            [f"net.h5::/{n}" for n in ("a::b[0]", "grand", "group/", "top", "with space/")],
        ),
        ("net.h5::/", [f"net.h5::/{n}" for n in ("a::b[0]", "grand", "group/", "top", "with space/")]),
        ("net.h5::/gr", ["net.h5::/grand", "net.h5::/group/"]),
        ("net.h5::/gro", ["net.h5::/group/"]),
        ("net.h5::/group/", ["net.h5::/group/deep/", "net.h5::/group/x"]),
        ("net.h5::/group/deep/w", ["net.h5::/group/deep/w"]),
        ("net.h5::/with", ["net.h5::/with space/"]),
        ("net.h5::/with space/a", ["net.h5::/with space/a b"]),
        ("net.h5::/a::", ["net.h5::/a::b[0]"]),
        ("net.h5::group/d", ["net.h5::group/deep/"]),
        ("net.h5::gr", ["net.h5::grand", "net.h5::group/"]),
        ("net.h5::/no", []),
        ("net.h5::/no/where", []),
        ("net.h5::/top/below", []),
        ("x.npy::", []),
        ("missing.h5::/", []),
        ("bad.h5::/", []),
        ("damaged.h5::/gr", []),
        ("net.h5::/\x01", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_addresses(word: str, expected: list[str]) -> None:
    assert offered("transpose", word) == expected


@pytest.mark.parametrize("word", ["", "n", "net.h", "x.npy", "missing", "."])
def test_files_are_left_to_the_shell(word: str) -> None:
    assert leaves_files_to_the_shell("transpose", word)


@pytest.mark.parametrize(
    "before",
    [
        ("transpose",),
        ("transpose", "x.npy"),
        ("filter-grad", "x.npy"),
        ("transpose", "x.npy", "x.npy", "-o"),
        ("transpose", "-s", "2", "--output"),
    ],
    ids=" ".join,
)
def test_every_address_is_completed(before: tuple[str, ...]) -> None:
    assert offered(*before, "net.h5::/gro") == ["net.h5::/group/"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tr",), ["transpose"]),
        (("",), ["transpose", "filter-grad", "batch"]),
        (("transpose", "--over"), ["--overwrite"]),
        (("filter-grad", "--filter"), ["--filter-sizes"]),
        (("transpose", "--filter"), []),
        (("transpose", "--format", ""), ["table", "json"]),
        (("transpose", "--cast", "b"), ["bfloat16"]),
    ],
    ids=str,
)
def test_verbs_options_and_choices(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell(shell: str) -> None:
    """zsh and fish show the shape beside the name; zsh, which splits there, gets colons escaped."""
    shown = completed(shell, "transpose", "net.h5::/group/", in_process=False).stdout
    assert "net.h5::/group/deep/\n" in shown
    assert ("net.h5\\:\\:/group/x" if shell == "zsh" else "net.h5::/group/x") in shown
    assert ("1×2×3×4" in shown) == (shell != "bash")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    done = call(env={"_CONVGRAD_COMPLETE": f"{shell}_source"})
    assert "_CONVGRAD_COMPLETE=" + f"{shell}_complete" in done.stdout
    assert done.stderr == ""


# In a real shell


class Bash:
    """An interactive bash on a terminal, set up as README says, in which `convgrad` shows its words."""

    def __init__(self) -> None:
        import pty

        child, self._terminal = pty.fork()
        if child == 0:
            os.environ.update(INPUTRC=os.devnull, TERM="dumb", PS1="", HISTFILE="")
            os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self._child = child
        self.send('eval "$(_CONVGRAD_COMPLETE=bash_source convgrad)"')
        self.send("convgrad() { printf '<%s>' \"$@\"; echo; }")

    def send(self, line: str) -> list[str]:
        """Type a line; return the words that `convgrad` got."""
        os.write(self._terminal, f"{line}\nprintf '%s%s\\n' DO NE\n".encode())
        shown, deadline = "", time.monotonic() + 20
        while "\nDONE" not in shown.replace("\r", "\n"):
            if not select.select([self._terminal], [], [], max(deadline - time.monotonic(), 0))[0]:
                pytest.fail(f"bash does not answer: {shown!r}")
            shown += os.read(self._terminal, 4096).decode()
        answers = [text for text in shown.replace("\r", "\n").split("\n") if text.startswith("<")]
        return answers[-1].strip("<>").split("><") if answers else []

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self._child, 0)


@pytest.fixture
def bash() -> object:
    if shutil.which("bash") is None or os.name != "posix":
        pytest.skip("no bash")
    shell = Bash()
    yield shell
    shell.close()


def test_bash_itself(bash: Bash) -> None:
    """A space after a group would end the word."""
    assert bash.send("convgrad transpose net.h5\tEND") == ["transpose", "net.h5::/END"]
    assert bash.send("convgrad transpose net.h5::/gro\tEND") == ["transpose", "net.h5::/group/END"]
    assert bash.send("convgrad transpose net.h5::/group/d\tw") == ["transpose", "net.h5::/group/deep/w"]
    assert bash.send("convgrad transpose net.h5::/to\t END") == ["transpose", "net.h5::/top", "END"]


def test_bash_quotes_names_with_spaces(bash: Bash) -> None:
    assert bash.send("convgrad transpose net.h5::/wi\ta\t")[:2] == ["transpose", "net.h5::/with space/a b"]


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ('"net.h5::/to\t', "net.h5::/top"),
        ("'net.h5::/to\t", "net.h5::/top"),
        ("net.h5\\:\\:/to\t", "net.h5::/top"),
        ('"net.h5::/with space/a\t', "net.h5::/with space/a b"),
        ("net.h5::/with\\ space/a\t", "net.h5::/with space/a b"),
        ("--output=net.h5::/to\t", "--output=net.h5::/top"),
        ("net.h5::/a::\t", "net.h5::/a::b[0]"),
    ],
    ids=str,
)
def test_bash_keeps_what_was_typed(bash: Bash, typed: str, word: str) -> None:
    """In quotes (which bash closes), after an escaped colon, after an equals sign: the rest is put in."""
    assert bash.send(f"convgrad transpose {typed}")[1] == word


def test_zsh_goes_on_into_a_group() -> None:
    """Its script adds no space to what has no description, which groups are."""
    assert "compadd -S '' -U" in call(env={"_CONVGRAD_COMPLETE": "zsh_source"}).stdout
