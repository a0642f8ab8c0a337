"""Impossible requests: refused before anything is computed or written, in words that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arrays_on_disk
import commandline
import convgrad
from golden_cases import INVALID, flags

OPTIONS = ("strides", "dilations", "padding", "output_shape", "filter_sizes", "data_format")


def second(case: dict[str, Any]) -> str:
    return "filters" if case["op"] == "transpose" else "out_backprop"


def operands(case: dict[str, Any]) -> list[np.ndarray]:
    dtypes = case.get("dtypes", ["float32", "float32"])
    return [np.ones(case[name], dtype) for name, dtype in zip(("input", second(case)), dtypes, strict=True)]


def keywords(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in OPTIONS if name in case}


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case["name"].replace(" ", "-"))
def test_command(case: dict[str, Any], tmp_path: Path) -> None:
    names = [
        arrays_on_disk.save(tmp_path / f"{name}.npy", array)
        for name, array in zip(("input", second(case)), operands(case), strict=True)
    ]
    before = sorted(tmp_path.iterdir())
    verb = "transpose" if case["op"] == "transpose" else "filter-grad"
    done = commandline.call(verb, *names, "-o", tmp_path / "refused.npy", *flags(keywords(case)))
    done.refused(2, *case["says"])
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("plan", [False, True], ids=["compute", "plan"])
@pytest.mark.parametrize("case", INVALID, ids=lambda case: case["name"].replace(" ", "-"))
def test_library(case: dict[str, Any], plan: bool) -> None:
    first, other = operands(case)
    options = keywords(case)
    if case["op"] == "transpose":
        ways = convgrad.conv2d_transpose, convgrad.plan_conv2d_transpose
        arguments = (first, other)
    else:
        ways = convgrad.depthwise_conv2d_backprop_filter, convgrad.plan_depthwise_conv2d_backprop_filter
        arguments = (first, options.pop("filter_sizes"), other)
    with pytest.raises(convgrad.ConvgradError) as caught:
        ways[plan](*arguments, **options)
    assert isinstance(caught.value, ValueError | TypeError)
    assert "\n" not in caught.value.message
    text = str(caught.value).lower()
    missing = [word for word in case["says"] if word.lower() not in text]
    # An argument that does not exist in Python is a flag of the command line.
    assert [word for word in missing if word != "cast"] == []


@pytest.mark.parametrize("case", INVALID[::14], ids=lambda case: case["name"].replace(" ", "-"))
def test_command_in_a_process_of_its_own(case: dict[str, Any], tmp_path: Path) -> None:
    names = [
        arrays_on_disk.save(tmp_path / f"{name}.npy", array)
        for name, array in zip(("input", second(case)), operands(case), strict=True)
    ]
    verb = "transpose" if case["op"] == "transpose" else "filter-grad"
    done = commandline.run(verb, *names, "-o", tmp_path / "refused.npy", *flags(keywords(case)))
    done.refused(2, *case["says"])
    assert not (tmp_path / "refused.npy").exists()
