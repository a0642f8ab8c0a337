"""Hints: each common mistake is named, what the hint says works, and finding it stays cheap."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import Plan, TensorSpec, operations

FLOAT32 = np.dtype(np.float32)


class Call:
    """One request: the operands' shapes and the options, which can be changed."""

    def __init__(self, first: tuple[int, ...], other: tuple[int, ...], **options: Any) -> None:
        self.first, self.other, self.options = first, other, options

    def but(self, **changes: Any) -> Call:
        """The same with other operands or options; a value of None leaves the option out."""
        options = {**self.options, **changes}
        first, other = options.pop("first", self.first), options.pop("other", self.other)
        kept = {name: value for name, value in options.items() if value is not None}
        return type(self)(first, other, **kept)


class Transpose(Call):
    def plan(self) -> Plan:
        first, other = TensorSpec(self.first, FLOAT32), TensorSpec(self.other, FLOAT32)
        return convgrad.plan_conv2d_transpose(first, other, **self.options)


class FilterGrad(Call):
    def plan(self) -> Plan:
        first, other = TensorSpec(self.first, FLOAT32), TensorSpec(self.other, FLOAT32)
        return convgrad.plan_depthwise_conv2d_backprop_filter(
            first, out_backprop=other, **{"filter_sizes": (3, 3), **self.options}
        )


def hint(call: Transpose | FilterGrad) -> str | None:
    with pytest.raises(convgrad.ShapeError) as caught:
        call.plan()
    error = caught.value
    assert "\n" not in error.message
    assert "\n" not in (error.hint or "")
    assert str(error) == (error.message if error.hint is None else f"{error.message}\nHint: {error.hint}")
    return error.hint


SMALL = Transpose((1, 4, 5, 8), (3, 3, 6, 8))
DOUBLE = SMALL.but(strides=2)
NCHW = Transpose((1, 8, 4, 5), (3, 3, 6, 8), data_format="NCHW")
GRADIENT = FilterGrad((2, 8, 10, 3), (2, 8, 10, 6))
GRADIENT_NCHW = FilterGrad((2, 3, 8, 10), (2, 6, 8, 10), data_format="NCHW")


