"""Field reports, by number: sizes of both operations.

Each report is something that a user of another system ran into. The numbers have gaps. What is here: the
shape rule, through the plan and, where the arrays are small, through values. Values, refusals, files and the
command line are in test_field_reports_*.py. At the end stands the list of all numbers, and why some are not
tested.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import convgrad
import reference
from assertions import assert_matches

#: Steps that the loops of the reference may take in one test, and products of channels over all of them.
STEPS, PRODUCTS = 40_000, 10**8


def spec(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """Anything with a shape and a dtype can be planned."""
    return SimpleNamespace(shape=shape, dtype=np.dtype(dtype))


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    """Options as the library takes them; in the tables explicit padding is (top, bottom, left, right)."""
    if isinstance(options.get("padding"), tuple):
        top, bottom, left, right = options["padding"]
        pairs = [[top, bottom], [left, right]]
        nchw = options.get("data_format") == "NCHW"
        options["padding"] = [[0, 0], [0, 0], *pairs] if nchw else [[0, 0], *pairs, [0, 0]]
    return options


def random(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def transpose(
    id: str,
    input: tuple[int, ...],
    filters: tuple[int, ...],
    default: tuple[int, int],
    legal: tuple[tuple[int, int], ...] = (),
    illegal: tuple[tuple[int, int], ...] = (),
    **options: Any,
) -> Any:
    """One row of the table; `id` starts with the number of the report.

    `default` is the size (H, W) that comes when none is asked for; `legal` and `illegal` are asked for.
    """
    return pytest.param(input, filters, default, legal, illegal, options_of(options), id=id)


TRANSPOSES = [
    transpose("003", (1, 3, 3, 2), (3, 3, 2, 2), (6, 6), strides=2),
    transpose("006", (1, 2, 3, 3), (3, 3, 1, 2), (6, 6), ((5, 6), (5, 5)), strides=2, data_format="NCHW"),
    transpose("007", (1, 3, 32, 32), (3, 3, 3, 3), (32, 32), (), ((34, 34),), data_format="NCHW"),
    transpose("008", (2, 4, 4, 3), (2, 2, 1, 3), (4, 4), (), ((3, 3), (5, 5))),
    transpose("009", (1, 7, 7, 2), (3, 3, 2, 2), (14, 14), ((13, 13),), ((12, 14), (14, 15)), strides=2),
    transpose("010", (1, 14, 28, 2), (3, 3, 3, 2), (28, 56), strides=2),
    transpose("012", (1, 512, 512, 3), (4, 4, 256, 3), (1024, 1024), strides=2),
    transpose(
        "013",
        (2, 36, 36, 24),
        (3, 3, 16, 24),
        (73, 73),
        ((74, 74), (73, 74)),
        ((75, 75), (72, 73)),
        strides=2,
        padding="VALID",
    ),
    transpose(
        "015",
        (1, 46, 62, 1),
        (16, 16, 1, 1),
        (368, 496),
        ((368, 489), (361, 489)),
        ((360, 489), (368, 488)),
        strides=8,
    ),
    transpose(
        "015-small", (1, 3, 4, 1), (16, 16, 1, 1), (24, 32), ((17, 25), (24, 25)), ((16, 25),), strides=8
    ),
    transpose("017", (1, 38, 38, 1), (5, 5, 1, 1), (76, 76), ((75, 75),), ((74, 76),), strides=2),
    transpose("017-both-map-to-2", (1, 2, 2, 1), (5, 5, 1, 1), (4, 4), ((3, 3), (3, 4)), strides=2),
    transpose("018", (2, 6, 4, 3), (3, 3, 2, 3), (12, 8), strides=2),
    transpose(
        "019",
        (1, 1, 50, 50),
        (3, 5, 1, 1),
        (97, 50),
        ((98, 50),),
        ((95, 50), (96, 50), (99, 50)),
        strides=(2, 1),
        dilations=(3, 1),
        padding=(4, 4, 2, 2),
        data_format="NCHW",
    ),
    transpose("021-dilated", (1, 6, 1, 1), (2, 1, 1, 1), (8, 1), padding="VALID", dilations=(2, 1)),
    transpose("021", (1, 6, 1, 1), (2, 1, 1, 1), (7, 1), padding="VALID", dilations=(1, 1)),
    transpose("022", (2, 1, 2048, 64), (1, 3, 2, 64), (1, 2052), padding="VALID", dilations=(1, 2)),
    transpose("023", (1, 5, 6, 1), (3, 3, 2, 1), (5, 6), dilations=2),
    transpose(
        "025-1x2", (1, 1, 2, 1), (3, 3, 1, 1), (5, 6), ((5, 6),), ((3, 4),), padding="VALID", dilations=2
    ),
    transpose(
        "025-3x2", (1, 3, 2, 1), (3, 3, 1, 1), (5, 6), ((5, 6),), ((5, 4),), padding="VALID", dilations=(1, 2)
    ),
    transpose(
        "025-1x4", (1, 1, 4, 1), (3, 3, 1, 1), (5, 6), ((5, 6),), ((3, 6),), padding="VALID", dilations=(2, 1)
    ),
    transpose("026-same", (1, 5, 7, 2), (4, 4, 2, 2), (5, 7)),
    transpose("026-symmetric", (1, 5, 7, 2), (4, 4, 2, 2), (6, 8), (), ((5, 7),), padding=(1, 1, 1, 1)),
    transpose("026-asymmetric", (1, 5, 7, 2), (4, 4, 2, 2), (5, 7), padding=(1, 2, 1, 2)),
    transpose(
        "027",
        (1, 1, 8, 9),
        (2, 2, 3, 1),
        (4, 5),
        ((4, 5),),
        ((5, 6), (4, 6)),
        dilations=2,
        padding=(3, 3, 3, 3),
        data_format="NCHW",
    ),
    transpose("029", (1, 4, 4, 1), (5, 5, 1, 1), (6, 6), (), ((2, 2),), padding=(1, 1, 1, 1)),
    transpose("029-k3", (1, 4, 4, 1), (3, 3, 1, 1), (4, 4), padding=(1, 1, 1, 1)),
    transpose("030", (1, 24, 24, 256), (4, 4, 256, 256), (96, 96), strides=4, padding="VALID"),
    transpose("030-small", (1, 6, 6, 2), (4, 4, 3, 2), (24, 24), strides=4, padding="VALID"),
    transpose(
        "033", (2, 2, 5, 3), (4, 3, 2, 3), (6, 7), ((7, 7),), ((6, 6),), strides=(2, 1), padding="VALID"
    ),
    transpose("033-kernel-larger", (1, 2, 3, 1), (9, 2, 1, 1), (3, 7), strides=(1, 3), padding=(3, 4, 1, 0)),
    transpose(
        "033-dilated", (1, 7, 2, 1), (1, 4, 1, 1), (14, 12), strides=2, dilations=(1, 3), padding="VALID"
    ),
    transpose(
        "036",
        (1, 16, 7, 7),
        (3, 3, 3, 16),
        (13, 13),
        ((14, 14),),
        ((15, 15), (12, 13)),
        strides=2,
        padding=(1, 1, 1, 1),
        data_format="NCHW",
    ),
    *(
        transpose(
            f"037-k{k}s{s}-{size}",
            (1, 3, size, size),
            (k, k, 64, 3),
            (wide, wide),
            strides=s,
            padding=(1, 1, 1, 1),
            data_format="NCHW",
        )
        for k, s, size, wide in [
            (3, 3, 224, 670),
            (4, 3, 224, 671),
            (3, 2, 224, 447),
            (3, 3, 5, 13),
            (4, 3, 5, 14),
            (3, 2, 5, 9),
        ]
    ),
    transpose(
        "039-A",
        (1, 1, 2, 2),
        (2, 2, 1, 1),
        (0, 0),
        ((0, 0), (1, 1)),
        ((2, 2),),
        strides=2,
        padding=(2, 2, 2, 2),
        data_format="NCHW",
    ),
    transpose(
        "039-B", (12, 8, 2, 2), (1, 1, 4, 8), (0, 0), (), ((1, 1),), padding=(1, 1, 1, 1), data_format="NCHW"
    ),
    transpose("040", (0, 7, 7, 1), (5, 5, 16, 1), (14, 14), strides=2),
    transpose("047-transpose", (1, 1, 1, 1), (3, 3, 1, 1), (5, 5), padding="VALID", dilations=2),
    transpose("060", (1, 2, 3, 4), (3, 3, 2, 2), (3, 64), strides=(1, 1, 1, 16), data_format="NCHW"),
    transpose(
        "071",
        (1, 1, 46889, 2),
        (1, 1, 1, 1),
        (2198531433, 3),
        strides=(46889, 4),
        padding=(0, 0, 1, 1),
        data_format="NCHW",
    ),
    transpose("072-no-channels", (52, 1, 1, 0), (1, 1, 5, 0), (1, 1), ((1, 1),)),
    transpose("075", (2, 8, 8, 8), (3, 3, 0, 8), (8, 8)),
    transpose(
        "077", (1, 3, 3, 8), (3, 3, 2, 8), (6, 6), ((5, 5), (5, 6)), ((2, 2), (4, 6), (7, 6)), strides=2
    ),
    transpose("078", (256, 256, 256, 32), (64, 64, 32, 32), (256, 256)),
    *(
        transpose(
            f"091-{channels}x{size[0]}",
            (1, channels, *size),
            (4, 4, 64, channels),
            (2 * size[0], 2 * size[1]),
            strides=2,
            padding=(1, 1, 1, 1),
            data_format="NCHW",
        )
        for channels, size in [(64, (32, 4)), (128, (64, 8)), (64, (64, 8))]
    ),
    transpose("093", (200, 1, 1, 50), (28, 28, 1, 50), (28, 28), padding="VALID"),
    transpose("127-transpose", (0, 14, 14, 32), (5, 5, 1, 32), (28, 28), strides=2),
    transpose("129", (1, 128, 128, 128), (2, 2, 128, 128), (256, 256), strides=2),
    transpose(
        "130",
        (1, 4, 5, 1),
        (3, 3, 1, 1),
        (5, 7),
        ((6, 7), (6, 8), (5, 8)),
        ((7, 8), (6, 6), (8, 10)),
        strides=2,
        padding=(1, 3, 2, 2),
    ),
    transpose(
        "133-per-channel",
        (16, 1, 32, 32),
        (8, 8, 1, 1),
        (128, 128),
        strides=4,
        padding=(2, 2, 2, 2),
        data_format="NCHW",
    ),
]


def spatial(shape: tuple[int, ...], options: dict[str, Any]) -> tuple[int, ...]:
    return shape[2:] if options.get("data_format") == "NCHW" else shape[1:3]


@pytest.mark.parametrize(("input", "filters", "default", "legal", "illegal", "options"), TRANSPOSES)
def test_size_of_a_transpose(
    input: tuple[int, ...], filters: tuple[int, ...], default: Any, legal: Any, illegal: Any, options: Any
) -> None:
    def planned(size: tuple[int, ...] | None) -> tuple[int, ...]:
        plan = convgrad.plan_conv2d_transpose(spec(input), spec(filters), size, **options)
        return tuple(plan.output.shape)

    def full(size: tuple[int, int]) -> tuple[int, ...]:
        nchw = options.get("data_format") == "NCHW"
        return (input[0], filters[2], *size) if nchw else (input[0], *size, filters[2])

    assert planned(None) == full(default)
    for size in (default, *legal):
        assert planned(size) == planned(full(size)) == full(size)
    for size in illegal:
        with pytest.raises(convgrad.ShapeError, match="output_shape"):
            planned(size)


def small(narrow: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]) -> bool:
    """Whether the loops of the reference are quick: `narrow` is the small operand."""
    steps = math.prod(spatial(narrow, options)) * math.prod(kernel[:2])
    return steps <= STEPS and steps * math.prod(kernel[2:]) <= PRODUCTS


@pytest.mark.parametrize(
    ("input", "filters", "legal", "options"),
    [
        pytest.param(input, filters, legal, options, id=row.id)
        for row in TRANSPOSES
        for input, filters, _, legal, _, options in [row.values]
        if small(input, filters, options)
    ],
)
def test_values_of_a_transpose(
    input: tuple[int, ...], filters: tuple[int, ...], legal: Any, options: Any
) -> None:
    x, w = random(*input), random(*filters, seed=1)
    for size in (None, *legal):
        result = convgrad.conv2d_transpose(x, w, size, **options)
        assert_matches(result, *reference.transpose(x, w, size, **options), np.float64)


@pytest.mark.parametrize("width", range(1, 11))
@pytest.mark.parametrize("height", range(1, 11))
def test_report_032_every_kernel_size(height: int, width: int) -> None:
    """SAME sizes do not depend on the kernel; values do, and on both of its sizes."""
    plan = convgrad.plan_conv2d_transpose(
        spec((1, 50, 54, 3)), spec((height, width, 8, 3)), (1, 100, 108, 8), strides=2
    )
    assert tuple(plan.output.shape) == (1, 100, 108, 8)
    x, w = random(1, 3, 5, 2), random(height, width, 2, 2, seed=1)
    result = convgrad.conv2d_transpose(x, w, (6, 10), strides=2)
    assert_matches(result, *reference.transpose(x, w, (6, 10), strides=2), np.float64)


def test_report_013_no_tap_reaches_the_last_row_and_column() -> None:
    x, w = random(2, 36, 36, 4), random(3, 3, 3, 4, seed=1)
    smaller = convgrad.conv2d_transpose(x, w, strides=2, padding="VALID")
    larger = convgrad.conv2d_transpose(x, w, (74, 74), strides=2, padding="VALID")
    assert (larger[:, 73] == 0).all()
    assert (larger[:, :, 73] == 0).all()
    assert np.array_equal(larger[:, :73, :73], smaller)


def filter_grad(
    id: str,
    input: tuple[int, ...],
    sizes: tuple[int, ...],
    out_backprop: tuple[int, ...],
    refused: tuple[tuple[int, ...], ...] = (),
    **options: Any,
) -> Any:
    """One row of the table; `refused` are other shapes of `out_backprop`."""
    return pytest.param(input, sizes, out_backprop, refused, options_of(options), id=id)


FILTER_GRADS = [
    filter_grad(
        "043", (2, 1, 2, 1), (1, 2, 1, 2), (2, 1, 1, 2), strides=2, dilations=(1, 2), padding=(0, 0, 1, 1)
    ),
    filter_grad(
        "044", (1, 4, 4, 4), (3, 3, 4, 1), (1, 4, 2, 2), strides=2, padding=(1, 1, 1, 1), data_format="NCHW"
    ),
    filter_grad(
        "047", (1, 5, 5, 1), (3, 3, 1, 1), (1, 1, 1, 1), ((1, 3, 3, 1),), dilations=2, padding="VALID"
    ),
    filter_grad(
        "048", (1, 1, 36, 1), (1, 2, 1, 1), (1, 1, 32, 1), ((1, 1, 35, 1),), dilations=4, padding="VALID"
    ),
    filter_grad(
        "049-B", (1, 3, 3, 3), (2, 2, 3, 1), (1, 1, 1, 3), ((1, 2, 2, 3),), dilations=2, padding="VALID"
    ),
    filter_grad(
        "050",
        (2, 14, 14, 516),
        (3, 3, 516, 1),
        (2, 7, 7, 516),
        ((2, 8, 7, 516),),
        strides=2,
        dilations=(3, 1),
    ),
    filter_grad(
        "052-A",
        (3, 18, 82, 64),
        (3, 3, 64, 1),
        (3, 8, 80, 64),
        ((3, 8, 40, 64),),
        strides=(2, 1),
        padding="VALID",
    ),
    filter_grad(
        "052-B-valid", (4, 256, 256, 3), (3, 3, 3, 1), (4, 254, 127, 3), strides=(1, 2), padding="VALID"
    ),
    filter_grad("052-B-same", (4, 256, 256, 3), (3, 3, 3, 1), (4, 256, 128, 3), strides=(1, 2)),
    filter_grad(
        "052-small-valid", (1, 16, 16, 3), (3, 3, 3, 1), (1, 14, 7, 3), strides=(1, 2), padding="VALID"
    ),
    filter_grad("052-small-same", (1, 16, 16, 3), (3, 3, 3, 1), (1, 16, 8, 3), strides=(1, 2)),
    filter_grad("053-M1", (64, 32, 32, 3), (1, 1, 3, 1), (64, 16, 16, 3), strides=2),
    filter_grad("053-M2", (64, 32, 32, 3), (1, 1, 3, 2), (64, 16, 16, 6), strides=2),
    filter_grad(
        "054", (2, 15, 1, 1), (3, 3, 1, 1), (2, 7, 0, 1), ((2, 7, 1, 1),), strides=2, padding="VALID"
    ),
    filter_grad("055", (1, 2, 2, 5), (3, 3, 5, 1), (1, 2, 2, 5)),
    filter_grad("056", (1, 6, 6, 24), (3, 3, 24, 1), (1, 3, 3, 24), strides=2, padding=(1, 1, 1, 1)),
    filter_grad("058", (1, 5, 5, 4), (3, 3, 4, 1), (1, 5, 5, 4), dilations=2, padding=(2, 2, 2, 2)),
    filter_grad("059", (2, 3, 10, 10), (2, 2, 3, 2), (2, 6, 9, 9), padding="VALID", data_format="NCHW"),
    filter_grad("074", (2, 6, 6, 0), (3, 2, 0, 4), (2, 6, 6, 0)),
    filter_grad("126", (0, 7, 7, 1), (5, 5, 1, 16), (0, 4, 4, 16), strides=2),
    filter_grad("127", (0, 28, 28, 1), (5, 5, 1, 32), (0, 28, 28, 32)),
    filter_grad(
        "131",
        (2, 7, 5, 2),
        (3, 2, 2, 3),
        (2, 4, 6, 6),
        ((2, 5, 6, 6), (2, 4, 5, 6)),
        strides=(2, 1),
        padding=(0, 3, 1, 1),
    ),
]


@pytest.mark.parametrize(("input", "sizes", "out_backprop", "refused", "options"), FILTER_GRADS)
def test_size_of_a_filter_gradient(
    input: tuple[int, ...], sizes: tuple[int, ...], out_backprop: tuple[int, ...], refused: Any, options: Any
) -> None:
    def planned(sizes: tuple[int, ...], out_backprop: tuple[int, ...]) -> tuple[int, ...]:
        plan = convgrad.plan_depthwise_conv2d_backprop_filter(
            spec(input), sizes, spec(out_backprop), **options
        )
        return tuple(plan.output.shape)

    assert planned(sizes, out_backprop) == sizes
    if sizes[2]:
        assert planned(sizes[:2], out_backprop) == sizes
    for other in refused:
        with pytest.raises(convgrad.ShapeError, match="out_backprop"):
            planned(sizes, other)


@pytest.mark.parametrize(
    ("input", "sizes", "out_backprop", "options"),
    [
        pytest.param(input, sizes, out_backprop, options, id=row.id)
        for row in FILTER_GRADS
        for input, sizes, out_backprop, _, options in [row.values]
        if small(out_backprop, sizes, options)
    ],
)
def test_values_of_a_filter_gradient(
    input: tuple[int, ...], sizes: tuple[int, ...], out_backprop: tuple[int, ...], options: Any
) -> None:
    x, g = random(*input), random(*out_backprop, seed=1)
    result = convgrad.depthwise_conv2d_backprop_filter(x, sizes, g, **options)
    assert_matches(result, *reference.filter_grad(x, sizes, g, **options), np.float64)


#: All numbers that exist.
REPORTS = [
    1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30, 31, 32, 33,
    34, 36, 37, 39, 40, 41, 43, 44, 46, 47, 48, 49, 50, 52, 53, 54, 55, 56, 58, 59, 60, 61, 63, 65, 66,
    67, 68, 69, 71, 72, 73, 74, 75, 77, 78, 79, 80, 81, 83, 85, 86, 87, 88, 89, 90, 91, 93, 94, 95, 96,
    97, 99, 100, 101, 102, 103, 104, 105, 106, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118,
    119, 120, 121, 122, 123, 124, 125, 126, 127, 129, 130, 131, 132, 133, 134,
]  # fmt: skip

#: Why a report has no test.
LEFT_OUT = {
    90: "about a tool that compares two results; convgrad has none yet",
    95: "cost of float16 against float32: a measurement, for tests/bench",
    96: "cost per channel: a measurement, for tests/bench",
    121: "about a tool that compares two results; convgrad has none yet",
}


def test_every_report_is_tested_or_left_out_for_a_reason() -> None:
    tested: set[int] = set()
    for path in Path(__file__).parent.glob("test_field_reports*.py"):
        text = path.read_text()
        found = re.findall(r'(?:transpose|filter_grad|id=)\(?\s*f?"(\d{3})', text)
        for numbers in re.findall(r"test_report_((?:\d{3}_)+)", text):
            found += numbers.split("_")[:-1]
        tested |= {int(number) for number in found}
    assert tested.isdisjoint(LEFT_OUT)
    assert sorted(tested | set(LEFT_OUT)) == REPORTS
