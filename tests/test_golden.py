"""All golden cases by the library; every twelfth also by the command, through .npy and through HDF5."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import arrays_on_disk
import commandline
import convgrad
import golden_cases
from assertions import assert_matches, dtype_of
from golden_cases import CASES, Case


def check(result: np.ndarray, case: Case) -> None:
    assert_matches(result, *golden_cases.expected(case), dtype_of(golden_cases.load(case)["dtype"]))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_library(case: Case) -> None:
    check(golden_cases.call(case, convgrad.conv2d_transpose, convgrad.depthwise_conv2d_backprop_filter), case)


def flags(case: Case) -> list[str]:
    words = golden_cases.flags(golden_cases.options(case))
    return words + ["--as", "bfloat16"] * (golden_cases.load(case)["dtype"] == "bfloat16")


def verb(case: Case) -> str:
    return "transpose" if case.op == "transpose" else "filter-grad"


@pytest.mark.parametrize("case", CASES[::12], ids=str)
def test_command_npy(case: Case, tmp_path: Path) -> None:
    data = golden_cases.load(case)
    operands = [arrays_on_disk.save(tmp_path / f"{name}.npy", data[name]) for name in ("input", case.second)]
    target = tmp_path / "out.npy"
    commandline.call(verb(case), *operands, "-o", target, *flags(case)).succeeded()
    check(arrays_on_disk.load(target), case)


@pytest.mark.parametrize("case", CASES[::12], ids=str)
def test_command_hdf5(case: Case, tmp_path: Path) -> None:
    data = golden_cases.load(case)
    source, target = tmp_path / "case.h5", tmp_path / "out.h5"
    with h5py.File(source, "w") as file:
        for name in ("input", case.second):
            array = data[name]
            file[name] = array.view(np.uint16) if data["dtype"] == "bfloat16" else array
    operands = [f"{source}::/{name}" for name in ("input", case.second)]
    commandline.call(verb(case), *operands, "-o", f"{target}::/result", *flags(case)).succeeded()
    check(arrays_on_disk.load_h5(target, "result"), case)


def test_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    """`call` runs main in this process; the first case also runs as a user would run it."""
    case = CASES[0]
    data = golden_cases.load(case)
    operands = [arrays_on_disk.save(tmp_path / f"{name}.npy", data[name]) for name in ("input", case.second)]
    target = tmp_path / "out.npy"
    commandline.run(verb(case), *operands, "-o", target, *flags(case)).succeeded()
    check(arrays_on_disk.load(target), case)
