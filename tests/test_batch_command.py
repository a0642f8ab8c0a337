"""`convgrad batch`: manifests, patterns, what is up to date, failures, and what is said of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import reference
from arrays_on_disk import save
from assertions import assert_matches
from commandline import Completed, call, run
from convgrad_cli.batch.patterns import UnknownNameError, filled, matches

RNG = np.random.default_rng(11)
HEAD = '[defaults]\noperation = "filter-grad"\nfilter_sizes = [3, 3]\n'
JOB = '[[job]]\ninput = "acts/*.npy"\nout_backprop = "grads/{stem}.npy"\noutput = "dw_{stem}.npy"\n'
NAMES = ("a", "b", "c")


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def operands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Three pairs of files, and the manifest of a batch over them."""
    monkeypatch.chdir(tmp_path)
    for folder in ("acts", "grads"):
        Path(folder).mkdir()
    made = {name: (random(2, 6, 5, 3), random(2, 6, 5, 3)) for name in NAMES}
    for name, (x, dy) in made.items():
        save(Path("acts", f"{name}.npy"), x)
        save(Path("grads", f"{name}.npy"), dy)
    Path("jobs.toml").write_text(HEAD + JOB)
    return made


Operands = dict[str, tuple[np.ndarray, np.ndarray]]


def batch(*words: str, status: int = 0) -> list[dict[str, Any]]:
    """Run the manifest; return the jobs and the summary as they are told in JSON."""
    done = call("batch", "jobs.toml", "--format", "json", *words)
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def statuses(told: list[dict[str, Any]]) -> dict[str, str]:
    return {job["output"]: job["status"] for job in told if "output" in job}


def check_result(name: str, pair: tuple[np.ndarray, np.ndarray], output: str = "dw_{}.npy") -> None:
    assert_matches(np.load(output.format(name)), *reference.filter_grad(pair[0], (3, 3), pair[1]), np.float32)


# Results, and what is up to date.


def test_every_match_is_a_job(operands: Operands) -> None:
    *jobs, last = batch()
    assert statuses(jobs) == {f"dw_{name}.npy": "done" for name in NAMES}
    assert last["summary"]["done"] == 3
    for name, pair in operands.items():
        check_result(name, pair)


def test_running_again_makes_nothing(operands: Operands) -> None:
    batch()
    before = {path: path.stat().st_mtime_ns for path in Path().glob("dw_*")}
    assert set(statuses(batch()).values()) == {"skipped"}
    assert {path: path.stat().st_mtime_ns for path in Path().glob("dw_*")} == before


def _operand(pairs: Operands) -> None:
    pairs["b"] = random(2, 6, 5, 3), pairs["b"][1]
    save(Path("acts/b.npy"), pairs["b"][0])


def _deleted(_: Operands) -> None:
    Path("dw_b.npy").unlink()


@pytest.mark.parametrize("change", [_operand, _deleted], ids=["operand", "deleted"])
def test_what_has_changed_is_made_again(operands: Operands, change: Callable[[Operands], None]) -> None:
    batch()
    change(operands)
    assert statuses(batch()) == {"dw_a.npy": "skipped", "dw_b.npy": "done", "dw_c.npy": "skipped"}
    check_result("b", operands["b"])


def test_other_parameters_make_everything_again(operands: Operands) -> None:
    batch()
    Path("jobs.toml").write_text(HEAD.replace("[3, 3]", '"5x1"') + JOB)
    assert set(statuses(batch()).values()) == {"done"}
    assert np.load("dw_a.npy").shape == (5, 1, 3, 1)


def test_a_result_of_others_is_left_alone(operands: Operands) -> None:
    """Also one that was put in the place of the batch's own."""
    Path("dw_a.npy").write_bytes(b"precious")
    assert statuses(batch(status=1)) == {"dw_a.npy": "failed", "dw_b.npy": "done", "dw_c.npy": "done"}
    save(Path("dw_b.npy"), np.zeros(3))
    assert statuses(batch(status=1)) == {"dw_a.npy": "failed", "dw_b.npy": "failed", "dw_c.npy": "skipped"}
    assert Path("dw_a.npy").read_bytes() == b"precious"
    Path("jobs.toml").write_text(HEAD + "overwrite = true\n" + JOB)
    batch()
    check_result("a", operands["a"])


@pytest.mark.usefixtures("operands")
def test_a_ledger_torn_by_a_kill(operands: Operands) -> None:
    batch()
    ledger = Path(".jobs.toml.convgrad-done")
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    assert statuses(batch()) == {"dw_a.npy": "skipped", "dw_b.npy": "skipped", "dw_c.npy": "done"}
    check_result("c", operands["c"])


