"""All shape arithmetic of one spatial axis, and nowhere else.

A convolution with stride `s`, dilation `d` and kernel `k` joins a *wide* axis (the convolution's input)
and a *narrow* one (its output): narrow position `i` and tap `t` meet at wide position
``i*s + t*d - before``. A transposed convolution goes from narrow to wide, a filter gradient sums over both;
the arithmetic is the same.

====================  =======================================  =================================
padding               narrow from wide                         wide sizes for a given narrow
====================  =======================================  =================================
SAME                  ``ceil(wide / s)``                       ``(narrow-1)*s + 1 .. narrow*s``
VALID                 ``ceil((wide - ke + 1) / s)``            ``(narrow-1)*s + ke .. + s-1``
explicit              ``floor((wide + pads - ke) / s) + 1``    the same less ``before + after``
====================  =======================================  =================================

with ``ke = (k-1)*d + 1``. Source: TensorFlow's documentation of `tf.nn.convolution` and its explicit
padding; under SAME the odd pad goes after.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: ``"SAME"``, ``"VALID"``, or explicit ``(before, after)`` in elements.
AxisPadding: TypeAlias = Literal["SAME", "VALID"] | tuple[int, int]


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def clip(start: int, stop: int, low: int, high: int) -> range:
    """Return the positions from `start` to `stop` within ``low .. high``; an empty range lies there too."""
    start = min(max(start, low), high)
    return range(start, max(min(stop, high), start))


@dataclass(frozen=True, slots=True)
class AxisRule:
    """The rule of one axis before its sizes are known: kernel, stride, dilation (all at least 1), padding."""

    name: str
    kernel: int
    stride: int
    dilation: int
    padding: AxisPadding

    @property
    def effective_kernel(self) -> int:
        """Elements from the first to the last tap, both included."""
        return (self.kernel - 1) * self.dilation + 1

    def narrow_from_wide(self, wide: int) -> int:
        """Return the narrow size that `wide` leads to. Negative where the kernel does not fit at all."""
        if self.padding == "SAME":
            return ceil_div(wide, self.stride)
        if self.padding == "VALID":
            return ceil_div(wide - self.effective_kernel + 1, self.stride)
        return (wide + sum(self.padding) - self.effective_kernel) // self.stride + 1

    def legal_wide(self, narrow: int) -> tuple[int, int]:
        """Return the least and greatest wide size that lead to `narrow`.

        The greatest is negative where no wide size does.
        """
        if self.padding == "SAME":
            least = (narrow - 1) * self.stride + 1
        else:
            pads = 0 if self.padding == "VALID" else sum(self.padding)
            least = (narrow - 1) * self.stride + self.effective_kernel - pads
        return max(least, 0), least + self.stride - 1

    def default_wide(self, narrow: int) -> int:
        """Return the wide size taken when none is asked for."""
        if self.padding == "SAME":
            return narrow * self.stride
        if self.padding == "VALID":
            return narrow * self.stride + max(self.effective_kernel - self.stride, 0)
        return self.legal_wide(narrow)[0]

    def solve(self, wide: int, narrow: int) -> Axis:
        """Return the axis with both sizes and its pads filled in, whether or not the sizes are legal."""
        if self.padding == "SAME":
            total = max((narrow - 1) * self.stride + self.effective_kernel - wide, 0)
            before, after = total // 2, total - total // 2
        elif self.padding == "VALID":
            before = after = 0
        else:
            before, after = self.padding
        return Axis(
            name=self.name,
            wide=wide,
            narrow=narrow,
            kernel=self.kernel,
            effective_kernel=self.effective_kernel,
            stride=self.stride,
            dilation=self.dilation,
            pad_before=before,
            pad_after=after,
            legal_wide=self.legal_wide(narrow),
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis with everything known: sizes and pads in elements."""

    name: str
    wide: int
    narrow: int
    kernel: int
    effective_kernel: int
    stride: int
    dilation: int
    pad_before: int
    pad_after: int
    legal_wide: tuple[int, int]

    @property
    def legal(self) -> bool:
        """Whether the rule joins these two sizes."""
        return self.legal_wide[0] <= self.wide <= self.legal_wide[1]

    @property
    def legal_wide_text(self) -> str:
        """The legal wide sizes as text: ``9..10``, ``7`` or ``none``."""
        least, most = self.legal_wide
        if most < least:
            return "none"
        return str(least) if least == most else f"{least}..{most}"

    def narrow_range(self, tap: int, wide: range) -> range:
        """Return the narrow positions that `tap` brings into the wide positions `wide`."""
        shift = self.pad_before - tap * self.dilation
        start = ceil_div(wide.start + shift, self.stride)
        stop = ceil_div(wide.stop + shift, self.stride)
        return clip(start, stop, 0, self.narrow)

    def narrow_reach(self, wide: range) -> range:
        """Return the narrow positions from the first to the last that a tap brings into the positions `wide`.

        With a dilation some of those between may have no tap there.
        """
        # The last tap looks back farthest, the first one least.
        return range(self.narrow_range(self.kernel - 1, wide).start, self.narrow_range(0, wide).stop)

    def wide_slice(self, tap: int, narrow: range, origin: int = 0) -> slice:
        """Return the wide positions of the narrow positions `narrow` under `tap`, counted from `origin`."""
        if not narrow:
            return slice(0, 0)
        start = narrow.start * self.stride + tap * self.dilation - self.pad_before - origin
        return slice(start, start + (len(narrow) - 1) * self.stride + 1, self.stride)

    def shift_and_phase(self, tap: int) -> tuple[int, int]:
        """Return where `tap` brings narrow position 0, as (whole strides, rest): ``shift*s + phase``.

        The wide positions with one rest are a stride phase; `tap` reaches that of its rest alone, and there
        narrow position `i` meets position ``i + shift``.
        """
        return divmod(tap * self.dilation - self.pad_before, self.stride)

    @property
    def shifts(self) -> tuple[int, int]:
        """The shifts of the first and the last tap: the least and the greatest."""
        return self.shift_and_phase(0)[0], self.shift_and_phase(self.kernel - 1)[0]

    @property
    def taps_by_phase(self) -> dict[int, list[tuple[int, int]]]:
        """For each stride phase that has any, its taps in rising order with their shifts."""
        found: dict[int, list[tuple[int, int]]] = {}
        for tap in range(self.kernel):
            shift, phase = self.shift_and_phase(tap)
            found.setdefault(phase, []).append((tap, shift))
        return found

    def phase_range(self, phase: int, wide: range) -> range:
        """Return the positions within stride phase `phase` of the wide positions `wide`."""
        start = ceil_div(wide.start - phase, self.stride)
        return range(start, max(ceil_div(wide.stop - phase, self.stride), start))

    @property
    def met(self) -> tuple[int, int]:
        """How many taps meet a narrow position at all, and how many such pairs there are."""
        return _met(self)

    def wide_reach(self, narrow: range) -> range:
        """Return the wide positions from the first to the last that the narrow positions `narrow` meet."""
        start = narrow.start * self.stride - self.pad_before
        stop = (narrow.stop - 1) * self.stride - self.pad_before + self.effective_kernel
        return clip(start, stop, 0, self.wide)


@functools.lru_cache(maxsize=256)
def _met(axis: Axis) -> tuple[int, int]:
    pairs = [len(axis.narrow_range(tap, range(axis.wide))) for tap in range(axis.kernel)]
    return sum(map(bool, pairs)), sum(pairs)
