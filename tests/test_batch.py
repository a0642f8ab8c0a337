"""`convgrad batch` over files and HDF5: every result against the reference, every refusal with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import reference
from arrays_on_disk import load, load_h5, save
from assertions import assert_matches
from commandline import call, run

HEAD = '[defaults]\noperation = "filter-grad"\nfilter_sizes = [3, 3]\n'
FILES = '[[job]]\ninput = "acts/*.npy"\nout_backprop = "grads/{stem}.npy"\noutput = "dw_{stem}.npy"\n'
DATASETS = (
    'append = true\n[[job]]\ninput = "acts.h5::/layers/*/input"\n'
    'out_backprop = "acts.h5::/layers/{name}/grad"\noutput = "dw.h5::/{name}"\n'
)
NAMES = ("a", "b", "c")
LEDGER = Path(".jobs.toml.convgrad-done")

Pair = tuple[np.ndarray, np.ndarray]


def pair(seed: int, channels: int = 2) -> Pair:
    rng = np.random.default_rng(seed)
    x, dy = (rng.standard_normal((2, 5, 4, channels)).astype(np.float32) for _ in range(2))
    return x, dy


PAIRS = {name: pair(number) for number, name in enumerate(NAMES)}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same operands as files and as datasets, in a working folder that is empty otherwise."""
    monkeypatch.chdir(tmp_path)
    for folder in ("acts", "grads"):
        Path(folder).mkdir()
    with h5py.File("acts.h5", "w") as file:
        for name, (x, dy) in PAIRS.items():
            put(name, x, dy)
            file[f"layers/{name}/input"], file[f"layers/{name}/grad"] = x, dy


def put(name: str, x: np.ndarray, dy: np.ndarray) -> None:
    save(Path("acts", f"{name}.npy"), x)
    save(Path("grads", f"{name}.npy"), dy)


def manifest(text: str) -> None:
    Path("jobs.toml").write_text(text)


