"""The arithmetic of one axis, held against the rule table and against plain enumeration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest

from convgrad.geometry import Axis, AxisPadding, AxisRule

HUGE = 2**70
PADDINGS: list[AxisPadding] = ["SAME", "VALID", (0, 0), (1, 2), (4, 0), (9, 11)]
#: Every kernel 1..5 and dilation 1..3 of one padding and stride.
RULES = {
    f"{padding if isinstance(padding, str) else 'pads{}+{}'.format(*padding)}-s{stride}": [
        AxisRule("height", kernel, stride, dilation, padding)
        for kernel, dilation in product(range(1, 6), range(1, 4))
    ]
    for padding, stride in product(PADDINGS, range(1, 5))
}
every_rule = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)


def window(rule: AxisRule) -> int:
    """Effective kernel: the span of the taps."""
    taps = [tap * rule.dilation for tap in range(rule.kernel)]
    return taps[-1] - taps[0] + 1


def pads(rule: AxisRule) -> int:
    return 0 if isinstance(rule.padding, str) else sum(rule.padding)


def narrow_by_table(rule: AxisRule, wide: int) -> int:
    """The rule table, in exact fractions."""
    if rule.padding == "SAME":
        return math.ceil(Fraction(wide, rule.stride))
    if rule.padding == "VALID":
        return math.ceil(Fraction(wide - window(rule) + 1, rule.stride))
    return math.floor(Fraction(wide + pads(rule) - window(rule), rule.stride)) + 1


@every_rule
def test_narrow_follows_the_table(rules: list[AxisRule]) -> None:
    for rule in rules:
        assert rule.effective_kernel == window(rule)
        for wide in range(41):
            assert rule.narrow_from_wide(wide) == narrow_by_table(rule, wide), (rule, wide)


@every_rule
def test_narrow_counts_the_windows_that_fit(rules: list[AxisRule]) -> None:
    """Independent of the table: slide the kernel over the padded wide side."""
    for rule in rules:
        for wide in range(41):
            if rule.padding == "SAME":
                windows = len(range(0, wide, rule.stride))
            else:
                windows = len(range(0, wide + pads(rule) - window(rule) + 1, rule.stride))
            assert max(rule.narrow_from_wide(wide), 0) == windows, (rule, wide)


@every_rule
def test_legal_wide_is_exactly_what_leads_to_narrow(rules: list[AxisRule]) -> None:
    for rule in rules:
        top = narrow_by_table(rule, 40)
        for narrow in range(top):
            leading = [wide for wide in range(60) if narrow_by_table(rule, wide) == narrow]
            least, most = rule.legal_wide(narrow)
            assert list(range(least, most + 1)) == leading, (rule, narrow)
            if not leading:
                assert most < 0


@every_rule
def test_default_wide_is_legal_and_documented(rules: list[AxisRule]) -> None:
    for rule in rules:
        for narrow in range(narrow_by_table(rule, 40) + 1):
            least, most = rule.legal_wide(narrow)
            if most < least:
                continue
            wide = rule.default_wide(narrow)
            assert narrow_by_table(rule, wide) == narrow
            if rule.padding == "SAME":
                assert wide == narrow * rule.stride
            elif rule.padding == "VALID":
                assert wide == narrow * rule.stride + max(window(rule) - rule.stride, 0)
            else:
                assert wide == min(w for w in range(60) if narrow_by_table(rule, w) == narrow)


@every_rule
def test_solve_fills_in_sizes_and_pads(rules: list[AxisRule]) -> None:
    for rule in rules:
        for wide in range(41):
            narrow = narrow_by_table(rule, wide)
            if narrow < 0:
                continue
            axis = rule.solve(wide, narrow)
            assert dataclasses.astuple(axis)[:7] == (
                rule.name,
                wide,
                narrow,
                rule.kernel,
                window(rule),
                rule.stride,
                rule.dilation,
            )
            assert axis.legal
            assert axis.legal_wide == rule.legal_wide(narrow)
            before, after = axis.pad_before, axis.pad_after
            if rule.padding == "SAME":
                # The fewest pads that let the last window fit, the odd one after.
                last = (narrow - 1) * rule.stride + window(rule)
                total = next(total for total in range(100) if wide + total >= last)
                assert (before, after) == (total // 2, total - total // 2), (rule, wide)
            else:
                assert (before, after) == ((0, 0) if rule.padding == "VALID" else rule.padding)


@every_rule
def test_solve_marks_other_sizes_illegal(rules: list[AxisRule]) -> None:
    for rule in rules:
        for narrow in range(5):
            for wide in range(30):
                assert rule.solve(wide, narrow).legal == (narrow_by_table(rule, wide) == narrow)


@pytest.mark.parametrize(
    ("kernel", "stride", "wide", "expected"),
    [
        pytest.param(2, 1, 2, (0, 1), id="even-kernel"),
        pytest.param(3, 2, 6, (0, 1), id="odd-kernel-stride-2"),
        pytest.param(4, 1, 5, (1, 2), id="kernel-4"),
        pytest.param(3, 1, 5, (1, 1), id="odd-kernel"),
        pytest.param(1, 3, 9, (0, 0), id="stride-past-kernel"),
        pytest.param(5, 2, 7, (2, 2), id="kernel-5-stride-2"),
    ],
)
def test_same_pads_by_hand(kernel: int, stride: int, wide: int, expected: tuple[int, int]) -> None:
    rule = AxisRule("width", kernel, stride, 1, "SAME")
    axis = rule.solve(wide, rule.narrow_from_wide(wide))
    assert (axis.pad_before, axis.pad_after) == expected


@pytest.mark.parametrize(
    ("rule", "narrow", "text"),
    [
        (AxisRule("height", 3, 2, 1, "SAME"), 5, "9..10"),
        (AxisRule("height", 3, 1, 1, "VALID"), 5, "7"),
        (AxisRule("height", 3, 1, 1, (5, 5)), 0, "none"),
        (AxisRule("height", 3, 4, 1, "VALID"), 0, "0..2"),
    ],
    ids=["range", "one", "none", "from-zero"],
)
def test_legal_wide_text(rule: AxisRule, narrow: int, text: str) -> None:
    assert rule.solve(0, narrow).legal_wide_text == text


# Positions: narrow i and tap t meet at wide i*s + t*d - before.


def solved(rules: list[AxisRule]) -> Iterator[Axis]:
    """The axes of `rules` at a few sizes: none, one, smaller and larger than the kernel, odd and even."""
    for rule, wide in product(rules, (0, 1, 4, 11, 14)):
        narrow = narrow_by_table(rule, wide)
        if narrow >= 0:
            yield rule.solve(wide, narrow)


def meeting(axis: Axis, narrow: int, tap: int) -> int:
    return narrow * axis.stride + tap * axis.dilation - axis.pad_before


def stretches(size: int) -> list[range]:
    """All of 0..size, and its cuts into pieces of 1, 3 and 8."""
    return [range(start, min(start + step, size)) for step in (1, 3, 8, 50) for start in range(0, size, step)]


@every_rule
def test_narrow_range(rules: list[AxisRule]) -> None:
    for axis in solved(rules):
        for wide in stretches(axis.wide):
            for tap in range(axis.kernel):
                met = [i for i in range(axis.narrow) if meeting(axis, i, tap) in wide]
                assert list(axis.narrow_range(tap, wide)) == met, (axis, wide, tap)


@every_rule
def test_narrow_reach_is_every_window_over_the_stretch(rules: list[AxisRule]) -> None:
    """A narrow position whose window spans the stretch counts even where the dilation steps over it."""
    for axis in solved(rules):
        for wide in stretches(axis.wide):
            over = [
                i
                for i in range(axis.narrow)
                if meeting(axis, i, 0) < wide.stop and meeting(axis, i, axis.kernel - 1) >= wide.start
            ]
            reach = axis.narrow_reach(wide)
            assert list(reach) == over, (axis, wide)
            assert {i for tap in range(axis.kernel) for i in axis.narrow_range(tap, wide)} <= set(reach)


@every_rule
def test_wide_slice_selects_the_meeting_positions(rules: list[AxisRule]) -> None:
    for axis in solved(rules):
        positions = range(axis.wide)
        for tap in range(axis.kernel):
            whole = axis.narrow_range(tap, positions)
            for cut in [whole, whole[:1], whole[1:], whole[1:-1], whole[:0]]:
                expected = [meeting(axis, i, tap) for i in cut]
                assert list(positions[axis.wide_slice(tap, cut)]) == expected, (axis, tap, cut)
                if expected:
                    origin = expected[0] // 2
                    moved = axis.wide_slice(tap, cut, origin)
                    assert list(positions[origin:][moved]) == expected


@every_rule
def test_wide_reach_spans_what_the_narrow_positions_meet(rules: list[AxisRule]) -> None:
    for axis in solved(rules):
        for narrow in stretches(axis.narrow):
            first, last = meeting(axis, narrow[0], 0), meeting(axis, narrow[-1], axis.kernel - 1)
            expected = [place for place in range(axis.wide) if first <= place <= last]
            reach = axis.wide_reach(narrow)
            assert list(reach) == expected, (axis, narrow)
            met = [meeting(axis, i, tap) for i in narrow for tap in range(axis.kernel)]
            assert {place for place in met if 0 <= place < axis.wide} <= set(reach)


@every_rule
def test_narrow_range_inverts_wide_slice(rules: list[AxisRule]) -> None:
    """Together the taps of all narrow positions reach every pair that exists, once."""
    for axis in solved(rules):
        pairs = [
            (i, place)
            for tap in range(axis.kernel)
            for i in axis.narrow_range(tap, range(axis.wide))
            for place in range(axis.wide)[axis.wide_slice(tap, range(i, i + 1))]
        ]
        brute = [
            (i, meeting(axis, i, tap))
            for i in range(axis.narrow)
            for tap in range(axis.kernel)
            if 0 <= meeting(axis, i, tap) < axis.wide
        ]
        assert sorted(pairs) == sorted(brute)


# Nothing wraps.


@pytest.mark.parametrize("padding", ["SAME", "VALID", (HUGE, 3)], ids=["SAME", "VALID", "explicit"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [(3, HUGE, 1), (3, 2, HUGE), (HUGE, 1, 1), (HUGE, HUGE + 1, HUGE)],
    ids=["stride", "dilation", "kernel", "all"],
)
def test_huge_sizes_do_not_wrap(kernel: int, stride: int, dilation: int, padding: AxisPadding) -> None:
    rule = AxisRule("height", kernel, stride, dilation, padding)
    span = (kernel - 1) * dilation + 1
    assert rule.effective_kernel == span
    for wide in (HUGE, HUGE * HUGE * 7 + 5):
        narrow = rule.narrow_from_wide(wide)
        if padding == "SAME":
            assert narrow == math.ceil(Fraction(wide, stride))
        elif padding == "VALID":
            assert narrow == math.ceil(Fraction(wide - span + 1, stride))
        else:
            assert narrow == math.floor(Fraction(wide + HUGE + 3 - span, stride)) + 1
        if narrow >= 0:
            assert rule.solve(wide, narrow).legal
            least, most = rule.legal_wide(narrow)
            assert most - (narrow - 1) * stride in {stride, stride + span - 1, stride + span - HUGE - 4}
            assert least <= rule.default_wide(narrow) <= most


def test_huge_positions_do_not_wrap() -> None:
    axis = AxisRule("height", 3, HUGE, HUGE, (HUGE, HUGE)).solve(10 * HUGE, 10)
    assert axis.narrow_range(1, range(5 * HUGE, 7 * HUGE)) == range(5, 7)
    assert axis.narrow_reach(range(5 * HUGE, 7 * HUGE)) == range(4, 8)
    assert axis.wide_slice(2, range(4, 6)) == slice(5 * HUGE, 6 * HUGE + 1, HUGE)
    assert axis.wide_slice(2, range(4, 6), 5 * HUGE) == slice(0, HUGE + 1, HUGE)
    assert axis.wide_reach(range(4, 6)) == range(3 * HUGE, 6 * HUGE + 1)


ONE_RULE = AxisRule("height", 3, 1, 1, "SAME")


@pytest.mark.parametrize("value", [ONE_RULE, ONE_RULE.solve(4, 4)], ids=["AxisRule", "Axis"])
def test_frozen(value: AxisRule | Axis) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.kernel = 2  # type: ignore[misc]
    assert hash(value) == hash(dataclasses.replace(value))
