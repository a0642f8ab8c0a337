"""The golden cases as arguments: what each says is in golden/README.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from assertions import BFLOAT16

FOLDER = Path(__file__).with_name("golden")


@dataclass(frozen=True)
class Case:
    """One case: `op` is `transpose` or `filter_grad`."""

    op: str
    name: str

    def __str__(self) -> str:
        return f"{self.op}-{self.name}"

    @property
    def second(self) -> str:
        """Name of the second operand."""
        return "filters" if self.op == "transpose" else "out_backprop"


def _cases() -> Iterator[Case]:
    for op in ("transpose", "filter_grad"):
        with h5py.File(FOLDER / f"{op}.h5") as file:
            yield from (Case(op, name) for name in file)


CASES = list(_cases())
INVALID = json.loads((FOLDER / "invalid.json").read_text())


@cache
def load(case: Case) -> dict[str, Any]:
    """Attributes (JSON decoded) and datasets of a case, bfloat16 operands as such."""
    with h5py.File(FOLDER / f"{case.op}.h5") as file:
        group = file[case.name]
        found: dict[str, Any] = {name: data[:] for name, data in group.items()}
        for name, value in group.attrs.items():
            found[name] = value if name in ("dtype", "data_format") else json.loads(value)
    if found["dtype"] == "bfloat16":
        found |= {name: found[name].view(BFLOAT16) for name in ("input", case.second)}
    return found


def options(case: Case) -> dict[str, Any]:
    """Every argument but the operands."""
    wanted = ("strides", "dilations", "padding", "data_format", "output_shape", "filter_sizes")
    return {name: load(case)[name] for name in wanted if name in load(case)}


def call(case: Case, transpose: Any, filter_grad: Any) -> Any:
    """Call the function that the case is for, the library's or the reference's."""
    data, keywords = load(case), options(case)
    if case.op == "transpose":
        return transpose(data["input"], data["filters"], **keywords)
    return filter_grad(data["input"], keywords.pop("filter_sizes"), data["out_backprop"], **keywords)


def expected(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Expected values and scale, float64."""
    return load(case)["expected"], load(case)["scale"]


def flags(keywords: dict[str, Any]) -> list[str]:
    """The same arguments as words of the command line."""
    words = []
    for name, value in keywords.items():
        if isinstance(value, list):
            value = json.dumps(value) if name == "padding" else ",".join(map(str, value))
        words.append(f"--{name.replace('_', '-')}={value}")
    return words