def batch(
    *words: str, status: int = 0, start: Any = call
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Run the manifest; return the jobs by output, and the summary. Every line must be JSON."""
    done = start("batch", "jobs.toml", "--format", "json", *words)
    assert done.returncode == status, (done.stdout, done.stderr)
    *jobs, last = map(json.loads, done.stdout.splitlines())
    assert len({job["output"] for job in jobs}) == len(jobs)
    return {job["output"]: job for job in jobs}, last["summary"]


def statuses(*words: str, **how: Any) -> dict[str, str]:
    return {output: job["status"] for output, job in batch(*words, **how)[0].items()}


def read(output: str) -> np.ndarray:
    file, separator, dataset = output.partition("::")
    return load_h5(Path(file), dataset) if separator else load(Path(file))


def check(output: str, operands: Pair, sizes: tuple[int, int] = (3, 3), **options: Any) -> None:
    x, dy = operands
    assert_matches(read(output), *reference.filter_grad(x, sizes, dy, **options), np.float32)


def there() -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in Path().rglob("*")
        if path.is_file() and path.name != "jobs.toml"
    }


# Patterns.


@pytest.mark.parametrize(
    ("input", "backprop", "output", "expected"),
    [
        pytest.param("acts/*.npy", "grads/{stem}.npy", "{stem}.npy", {n: n for n in NAMES}, id="stem"),
        pytest.param("acts/*.npy", "grads/{name}", "{1}.npy", {n: n for n in NAMES}, id="name-of-a-file"),
        pytest.param("acts/[ab].npy", "grads/{1}.npy", "{1}.npy", {n: n for n in "ab"}, id="set"),
        pytest.param("acts/[!ab].npy", "grads/{1}.npy", "{1}.npy", {"c": "c"}, id="complement"),
        pytest.param("acts/?.npy", "grads/{1}.npy", "x{1}.npy", {f"x{n}": n for n in NAMES}, id="one-letter"),
        pytest.param(
            "?cts/*.npy", "grads/{2}.npy", "{2}{1}.npy", {f"{n}a": n for n in NAMES}, id="two-wildcards"
        ),
        pytest.param("**/a.npy", "grads/a.npy", "{stem}.npy", None, id="recursive-finds-both-folders"),
        pytest.param("**/b/deep.npy", "grads/b.npy", "{1}.npy", {"more": "b"}, id="recursive"),
        pytest.param(".//acts//*.npy", "grads/{1}.npy", "{1}.npy", {n: n for n in NAMES}, id="two-slashes"),
        pytest.param("acts/a.npy", "grads/a.npy", "{{x}}.npy", {"{x}": "a"}, id="braces"),
        pytest.param("acts/a[1].npy", "grads/a.npy", "y.npy", {"y": "a"}, id="a-file-with-brackets"),
        pytest.param("{here}/acts/*.npy", "grads/{1}.npy", "{1}.npy", {n: n for n in NAMES}, id="absolute"),
        *(
            pytest.param(f"acts.h5::{where}", f"acts.h5::/layers/{grad}/grad", output, expected, id=id)
            for id, where, grad, output, expected in (
                ("dataset", "/layers/*/input", "{name}", "{name}.npy", {n: n for n in NAMES}),
                ("dataset-number", "/layers/*/input", "{1}", "{1}.npy", {n: n for n in NAMES}),
                ("dataset-no-slash", "layers/*/input", "{1}", "{1}.npy", {n: n for n in NAMES}),
                ("dataset-two-slashes", "//layers//*/input", "{1}", "{1}.npy", {n: n for n in NAMES}),
                ("dataset-set", "/layers/[ab]/input", "{1}", "{1}.npy", {n: n for n in "ab"}),
                ("dataset-odd-set", "/layers/[[a&&b]/input", "{1}", "{1}.npy", {n: n for n in "ab"}),
                ("dataset-one-letter", "/layers/?/inpu?", "{1}", "{1}{2}.npy", {f"{n}t": n for n in NAMES}),
                ("dataset-recursive", "/**/b/input", "b", "{1}.npy", {"layers": "b"}),
            )
        ),
        pytest.param(
            "*.h5::/*/a/input", "{stem}.h5::/{name}/a/grad", "{1}_{2}.npy", {"acts_layers": "a"}, id="both"
        ),
    ],
)
def test_patterns(input: str, backprop: str, output: str, expected: dict[str, str] | None) -> None:
    Path("more/b").mkdir(parents=True)
    save(Path("more/b/deep.npy"), PAIRS["b"][0])
    if "[1]" in input:
        save(Path("acts/a[1].npy"), PAIRS["a"][0])
        save(Path("acts/a1.npy"), np.zeros(3))
    input = input.replace("{here}", str(Path.cwd()))
    manifest(HEAD + f'[[job]]\ninput = "{input}"\nout_backprop = "{backprop}"\noutput = "{output}"\n')
    if expected is None:
        call("batch", "jobs.toml").refused(2, "jobs.toml:4:", "two jobs", "acts/a.npy", "grads/a.npy")
        return
    assert statuses() == {f"{name}.npy": "done" for name in expected}
    for name, operands in expected.items():
        check(f"{name}.npy", PAIRS[operands])


# Manifests that are wrong: exit status 2, the place, and nothing made.


def changed(old: str, new: str) -> str:
    assert old in FILES
    return HEAD + FILES.replace(old, new, 1)


SEVERAL = "data_format = {0}\n[[job]]\nNHWC{0}\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        pytest.param(HEAD + "[[job]]\ninput = = 2\n", ":5:", ["TOML"], id="not-toml"),
        pytest.param(HEAD + '[[job]]\ninput = "a', ":5:", ["TOML"], id="not-toml-at-the-end"),
        pytest.param(HEAD + "strides = " + "9" * 5000, ":", ["TOML"], id="thousands-of-digits"),
        pytest.param(HEAD + "strides = " + "[" * 5000, ":", ["TOML"], id="thousands-of-brackets"),
        pytest.param(HEAD + FILES + "[jobs]\nx = 1\n", ":8:", ["jobs", "[[job]]"], id="unknown-table"),
        pytest.param("defaults = 3\n" + FILES, ":1:", ["[defaults]"], id="defaults-no-table"),
        pytest.param(HEAD + '[job]\ninput = "a"\n', ":4:", ["[[job]]"], id="one-table"),
        pytest.param(HEAD, ":", ["no [[job]]"], id="no-jobs"),
        pytest.param("", ":", ["no [[job]]"], id="empty"),
        pytest.param(HEAD + FILES + "stride = 2\n", ":8:", ["stride", "strides"], id="unknown-key"),
        pytest.param(HEAD + "stride = 2\n" + FILES, ":4:", ["stride"], id="unknown-default"),
        pytest.param(HEAD + FILES + "dry_run = true\n", ":8:", ["dry_run"], id="not-about-a-job"),
        pytest.param(HEAD + FILES + "output-shape = 3\n", ":8:", ["output_shape"], id="key-of-the-other"),
        pytest.param(HEAD + FILES + "strides = {h = 1}\n", ":8:", ["strides"], id="table-for-sizes"),
        pytest.param(HEAD + FILES + "strides = 07:32:00\n", ":8:", ["strides"], id="time-for-sizes"),
        pytest.param(HEAD + FILES + "padding = [1979-05-27]\n", ":8:", ["padding"], id="dates-for-pads"),
        pytest.param(HEAD + FILES + 'shuffle = "yes"\n', ":8:", ["true or false"], id="word-for-a-flag"),
        pytest.param(changed('"acts/*.npy"', "3"), ":5:", ["input", "address"], id="number-for-an-address"),
        pytest.param(changed('"acts/*.npy"', '""'), ":5:", ["input", "address"], id="empty-address"),
        pytest.param(changed('input = "acts/*.npy"', ""), ":4:", ["input is missing"], id="no-operand"),
        pytest.param(changed("output", "# output"), ":4:", ["output is missing"], id="no-output"),
        pytest.param(FILES, ":1:", ["operation", "missing"], id="no-operation"),
        pytest.param(HEAD + FILES + 'operation = "conv"\n', ":8:", ["operation", "conv"], id="operation"),
        pytest.param(HEAD + FILES + 'operation = ["x"]\n', ":8:", ["operation"], id="operation-no-word"),
        pytest.param(changed("acts/", "no/"), ":4:", ["no/*.npy", "nothing"], id="no-file"),
        pytest.param(changed("acts/*.npy", "acts.h5::/x/*"), ":4:", ["/x/*", "nothing"], id="no-dataset"),
        pytest.param(changed("acts/*.npy", "acts.h5::/[z-a]"), ":4:", ["nothing"], id="empty-range"),
        pytest.param(changed("acts/*.npy", "no.h5::/*"), ":4:", ["no.h5"], id="no-such-hdf5"),
        pytest.param(changed("{stem}", "{layer}"), ":4:", ["{layer}", "{stem}"], id="unknown-name"),
        pytest.param(changed("{stem}", "{2}"), ":4:", ["{2}", "{1}"], id="unknown-number"),
        pytest.param(changed("acts/*", "acts/a"), ":4:", ["{stem}", "no operand"], id="nothing-matched"),
        pytest.param(changed("grads/{stem}", "grads/*"), ":4:", ["both patterns"], id="two-patterns"),
        pytest.param(changed("dw_{stem}", "dw"), ":4:", ["two jobs", "dw.npy"], id="one-output"),
        pytest.param(
            HEAD + FILES + FILES.replace("dw_", "./dw_"),
            ":8:",
            ["two jobs", "line 4"],
            id="one-output-spelt-twice",
        ),
        pytest.param(changed("dw_{stem}.npy", "-"), ":4:", ["stream"], id="standard-output"),
        pytest.param(changed("dw_{stem}.npy", "/dev/stdout"), ":4:", ["stream"], id="dev-stdout"),
        pytest.param(changed("acts/*.npy", "-"), ":4:", ["stream"], id="standard-input"),
        pytest.param(HEAD + FILES + "threads = 0\n", ":4:", ["--threads"], id="out-of-range"),
        pytest.param(HEAD + FILES + 'as = "float16"\n', ":4:", ["--as"], id="no-choice"),
        pytest.param(HEAD + FILES + "strides = []\n", ":4:", ["--strides"], id="no-sizes"),
        pytest.param(HEAD + FILES + 'memory = "much"\n', ":4:", ["--memory"], id="no-size"),
        pytest.param(HEAD.replace("filter_sizes", "#") + FILES, ":4:", ["--filter-sizes"], id="required"),
        *(
            pytest.param(
                HEAD + text + FILES + "no = 1\n", f":{8 + text.count(chr(10))}:", ["no is no"], id=id
            )
            for id, text in (
                ("after-a-string", SEVERAL.format('"""')),
                ("after-a-literal-string", SEVERAL.format("'''")),
                ("after-the-other-quotes", SEVERAL.format("'''").replace("NHWC", '""" NHWC')),
                ("after-a-comment", '# not """ a string\n'),
                ("after-an-array", "padding = [\n[0, 0],\n[1, 1],\n[1, 1], [0, 0]]\n"),
                ("after-an-odd-line-break", "# one\u2028line\n"),
            )
        ),
    ],
)
def test_a_wrong_manifest(text: str, place: str, words: list[str]) -> None:
    before = there()
    manifest(text)
    call("batch", "jobs.toml").refused(2, f"jobs.toml{place}", *words)
    assert there() == before