@pytest.mark.parametrize(
    ("wrong", "says", "right"),
    [
        pytest.param(
            SMALL.but(other=(3, 3, 8, 6)),
            r"axes 2 and 3 .*swapped.*\(kh, kw, Cout, Cin\)",
            SMALL,
            id="filters-swapped",
        ),
        pytest.param(
            DOUBLE.but(other=(3, 3, 8, 6), output_shape=(1, 7, 10, 6)),
            r"axes 2 and 3 .*swapped",
            DOUBLE.but(output_shape=(1, 7, 10, 6)),
            id="filters-swapped-with-output-shape",
        ),
        pytest.param(
            SMALL.but(other=(8, 6, 3, 3)),
            r"PyTorch.*\(Cin, Cout, kh, kw\).*\(2, 3, 1, 0\)",
            SMALL,
            id="filters-of-pytorch",
        ),
        pytest.param(NCHW.but(data_format=None), "input .*NCHW.*data_format NCHW", NCHW, id="input-NCHW"),
        pytest.param(
            NCHW.but(data_format=None, output_shape=(1, 6, 8, 10), strides=2),
            "input .*NCHW.*data_format NCHW",
            NCHW.but(output_shape=(1, 6, 8, 10), strides=2),
            id="input-NCHW-with-output-shape",
        ),
        pytest.param(SMALL.but(data_format="NCHW"), "input .*NHWC.*data_format NHWC", SMALL, id="input-NHWC"),
        pytest.param(
            DOUBLE.but(output_shape=(1, 6, 8, 10)),
            "output_shape looks NCHW: 1,8,10,6 would match",
            DOUBLE.but(output_shape=(1, 8, 10, 6)),
            id="output-shape-NCHW",
        ),
        pytest.param(
            NCHW.but(output_shape=(1, 8, 10, 6), strides=2),
            "output_shape looks NHWC: 1,6,8,10 would match",
            NCHW.but(output_shape=(1, 6, 8, 10), strides=2),
            id="output-shape-NHWC",
        ),
        pytest.param(
            DOUBLE.but(output_shape=(10, 8)),
            "height and width of output_shape .*swapped",
            DOUBLE.but(output_shape=(8, 10)),
            id="height-and-width",
        ),
        pytest.param(
            DOUBLE.but(output_shape=(1, 10, 8, 6)),
            "height and width of output_shape .*swapped",
            DOUBLE.but(output_shape=(1, 8, 10, 6)),
            id="height-and-width-of-four",
        ),
        pytest.param(
            NCHW.but(output_shape=(1, 6, 10, 8), strides=2),
            "height and width of output_shape .*swapped",
            NCHW.but(output_shape=(1, 6, 8, 10), strides=2),
            id="height-and-width-NCHW",
        ),
        pytest.param(
            DOUBLE.but(output_shape=(1, 9, 11, 6)),
            "1,9,11,6 would with padding VALID",
            DOUBLE.but(output_shape=(1, 9, 11, 6), padding="VALID"),
            id="padding-VALID",
        ),
        pytest.param(
            SMALL.but(output_shape=(4, 5), padding="VALID"),
            "4,5 would with padding SAME",
            SMALL.but(output_shape=(4, 5)),
            id="padding-SAME",
        ),
        pytest.param(
            SMALL.but(output_shape=(6, 7), padding=[[0, 0], [2, 2], [2, 2], [0, 0]]),
            "6,7 would with padding VALID",
            SMALL.but(output_shape=(6, 7), padding="VALID"),
            id="padding-not-explicit",
        ),
        pytest.param(
            SMALL.but(output_shape=(12, 15)),
            "12,15 would with strides 3$",
            SMALL.but(output_shape=(12, 15), strides=3),
            id="strides",
        ),
        pytest.param(
            SMALL.but(output_shape=(4, 15)),
            "4,15 would with strides 1,3$",
            SMALL.but(output_shape=(4, 15), strides=(1, 3)),
            id="strides-of-width",
        ),
        pytest.param(
            SMALL.but(output_shape=(8, 9), padding="VALID"),
            "8,9 would with dilations 2$",
            SMALL.but(output_shape=(8, 9), padding="VALID", dilations=2),
            id="dilations",
        ),
        pytest.param(
            SMALL.but(output_shape=(8, 7), padding="VALID"),
            "8,7 would with dilations 2,1$",
            SMALL.but(output_shape=(8, 7), padding="VALID", dilations=(2, 1)),
            id="dilations-of-height",
        ),
        pytest.param(
            Transpose((1, 4, 4, 8), (3, 3, 6, 8), output_shape=(9, 9)),
            "9,9 would with padding VALID and strides 2$",
            Transpose((1, 4, 4, 8), (3, 3, 6, 8), output_shape=(9, 9), padding="VALID", strides=2),
            id="padding-and-strides",
        ),
        pytest.param(
            DOUBLE.but(output_shape=(1, 9, 10, 6)),
            "^output_shape 1,8,10,6 would match",
            DOUBLE.but(output_shape=(1, 8, 10, 6)),
            id="nearest-below",
        ),
        pytest.param(
            DOUBLE.but(output_shape=(1, 2, 9, 6)),
            "^output_shape 1,7,9,6 would match",
            DOUBLE.but(output_shape=(1, 7, 9, 6)),
            id="nearest-above-keeps-the-legal-axis",
        ),
        pytest.param(
            DOUBLE.but(output_shape=(1000, 3)),
            "^output_shape 8,9 would match",
            DOUBLE.but(output_shape=(8, 9)),
            id="nearest-of-two",
        ),
        pytest.param(
            NCHW.but(output_shape=(1, 6, 300, 5)),
            "^output_shape 1,6,4,5 would match",
            NCHW.but(output_shape=(1, 6, 4, 5)),
            id="nearest-NCHW",
        ),
        pytest.param(
            Transpose((1, 2, 2, 1), (3, 3, 1, 1), padding=[[0, 0], [5, 5], [5, 5], [0, 0]]),
            "would match with padding SAME",
            Transpose((1, 2, 2, 1), (3, 3, 1, 1)),
            id="pads-exceed-the-input",
        ),
    ],
)
def test_transpose(wrong: Transpose, says: str, right: Transpose) -> None:
    assert re.search(says, hint(wrong) or "")
    right.plan()