def test_inside_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = {name: (random(1, 4, 4, 2), random(1, 4, 4, 2)) for name in NAMES}
    with h5py.File("acts.h5", "w") as file:
        for name, (x, dy) in pairs.items():
            file[f"layers/{name}/input"] = x
            file[f"layers/{name}/out_backprop"] = dy
        file["layers/a/deep/input"] = np.zeros(1)
    Path("jobs.toml").write_text(
        HEAD + 'append = true\n[[job]]\ninput = "acts.h5::/layers/*/input"\n'
        'out_backprop = "acts.h5::/layers/{name}/out_backprop"\noutput = "dw.h5::/{1}/dw"\n'
    )
    assert set(statuses(batch())) == {f"dw.h5::/{name}/dw" for name in NAMES}
    assert set(statuses(batch()).values()) == {"skipped"}
    with h5py.File("dw.h5", "r+") as file:
        for name, (x, dy) in pairs.items():
            assert_matches(file[f"{name}/dw"][()], *reference.filter_grad(x, (3, 3), dy), np.float32)
        del file["b/dw"]
    assert statuses(batch())["dw.h5::/b/dw"] == "done"


def test_processes_give_the_same_bits(operands: Operands) -> None:
    batch()
    bits = {name: Path(f"dw_{name}.npy").read_bytes() for name in operands}
    for name in operands:
        Path(f"dw_{name}.npy").unlink()
    save(Path("acts/d.npy"), np.zeros((1, 2)))
    save(Path("grads/d.npy"), np.zeros((1, 2)))
    done: Completed = run("batch", "jobs.toml", "--workers", "2", "--format", "json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    failed = next(job for job in told if job.get("status") == "failed")
    assert failed["output"] == "dw_d.npy"
    assert "4 axes" in failed["error"]["message"]
    assert {name: Path(f"dw_{name}.npy").read_bytes() for name in operands} == bits


# Failures.


def test_bad_files_among_good_ones(operands: Operands) -> None:
    bad = {"cut": b"\x93NUMPY\x01", "text": b"hello\n", "empty": b""}
    for name, content in bad.items():
        Path("acts", f"{name}.npy").write_bytes(content)
        save(Path("grads", f"{name}.npy"), np.zeros((1, 6, 5, 3), np.float32))
    Path("acts/gone.npy").symlink_to("nowhere")
    Path("acts/folder.npy").mkdir()
    *jobs, last = batch(status=1)
    failed = {
        Path(job["operands"][0]).stem: job["error"]["message"] for job in jobs if job["status"] == "failed"
    }
    assert set(failed) == {*bad, "gone", "folder"}
    assert all(f"acts/{name}.npy" in message for name, message in failed.items())
    assert (last["summary"]["done"], last["summary"]["failed"]) == (3, 5)
    for name, pair in operands.items():
        check_result(name, pair)
    table = call("batch", "jobs.toml")
    assert table.returncode == 1
    assert all(message.split(":")[0] in table.stdout for message in failed.values())
    assert not list(Path().glob(".*.convgrad-tmp"))


@pytest.mark.usefixtures("operands")
def test_fail_fast() -> None:
    Path("acts/a.npy").write_bytes(b"")
    told = batch("--fail-fast", status=1)
    assert statuses(told) == {"dw_a.npy": "failed"}
    assert told[-1]["summary"]["left"] == 2


@pytest.mark.usefixtures("operands")
def test_a_dry_run_finds_every_mismatch_and_makes_nothing() -> None:
    save(Path("acts/a.npy"), np.zeros((2, 7, 5, 3), np.float32))
    save(Path("acts/c.npy"), np.zeros((2, 6, 5, 4), np.float32))
    before = sorted(Path().rglob("*"))
    told = batch("--dry-run", status=1)
    assert statuses(told) == {"dw_a.npy": "failed", "dw_b.npy": "planned", "dw_c.npy": "failed"}
    assert told[1]["plan"]["tensors"][2]["shape"] == [3, 3, 3, 1]
    assert sorted(Path().rglob("*")) == before


@pytest.mark.usefixtures("operands")
def test_quiet_and_tables() -> None:
    assert call("batch", "jobs.toml", "-q").succeeded().stdout == ""
    Path("acts/a.npy").write_bytes(b"")
    done = call("batch", "jobs.toml", "-q")
    assert done.returncode == 1
    assert "acts/a.npy is empty" in done.stdout
    assert "skipped" not in done.stdout
    assert re.search(r"2 skipped, 1 failed of 3 jobs", call("batch", "jobs.toml").stdout)


@pytest.mark.usefixtures("operands")
def test_plain_progress_is_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad_cli.batch.report._INTERVAL", 0.0)
    done = call("batch", "jobs.toml", "--progress", "plain").succeeded()
    assert "convgrad: 3 of 3 jobs" in done.stderr
    assert "convgrad:" not in done.stdout


# Manifests that are wrong.


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("operation =", 1, ["TOML"], id="not-toml"),
        pytest.param("[default]\n", 1, ["default", "[defaults]"], id="unknown-table"),
        pytest.param(HEAD, None, ["[[job]]"], id="no-jobs"),
        pytest.param(HEAD + JOB + "paddings = 1\n", 8, ["paddings", "padding"], id="unknown-key"),
        pytest.param(HEAD + JOB + "strides = true\n", 8, ["strides"], id="a-flag-for-a-number"),
        pytest.param(
            HEAD + JOB + "overwrite = 1\n", 8, ["overwrite", "true or false"], id="a-number-for-a-flag"
        ),
        pytest.param(HEAD + JOB + 'strides = "2;2"\n', 4, ["--strides", "2;2"], id="not-sizes"),
        pytest.param(HEAD + JOB + 'cast = "int8"\n', 4, ["--cast", "int8"], id="not-a-choice"),
        pytest.param(HEAD + JOB.replace("output =", "outputs ="), 7, ["outputs"], id="misspelt-output"),
        pytest.param(
            HEAD + '[[job]]\ninput = "a"\noutput = "b"\n', 4, ["out_backprop", "missing"], id="role"
        ),
        pytest.param(JOB, 1, ["operation", "missing"], id="no-operation"),
        pytest.param(HEAD.replace("filter-grad", "conv") + JOB, 2, ["operation", "conv"], id="operation"),
        pytest.param(HEAD + JOB.replace("acts/*", "no/*"), 4, ["no/*.npy", "nothing"], id="no-match"),
        pytest.param(HEAD + JOB.replace("{stem}.npy", "{stam}.npy"), 4, ["{stam}", "{stem}"], id="name"),
        pytest.param(
            HEAD + JOB.replace("{stem}", "*", 1), 4, ["input", "out_backprop", "patterns"], id="two-patterns"
        ),
        pytest.param(HEAD + JOB + JOB, 8, ["two jobs", "dw_a.npy"], id="one-output"),
        pytest.param(
            HEAD + JOB.replace("dw_{stem}.npy", "dw.npy"), 4, ["two jobs", "dw.npy"], id="same-output"
        ),
        pytest.param(HEAD + JOB.replace("dw_{stem}.npy", "-"), 4, ["-"], id="stream"),
        pytest.param(
            HEAD + 'data_format = """\nNHWC"""\n' + JOB + "paddings = 1\n",
            10,
            ["paddings"],
            id="after-several-lines",
        ),
    ],
)
@pytest.mark.usefixtures("operands")
def test_a_wrong_manifest(text: str, line: int | None, words: list[str]) -> None:
    before = sorted(Path().rglob("*"))
    Path("jobs.toml").write_text(text)
    done = call("batch", "jobs.toml")
    done.refused(2, "jobs.toml" if line is None else f"jobs.toml:{line}:", *words)
    assert sorted(Path().rglob("*")) == before