@pytest.mark.parametrize("wrong", ["acts/{stem}.npy", "no/*.npy", "-"])
def test_a_wrong_job_after_good_ones(wrong: str) -> None:
    before = there()
    manifest(HEAD + FILES + FILES.replace("acts/*.npy", wrong).replace("dw_", "again_"))
    call("batch", "jobs.toml").refused(2, "jobs.toml:8:")
    assert there() == before


# What keys mean.

PADS = [[0, 0], [1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        pytest.param("", {}, id="defaults"),
        pytest.param("filter-sizes = '5x1'", {"sizes": (5, 1)}, id="dashes-and-a-word"),
        pytest.param("filter_sizes = [1, 3]", {"sizes": (1, 3)}, id="underscores-and-a-list"),
        pytest.param("dilations = 2", {"dilations": 2}, id="number"),
        pytest.param("dilations = [1, 2, 1, 1]", {"dilations": (2, 1)}, id="four"),
        pytest.param(
            "filter_sizes = [2, 2]\npadding = [1, 0, 0, 1]", {"sizes": (2, 2), "padding": PADS}, id="pads"
        ),
        pytest.param(
            f"filter_sizes = [2, 2]\npadding = {PADS}", {"sizes": (2, 2), "padding": PADS}, id="pairs"
        ),
        pytest.param("data-format = 'nhwc'\noverwrite = true", {}, id="flag"),
        pytest.param("overwrite = false\nreverse-axes = false", {}, id="no-flag"),
        pytest.param("padding = 'VALID'\nfilter_sizes = 1", None, id="refused-by-the-plan"),
    ],
)
def test_options(keys: str, options: dict[str, Any] | None) -> None:
    """A default that only the other operation has is left alone."""
    manifest(
        "[defaults]\noutput_shape = [9, 9]\nfast = true\n" + HEAD.split("\n", 1)[1] + FILES + keys + "\n"
    )
    if options is None:
        assert "filter_sizes" in batch(status=1)[0]["dw_a.npy"]["error"]["message"]
        return
    assert set(statuses().values()) == {"done"}
    for name in NAMES:
        check(f"dw_{name}.npy", PAIRS[name], **options)