@pytest.mark.parametrize(
    ("wrong", "says", "right"),
    [
        pytest.param(
            FilterGrad((2, 4, 5, 6), (2, 8, 10, 3), strides=2),
            "input and out_backprop .*swapped",
            FilterGrad((2, 8, 10, 3), (2, 4, 5, 6), strides=2),
            id="operands-swapped",
        ),
        pytest.param(
            FilterGrad((2, 4, 5, 6), (2, 8, 10, 3), strides=2, filter_sizes=(3, 3, 3, 2)),
            "input and out_backprop .*swapped",
            FilterGrad((2, 8, 10, 3), (2, 4, 5, 6), strides=2, filter_sizes=(3, 3, 3, 2)),
            id="operands-swapped-with-all-filter-sizes",
        ),
        pytest.param(
            GRADIENT_NCHW.but(data_format=None),
            "input .*NCHW.*data_format NCHW",
            GRADIENT_NCHW,
            id="input-NCHW",
        ),
        pytest.param(
            GRADIENT.but(data_format="NCHW"), "input .*NHWC.*data_format NHWC", GRADIENT, id="input-NHWC"
        ),
        pytest.param(
            GRADIENT.but(filter_sizes=(3, 3, 6, 1)),
            "filter_sizes 3,3,3,2$",
            GRADIENT.but(filter_sizes=(3, 3, 3, 2)),
            id="filter-sizes-channels",
        ),
        pytest.param(
            GRADIENT.but(filter_sizes=(5, 1, 3, 1)),
            "filter_sizes 5,1,3,2$",
            GRADIENT.but(filter_sizes=(5, 1, 3, 2)),
            id="filter-sizes-multiplier",
        ),
        pytest.param(
            GRADIENT_NCHW.but(filter_sizes=(3, 3, 2, 3)),
            "filter_sizes 3,3,3,2$",
            GRADIENT_NCHW.but(filter_sizes=(3, 3, 3, 2)),
            id="filter-sizes-NCHW",
        ),
        pytest.param(
            GRADIENT.but(other=(2, 6, 8, 3)),
            "padding VALID$",
            GRADIENT.but(other=(2, 6, 8, 3), padding="VALID"),
            id="padding-VALID",
        ),
        pytest.param(GRADIENT.but(padding="VALID"), "padding SAME$", GRADIENT, id="padding-SAME"),
        pytest.param(
            GRADIENT.but(other=(2, 4, 5, 3)),
            "strides 2$",
            GRADIENT.but(other=(2, 4, 5, 3), strides=2),
            id="strides",
        ),
        pytest.param(
            GRADIENT.but(other=(2, 4, 10, 3)),
            "strides 2,1$",
            GRADIENT.but(other=(2, 4, 10, 3), strides=(2, 1)),
            id="strides-of-height",
        ),
        pytest.param(
            FilterGrad((1, 1, 36, 1), (1, 1, 32, 1), filter_sizes=(1, 2), padding="VALID"),
            "dilations 4$",
            FilterGrad((1, 1, 36, 1), (1, 1, 32, 1), filter_sizes=(1, 2), padding="VALID", dilations=4),
            id="dilations-36-to-32",
        ),
        pytest.param(
            FilterGrad((1, 40, 60, 1), (1, 18, 58, 1), padding="VALID"),
            "dilations 11,1$",
            FilterGrad((1, 40, 60, 1), (1, 18, 58, 1), padding="VALID", dilations=(11, 1)),
            id="dilations-far",
        ),
        pytest.param(
            FilterGrad((1, 16, 16, 2), (1, 5, 5, 2), filter_sizes=(3, 3)),
            "padding VALID and strides 3$",
            FilterGrad((1, 16, 16, 2), (1, 5, 5, 2), filter_sizes=(3, 3), padding="VALID", strides=3),
            id="padding-and-strides",
        ),
        pytest.param(
            FilterGrad((2, 2, 2, 3), (2, 2, 2, 3), padding="VALID"),
            "padding SAME$",
            FilterGrad((2, 2, 2, 3), (2, 2, 2, 3)),
            id="kernel-does-not-fit",
        ),
    ],
)
def test_filter_grad(wrong: FilterGrad, says: str, right: FilterGrad) -> None:
    assert re.search(says, hint(wrong) or "")
    right.plan()


