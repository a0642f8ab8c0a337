"""`convgrad filter-grad`: what each option means, in both formats, against the reference."""

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

rng = np.random.default_rng(12)
X = rng.standard_normal((2, 7, 8, 3)).astype(np.float32)
NCHW = {"data_format": "NCHW"}
PADS = [[0, 0], [1, 0], [0, 2], [0, 0]]

#: Words on the command line -> height and width of out_backprop, keywords of the reference.
CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "--filter-sizes 3,3": ((7, 8), {}),
    "--filter-sizes 3x3": ((7, 8), {}),
    "--filter-sizes 3,3,3,2": ((7, 8), {}),
    "--filter-sizes 3x3x3x2": ((7, 8), {}),
    "--filter-sizes=3,3": ((7, 8), {}),
    "--filter-sizes 3,3 -s 2": ((4, 4), {"strides": 2}),
    "--filter-sizes 3,3 -s 2,3": ((4, 3), {"strides": (2, 3)}),
    "--filter-sizes 3,3 --strides 3x2": ((3, 4), {"strides": (3, 2)}),
    "--filter-sizes 3,3 -s 1,2,2,1": ((4, 4), {"strides": 2}),
    "--filter-sizes 3,3 -s 1x2x2x1": ((4, 4), {"strides": 2}),
    "--filter-sizes 3,3 -d 2": ((7, 8), {"dilations": 2}),
    "--filter-sizes 3,3 -d 1,2 -p VALID": ((5, 4), {"dilations": (1, 2), "padding": "VALID"}),
    "--filter-sizes 3,3 -d 2 -s 2 -p valid": ((2, 2), {"dilations": 2, "strides": 2, "padding": "VALID"}),
    "--filter-sizes 3,3 -p 1,0,0,2": ((6, 8), {"padding": PADS}),
    "--filter-sizes 3,3 -p [[0,0],[1,0],[0,2],[0,0]]": ((6, 8), {"padding": PADS}),
    "--filter-sizes 3,3 --data-format NCHW": ((7, 8), NCHW),
    "--filter-sizes 3,3 --data-format NCHW -s 1,1,2,2": ((4, 4), {"strides": 2, **NCHW}),
    "--filter-sizes 3,3 --data-format NCHW -p [[0,0],[0,0],[1,0],[0,2]]": (
        (6, 8),
        {"padding": [PADS[0], PADS[3], PADS[1], PADS[2]], **NCHW},
    ),
}


def arrays(words: str) -> tuple[np.ndarray, np.ndarray, reference.Expected]:
    (height, width), keywords = CASES[words]
    backprop = np.random.default_rng(13).standard_normal((2, height, width, 6)).astype(np.float32)
    x, g = (np.moveaxis(a, 3, 1) if "data_format" in keywords else a for a in (X, backprop))
    return np.ascontiguousarray(x), np.ascontiguousarray(g), reference.filter_grad(x, (3, 3), g, **keywords)


@pytest.mark.parametrize("words", CASES)
def test_npy(tmp_path: Path, words: str) -> None:
    x, g, expected = arrays(words)
    paths = save(tmp_path / "x.npy", x), save(tmp_path / "g.npy", g)
    call("filter-grad", *paths, *words.split(), "-o", tmp_path / "dw.npy").succeeded()
    assert_matches(load(tmp_path / "dw.npy"), *expected, np.float32)


@pytest.mark.parametrize("words", CASES)
def test_hdf5(tmp_path: Path, words: str) -> None:
    x, g, expected = arrays(words)
    path = tmp_path / "net.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["g"] = x, g
    call(
        "filter-grad", f"{path}::/x", f"{path}::/g", *words.split(), "-o", f"{path}::/dw", "--append"
    ).succeeded()
    assert_matches(load_h5(path, "dw"), *expected, np.float32)


def test_by_hand_and_the_order_of_channels(tmp_path: Path) -> None:
    """Channel c*M+m of out_backprop belongs to input channel c and multiplier m."""
    x = np.array([1, 10], np.float64).reshape(1, 1, 1, 2)
    g = np.array([1, 2, 3, 4, 5, 6], np.float64).reshape(1, 1, 1, 6)
    paths = save(tmp_path / "x.npy", x), save(tmp_path / "g.npy", g)
    call("filter-grad", *paths, "--filter-sizes", "1,1", "-o", tmp_path / "dw.npy").succeeded()
    assert np.load(tmp_path / "dw.npy")[0, 0].tolist() == [[1, 2, 3], [40, 50, 60]]


def test_filter_sizes_are_required(tmp_path: Path) -> None:
    x, g, _ = arrays("--filter-sizes 3,3")
    paths = save(tmp_path / "x.npy", x), save(tmp_path / "g.npy", g)
    call("filter-grad", *paths, "-o", tmp_path / "dw.npy").refused(2, "--filter-sizes")
    assert not (tmp_path / "dw.npy").exists()


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("3", ("filter_sizes",)),
        ("3,3,3", ("filter_sizes",)),
        ("3,3,3,2,1", ("filter_sizes",)),
        ("0,3", ("filter_sizes",)),
        ("3,3,4,2", ("filter_sizes", "3,3,3,2")),
        ("3,3,3,1", ("filter_sizes", "3,3,3,2")),
        ("3.0,3", ("--filter-sizes",)),
    ],
)
def test_filter_sizes_that_cannot_be(tmp_path: Path, sizes: str, words: tuple[str, ...]) -> None:
    x, g, _ = arrays("--filter-sizes 3,3")
    paths = save(tmp_path / "x.npy", x), save(tmp_path / "g.npy", g)
    call("filter-grad", *paths, "--filter-sizes", sizes, "-o", tmp_path / "dw.npy").refused(2, *words)
    assert not (tmp_path / "dw.npy").exists()


def test_output_shape_belongs_to_the_other_command(tmp_path: Path) -> None:
    call("filter-grad", "x.npy", "g.npy", "--output-shape", "3,3", "-n").refused(2, "--output-shape")
    call("transpose", "x.npy", "w.npy", "--filter-sizes", "3,3", "-n").refused(2, "--filter-sizes")