def test_both_operations_and_defaults_of_each() -> None:
    save(Path("w.npy"), w := np.random.default_rng(5).standard_normal((3, 3, 4, 2)).astype(np.float32))
    job = (
        '[[job]]\noperation = "transpose"\ninput = "acts/*.npy"\nfilters = "w.npy"\noutput = "y_{stem}.npy"\n'
    )
    manifest(HEAD + "output-shape = [10, 7]\n" + job + "strides = 2\n" + FILES)
    assert len(statuses()) == 6
    for name, (x, _) in PAIRS.items():
        check(f"dw_{name}.npy", PAIRS[name])
        assert_matches(read(f"y_{name}.npy"), *reference.transpose(x, w, (10, 7), strides=2), np.float32)


# What is up to date.


def new_operand(pairs: dict[str, Pair], prefix: str) -> None:
    pairs["b"] = pair(9)
    put("b", *pairs["b"])


def new_parameter(pairs: dict[str, Pair], prefix: str) -> None:
    job = FILES.replace("*", "b").replace("{stem}", "b")
    manifest(HEAD + FILES.replace("*", "[ac]") + job + "padding = [[0, 0], [1, 1], [1, 1], [0, 0]]\n")


def deleted(pairs: dict[str, Pair], prefix: str) -> None:
    Path("dw_b.npy").unlink()


def overwritten(pairs: dict[str, Pair], prefix: str) -> None:
    manifest(prefix + "overwrite = true\n" + FILES)
    save(Path("dw_b.npy"), np.zeros(3))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("change", [new_operand, new_parameter, deleted, overwritten])
def test_only_what_is_out_of_date_is_made_again(
    change: Callable[[dict[str, Pair], str], None], workers: str
) -> None:
    manifest(HEAD + FILES)
    batch()
    before = there()
    assert set(statuses("--workers", workers).values()) == {"skipped"}
    assert there() == before
    pairs = dict(PAIRS)
    change(pairs, HEAD)
    start = call if workers == "1" else run
    assert statuses("--workers", workers, start=start) == {
        f"dw_{name}.npy": "done" if name == "b" else "skipped" for name in NAMES
    }
    for name in NAMES:
        check(f"dw_{name}.npy", pairs[name])


