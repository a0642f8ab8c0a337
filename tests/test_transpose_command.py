"""`convgrad transpose`: what each option means, in both formats, against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import reference
from arrays_on_disk import load, load_h5, save
from assertions import assert_matches
from commandline import call

rng = np.random.default_rng(11)
X = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
W = rng.standard_normal((3, 2, 2, 5)).astype(np.float32)
NCHW = {"data_format": "NCHW"}

#: Words on the command line -> keywords of the reference.
CASES: dict[str, dict[str, Any]] = {
    "": {},
    "-s 2": {"strides": 2},
    "-s 2,2": {"strides": 2},
    "-s 2x2": {"strides": 2},
    "-s 1,2,2,1": {"strides": 2},
    "-s 1x2x2x1": {"strides": 2},
    "--strides 2,3": {"strides": (2, 3)},
    "--strides=3x2": {"strides": (3, 2)},
    "-s2": {"strides": 2},
    "-s 1,1,2,3 --data-format NCHW": {"strides": (2, 3), **NCHW},
    "-d 2": {"dilations": 2},
    "-d 1,2": {"dilations": (1, 2)},
    "-d 1x2x3x1": {"dilations": (2, 3)},
    "--dilations 2 --strides 2": {"dilations": 2, "strides": 2},
    "-p SAME": {"padding": "SAME"},
    "-p same": {"padding": "SAME"},
    "-p VALID": {"padding": "VALID"},
    "--padding Valid -s 3": {"padding": "VALID", "strides": 3},
    "-p 1,0,0,1": {"padding": [[0, 0], [1, 0], [0, 1], [0, 0]]},
    "-p 0,2,1,0 -s 2": {"padding": [[0, 0], [0, 2], [1, 0], [0, 0]], "strides": 2},
    "-p [[0,0],[1,0],[0,1],[0,0]]": {"padding": [[0, 0], [1, 0], [0, 1], [0, 0]]},
    "--data-format NHWC": {},
    "--data-format NCHW": NCHW,
    "--data-format NCHW -p 1,0,0,1": {"padding": [[0, 0], [0, 0], [1, 0], [0, 1]], **NCHW},
    "--data-format NCHW -p [[0,0],[0,0],[1,0],[0,1]]": {"padding": [[0, 0], [0, 0], [1, 0], [0, 1]], **NCHW},
    "-s 2 --output-shape 5,7": {"strides": 2, "output_shape": (5, 7)},
    "-s 2 --output-shape 5x8": {"strides": 2, "output_shape": (5, 8)},
    "-s 2 --output-shape 2,6,7,2": {"strides": 2, "output_shape": (6, 7)},
    "-s 2 --output-shape 2x5x8x2": {"strides": 2, "output_shape": (5, 8)},
    "-s 2 --output-shape 2,2,5,7 --data-format NCHW": {"strides": 2, "output_shape": (5, 7), **NCHW},
    "-s 3 -p VALID --output-shape 11,12": {"strides": 3, "padding": "VALID", "output_shape": (11, 12)},
}


def expected(keywords: dict[str, Any]) -> reference.Expected:
    x = X if keywords.get("data_format") != "NCHW" else np.moveaxis(X, 3, 1)
    sizes = keywords.get("output_shape")
    if sizes is not None and "data_format" in keywords:
        keywords = {**keywords, "output_shape": (2, 2, *sizes)}
    return reference.transpose(x, W, **keywords)


def operands(folder: Path, words: str) -> list[str]:
    x = np.ascontiguousarray(np.moveaxis(X, 3, 1)) if "NCHW" in words else X
    return [save(folder / "x.npy", x), save(folder / "w.npy", W)]


@pytest.mark.parametrize("words", CASES)
def test_npy(tmp_path: Path, words: str) -> None:
    target = tmp_path / "y.npy"
    call("transpose", *operands(tmp_path, words), *words.split(), "-o", target).succeeded()
    assert_matches(load(target), *expected(CASES[words]), np.float32)


@pytest.mark.parametrize("words", CASES)
def test_hdf5(tmp_path: Path, words: str) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for name, operand in zip(("net/x", "net/w"), operands(tmp_path, words), strict=True):
            file[name] = np.load(operand)
    addresses = [f"{tmp_path}/in.h5::/net/{name}" for name in "xw"]
    call("transpose", *addresses, *words.split(), "-o", f"{tmp_path}/out.h5::/a/y").succeeded()
    assert_matches(load_h5(tmp_path / "out.h5", "a/y"), *expected(CASES[words]), np.float32)


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("-s 2", (2, 6, 8, 2)),  # SAME: h*s
        ("-s 2 -p VALID", (2, 7, 8, 2)),  # h*s + max(ke-s, 0)
        ("-s 4 -p VALID", (2, 12, 16, 2)),
        ("-s 2 -d 2 -p VALID", (2, 9, 9, 2)),  # ke 5 and 3
        ("-s 2 -p 1,1,0,0", (2, 5, 8, 2)),  # least: (h-1)*s + ke - pads
    ],
)
def test_output_shape_left_out(tmp_path: Path, words: str, shape: tuple[int, ...]) -> None:
    call("transpose", *operands(tmp_path, words), *words.split(), "-o", tmp_path / "y.npy").succeeded()
    assert np.load(tmp_path / "y.npy").shape == shape


def test_by_hand(tmp_path: Path) -> None:
    """One pixel paints the filter, not flipped, at its place."""
    x = np.zeros((1, 2, 2, 1), np.float32)
    x[0, 1, 0, 0] = 10
    w = np.array([[1, 2], [3, 4]], np.float32).reshape(2, 2, 1, 1)
    paths = save(tmp_path / "x.npy", x), save(tmp_path / "w.npy", w)
    call("transpose", *paths, "-s", 2, "-p", "VALID", "-o", tmp_path / "y.npy").succeeded()
    assert np.load(tmp_path / "y.npy")[0, :, :, 0].tolist() == [
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [10, 20, 0, 0],
        [30, 40, 0, 0],
    ]


def test_options_may_come_first_and_operands_may_look_like_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "-x.npy", X)
    save(tmp_path / "w.npy", W)
    call("transpose", "-s", 2, "-o", "y.npy", "--", "-x.npy", "w.npy").succeeded()
    assert_matches(load(tmp_path / "y.npy"), *reference.transpose(X, W, strides=2), np.float32)


def test_nan_reaches_only_what_contains_it(tmp_path: Path) -> None:
    x = np.ones((1, 3, 3, 1), np.float32)
    x[0, 0, 0, 0] = np.nan
    w = np.ones((2, 2, 1, 1), np.float32)
    paths = save(tmp_path / "x.npy", x), save(tmp_path / "w.npy", w)
    done = call("transpose", *paths, "-s", 2, "-o", tmp_path / "y.npy").succeeded()
    nan = np.isnan(np.load(tmp_path / "y.npy")[0, :, :, 0])
    assert np.argwhere(nan).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert "not finite: 4" in done.stdout


# Several inputs.


def test_several_inputs_share_their_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    inputs = {name: rng.standard_normal((1, 3, 4, 2)).astype(np.float32) for name in ("a", "b", "c")}
    filters = rng.standard_normal((3, 3, 5, 2)).astype(np.float32)
    names = [save(Path(f"{name}.npy"), array) for name, array in inputs.items()]
    done = call(
        "transpose", *names, save(Path("w.npy"), filters), "-s", "2", "-o", "y_{stem}.npy", "--format", "json"
    )
    assert len(done.succeeded().stdout.splitlines()) == 3
    for name, array in inputs.items():
        assert_matches(
            np.load(f"y_{name}.npy"), *reference.transpose(array, filters, None, strides=2), np.float32
        )


@pytest.mark.parametrize("output", ["y.npy", "y_{stam}.npy"], ids=["one-name", "unknown-name"])
def test_several_inputs_need_several_outputs(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = save(Path("x.npy"), np.ones((1, 3, 4, 2), np.float32))
    w = save(Path("w.npy"), np.ones((3, 3, 5, 2), np.float32))
    call("transpose", x, x, w, "-o", output).refused(2, output, "{stem}")
    assert sorted(path.name for path in Path().iterdir()) == ["w.npy", "x.npy"]
