"""Where the channel axis is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.layout import as_nhwc, axis_letters, check_data_format, sizes_in, sizes_nhwc

both_formats = pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])


@both_formats
def test_known_formats(data_format: str) -> None:
    assert check_data_format(data_format) == data_format
    assert check_data_format(np.str_(data_format)) == data_format


@pytest.mark.parametrize(
    "value", ["nhwc", "NWHC", "CHWN", "NHWC ", "", None, 1, ("N", "H", "W", "C"), b"NHWC"], ids=repr
)
def test_unknown_formats(value: Any) -> None:
    with pytest.raises(convgrad.ArgumentError, match=r"^data_format: .*NHWC or NCHW") as caught:
        check_data_format(value)
    assert str(value) in caught.value.message


def test_the_operations_refuse_unknown_formats() -> None:
    images = convgrad.TensorSpec((1, 4, 4, 1), np.dtype("f4"))
    filters = convgrad.TensorSpec((3, 3, 1, 1), np.dtype("f4"))
    with pytest.raises(convgrad.ArgumentError, match=r"^data_format: .*NWHC"):
        convgrad.plan_conv2d_transpose(images, filters, data_format="NWHC")
    with pytest.raises(convgrad.ArgumentError, match=r"^data_format: .*NWHC"):
        convgrad.plan_depthwise_conv2d_backprop_filter(images, (3, 3), images, data_format="NWHC")


@pytest.mark.parametrize(
    ("data_format", "expected"),
    [("NHWC", ("N", "h", "w", "Cin")), ("NCHW", ("N", "Cin", "h", "w"))],
    ids=["NHWC", "NCHW"],
)
def test_axis_letters(data_format: str, expected: tuple[str, ...]) -> None:
    assert axis_letters(data_format, "h", "w", "Cin") == expected


def test_sizes_by_hand() -> None:
    assert sizes_nhwc((1, 2, 3, 4), "NHWC") == (1, 2, 3, 4)
    assert sizes_nhwc((1, 4, 2, 3), "NCHW") == (1, 2, 3, 4)
    assert sizes_in("NHWC", 1, 2, 3, 4) == (1, 2, 3, 4)
    assert sizes_in("NCHW", 1, 2, 3, 4) == (1, 4, 2, 3)


@both_formats
def test_sizes_there_and_back(data_format: str) -> None:
    shape = (5, 6, 7, 8)
    assert sizes_in(data_format, *sizes_nhwc(shape, data_format)) == shape


@pytest.mark.parametrize(
    ("data_format", "shape"), [("NHWC", (2, 3, 4, 5)), ("NCHW", (2, 5, 3, 4))], ids=["NHWC", "NCHW"]
)
def test_as_nhwc_is_a_view(data_format: str, shape: tuple[int, ...]) -> None:
    array = np.arange(120).reshape(shape)
    view = as_nhwc(array, data_format)
    assert view.shape == (2, 3, 4, 5)
    assert np.shares_memory(view, array)
    expected = array if data_format == "NHWC" else np.moveaxis(array, 1, 3)
    assert np.array_equal(view, expected)
    view[1, 2, 3, 4] = -1
    assert array[(1, 2, 3, 4) if data_format == "NHWC" else (1, 4, 2, 3)] == -1