def test_a_result_of_others_stays_unless_it_may_be_replaced() -> None:
    Path("dw_b.npy").write_bytes(b"precious")
    manifest(HEAD + FILES)
    jobs, _ = batch(status=1)
    assert "exists already" in jobs["dw_b.npy"]["error"]["message"]
    assert Path("dw_b.npy").read_bytes() == b"precious"
    manifest(HEAD + "overwrite = true\n" + FILES)
    assert statuses() == {"dw_a.npy": "skipped", "dw_b.npy": "done", "dw_c.npy": "skipped"}
    check("dw_b.npy", PAIRS["b"])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_earlier_result_is_still_the_batchs_after_a_failure(workers: str) -> None:
    """Or the operand, once mended, would meet an output that nobody may replace."""
    manifest(HEAD + FILES)
    batch()
    Path("acts/b.npy").write_bytes(b"")
    for _ in range(2):
        assert statuses("--workers", workers, status=1, start=run)["dw_b.npy"] == "failed"
    check("dw_b.npy", PAIRS["b"])
    put("b", *pair(7))
    assert statuses()["dw_b.npy"] == "done"
    check("dw_b.npy", pair(7))


def test_an_operand_that_changes_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result may be of what was there before, so it is not taken for one of what is there now."""
    from convgrad_cli.batch import run as running

    def and_then_change(*args: Any) -> None:
        perform(*args)
        put("a", *pair(8))

    perform = running._perform
    manifest(HEAD + FILES.replace("*", "[a]"))
    with monkeypatch.context() as patch:
        patch.setattr(running, "_perform", and_then_change)
        batch()
    assert statuses() == {"dw_a.npy": "done"}
    check("dw_a.npy", pair(8))


@pytest.mark.parametrize("keep", [0, 1, 20, -1], ids=["nothing", "brace", "some", "no-line-break"])
def test_a_torn_line_of_the_ledger(keep: int) -> None:
    manifest(HEAD + FILES)
    batch()
    *lines, last = LEDGER.read_bytes().splitlines(keepends=True)
    LEDGER.write_bytes(b"".join(lines) + last[:keep])
    assert statuses()["dw_a.npy"] == "skipped"
    assert set(statuses().values()) == {"skipped"}
    assert all(json.loads(line) for line in LEDGER.read_bytes().splitlines()[len(lines) + 1 :] if line)
    check("dw_c.npy", PAIRS["c"])


def test_datasets_of_one_file() -> None:
    manifest(HEAD + DATASETS)
    assert statuses() == {f"dw.h5::/{name}": "done" for name in NAMES}
    before = there()
    assert set(statuses().values()) == {"skipped"}
    assert there() == before
    with h5py.File("dw.h5", "r+") as file:
        del file["b"]
        file["mine"] = [1, 2]
    assert statuses() == {f"dw.h5::/{n}": "done" if n == "b" else "skipped" for n in NAMES}
    with h5py.File("dw.h5", "r+") as file:
        del file["b"]
        file["b"] = np.zeros(3)
    jobs, _ = batch(status=1)
    assert "exists" in jobs["dw.h5::/b"]["error"]["message"]
    assert read("dw.h5::/b").tolist() == [0, 0, 0]
    manifest(HEAD + "overwrite = true\n" + DATASETS)
    assert statuses() == {f"dw.h5::/{n}": "done" if n == "b" else "skipped" for n in NAMES}
    manifest(HEAD + "dilations = 2\n" + DATASETS)
    assert set(statuses().values()) == {"done"}
    for name in NAMES:
        check(f"dw.h5::/{name}", PAIRS[name], dilations=2)
    assert read("dw.h5::/mine").tolist() == [1, 2]


# Failures.


def spoil() -> dict[str, list[str]]:
    """Make operands that are wrong in several ways among the good ones; return words of each reason."""
    x, dy = pair(6)
    put("cut", x, dy)
    Path("acts/cut.npy").write_bytes(Path("acts/cut.npy").read_bytes()[:-5])
    put("shape", x, dy[:, 1:])
    put("text", x, dy)
    Path("acts/text.npy").write_text("1 2 3\n")
    put("gone", x, dy)
    Path("grads/gone.npy").unlink()
    return {
        "cut": ["cut.npy"],
        "shape": ["out_backprop", "height must"],
        "text": ["text.npy"],
        "gone": ["gone.npy", "no such"],
    }


@pytest.mark.parametrize("workers", ["1", "2"])
def test_bad_files_among_good_ones(workers: str) -> None:
    """NaN is a value like any other."""
    bad = spoil()
    nan = pair(4)
    nan[0][0, 2, 2, 1] = np.nan
    put("nan", *nan)
    manifest(HEAD + FILES)
    jobs, summary = batch("--workers", workers, status=1, start=run)
    failed = {name: jobs[f"dw_{name}.npy"]["error"]["message"].lower() for name in bad}
    assert all(word in failed[name] for name, words in bad.items() for word in words), failed
    assert (summary["done"], summary["failed"], summary["left"]) == (4, 4, 0)
    for name, operands in {**PAIRS, "nan": nan}.items():
        check(f"dw_{name}.npy", operands)
    assert not any(Path(f"dw_{name}.npy").exists() for name in bad)
    table = run("batch", "jobs.toml", "--workers", workers, env={"COLUMNS": "300"})
    assert table.returncode == 1
    assert "4 skipped, 4 failed of 8 jobs" in table.stdout
    for name, reason in failed.items():
        assert [name in line and reason in line for line in table.stdout.lower().splitlines()].count(
            True
        ) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_fail_fast(workers: str) -> None:
    """Jobs that write into one HDF5 file are one worker's, which also stops."""
    Path("acts/b.npy").write_bytes(b"")
    manifest(HEAD + "append = true\n" + FILES.replace("dw_{stem}.npy", "dw.h5::/{stem}"))
    jobs, summary = batch("--fail-fast", "--workers", workers, status=1, start=run)
    assert [job["status"] for job in jobs.values()] == ["done", "failed"]
    assert summary["left"] == 1
    with h5py.File("dw.h5") as file:
        assert list(file) == ["a"]