#: Requests that no single change makes right.
HOPELESS = {
    "channels": SMALL.but(other=(3, 3, 6, 7)),
    "batch": SMALL.but(output_shape=(2, 4, 5, 6)),
    "output-channels": SMALL.but(output_shape=(1, 4, 5, 7)),
    "kernel-of-0": SMALL.but(other=(0, 3, 6, 8)),
    "axes": SMALL.but(first=(4, 5, 8)),
    "addressable": SMALL.but(first=(1, 2**40, 2**40, 8)),
    "gradient-batch": GRADIENT.but(other=(3, 8, 10, 6)),
    "gradient-channels": GRADIENT.but(other=(2, 8, 10, 7)),
    "gradient-larger-than-input": GRADIENT.but(other=(2, 9, 11, 6)),
    "gradient-kernel-of-0": GRADIENT.but(filter_sizes=(3, 0)),
    "gradient-batch-and-size": GRADIENT.but(other=(3, 6, 8, 6)),
}


@pytest.mark.parametrize("call", HOPELESS.values(), ids=HOPELESS)
def test_no_hint_where_nothing_fits(call: Transpose | FilterGrad) -> None:
    assert hint(call) is None


def test_what_the_hint_offers_can_be_pasted() -> None:
    """Both ways out of an output_shape that does not fit, each taken at its word."""
    wrong = DOUBLE.but(output_shape=(1, 11, 15, 6))
    offered = re.fullmatch(
        r"output_shape ([\d,]+) would match; ([\d,]+) would with strides ([\d,]+)", hint(wrong) or ""
    )
    assert offered
    shape, asked, strides = (tuple(map(int, part.split(","))) for part in offered.groups())
    assert DOUBLE.but(output_shape=shape).plan().output.shape == (1, 8, 10, 6)
    assert asked == (1, 11, 15, 6)
    assert DOUBLE.but(output_shape=asked, strides=strides).plan().output.shape == asked


def test_the_message_and_the_report_stay_those_of_the_request() -> None:
    """Trying other options must not change what is said of the one asked for."""
    with pytest.raises(convgrad.ShapeError) as caught:
        DOUBLE.but(output_shape=(1, 9, 11, 6)).plan()
    error = caught.value
    assert "height 9" in error.message
    assert error.report is not None
    assert [axis.stride for axis in error.report.axes] == [2, 2]
    assert error.report.tensors[2].shape == (1, 9, 11, 6)
    assert error.__cause__ is None
    assert error.__suppress_context__


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often either operation is solved."""
    calls = [0]
    for name in ("solve_transpose", "solve_filter_grad"):
        solve = getattr(operations, name)

        def counting(request: Any, solve: Any = solve) -> Plan:
            calls[0] += 1
            return solve(request)  # type: ignore[no-any-return]

        monkeypatch.setattr(operations, name, counting)
    return calls


@pytest.mark.parametrize("call", HOPELESS.values(), ids=HOPELESS)
def test_hopeless_requests_are_given_up_soon(
    call: Transpose | FilterGrad, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    hint(call)
    assert calls[0] <= 2000


def test_a_request_that_fits_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    SMALL.plan()
    GRADIENT.plan()
    assert calls == [2]


@pytest.mark.parametrize("sizes", [(2**70, 2**70), (1, 2**70, 2**70, 6)], ids=["two", "four"])
def test_huge_requests_are_as_cheap(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries depend on the options, not on the sizes."""
    calls = counted(monkeypatch)
    found = hint(DOUBLE.but(output_shape=sizes))
    assert found is not None
    assert found.startswith("output_shape ")
    assert calls[0] <= 2000


def test_malformed_options_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    for wrong in (SMALL.but(strides=0), SMALL.but(padding="FULL"), GRADIENT.but(dilations=(1, 2, 3))):
        with pytest.raises(convgrad.ArgumentError):
            wrong.plan()
    assert calls == [0]


def test_three_input_channels_alone_do_not_look_like_pytorch() -> None:
    """(3, 3, 16, 8) has a 3 in front like any 3x3 kernel; read as PyTorch's it would be a 16x8 kernel."""
    with pytest.raises(convgrad.ShapeError) as caught:
        convgrad.plan_conv2d_transpose(
            convgrad.TensorSpec((1, 64, 64, 3), np.dtype(np.float32)),
            convgrad.TensorSpec((3, 3, 16, 8), np.dtype(np.float32)),
        )
    assert "PyTorch" not in (caught.value.hint or "")
