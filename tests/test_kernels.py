"""The two block functions on their own: one block against the same piece of the reference."""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
import reference
from assertions import assert_matches, dtype_of
from convgrad import Block, Plan
from convgrad import plan as plan_module
from convgrad.kernels.filter_grad import filter_grad_block
from convgrad.kernels.sums import CHAIN
from convgrad.kernels.transpose import arranged_filters, by_image, transpose_block
from convgrad.layout import as_nhwc


@dataclass(frozen=True)
class Case:
    """A transposed convolution, or a filter gradient where `sizes` are filter_sizes."""

    name: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    sizes: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def operands(self, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
        first, second = (np.random.default_rng(i).standard_normal(s) for i, s in enumerate(self.shapes))
        return first.astype(dtype_of(dtype)), second.astype(dtype_of(dtype))

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.first, self.second

    @property
    def data_format(self) -> str:
        return str(self.options.get("data_format", "NHWC"))

    def plan(self) -> Plan:
        first, second = (convgrad.TensorSpec(shape, np.dtype(np.float64)) for shape in self.shapes)
        if self.sizes is None:
            return convgrad.plan_conv2d_transpose(first, second, **self.options)
        return convgrad.plan_depthwise_conv2d_backprop_filter(first, self.sizes, second, **self.options)


def explicit(top: int, bottom: int, left: int, right: int) -> dict[str, Any]:
    return {"padding": [[0, 0], [top, bottom], [left, right], [0, 0]]}


VALID = {"padding": "VALID"}
TRANSPOSES = [
    Case("plain", (3, 5, 6, 2), (3, 3, 4, 2)),
    Case("stride", (2, 4, 5, 3), (3, 4, 2, 3), None, {"strides": (2, 3)}),
    Case("stride-past-kernel", (2, 3, 3, 2), (2, 1, 3, 2), None, {"strides": (5, 4)}),
    Case("kernel-past-image", (2, 2, 3, 2), (5, 7, 2, 2)),
    Case("dilation", (2, 4, 5, 2), (3, 3, 3, 2), None, {"dilations": (2, 4), **VALID}),
    Case("wide-dilation", (2, 3, 7, 2), (2, 3, 3, 2), None, {"dilations": (9, 11), **VALID}),
    Case("stride-and-dilation", (2, 4, 4, 2), (3, 3, 1, 2), None, {"strides": (3, 2), "dilations": (2, 3)}),
    Case("pads", (2, 6, 6, 2), (3, 2, 2, 2), None, explicit(2, 1, 0, 3)),
    Case("NCHW", (2, 3, 4, 5), (2, 3, 4, 3), None, {"data_format": "NCHW"}),
    Case("one-channel", (2, 4, 4, 1), (3, 3, 1, 1)),
    Case("chains", (1, 3, 3, 2 * CHAIN + 5), (2, 2, 2, 2 * CHAIN + 5)),
]
GRADIENTS = [
    Case("plain", (3, 5, 6, 2), (3, 5, 6, 2), (3, 3)),
    Case("multiplier", (2, 5, 6, 3), (2, 5, 6, 12), (3, 2)),
    Case("stride", (2, 7, 9, 2), (2, 4, 3, 4), (3, 4), {"strides": (2, 3)}),
    Case("stride-past-kernel", (2, 12, 9, 2), (2, 3, 3, 2), (2, 1), {"strides": (5, 4), **VALID}),
    Case("kernel-past-image", (2, 2, 3, 2), (2, 2, 3, 2), (5, 7)),
    Case("dilation", (2, 9, 14, 2), (2, 5, 6, 4), (3, 3), {"dilations": (2, 4), **VALID}),
    Case("wide-dilation", (2, 12, 30, 2), (2, 3, 8, 2), (2, 3), {"dilations": (9, 11), **VALID}),
    Case("pads", (2, 5, 5, 2), (2, 7, 7, 2), (3, 2), explicit(2, 2, 0, 3)),
    Case("NCHW", (2, 3, 6, 7), (2, 6, 6, 7), (3, 3), {"data_format": "NCHW"}),
]
every_transpose = pytest.mark.parametrize("case", TRANSPOSES, ids=str)
every_gradient = pytest.mark.parametrize("case", GRADIENTS, ids=str)


def pieces(size: int) -> list[range]:
    """All of an axis, its first, a middle and its last element, and the halves."""
    middle = size // 2
    picked = [(0, size), (0, 1), (middle, middle + 1), (size - 1, size), (0, middle), (middle, size)]
    return [range(start, stop) for start, stop in dict.fromkeys(picked) if start < stop]


# Transposed convolution.


@functools.cache
def expected_transpose(index: int) -> reference.Expected:
    case = TRANSPOSES[index]
    found = reference.transpose(*case.operands(), **case.options)
    return reference.Expected(*(as_nhwc(array, case.data_format) for array in found))


def transposed(case: Case, first: np.ndarray, second: np.ndarray, block: Block, **options: bool) -> Any:
    """The block's result as (n, rows, columns, Cout)."""
    images = as_nhwc(first, case.data_format)[block.images.start : block.images.stop]
    axes = case.plan().axes
    result = transpose_block(images, arranged_filters(second), axes, block, **options)
    assert result.dtype == np.float64
    assert result.shape == (len(block.rows), len(block.images), len(block.columns), second.shape[2])
    return by_image(result)


def transpose_pieces(case: Case) -> Iterator[tuple[Block, tuple[slice, ...]]]:
    plan = case.plan()
    for images in (range(plan.batch), range(plan.batch - 1, plan.batch)):
        for rows, columns in product(pieces(plan.height.wide), pieces(plan.width.wide)):
            block = Block(images, rows, columns, range(plan.channels))
            yield block, tuple(slice(part.start, part.stop) for part in (images, rows, columns))


@every_transpose
@pytest.mark.parametrize("compensated", [True, False], ids=["compensated", "plain"])
def test_transpose_block_is_a_piece_of_the_result(case: Case, compensated: bool) -> None:
    first, second = case.operands()
    values, scale = expected_transpose(TRANSPOSES.index(case))
    for block, place in transpose_pieces(case):
        result = transposed(case, first, second, block, compensated=compensated)
        assert_matches(result, values[place], scale[place], np.float64)


@every_transpose
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_transpose_block_widens_exactly(case: Case, dtype: str) -> None:
    """Narrow operands give the bits that the same values in float64 give."""
    first, second = case.operands(dtype)
    block = next(transpose_pieces(case))[0]
    narrow = transposed(case, first, second, block, compensated=False)
    wide = transposed(case, first.astype(float), second.astype(float), block, compensated=False)
    assert narrow.tobytes() == wide.tobytes()


@every_transpose
def test_transpose_block_leaves_its_operands_alone(case: Case) -> None:
    first, second = case.operands()
    first.flags.writeable = second.flags.writeable = False
    before = first.tobytes(), second.tobytes()
    transposed(case, first, second, next(transpose_pieces(case))[0], compensated=True)
    assert (first.tobytes(), second.tobytes()) == before


@pytest.mark.parametrize("compensated", [True, False], ids=["compensated", "plain"])
def test_transpose_block_takes_only_terms_that_exist(compensated: bool) -> None:
    """One NaN in the input and one in the filters: exactly the results whose sum names them."""
    case = TRANSPOSES[1]
    first, second = case.operands()
    first[1, 2, 3, 0] = second[0, 3, 1, 2] = np.nan
    values, scale = reference.transpose(first, second, **case.options)
    assert np.isnan(values).any()
    assert np.isfinite(values).any()
    with np.errstate(invalid="ignore"):
        for block, place in transpose_pieces(case):
            result = transposed(case, first, second, block, compensated=compensated)
            assert_matches(result, values[place], scale[place], np.float64)


def test_transpose_block_keeps_float64_chains_short() -> None:
    """A million channels, all positive: a plain sum would be off by more than the contract."""
    count = 10**6
    case = Case("long", (1, 1, 1, count), (1, 1, 1, count))
    tenths = np.full((1, 1, 1, count), 0.1)
    block = Block(range(1), range(1), range(1), range(count))
    result = transposed(case, tenths, tenths, block, compensated=True)
    assert abs(result.item() - count * 0.01) <= 1e-14 * count * 0.01


def test_arranged_filters_by_hand() -> None:
    filters = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    arranged = arranged_filters(filters.astype(">f4"))
    assert arranged.shape == (1, 2, 4, 3)
    assert arranged.dtype == np.float64
    assert arranged.flags.c_contiguous
    assert all(
        arranged[0, v, c, o] == filters[0, v, o, c] for v in range(2) for c in range(4) for o in range(3)
    )


def test_by_image_is_a_view() -> None:
    block = np.arange(24.0).reshape(2, 3, 1, 4)
    view = by_image(block)
    assert view.shape == (3, 2, 1, 4)
    assert np.shares_memory(view, block)
    assert view[2, 1, 0, 3] == block[1, 2, 0, 3]


# Filter gradient.


def differentiated(case: Case, first: np.ndarray, second: np.ndarray, block: Block) -> np.ndarray:
    """The block's share, (kh, kw, C of the block, M)."""
    plan = case.plan()
    images = slice(block.images.start, block.images.stop)
    channels = slice(block.channels.start, block.channels.stop)
    input = as_nhwc(first, case.data_format)[images, ..., channels]
    gradient = as_nhwc(second, case.data_format)
    gradient = gradient.reshape(*gradient.shape[:3], plan.channels, plan.outputs)[images, ..., channels, :]
    share = filter_grad_block(input, gradient, plan.axes, block)
    assert share.dtype == np.float64
    assert share.shape == (plan.height.kernel, plan.width.kernel, len(block.channels), plan.outputs)
    return share


def expected_share(case: Case, first: np.ndarray, second: np.ndarray, block: Block) -> reference.Expected:
    """The reference with out_backprop set to zero outside the block."""
    assert case.sizes is not None
    inside = np.zeros_like(second)
    place = np.ix_(block.images, block.rows, block.columns, range(as_nhwc(second, case.data_format).shape[3]))
    as_nhwc(inside, case.data_format)[place] = as_nhwc(second, case.data_format)[place]
    found = reference.filter_grad(first, case.sizes, inside, **case.options)
    channels = slice(block.channels.start, block.channels.stop)
    return reference.Expected(found.values[:, :, channels], found.scale[:, :, channels])


def gradient_pieces(case: Case) -> Iterator[Block]:
    """Pieces of each axis, each combined with the last piece of the others and with all of them."""
    plan = case.plan()
    axes = [pieces(size) for size in (plan.batch, plan.height.narrow, plan.width.narrow, plan.channels)]
    for which, options in enumerate(axes):
        for part, others in product(options, (0, -1)):
            chosen = [part if index == which else axis[others] for index, axis in enumerate(axes)]
            yield Block(*chosen)


@every_gradient
def test_filter_grad_block_is_its_share(case: Case) -> None:
    first, second = case.operands()
    for block in gradient_pieces(case):
        result = differentiated(case, first, second, block)
        assert_matches(result, *expected_share(case, first, second, block), np.float64)


@every_gradient
def test_shares_add_up(case: Case) -> None:
    """One block for each narrow pixel, against the whole."""
    assert case.sizes is not None
    plan = case.plan()
    first, second = case.operands()
    total = np.zeros(plan.output.shape)
    for n, i, j in np.ndindex(plan.batch, plan.height.narrow, plan.width.narrow):
        block = Block(range(n, n + 1), range(i, i + 1), range(j, j + 1), range(plan.channels))
        total += differentiated(case, first, second, block)
    assert_matches(total, *reference.filter_grad(first, case.sizes, second, **case.options), np.float64)


@every_gradient
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_filter_grad_block_widens_exactly(case: Case, dtype: str) -> None:
    first, second = case.operands(dtype)
    block = next(gradient_pieces(case))
    narrow = differentiated(case, first, second, block)
    wide = differentiated(case, first.astype(float), second.astype(float), block)
    assert narrow.tobytes() == wide.tobytes()


@every_gradient
def test_filter_grad_block_leaves_its_operands_alone(case: Case) -> None:
    first, second = case.operands()
    first.flags.writeable = second.flags.writeable = False
    before = first.tobytes(), second.tobytes()
    differentiated(case, first, second, next(gradient_pieces(case)))
    assert (first.tobytes(), second.tobytes()) == before


@every_gradient
def test_filter_grad_block_reads_nothing_outside(case: Case) -> None:
    """NaN in all of out_backprop that is not the block's, and in input pixels that no tap reaches."""
    first, second = case.operands()
    plan = case.plan()
    for block in gradient_pieces(case):
        expected = differentiated(case, first, second, block)
        poisoned = np.full_like(second, np.nan)
        place = np.ix_(block.images, block.rows, block.columns, range(plan.channels * plan.outputs))
        as_nhwc(poisoned, case.data_format)[place] = as_nhwc(second, case.data_format)[place]
        reached = np.zeros(first.shape, bool)
        view = as_nhwc(reached, case.data_format)
        for tap in np.ndindex(plan.height.kernel, plan.width.kernel):
            rows, columns = (
                [
                    place
                    for place in (i * axis.stride + t * axis.dilation - axis.pad_before for i in narrow)
                    if 0 <= place < axis.wide
                ]
                for axis, t, narrow in zip(plan.axes, tap, (block.rows, block.columns), strict=True)
            )
            view[np.ix_(block.images, rows, columns, block.channels)] = True
        result = differentiated(case, np.where(reached, first, np.nan), poisoned, block)
        assert result.tobytes() == expected.tobytes()


def test_filter_grad_block_sums_pairwise() -> None:
    """A million positive terms in one block: a running sum would be off by more than the contract."""
    case = Case("long", (1, 1000, 1000, 1), (1, 1000, 1000, 1), (1, 1))
    tenths = np.full((1, 1000, 1000, 1), 0.1)
    block = Block(range(1), range(1000), range(1000), range(1))
    result = differentiated(case, tenths, tenths, block)
    assert abs(result.item() - 10**4) <= 1e-14 * 10**4


@pytest.mark.parametrize("channels", [1, 2, 5, 300])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_filter_grad_block_sums_pairwise_for_any_number_of_channels(channels: int, multiplier: int) -> None:
    """NumPy may add another axis first: then the error would grow with the length."""
    pixels = 30_000 // channels
    case = Case("long", (1, 1, pixels, channels), (1, 1, pixels, channels * multiplier), (1, 1))
    first, second = (np.full(shape, 0.1) for shape in case.shapes)
    block = Block(range(1), range(1), range(pixels), range(channels))
    result = differentiated(case, first, second, block)
    # 16 terms for each of 8 accumulators, and log2 of the number of those runs.
    allowed = (16 + 3 + np.log2(pixels) + 1) * 2.0**-53
    assert (np.abs(result - pixels * 0.01) <= allowed * pixels * 0.01).all()


# Scratch memory.

#: Elements per array of a block, set small so that lopsided jobs are small too.
ELEMENTS = 2**12
#: Arrays of that size that a block may hold at once.
ARRAYS = 16


def peak(work: Callable[[], Any]) -> int:
    """Most bytes that were held at a time during `work`."""
    work()  # what is loaded and cached once
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


NO_PADS = explicit(0, 0, 0, 0)  # the result is then as small as can be
SCRATCH = [
    Case("square", (4, 40, 40, 16), (3, 3, 16, 16)),
    Case("one-row", (1, 1, 5000, 1), (1, 3, 1, 1)),
    Case("one-row-to-one-channel", (1, 1, 2000, 64), (1, 3, 1, 64)),
    Case("one-row-from-one-channel", (1, 1, 2000, 1), (1, 3, 64, 1)),
    Case("many-channels", (1, 6, 6, 2000), (3, 3, 2, 2000)),
    Case("many-outputs", (1, 6, 6, 2), (3, 3, 2000, 2)),
    Case("images-of-one-pixel", (20_000, 1, 1, 4), (1, 1, 4, 4)),
    Case("stride", (2, 10, 10, 8), (3, 3, 8, 8), None, {"strides": 50}),
    Case("stride-past-a-small-result", (2000, 1, 1, 99), (1, 1, 1, 99), None, {"strides": 99, **NO_PADS}),
    Case("dilation", (1, 60, 60, 4), (3, 3, 4, 4), None, {"dilations": 20}),
    Case("dilation-of-one-row", (1, 1, 5000, 1), (1, 3, 1, 1), None, {"dilations": 700, **VALID}),
    Case("dilation-of-many-channels", (1, 1, 5000, 64), (1, 3, 64, 64), None, {"dilations": 700, **VALID}),
    Case("filter-grad-square", (4, 40, 40, 16), (4, 40, 40, 32), (3, 3)),
    Case("filter-grad-one-row", (1, 1, 5000, 8), (1, 1, 5000, 8), (1, 3)),
    Case("filter-grad-channels", (1, 4, 4, 5000), (1, 4, 4, 5000), (3, 3)),
    Case("filter-grad-multiplier", (1, 20, 20, 1), (1, 20, 20, 1000), (3, 3)),
    Case("filter-grad-images-of-one-pixel", (5000, 1, 1, 4), (5000, 1, 1, 4), (1, 1)),
    Case("filter-grad-stride", (1, 500, 500, 1), (1, 10, 10, 1), (3, 3), {"strides": 50}),
    Case("filter-grad-stride-long-kernel", (1, 1, 5000, 1), (1, 1, 50, 1), (1, 50), {"strides": 100}),
    Case("filter-grad-dilation", (1, 300, 300, 1), (1, 300, 300, 1), (3, 3), {"dilations": 50}),
    Case("filter-grad-far-taps", (1, 1, 200_001, 1), (1, 1, 1, 4096), (1, 3), {"dilations": 10**5, **VALID}),
]  # fmt: skip


@pytest.mark.parametrize("case", SCRATCH, ids=str)
def test_scratch_is_bounded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands that take no memory, so that what is counted is the block's own."""
    monkeypatch.setattr(plan_module, "BLOCK_ELEMENTS", ELEMENTS)
    first, second = (np.broadcast_to(1.0, shape) for shape in case.shapes)
    plan = case.plan()
    blocks = [block for images in plan.image_ranges()[:2] for block in plan.blocks(images)]
    # The filters and the filter gradient are held whole, whatever the blocks.
    whole = 0 if case.sizes is None else 2 * plan.output.elements
    for block in (blocks[0], blocks[len(blocks) // 2], blocks[-1]):
        images = slice(block.images.start, block.images.stop)
        if case.sizes is None:
            filters = arranged_filters(second)
            work = functools.partial(
                transpose_block, first[images], filters, plan.axes, block, compensated=True
            )
        else:
            channels = slice(block.channels.start, block.channels.stop)
            parts = np.broadcast_to(1.0, (*case.second[:3], plan.channels, plan.outputs))
            work = functools.partial(
                filter_grad_block,
                first[images, ..., channels],
                parts[images, ..., channels, :],
                plan.axes,
                block,
            )
        assert peak(work) <= 8 * (ARRAYS * ELEMENTS + whole) + 20_000