def test_dry_run() -> None:
    bad = spoil()
    manifest(HEAD + FILES)
    before = there()
    jobs, summary = batch("--dry-run", status=1)
    assert {output for output, job in jobs.items() if job["status"] == "failed"} == {
        f"dw_{name}.npy" for name in bad
    }
    assert (summary["planned"], summary["done"]) == (3, 0)
    assert jobs["dw_a.npy"]["plan"]["tensors"][2]["shape"] == [3, 3, 2, 1]
    assert there() == before


def test_workers_give_the_same_bits() -> None:
    """Whichever of them writes into the HDF5 file."""
    text = HEAD + FILES + DATASETS.split("\n", 1)[1] + "append = true\n"
    outputs = [f"dw_{name}.npy" for name in NAMES] + [f"dw.h5::/{name}" for name in NAMES]
    manifest(text)
    assert list(statuses()) == outputs
    bits = [read(output).tobytes() for output in outputs]
    for path in (LEDGER, Path("dw.h5"), *Path().glob("dw_*")):
        path.unlink()
    assert sorted(statuses("--workers", "2", start=run)) == sorted(outputs)
    assert [read(output).tobytes() for output in outputs] == bits
    for output, name in zip(outputs, NAMES * 2, strict=True):
        check(output, PAIRS[name])


# What is said.


def test_json_has_a_line_for_each_job_and_a_summary() -> None:
    manifest(HEAD + FILES + FILES.replace("dw_", "again_"))
    jobs, summary = batch("-q")
    assert [job["job"] for job in jobs.values()] == [1, 2, 3, 4, 5, 6]
    assert [job["line"] for job in jobs.values()] == [4] * 3 + [8] * 3
    assert jobs["again_a.npy"]["operands"] == ["acts/a.npy", "grads/a.npy"]
    assert {name: summary[name] for name in ("done", "failed", "left")} == {"done": 6, "failed": 0, "left": 0}


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_and_quiet(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad_cli.batch.report._INTERVAL", 0.0)
    Path("acts/b.npy").write_bytes(b"")
    manifest(HEAD + FILES)
    done = call("batch", "jobs.toml", "--progress", "plain", *["-q"] * quiet)
    assert done.returncode == 1
    assert done.stderr.count("convgrad: ") == (0 if quiet else 3)
    assert "convgrad: " not in done.stdout
    assert "acts/b.npy" in done.stdout
    assert ("dw_a.npy" in done.stdout) != quiet
    Path("acts/b.npy").unlink()
    assert bool(call("batch", "jobs.toml", *["-q"] * quiet).succeeded().stdout) != quiet


def test_help_and_a_manifest_that_is_not_there() -> None:
    assert "MANIFEST" in call("batch", "--help").succeeded().stdout
    call("batch", "no.toml").refused(1, "no.toml", "no such file")
    call("batch").refused(2, "MANIFEST")