def test_a_manifest_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call("batch", "jobs.toml").refused(1, "jobs.toml", "no such file")


def test_options_as_the_command_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dashes or underscores, lists, nested lists, and defaults that only the other operation knows."""
    monkeypatch.chdir(tmp_path)
    x, w = random(1, 2, 4, 5), random(3, 3, 6, 2)
    save(Path("x.npy"), x)
    save(Path("w.npy"), w)
    pads = [[0, 0], [0, 0], [1, 1], [0, 1]]
    Path("jobs.toml").write_text(
        '[defaults]\nfilter_sizes = [3, 3]\ndata-format = "NCHW"\n[[job]]\noperation = "transpose"\n'
        'input = "x.npy"\nfilters = "w.npy"\noutput = "y.npy"\n'
        f"strides = [2, 1]\npadding = {pads}\nfast = true\noverwrite = false\n"
    )
    batch()
    expected = reference.transpose(x, w, None, strides=(2, 1), padding=pads, data_format="NCHW")
    assert_matches(np.load("y.npy"), *expected, np.float32)


# Patterns.


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("d/*.npy", {"d/a.npy": "a", "d/b1.npy": "b1", "d/b2.npy": "b2"}),
        ("d/b?.npy", {"d/b1.npy": "1", "d/b2.npy": "2"}),
        ("d/b[!1].npy", {"d/b2.npy": "2"}),
        ("**/*.npy", {"d/a.npy": "d", "d/b1.npy": "d", "d/b2.npy": "d", "e/f/c.npy": "e/f"}),
        ("e/*/c.npy", {"e/f/c.npy": "f"}),
        ("d/a.npy", {"d/a.npy": None}),
        ("d/[x].npy", {"d/[x].npy": None}),
    ],
)
def test_what_patterns_match(
    pattern: str, expected: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "d/a.npy",
        "d/b1.npy",
        "d/b2.npy",
        "e/f/c.npy",
        *(["d/[x].npy"] if "[x]" in pattern else []),
    ):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    found = {address: names.get("1") for address, names in matches(pattern)}
    assert found == expected


def test_templates() -> None:
    assert filled("{stem}/{{x}}/{1}", {"stem": "a", "1": "b"}) == "a/{x}/b"
    with pytest.raises(UnknownNameError, match=r"\{nome\}.*\{stem\}"):
        filled("{nome}", {"stem": "a"})
