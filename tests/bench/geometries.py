"""Random problems for `choice.py`: every option in every combination, of bounded work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from layers import Operation

from convgrad.geometry import AxisPadding, AxisRule

Padding: TypeAlias = Literal["SAME", "VALID"] | tuple[tuple[int, int], tuple[int, int]]

KINDS = ("common", "dilated", "unequal", "odd channels", "few channels", "tiny", "huge kernel")
CHANNELS = {
    "odd channels": (3, 5, 7, 13, 21, 33, 67, 129, 255),
    "few channels": (1, 2, 3, 4),
    "tiny": (16, 32, 64, 128, 256, 512),
}
USUAL_CHANNELS = (8, 16, 24, 32, 64, 96, 128, 240, 256, 512)
#: Largest array, in elements: 32 MB of float32.
ELEMENTS = 2**23


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; pairs are (height, width), `padding` is a mode or (before, after) of each axis."""

    kind: str
    operation: Operation
    data_format: str
    batch: int
    narrow: tuple[int, int]
    wide: tuple[int, int]
    channels: int
    outputs: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: Padding

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of both operands in `data_format` order."""
        if self.operation == "transpose":
            return self._data(self.narrow, self.channels), (*self.kernel, self.outputs, self.channels)
        return self._data(self.wide, self.channels), self._data(self.narrow, self.channels * self.outputs)

    def _data(self, size: tuple[int, int], channels: int) -> tuple[int, ...]:
        last = self.data_format == "NHWC"
        return (self.batch, *size, channels) if last else (self.batch, channels, *size)

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments that both operations take."""
        padding: Any = self.padding
        if not isinstance(padding, str):
            spatial, none = [list(pads) for pads in padding], [0, 0]
            last = self.data_format == "NHWC"
            padding = [none, *spatial, none] if last else [none, none, *spatial]
        return {
            "strides": self.strides,
            "padding": padding,
            "data_format": self.data_format,
            "dilations": self.dilations,
        }

    def __str__(self) -> str:
        def pair(sizes: tuple[int, int]) -> str:
            return f"{sizes[0]}" if sizes[0] == sizes[1] else f"{sizes[0]}x{sizes[1]}"

        padding = self.padding if isinstance(self.padding, str) else ",".join(map(str, sum(self.padding, ())))
        return (
            f"{self.operation} {self.data_format} N{self.batch} {pair(self.narrow)}<->{pair(self.wide)} "
            f"C{self.channels}>{self.outputs} k{pair(self.kernel)} s{pair(self.strides)} "
            f"d{pair(self.dilations)} {padding}"
        )


def problems(count: int, seed: int) -> Iterator[Problem]:
    """Yield `count` problems, kinds and operations in turn."""
    rng = np.random.default_rng(seed)
    operations: tuple[Operation, ...] = ("transpose", "filter-grad")
    made = 0
    while made < count:
        problem = _drawn(rng, KINDS[made // 2 % len(KINDS)], operations[made % 2])
        if problem is not None:
            made += 1
            yield problem


def _drawn(rng: np.random.Generator, kind: str, operation: Operation) -> Problem | None:
    """Return a random problem, or None where the draw came out impossible or too large."""

    def one(values: Any, chances: Any = None) -> int:
        return int(rng.choice(values, p=chances))

    def pair(draw: Any, differ: float) -> tuple[int, int]:
        first = draw()
        return first, draw() if rng.random() < differ else first

    huge = kind == "huge kernel"
    unequal = 1.0 if kind == "unequal" else 0.1
    kernel = pair(
        lambda: one(range(9, 32)) if huge else one((1, 2, 3, 3, 3, 4, 5, 7)), max(unequal / 2, 0.15)
    )
    strides = pair(lambda: one((1, 2, 3, 4, 8), (0.4, 0.35, 0.1, 0.1, 0.05)), unequal)
    dilations = pair(lambda: one((2, 2, 3, 4)) if kind == "dilated" else 1, 0.3)
    channels, outputs = (one(CHANNELS.get(kind, USUAL_CHANNELS)) for _ in range(2))
    if operation == "filter-grad":
        outputs = one((1, 2, 3, 4, 8), (0.6, 0.1, 0.1, 0.1, 0.1))
    sized = _sized(rng, kind, operation, math.prod(kernel) * channels * outputs)
    if sized is None or (kind == "unequal" and strides[0] == strides[1]):
        return None
    batch, narrow = sized
    padding = _padding(rng, kernel, dilations)
    of_axis: list[AxisPadding] = list(padding) if isinstance(padding, tuple) else [padding, padding]
    rules = [
        AxisRule(f"axis {axis}", kernel[axis], strides[axis], dilations[axis], of_axis[axis])
        for axis in (0, 1)
    ]
    wide = _wide(rng, rules[0], narrow[0]), _wide(rng, rules[1], narrow[1])
    if min(wide) < 1:
        return None
    data_format = "NHWC" if rng.random() < 0.7 else "NCHW"
    problem = Problem(
        kind, operation, data_format, batch, narrow, wide, channels, outputs, kernel, strides, dilations,
        padding,
    )  # fmt: skip
    result = batch * math.prod(wide) * outputs
    return problem if max(result, *map(math.prod, problem.shapes)) <= ELEMENTS else None


def _sized(
    rng: np.random.Generator, kind: str, operation: Operation, each: int
) -> tuple[int, tuple[int, int]] | None:
    """Return batch and narrow sizes such that the multiply-adds, `each` per pixel, take a bounded time."""
    # A core makes 40 multiply-adds or more a nanosecond in long matrix products, a tenth of it elsewhere.
    products = operation == "transpose" and kind != "few channels"
    least, most = (4e6, 1e9) if products else (5e5, 1e8)
    if kind == "tiny":
        batch = int(rng.choice((1, 1, 2, 4)))
        height, width = map(int, rng.integers(1, 9, 2))
        return (batch, (height, width)) if batch * height * width * each <= most else None
    if kind == "huge kernel":
        least *= 10  # or the image would be far smaller than the kernel
    pixels = math.exp(rng.uniform(math.log(least), math.log(most))) / each
    batch = int(rng.choice([size for size in (1, 1, 2, 4, 8, 16, 32) if size <= max(pixels, 1)]))
    side = math.sqrt(max(pixels / batch, 1))
    aspect = math.exp(rng.normal(0, 0.2))
    return batch, (max(round(side * aspect), 1), max(round(side / aspect), 1))


def _padding(rng: np.random.Generator, kernel: tuple[int, int], dilations: tuple[int, int]) -> Padding:
    mode = rng.choice(["SAME", "VALID", "explicit"], p=[0.5, 0.25, 0.25])
    if mode != "explicit":
        return "SAME" if mode == "SAME" else "VALID"
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    height, width = (tuple(map(int, rng.integers(0, size, 2))) for size in reach)
    return (height[0], height[1]), (width[0], width[1])


def _wide(rng: np.random.Generator, rule: AxisRule, narrow: int) -> int:
    """Return any legal wide size, 0 where there is none."""
    least, most = rule.legal_wide(narrow)
    return int(rng.integers(max(least, 1), most + 1)) if most >= 1 else 0
