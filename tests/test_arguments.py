"""What may be written for strides, dilations, padding and sizes, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import TensorSpec
from convgrad.arguments import height_width, integer, integers, padding_rules

HUGE = 2**70
FLOAT32 = np.dtype(np.float32)
IMAGES = TensorSpec((1, 4, 4, 1), FLOAT32)
FILTERS = TensorSpec((3, 3, 1, 1), FLOAT32)

every_argument = pytest.mark.parametrize("argument", ["strides", "dilations"])
both_formats = pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])


def refused(caught: pytest.ExceptionInfo[convgrad.ConvgradError], argument: str, *says: str) -> None:
    """The error is one line that starts with the argument and shows the value."""
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.message.startswith(f"{argument}: ")
    assert "\n" not in error.message
    assert [word for word in says if word not in error.message] == []


# Strides and dilations.


@both_formats
@every_argument
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(2, (2, 2), id="int"),
        pytest.param(1, (1, 1), id="one"),
        pytest.param(np.int64(3), (3, 3), id="numpy-int"),
        pytest.param(np.uint8(255), (255, 255), id="numpy-uint8"),
        pytest.param(np.array(4), (4, 4), id="0-d-array"),
        pytest.param([5], (5, 5), id="list-of-one"),
        pytest.param((2, 3), (2, 3), id="tuple"),
        pytest.param([2, 3], (2, 3), id="list"),
        pytest.param(range(2, 4), (2, 3), id="range"),
        pytest.param(np.array([2, 3]), (2, 3), id="array"),
        pytest.param(np.array([2, 3], np.uint16), (2, 3), id="uint16-array"),
        pytest.param([np.int32(2), 3], (2, 3), id="mixed"),
        pytest.param(HUGE, (HUGE, HUGE), id="huge"),
        pytest.param((1, HUGE), (1, HUGE), id="huge-width"),
    ],
)
def test_height_width_accepts(value: Any, expected: tuple[int, int], argument: str, data_format: str) -> None:
    result = height_width(argument, value, data_format)
    assert result == expected
    assert [type(size) for size in result] == [int, int]


@every_argument
@pytest.mark.parametrize("kind", [list, tuple, np.array], ids=["list", "tuple", "array"])
@pytest.mark.parametrize(
    ("data_format", "value"), [("NHWC", (1, 2, 3, 1)), ("NCHW", (1, 1, 2, 3))], ids=["NHWC", "NCHW"]
)
def test_height_width_in_layout_order(argument: str, kind: Any, data_format: str, value: Any) -> None:
    assert height_width(argument, kind(value), data_format) == (2, 3)


@both_formats
@every_argument
@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param(True, ("integer", "True"), id="bool"),
        pytest.param(np.True_, ("integer", "True"), id="numpy-bool"),
        pytest.param([1, True], ("integer", "True"), id="bool-in-list"),
        pytest.param(np.array([True, False]), ("integer", "True"), id="bool-array"),
        pytest.param(2.0, ("integer", "2.0"), id="float"),
        pytest.param(np.float32(2), ("integer", "2.0"), id="numpy-float"),
        pytest.param((1, 1.5), ("integer", "1.5"), id="float-in-tuple"),
        pytest.param(np.array([1.0, 2.0]), ("integer", "1.0"), id="float-array"),
        pytest.param(np.array(2.0), ("integer", "2."), id="0-d-float-array"),
        pytest.param(float("nan"), ("integer", "nan"), id="nan"),
        pytest.param("2", ("integer", "'2'"), id="string"),
        pytest.param("2,2", ("integer", "'2,2'"), id="string-of-two"),
        pytest.param(b"22", ("integer", "b'22'"), id="bytes"),
        pytest.param(["2", "2"], ("integer", "'2'"), id="strings"),
        pytest.param(None, ("integer", "None"), id="None"),
        pytest.param([None, 1], ("integer", "None"), id="None-in-list"),
        pytest.param({2}, ("integer", "{2}"), id="set"),
        pytest.param({"H": 2}, ("integer", "{'H': 2}"), id="dict"),
        pytest.param([[1, 2], [3]], ("integer", "[1, 2]"), id="nested"),
        pytest.param(np.ones((2, 2), int), ("integer",), id="2-d-array"),
        pytest.param(1j, ("integer", "1j"), id="complex"),
        pytest.param([], ("1, 2", "4", "got 0"), id="length-0"),
        pytest.param(np.array([], int), ("1, 2", "4", "got 0"), id="empty-array"),
        pytest.param([1, 2, 3], ("1, 2", "4", "got 3", "1,2,3"), id="length-3"),
        pytest.param((1, 2, 3, 4, 5), ("1, 2", "4", "got 5", "1,2,3,4,5"), id="length-5"),
        pytest.param(0, ("at least 1", "got 0"), id="zero"),
        pytest.param(-3, ("at least 1", "got -3"), id="negative"),
        pytest.param((0, 2), ("at least 1", "got 0", "height", "0,2"), id="zero-height"),
        pytest.param((2, -1), ("at least 1", "got -1", "width", "2,-1"), id="negative-width"),
        pytest.param(-HUGE, ("at least 1", str(-HUGE)), id="huge-negative"),
        pytest.param([2, 1, 1, 1], ("batch", "1", "got 2", "2,1,1,1"), id="batch"),
        pytest.param([0, 1, 1, 1], ("batch", "got 0"), id="batch-0"),
    ],
)
def test_height_width_refuses(value: Any, says: tuple[str, ...], argument: str, data_format: str) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        height_width(argument, value, data_format)
    refused(caught, argument, *says)


@every_argument
@pytest.mark.parametrize(
    ("data_format", "value"), [("NHWC", (1, 2, 2, 3)), ("NCHW", (1, 3, 2, 2))], ids=["NHWC", "NCHW"]
)
def test_height_width_refuses_channels(argument: str, data_format: str, value: Any) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        height_width(argument, value, data_format)
    refused(caught, argument, "channels", "got 3", ",".join(map(str, value)))


@every_argument
@pytest.mark.parametrize("value", [0, 1.5, "2", True, (1, 2, 3), (1, 1, 1, 2)], ids=repr)
def test_the_operations_refuse_the_same(argument: str, value: Any) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        convgrad.plan_conv2d_transpose(IMAGES, FILTERS, **{argument: value})
    refused(caught, argument)
    with pytest.raises(convgrad.ArgumentError) as caught:
        convgrad.plan_depthwise_conv2d_backprop_filter(IMAGES, (3, 3), IMAGES, **{argument: value})
    refused(caught, argument)


def test_dilations_left_out_are_1() -> None:
    plan = convgrad.plan_conv2d_transpose(IMAGES, FILTERS, dilations=None)
    assert [axis.dilation for axis in plan.axes] == [1, 1]


# Padding.

EXPLICIT = [[0, 0], [1, 2], [3, 4], [0, 0]]
EXPLICIT_NCHW = [[0, 0], [0, 0], [1, 2], [3, 4]]


@both_formats
@pytest.mark.parametrize("word", ["SAME", "same", "Same", np.str_("SAME")], ids=repr)
def test_same(word: str, data_format: str) -> None:
    assert padding_rules(word, data_format) == ("SAME", "SAME")


@both_formats
@pytest.mark.parametrize("word", ["VALID", "valid", "vAlId"])
def test_valid(word: str, data_format: str) -> None:
    assert padding_rules(word, data_format) == ("VALID", "VALID")


@pytest.mark.parametrize(
    ("data_format", "pairs"), [("NHWC", EXPLICIT), ("NCHW", EXPLICIT_NCHW)], ids=["NHWC", "NCHW"]
)
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(list, id="lists"),
        pytest.param(lambda pairs: tuple(map(tuple, pairs)), id="tuples"),
        pytest.param(np.array, id="array"),
        pytest.param(lambda pairs: np.array(pairs, np.int16), id="int16-array"),
        pytest.param(lambda pairs: [np.array(pair) for pair in pairs], id="list-of-arrays"),
        pytest.param(lambda pairs: [[np.int64(pad) for pad in pair] for pair in pairs], id="numpy-ints"),
    ],
)
def test_explicit_pads(form: Any, data_format: str, pairs: list[list[int]]) -> None:
    result = padding_rules(form(pairs), data_format)
    assert result == ((1, 2), (3, 4))
    assert {type(pad) for pair in result for pad in pair} == {int}


def test_huge_pads_do_not_wrap() -> None:
    assert padding_rules([[0, 0], [HUGE, 0], [0, HUGE], [0, 0]], "NHWC") == ((HUGE, 0), (0, HUGE))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param("FULL", ("SAME", "VALID", "FULL"), id="another-word"),
        pytest.param("", ("SAME", "VALID"), id="empty-string"),
        pytest.param(" SAME", ("SAME", "VALID"), id="spaces"),
        pytest.param("1,1,1,1", ("SAME", "VALID", "1,1,1,1"), id="pads-in-a-string"),
        pytest.param(None, ("SAME", "VALID", "None"), id="None"),
        pytest.param(1, ("SAME", "VALID", "got 1"), id="int"),
        pytest.param({1: 2}, ("SAME", "VALID", "{1: 2}"), id="dict"),
        pytest.param([], ("4", "got 0"), id="length-0"),
        pytest.param([[1, 1]], ("4", "got 1"), id="length-1"),
        pytest.param([[1, 1], [1, 1]], ("4", "got 2"), id="length-2"),
        pytest.param([[0, 0], [1, 1], [0, 0]], ("4", "got 3"), id="length-3"),
        pytest.param([[0, 0]] * 5, ("4", "got 5"), id="length-5"),
        pytest.param([[0, 0], [1], [1, 1], [0, 0]], ("height", "before, after", "got 1"), id="pair-of-1"),
        pytest.param([[0, 0], [1, 1], [1, 1, 1], [0, 0]], ("width", "got 3"), id="pair-of-3"),
        pytest.param([[0, 0], [-1, 0], [1, 1], [0, 0]], ("negative", "-1", "height"), id="negative"),
        pytest.param([[0, 0], [0, 0], [0, -2], [0, 0]], ("negative", "-2", "width"), id="negative-width"),
        pytest.param([[0, 1], [1, 1], [1, 1], [0, 0]], ("batch", "[0, 1]"), id="batch"),
        pytest.param([[0, 0], [1, 1], [1, 1], [2, 0]], ("channels", "[2, 0]"), id="channels"),
        pytest.param([[0, 0], [1.0, 1], [1, 1], [0, 0]], ("integer", "1.0"), id="float"),
        pytest.param([[0, 0], [True, 1], [1, 1], [0, 0]], ("integer", "True"), id="bool"),
        pytest.param([[0, 0], ["1", "1"], [1, 1], [0, 0]], ("integer", "'1'"), id="strings"),
        pytest.param(np.zeros((4, 2)), ("integer", "0.0"), id="float-array"),
        pytest.param(np.zeros((4, 2, 1), int), ("integer",), id="3-d-array"),
    ],
)
def test_padding_refuses(value: Any, says: tuple[str, ...]) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        padding_rules(value, "NHWC")
    refused(caught, "padding", *says)
    with pytest.raises(convgrad.ArgumentError):
        convgrad.plan_conv2d_transpose(IMAGES, FILTERS, padding=value)


@pytest.mark.parametrize(
    "value",
    [[0, 1, 1, 0], np.array([0, 1, 1, 0]), b"SAME"],
    ids=["four-integers", "array-of-four-integers", "bytes"],
)
def test_padding_that_is_not_pairs_is_told_so(value: Any) -> None:
    """Telling that 0 must be an integer would not help."""
    with pytest.raises(convgrad.ArgumentError, match=r"^padding: .*(before, after|SAME)"):
        padding_rules(value, "NHWC")


@pytest.mark.parametrize(
    ("data_format", "value", "axis"),
    [
        ("NHWC", EXPLICIT_NCHW, "channels"),
        ("NCHW", EXPLICIT, "channels"),
    ],
)
def test_pads_in_the_other_layout_are_refused(data_format: str, value: Any, axis: str) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        padding_rules(value, data_format)
    refused(caught, "padding", axis)


# Sizes: output_shape and filter_sizes.


def planned(argument: str, value: Any) -> convgrad.Plan:
    if argument == "output_shape":
        return convgrad.plan_conv2d_transpose(IMAGES, FILTERS, value)
    return convgrad.plan_depthwise_conv2d_backprop_filter(IMAGES, value, IMAGES)


every_sizes = pytest.mark.parametrize(
    ("argument", "four"), [("output_shape", (1, 4, 4, 1)), ("filter_sizes", (3, 3, 1, 1))]
)
every_sizes_argument = pytest.mark.parametrize("argument", ["output_shape", "filter_sizes"])


@every_sizes
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(list, id="list"),
        pytest.param(tuple, id="tuple"),
        pytest.param(np.array, id="array"),
        pytest.param(lambda sizes: np.array(sizes, np.uint8), id="uint8-array"),
        pytest.param(lambda sizes: [np.int64(size) for size in sizes], id="numpy-ints"),
    ],
)
def test_sizes_accepted(argument: str, four: tuple[int, ...], form: Any) -> None:
    assert planned(argument, form(four)).output.shape == four
    # Height and width alone: the first two of filter_sizes, the middle two of an NHWC output_shape.
    two = four[1:3] if argument == "output_shape" else four[:2]
    shape = planned(argument, form(two)).output.shape
    assert shape == four
    assert {type(size) for size in shape} == {int}


def test_output_shape_may_be_left_out() -> None:
    assert planned("output_shape", None).output.shape == (1, 4, 4, 1)


@every_sizes_argument
@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param((True, 4), ("integer", "True"), id="bool"),
        pytest.param(np.array([True, True]), ("integer", "True"), id="bool-array"),
        pytest.param((4.0, 4), ("integer", "4.0"), id="float"),
        pytest.param(np.array([4.0, 4.0]), ("integer", "4.0"), id="float-array"),
        pytest.param("4,4", ("integer", "'4,4'"), id="string"),
        pytest.param(b"44", ("integer", "b'44'"), id="bytes"),
        pytest.param(("4", "4"), ("integer", "'4'"), id="strings"),
        pytest.param((None, 4), ("integer", "None"), id="None-in-tuple"),
        pytest.param({4, 5}, ("integer", "{4, 5}"), id="set"),
        pytest.param([[4, 4]], ("integer",), id="nested"),
        pytest.param([[4, 4], [4]], ("integer",), id="ragged"),
        pytest.param([[4, 4], 4], ("integer",), id="ragged-with-an-integer"),
        pytest.param(np.full((1, 2), 4), ("integer",), id="2-d-array"),
        pytest.param(4.5, ("integer", "4.5"), id="bare-float"),
    ],
)
def test_sizes_that_are_no_integers(argument: str, value: Any, says: tuple[str, ...]) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        planned(argument, value)
    refused(caught, argument, *says)


@every_sizes_argument
@pytest.mark.parametrize(
    "value", [(), (3,), (3, 3, 1), (1, 3, 3, 1, 1)], ids=lambda value: f"length-{len(value)}"
)
def test_another_number_of_sizes(argument: str, value: tuple[int, ...]) -> None:
    """Malformed whatever the arrays are, hence an ArgumentError."""
    with pytest.raises(convgrad.ArgumentError) as caught:
        planned(argument, value)
    refused(caught, argument, "2", "4", f"got {len(value)}")


@every_sizes_argument
def test_one_bare_integer_is_told_how_many_sizes_are_needed(argument: str) -> None:
    """An integer is an integer: what is wrong is that there is only one."""
    with pytest.raises(convgrad.ArgumentError) as caught:
        planned(argument, 3)
    refused(caught, argument, "2", "4", "3")


def test_filter_sizes_cannot_be_left_out() -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        planned("filter_sizes", None)
    refused(caught, "filter_sizes", "None")


@pytest.mark.parametrize("size", [0, -1, -HUGE])
@pytest.mark.parametrize("axis", [0, 1])
def test_kernel_below_1(size: int, axis: int) -> None:
    sizes = [3, 3]
    sizes[axis] = size
    with pytest.raises(convgrad.ShapeError) as caught:
        planned("filter_sizes", sizes)
    refused(caught, "filter_sizes", ("height", "width")[axis], "at least 1", f"got {size}")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param((-4, 4), ("negative", "-4"), id="height"),
        pytest.param((4, -4), ("negative", "-4"), id="width"),
        pytest.param((-1, 4, 4, 1), ("-1",), id="batch"),
        pytest.param((1, 4, 4, -1), ("-1",), id="channels"),
    ],
)
def test_negative_output_shape(value: Any, says: tuple[str, ...]) -> None:
    with pytest.raises(convgrad.ShapeError) as caught:
        planned("output_shape", value)
    refused(caught, "output_shape", *says)


def test_negative_multiplier() -> None:
    with pytest.raises(convgrad.ShapeError) as caught:
        planned("filter_sizes", (3, 3, 1, -1))
    refused(caught, "filter_sizes", "-1")


# The two readers on their own.


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7), np.array(7)], ids=lambda v: type(v).__name__)
def test_integer(value: Any) -> None:
    result = integer("threads", value)
    assert (result, type(result)) == (7, int)


@pytest.mark.parametrize("value", [True, np.False_, 7.0, "7", None, [7]], ids=repr)
def test_integer_names_what_it_was_given(value: Any) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        integer("threads", value)
    refused(caught, "threads", str(value))


def test_integers_returns_python_integers() -> None:
    result = integers("sizes", np.array([1, 2], np.int16))
    assert result == [1, 2]
    assert {type(size) for size in result} == {int}
