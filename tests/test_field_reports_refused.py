"""Field reports, by number: malformed arguments, refused by the library with a message that helps.

The same kinds of request by the command line are in test_invalid.py and test_field_reports_command.py.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import convgrad
from assertions import BFLOAT16

HUGE = 4538426903074820908
BILLIONS = 1_879_048_192


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def transpose(id: str, input: np.ndarray, filters: np.ndarray, *says: str, **options: Any) -> Any:
    """One row: a transposed convolution that must be refused in a message with all of `says`."""
    ways = convgrad.conv2d_transpose, convgrad.plan_conv2d_transpose
    return pytest.param(ways, (input, filters), options, says, id=id)


def filter_grad(
    id: str, input: np.ndarray, sizes: Any, out_backprop: np.ndarray, *says: str, **options: Any
) -> Any:
    """One row: a filter gradient that must be refused in a message with all of `says`."""
    ways = convgrad.depthwise_conv2d_backprop_filter, convgrad.plan_depthwise_conv2d_backprop_filter
    return pytest.param(ways, (input, sizes, out_backprop), options, says, id=id)


REFUSED = [
    transpose(
        "016", ones(1, 7, 7, 1), ones(3, 3, 1, 1), "output_shape", "16", "7", output_shape=(1, 16, 16, 1)
    ),
    transpose(
        "016-stride-2",
        ones(1, 7, 7, 1),
        ones(3, 3, 1, 1),
        *("output_shape", "16", "13", "14"),
        output_shape=(16, 16),
        strides=2,
    ),
    transpose(
        "027",
        ones(1, 8, 8, 1),
        ones(2, 2, 3, 1),
        *("output_shape", "5", "4"),
        output_shape=(5, 5),
        dilations=2,
        padding=[[0, 0], [3, 3], [3, 3], [0, 0]],
    ),
    transpose("031", ones(1, 4, 4, 128), ones(2, 2, 128, 64), "filters", "128", "64", strides=2),
    filter_grad(
        "048",
        ones(1, 1, 36, 1),
        (1, 2),
        ones(1, 1, 32, 1),
        "out_backprop",
        "32",
        "35",
        "dilation",
        "4",
        padding="VALID",
    ),
    filter_grad(
        "049-A", ones(8, 2, 5, 1), (1, 3), ones(8, 2, 3, 1), "7", "5", padding="VALID", dilations=(2, 3)
    ),
    filter_grad(
        "050",
        ones(1, 14, 14, 4),
        (3, 3),
        ones(1, 8, 7, 4),
        "out_backprop",
        "8",
        "7",
        strides=2,
        dilations=(3, 1),
    ),
    transpose(
        "060-N", ones(1, 2, 3, 4), ones(3, 3, 2, 2), "strides", data_format="NCHW", strides=[2, 1, 1, 1]
    ),
    transpose(
        "060-C", ones(1, 2, 3, 4), ones(3, 3, 2, 2), "strides", data_format="NCHW", strides=[1, 2, 1, 1]
    ),
    transpose(
        "060-pads",
        ones(1, 2, 3, 4),
        ones(3, 3, 2, 2),
        "padding",
        data_format="NCHW",
        padding=[[0, 0], [1, 1], [1, 1], [0, 0]],
    ),
    *(
        filter_grad(f"061-{sizes}", ones(4, 5, 5, 48), sizes, ones(4, 5, 5, 96), "filter_sizes", *says)
        for sizes, says in [
            ((3, 3, BILLIONS, 2), ("48", str(BILLIONS))),
            ((BILLIONS, BILLIONS, BILLIONS, BILLIONS), ("48", str(BILLIONS))),
            ((3, 3, 48, BILLIONS), ()),
            ((3, 3, 2, 48), ("48",)),
        ]
    ),
    filter_grad(
        "063",
        np.array(26262.2),
        np.ones((13, 2, 5, 4), np.uint32),
        np.array(-14557.6),
        strides=[],
        padding="VALID",
    ),
    filter_grad("063-scalars", np.array(26262.2), (3, 3, 1, 1), np.array(-14557.6), "input", "0"),
    filter_grad("063-strides", ones(1, 4, 4, 1), (3, 3), ones(1, 4, 4, 1), "strides", strides=[]),
    transpose("065-three", ones(1, 4, 4, 2), ones(3, 3, 2, 2), "strides", "3", strides=[1, 1, 1]),
    filter_grad(
        "065-three-too", ones(1, 4, 4, 2), (3, 3), ones(1, 4, 4, 2), "strides", "3", strides=[1, 1, 1]
    ),
    transpose("065-rank-1", ones(4), ones(3, 3, 2, 2), "input", "1", strides=[1, 1]),
    filter_grad("065-rank-2", ones(1, 6, 6, 2), (3, 3), ones(6, 12), "out_backprop", "2", strides=[1, 1]),
    transpose(
        "066-stride",
        ones(1, 0, 0, 1, dtype=BFLOAT16),
        ones(1, 1, 1, 1, dtype=BFLOAT16),
        "strides",
        "0",
        strides=[1, 0, 1, 1],
    ),
    transpose(
        "066-dilations", ones(1, 1, 1, 1), ones(1, 1, 1, 1), "dilations", "5", dilations=[1, 0, 77, 1, 64]
    ),
    transpose(
        "066-dilation-0", ones(1, 1, 1, 1), ones(1, 1, 1, 1), "dilations", "0", dilations=[1, 0, 77, 1]
    ),
    transpose(
        "066-sizes", ones(1, 1, 1, 1), ones(1, 1, 1, 1), "output_shape", "3", output_shape=[-1024, 7, 1024]
    ),
    *(
        transpose(
            f"067-{stride}", ones(1, 32, 32, 1), ones(3, 3, 1, 1), "strides", str(stride), strides=stride
        )
        for stride in (0, -1)
    ),
    *(
        filter_grad(
            f"067-filter-gradient-{stride}",
            ones(1, 32, 32, 1),
            (3, 3),
            ones(1, 32, 32, 1),
            "strides",
            str(stride),
            strides=(1, stride),
        )
        for stride in (0, -1)
    ),
    transpose("068", ones(1, 4, 4, 1), ones(3, 3, 1, 1), "strides", "-1", strides=-1),
    filter_grad("068-kernel", ones(1, 4, 4, 1), (-1, 3), ones(1, 4, 4, 1), "filter_sizes", "-1"),
    filter_grad("068-channels", ones(1, 4, 4, 1), (3, 3, -10, 1), ones(1, 4, 4, 1), "filter_sizes", "-10"),
    filter_grad("068-all", ones(1, 4, 4, 1), (-1, -1, -10, 1), ones(1, 4, 4, 1), strides=-1),
    transpose("068-dilation", ones(1, 4, 4, 1), ones(3, 3, 1, 1), "dilations", "-2", dilations=-2),
    transpose(
        "069",
        ones(1, 1, 1, 1, dtype=np.float64),
        ones(1, 1, 1, 1, dtype=np.float64),
        "output_shape",
        "-2",
        output_shape=[2, -2],
    ),
    transpose(
        "069-wraps",
        ones(1, 1, 1, 1),
        ones(1, 1, 1, 1),
        "output_shape",
        "-3697127975084027074",
        output_shape=[-3697127975084027074, 1],
    ),
    transpose(
        "069-past-64-bits",
        ones(1, 1, 1, 1),
        ones(1, 1, 1, 1),
        "output_shape",
        str(2**64 + 1),
        output_shape=[2**64 + 1, 1],
    ),
    transpose("072", ones(52, 1, 1, 0), ones(0, 1, 5, 0), "filters", "0", output_shape=(52, 1, 1, 5)),
    transpose("073", ones(0, 0, 0, 0), ones(0, 0, 0, 0), "filters", "0"),
    filter_grad("073-filter-gradient", ones(0, 0, 0, 0), (0, 0, 0, 0), ones(0, 0, 0, 0), "filter_sizes", "0"),
    filter_grad("074", ones(1, 4, 4, 0), (3, 3), ones(1, 4, 4, 0), "filter_sizes"),
    filter_grad("074-stride", ones(1, 4, 4, 0), (3, 3, 0, 2), ones(1, 4, 4, 0), "strides", "0", strides=0),
    transpose(
        "077", ones(1, 3, 3, 8), np.array(8, np.float32), "filters", "0", output_shape=(2, 2), strides=2
    ),
    transpose(
        "077-sizes",
        ones(1, 3, 3, 8),
        ones(3, 3, 1, 8),
        "output_shape",
        "2",
        "5",
        "6",
        output_shape=(2, 2),
        strides=2,
    ),
    transpose(
        "079",
        ones(1, 4, 4, 2),
        ones(3, 3, 2, 2),
        "output_shape",
        "8",
        strides=[HUGE],
        output_shape=(1, 8, 8, 2),
    ),
    filter_grad(
        "079-filter-gradient", ones(1, 4, 4, 2), (3, 3), ones(1, 4, 4, 2), "out_backprop", strides=HUGE
    ),
    transpose(
        "130",
        ones(1, 4, 5, 1),
        ones(3, 3, 1, 1),
        "output_shape",
        "9",
        "5",
        "6",
        strides=2,
        padding=[[0, 0], [1, 3], [2, 2], [0, 0]],
        output_shape=(9, 7),
    ),
    transpose("132", ones(1, 4, 4, 2), ones(3, 3, 2, 2, dtype=np.float16), "filters", "float32", "float16"),
    filter_grad(
        "132-filter-gradient",
        ones(1, 4, 4, 2, dtype=BFLOAT16),
        (3, 3),
        ones(1, 4, 4, 2, dtype=np.float16),
        "bfloat16",
        "float16",
    ),
]


@pytest.mark.parametrize("way", [0, 1], ids=["compute", "plan"])
@pytest.mark.parametrize(("ways", "operands", "options", "says"), REFUSED)
def test_refused(ways: Any, operands: Any, options: dict[str, Any], says: tuple[str, ...], way: int) -> None:
    with pytest.raises(convgrad.ConvgradError) as caught:
        ways[way](*operands, **options)
    error = caught.value
    assert isinstance(error, ValueError | TypeError)
    assert "\n" not in error.message
    text = str(error)
    assert [word for word in says if word not in text] == []


def test_report_031_the_hint_says_what_would_match() -> None:
    with pytest.raises(convgrad.ShapeError) as caught:
        convgrad.conv2d_transpose(ones(1, 4, 4, 128), ones(2, 2, 128, 64), strides=2)
    assert caught.value.hint is not None
    assert "swapped" in caught.value.hint or "transposed" in caught.value.hint


def test_report_048_the_hint_says_what_would_match() -> None:
    with pytest.raises(convgrad.ShapeError) as caught:
        convgrad.depthwise_conv2d_backprop_filter(
            ones(1, 1, 36, 1), (1, 2), ones(1, 1, 32, 1), padding="VALID"
        )
    assert caught.value.hint is not None
    assert re.search(r"dilations? .*4", caught.value.hint)


def test_report_065_two_strides_are_rows_and_columns() -> None:
    x, w = np.arange(12.0).reshape(1, 3, 4, 1), np.arange(6.0).reshape(2, 3, 1, 1)
    two = convgrad.conv2d_transpose(x, w, strides=[1, 2])
    four = convgrad.conv2d_transpose(x, w, strides=[1, 1, 2, 1])
    assert two.shape == (1, 3, 8, 1)
    assert np.array_equal(two, four)


def test_report_069_079_sizes_are_python_integers() -> None:
    """Nothing wraps: past 32 bits a size is planned, past any machine it is refused by its own number."""
    x, w = convgrad.TensorSpec((1, 2, 1, 1), np.dtype(np.float32)), ones(1, 1, 1, 1)
    plan = convgrad.plan_conv2d_transpose(x, w, strides=(2**33, 1))
    assert tuple(plan.output.shape) == (1, 2**34, 1, 1)
    with pytest.raises(convgrad.ShapeError, match=str(2**71)):
        convgrad.plan_conv2d_transpose(x, w, strides=(2**70, 1))


def test_report_066_an_error_leaves_out_untouched() -> None:
    out = np.full((1, 4, 4, 1), 7, np.float32)
    with pytest.raises(convgrad.ConvgradError):
        convgrad.conv2d_transpose(ones(1, 4, 4, 1), ones(3, 3, 1, 1), strides=0, out=out)
    assert (out == 7).all()


def test_report_053_049_legal_neighbours_of_the_refused() -> None:
    """A pad larger than the kernel, a stride larger than the input: both are legal."""
    pads = [[0, 0], [5, 6], [4, 4], [0, 0]]
    x, g = ones(1, 3, 3, 1), ones(1, 3, 1, 1)
    result = convgrad.depthwise_conv2d_backprop_filter(x, (2, 2), g, strides=(6, 20), padding=pads)
    assert result.shape == (2, 2, 1, 1)
