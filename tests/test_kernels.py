"""Every kernel on its own: one block against the same piece of the reference."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
import convgrad.choice
import reference
from assertions import CONTRACT, assert_matches, dtype_of
from convgrad import Block, Plan
from convgrad.choice import Kernel
from convgrad.kernels.filter_grad.kernel import FilterGradKernel
from convgrad.kernels.transpose.kernel import TransposeKernel
from convgrad.layout import as_nhwc
from convgrad.scratch import Scratch
from extremes import EVERY_KERNEL

TRANSPOSE_KERNELS = convgrad.choice.kernels("conv2d_transpose")
GRADIENT_KERNELS = convgrad.choice.kernels("depthwise_conv2d_backprop_filter")


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

    def operands(self, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        first, second = (np.random.default_rng(i).standard_normal(s) for i, s in enumerate(self.shapes))
        return first.astype(dtype_of(dtype)), second.astype(dtype_of(dtype))

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.first, self.second

    @property
    def data_format(self) -> str:
        return str(self.options.get("data_format", "NHWC"))

    def plan(self, dtype: str) -> Plan:
        first, second = (convgrad.TensorSpec(shape, dtype_of(dtype)) for shape in self.shapes)
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
    Case("chains", (1, 3, 3, 150), (2, 2, 2, 150)),
    Case("many-taps", (1, 6, 7, 3), (7, 9, 2, 3), None, {"strides": (1, 2)}),
    Case("many-channels", (2, 5, 6, 16), (3, 3, 18, 16)),
    Case("many-channels-stride", (2, 4, 3, 17), (4, 3, 16, 17), None, {"strides": 2}),
    Case("many-channels-NCHW", (2, 16, 4, 5), (3, 5, 16, 16), None, {"data_format": "NCHW", "strides": 2}),
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
    Case("stride-in-width", (3, 6, 9, 4), (3, 6, 3, 4), (2, 5), {"strides": (1, 3)}),
    Case("dilation-in-width", (2, 5, 12, 3), (2, 5, 12, 3), (3, 4), {"dilations": (1, 3)}),
    Case("long-rows", (1, 1, 2100, 1), (1, 1, 2100, 1), (1, 2)),
]


class Dirty(Scratch):
    """What it hands out is full of NaN: whatever a kernel does not write itself shows."""

    def array(self, name: str, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
        array = super().array(name, shape, dtype)
        array.fill(np.nan)
        return array


def with_kernels(kernels: tuple[Kernel, ...], cases: list[Case], *dtypes: str) -> pytest.MarkDecorator:
    """Each kernel with the cases that it accepts, in the dtypes that it accepts."""
    found = [
        pytest.param(kernel, case, dtype, id=f"{kernel.name}-{case}-{dtype}")
        for kernel, case, dtype in product(kernels, cases, dtypes)
        if kernel.accepts(case.plan(dtype).problem)
    ]
    return pytest.mark.parametrize(("kernel", "case", "dtype"), found)


def pieces(size: int) -> list[range]:
    """All of an axis, its first, a middle and its last element, and the halves."""
    middle = size // 2
    picked = [(0, size), (0, 1), (middle, middle + 1), (size - 1, size), (0, middle), (middle, size)]
    return [range(start, stop) for start, stop in dict.fromkeys(picked) if start < stop]


def combined(plan: Plan, axes: list[list[range]]) -> Iterator[Block]:
    """Pieces of each axis, each combined with the last piece of the others and with all of them."""
    blocks: dict[Block, None] = {}
    for which, options in enumerate(axes):
        for part, others in product(options, (0, -1)):
            chosen = [part if index == which else axis[others] for index, axis in enumerate(axes)]
            blocks[Block(*chosen)] = None
    yield from blocks


def slices(*ranges: range) -> tuple[slice, ...]:
    return tuple(slice(part.start, part.stop) for part in ranges)


def summed_in(dtype: str) -> str:
    """The dtype of a kernel's sums."""
    return "float64" if dtype == "float64" else "float32"


@pytest.mark.parametrize(
    ("kernels", "cases"),
    [(TRANSPOSE_KERNELS, TRANSPOSES), (GRADIENT_KERNELS, GRADIENTS)],
    ids=["transpose", "filter-grad"],
)
def test_the_first_kernel_accepts_everything_and_the_others_much(
    kernels: tuple[Kernel, ...], cases: list[Case]
) -> None:
    """So that what follows tests each of them."""
    accepted = {
        kernel.name: sum(kernel.accepts(c.plan("float32").problem) for c in cases) for kernel in kernels
    }
    assert len(accepted) == len(kernels)
    assert accepted[kernels[0].name] == len(cases)
    assert all(kernels[0].accepts(case.plan("float64").problem) for case in cases)
    assert min(accepted.values()) >= 4


# Transposed convolution.

#: Its products mix neighbours: bounded by the largest scale of the result.
FAST = convgrad.choice.kernels("conv2d_transpose", fast=True)[len(TRANSPOSE_KERNELS) :]
GENERAL = TRANSPOSE_KERNELS[0]
every_transpose = with_kernels((*TRANSPOSE_KERNELS, *FAST), TRANSPOSES, "float64", "float32")
narrow_transpose = with_kernels((*TRANSPOSE_KERNELS, *FAST), TRANSPOSES, "float16", "bfloat16")
exact_transpose = with_kernels(TRANSPOSE_KERNELS, TRANSPOSES, "float64", "float32")


@functools.cache
def expected_transpose(index: int, dtype: str, kernel: TransposeKernel) -> reference.Expected:
    """What the contract holds the kernel to, in NHWC order."""
    case = TRANSPOSES[index]
    found = reference.transpose(*case.operands(dtype), **case.options)
    values, scale = (as_nhwc(array, case.data_format) for array in found)
    return reference.Expected(values, np.full_like(scale, 2 * scale.max()) if kernel in FAST else scale)


def transposed(
    kernel: TransposeKernel,
    case: Case,
    operands: tuple[np.ndarray, np.ndarray],
    block: Block,
    out: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The block's result (n, rows, columns, channels of the block), and all sums."""
    first, second = operands
    problem = case.plan(first.dtype.name).problem
    images = as_nhwc(first, case.data_format)[block.images.start : block.images.stop]
    shape = tuple(map(len, (block.images, block.rows, block.columns, block.channels)))
    out = np.empty(shape, problem.working_dtype) if out is None else out
    assert out.shape == shape
    out[...] = np.nan
    with np.errstate(all="ignore"):
        filters = kernel.prepare(second, problem, problem.working_dtype)
        sums = kernel.compute(images, filters, problem, block, out, Dirty())
    assert sums.ndim == 1
    assert sums.dtype == out.dtype
    return out, sums


def transpose_blocks(case: Case) -> Iterator[Block]:
    plan = case.plan("float32")
    sizes = plan.batch, plan.height.wide, plan.width.wide, plan.outputs
    return combined(plan, [pieces(size) for size in sizes])


def whole_transpose(case: Case) -> Block:
    return next(transpose_blocks(case))


def last_transpose(case: Case) -> Block:
    """A block that begins and ends inside the result."""
    plan = case.plan("float32")
    sizes = plan.batch, plan.height.wide, plan.width.wide, plan.outputs
    return Block(*(range(size // 3, size - size // 4) for size in sizes))


@every_transpose
def test_transpose_block_is_a_piece_of_the_result(kernel: TransposeKernel, case: Case, dtype: str) -> None:
    operands = case.operands(dtype)
    values, scale = expected_transpose(TRANSPOSES.index(case), dtype, kernel)
    for block in transpose_blocks(case):
        place = slices(block.images, block.rows, block.columns, block.channels)
        result, sums = transposed(kernel, case, operands, block)
        assert_matches(result, values[place], scale[place], dtype)
        assert np.isin(result, sums).all(), "not all sums are shown"
        assert np.isfinite(sums).all(), "a block that would be computed again"


@narrow_transpose
def test_transpose_block_of_narrow_operands(kernel: TransposeKernel, case: Case, dtype: str) -> None:
    """Sums in float32, not rounded yet."""
    block = last_transpose(case)
    place = slices(block.images, block.rows, block.columns, block.channels)
    values, scale = expected_transpose(TRANSPOSES.index(case), dtype, kernel)
    result, _ = transposed(kernel, case, case.operands(dtype), block)
    assert_matches(result, values[place], scale[place], np.float32)


@with_kernels((*TRANSPOSE_KERNELS, *FAST), TRANSPOSES, "float32")
def test_transpose_block_fills_any_array(kernel: TransposeKernel, case: Case, dtype: str) -> None:
    """The same bits in channels-first, strided and backward memory, and nothing beside it."""
    block, operands = last_transpose(case), case.operands(dtype)
    expected, _ = transposed(kernel, case, operands, block)
    n, rows, columns, channels = expected.shape
    planes = np.empty((n, channels, rows, columns), np.float32).transpose(0, 2, 3, 1)
    around = np.full((n, 3 * rows, columns + 2, channels + 1), 7, np.float32)
    inner = around[:, ::-3, 1:-1, :-1]
    for out in (planes, inner):
        transposed(kernel, case, operands, block, out)
        assert out.tobytes() == expected.tobytes()
    inner[...] = 7
    assert (around == 7).all()


@every_transpose
def test_transpose_block_leaves_its_operands_alone(kernel: TransposeKernel, case: Case, dtype: str) -> None:
    first, second = case.operands(dtype)
    first.flags.writeable = second.flags.writeable = False
    before = first.tobytes(), second.tobytes()
    transposed(kernel, case, (first, second), whole_transpose(case))
    assert (first.tobytes(), second.tobytes()) == before


@exact_transpose
def test_transpose_block_reads_nothing_outside(kernel: TransposeKernel, case: Case, dtype: str) -> None:
    """NaN, or a large number where a kernel multiplies zeros, in pixels that no tap brings to the block."""
    first, second = case.operands(dtype)
    poison = np.nan if kernel is GENERAL else 1e6
    axes = case.plan(dtype).axes
    for block in transpose_blocks(case):
        expected, _ = transposed(kernel, case, (first, second), block)
        reaching = [
            [i for i in range(axis.narrow) if any(meets(axis, i, tap) in wide for tap in range(axis.kernel))]
            for axis, wide in zip(axes, (block.rows, block.columns), strict=True)
        ]
        reached = np.zeros(first.shape, bool)
        view = as_nhwc(reached, case.data_format)
        view[np.ix_(block.images, *reaching, range(view.shape[3]))] = True
        poisoned = np.full_like(second, poison)
        poisoned[:, :, block.channels.start : block.channels.stop] = second[
            :, :, block.channels.start : block.channels.stop
        ]
        first_poisoned = np.where(reached, first, np.asarray(poison, first.dtype))
        result, _ = transposed(kernel, case, (first_poisoned, poisoned), block)
        assert np.array_equal(result, expected)


def meets(axis: convgrad.Axis, narrow: int, tap: int) -> int:
    """The wide position where a narrow one and a tap meet."""
    return narrow * axis.stride + tap * axis.dilation - axis.pad_before


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", TRANSPOSES, ids=str)
def test_general_transpose_takes_only_terms_that_exist(case: Case, dtype: str) -> None:
    """One NaN in the input and one in the filters: exactly the results whose sum names them."""
    first, second = case.operands(dtype)
    first.reshape(-1)[first.size // 2] = second.reshape(-1)[1 % second.size] = np.nan
    found = reference.transpose(first, second, **case.options)
    values, scale = (as_nhwc(array, case.data_format) for array in found)
    assert np.isnan(values).any()
    for block in transpose_blocks(case):
        place = slices(block.images, block.rows, block.columns, block.channels)
        result, _ = transposed(GENERAL, case, (first, second), block)
        assert_matches(result, values[place], scale[place], summed_in(dtype))


@every_transpose
@pytest.mark.parametrize("operand", [0, 1], ids=["input", "filters"])
@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_what_is_not_finite_shows_in_the_sums(
    kernel: TransposeKernel, case: Case, dtype: str, operand: int, bad: float
) -> None:
    """Wherever a result ought to be NaN or inf, or is so by the kernel's doing, a sum is not finite."""
    operands = case.operands(dtype)
    operands[operand].reshape(-1)[operands[operand].size // 2] = bad
    values, _ = reference.transpose(*operands, **case.options)
    values = as_nhwc(values, case.data_format)
    for block in (whole_transpose(case), last_transpose(case)):
        place = slices(block.images, block.rows, block.columns, block.channels)
        result, sums = transposed(kernel, case, operands, block)
        assert not np.isfinite(result[~np.isfinite(values[place])]).any()
        if not np.isfinite(result).all():
            assert not np.isfinite(sums).all()


#: Pairs of numbers whose product, added up in float32, is always rounded the same way.
WORST = [(1.2323468, 1.298994), (1.3308566, 1.2232854), (1.8121905, 1.8604040), (0.1, 0.7)]
LONG_TRANSPOSES = [
    Case("many-channels", (1, 1, 1, 10**6), (1, 1, 1, 10**6)),
    Case("4096-channels", (1, 1, 1, 4096), (1, 1, 1, 4096)),
    Case("many-taps", (1, 61, 61, 1), (61, 61, 1, 1)),
    Case("1x1x64", (1, 3, 3, 64), (1, 1, 2, 64)),
    Case("3x3x64", (1, 5, 5, 64), (3, 3, 2, 64)),
    Case("3x3x128", (1, 5, 5, 128), (3, 3, 2, 128)),
    Case("5x5x64", (1, 5, 5, 64), (5, 5, 2, 64)),
]


@with_kernels(TRANSPOSE_KERNELS, LONG_TRANSPOSES, "float64", "float32")
@pytest.mark.parametrize(("a", "b"), WORST, ids=lambda value: f"{value:.1f}")
def test_transpose_keeps_the_contract_on_equal_terms(
    kernel: TransposeKernel, case: Case, dtype: str, a: float, b: float
) -> None:
    """All positive and equal: each addition of a chain rounds the same way, and a plain sum is far off."""
    problem = case.plan(dtype).problem
    first, second = np.full(case.first, a, dtype), np.full(case.second, b, dtype)
    block = Block(*map(range, (1, problem.height.wide, problem.width.wide, problem.outputs)))
    result, _ = transposed(kernel, case, (first, second), block)
    middle = result[0, problem.height.wide // 2, problem.width.wide // 2, 0]
    terms = problem.channels * min(problem.height.kernel, problem.height.narrow) ** 2
    exact = terms * np.longdouble(first.flat[0]) * np.longdouble(second.flat[0])
    assert abs(middle - exact) <= CONTRACT[first.dtype][1] * exact


# Filter gradient.

every_gradient = with_kernels(GRADIENT_KERNELS, GRADIENTS, "float64", "float32")
narrow_gradient = with_kernels(GRADIENT_KERNELS, GRADIENTS, "float16", "bfloat16")
SUMS = GRADIENT_KERNELS[0]


def differentiated(
    kernel: FilterGradKernel, case: Case, operands: tuple[np.ndarray, np.ndarray], block: Block
) -> np.ndarray:
    """The block's share, (kh, kw, C of the block, M)."""
    first, second = operands
    plan = case.plan(first.dtype.name)
    images, channels = slices(block.images, block.channels)
    input = as_nhwc(first, case.data_format)[images, ..., channels]
    gradient = as_nhwc(second, case.data_format)
    gradient = gradient.reshape(*gradient.shape[:3], plan.channels, plan.outputs)[images, ..., channels, :]
    with np.errstate(all="ignore"):
        share = kernel.compute(input, gradient, plan.problem, block, Dirty())
    assert share.dtype == np.float64
    assert share.shape == (plan.height.kernel, plan.width.kernel, len(block.channels), plan.outputs)
    return share


def assert_share(share: np.ndarray, expected: reference.Expected, dtype: str) -> None:
    """Within what the contract allows the sums, which are kept wider than the operands."""
    __tracebackhide__ = True
    floor = CONTRACT[dtype_of(summed_in(dtype))][1]
    assert_matches(share, expected.values, expected.scale * (floor / CONTRACT[share.dtype][1]), np.float64)


@functools.cache
def expected_shares(index: int, dtype: str) -> dict[Block, reference.Expected]:
    """The reference with out_backprop set to zero outside each block."""
    case = GRADIENTS[index]
    return {block: expected_share(case, case.operands(dtype), block) for block in gradient_blocks(case)}


def expected_share(case: Case, operands: tuple[np.ndarray, np.ndarray], block: Block) -> reference.Expected:
    assert case.sizes is not None
    first, second = operands
    inside = np.zeros_like(second)
    place = np.ix_(block.images, block.rows, block.columns, range(as_nhwc(second, case.data_format).shape[3]))
    as_nhwc(inside, case.data_format)[place] = as_nhwc(second, case.data_format)[place]
    found = reference.filter_grad(first, case.sizes, inside, **case.options)
    channels = slice(block.channels.start, block.channels.stop)
    return reference.Expected(found.values[:, :, channels], found.scale[:, :, channels])


def gradient_blocks(case: Case) -> Iterator[Block]:
    plan = case.plan("float32")
    sizes = plan.batch, plan.height.narrow, plan.width.narrow, plan.channels
    return combined(plan, [pieces(size) for size in sizes])


@every_gradient
def test_filter_grad_block_is_its_share(kernel: FilterGradKernel, case: Case, dtype: str) -> None:
    operands = case.operands(dtype)
    for block, expected in expected_shares(GRADIENTS.index(case), dtype).items():
        assert_share(differentiated(kernel, case, operands, block), expected, dtype)


@with_kernels(GRADIENT_KERNELS, GRADIENTS[:-1], "float64", "float32")
def test_shares_add_up(kernel: FilterGradKernel, case: Case, dtype: str) -> None:
    """One block for each narrow pixel, against the whole."""
    assert case.sizes is not None
    plan, operands = case.plan(dtype), case.operands(dtype)
    total = np.zeros(plan.output.shape)
    for n, i, j in np.ndindex(plan.batch, plan.height.narrow, plan.width.narrow):
        block = Block(range(n, n + 1), range(i, i + 1), range(j, j + 1), range(plan.channels))
        total += differentiated(kernel, case, operands, block)
    first, second = operands
    assert_share(total, reference.filter_grad(first, case.sizes, second, **case.options), dtype)


@narrow_gradient
def test_filter_grad_block_of_narrow_operands(kernel: FilterGradKernel, case: Case, dtype: str) -> None:
    operands, block = case.operands(dtype), next(gradient_blocks(case))
    assert_share(differentiated(kernel, case, operands, block), expected_share(case, operands, block), dtype)


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_general_filter_grad_widens_exactly(case: Case, dtype: str) -> None:
    """It sums in float64: narrow operands give the bits that the same values in float64 give."""
    first, second = case.operands(dtype)
    block = next(gradient_blocks(case))
    narrow = differentiated(SUMS, case, (first, second), block)
    wide = differentiated(SUMS, case, (first.astype(float), second.astype(float)), block)
    assert narrow.tobytes() == wide.tobytes()


@every_gradient
def test_filter_grad_block_leaves_its_operands_alone(
    kernel: FilterGradKernel, case: Case, dtype: str
) -> None:
    first, second = case.operands(dtype)
    first.flags.writeable = second.flags.writeable = False
    before = first.tobytes(), second.tobytes()
    differentiated(kernel, case, (first, second), next(gradient_blocks(case)))
    assert (first.tobytes(), second.tobytes()) == before


@every_gradient
def test_filter_grad_block_reads_nothing_outside(kernel: FilterGradKernel, case: Case, dtype: str) -> None:
    """NaN, or where a kernel multiplies zeros a large number, in all of out_backprop that is not the block's.

    And in input pixels that no tap reaches.
    """
    first, second = case.operands(dtype)
    plan = case.plan(dtype)
    poison = np.asarray(np.nan if kernel is SUMS else 1e6, first.dtype)
    for block in gradient_blocks(case):
        expected = differentiated(kernel, case, (first, second), block)
        poisoned = np.full_like(second, poison)
        place = np.ix_(block.images, block.rows, block.columns, range(plan.channels * plan.outputs))
        as_nhwc(poisoned, case.data_format)[place] = as_nhwc(second, case.data_format)[place]
        reached = np.zeros(first.shape, bool)
        view = as_nhwc(reached, case.data_format)
        for tap in np.ndindex(plan.height.kernel, plan.width.kernel):
            rows, columns = (
                [place for place in (meets(axis, i, t) for i in narrow) if 0 <= place < axis.wide]
                for axis, t, narrow in zip(plan.axes, tap, (block.rows, block.columns), strict=True)
            )
            view[np.ix_(block.images, rows, columns, block.channels)] = True
        result = differentiated(kernel, case, (np.where(reached, first, poison), poisoned), block)
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_general_filter_grad_takes_only_terms_that_exist(case: Case, dtype: str) -> None:
    """One NaN in each operand: exactly the gradients whose sum names them."""
    first, second = case.operands(dtype)
    first.reshape(-1)[first.size // 2] = second.reshape(-1)[-1] = np.nan
    for block in gradient_blocks(case):
        share = differentiated(SUMS, case, (first, second), block)
        assert np.array_equal(np.isnan(share), naming(case, (first, second), block))


def naming(case: Case, operands: tuple[np.ndarray, np.ndarray], block: Block) -> np.ndarray:
    """Which gradients have a term of the block that is NaN."""
    first, second = (as_nhwc(np.isnan(operand), case.data_format) for operand in operands)
    plan = case.plan("float32")
    second = second.reshape(*second.shape[:3], plan.channels, plan.outputs)
    found = np.zeros(plan.output.shape, bool)
    for u, v, n, i, j in product(
        range(plan.height.kernel), range(plan.width.kernel), block.images, block.rows, block.columns
    ):
        row, column = meets(plan.height, i, u), meets(plan.width, j, v)
        if 0 <= row < plan.height.wide and 0 <= column < plan.width.wide:
            found[u, v] |= first[n, row, column][:, None] | second[n, i, j]
    return found[:, :, block.channels.start : block.channels.stop]


@every_gradient
@pytest.mark.parametrize("operand", [0, 1], ids=["input", "out_backprop"])
@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_what_is_not_finite_shows_in_the_share(
    kernel: FilterGradKernel, case: Case, dtype: str, operand: int, bad: float
) -> None:
    operands = case.operands(dtype)
    operands[operand].reshape(-1)[operands[operand].size // 2] = bad
    block = next(gradient_blocks(case))
    values, _ = expected_share(case, operands, block)
    share = differentiated(kernel, case, operands, block)
    assert not np.isfinite(share[~np.isfinite(values)]).any()


LONG_GRADIENTS = [
    Case("million", (1, 1000, 1000, 1), (1, 1000, 1000, 1), (1, 1)),
    Case("one-row", (1, 1, 100_000, 2), (1, 1, 100_000, 2), (1, 1)),
    Case("images", (5000, 1, 1, 3), (5000, 1, 1, 3), (1, 1)),
    Case("64x48", (1, 64, 48, 4), (1, 64, 48, 4), (1, 1)),
    Case("64x48-3x3", (1, 66, 50, 4), (1, 64, 48, 4), (3, 3), VALID),
    Case("stride", (1, 129, 97, 4), (1, 64, 48, 4), (3, 3), {"strides": 2, **VALID}),
    *(
        Case(
            f"{channels}-channels-{multiplier}", (1, 1, p, channels), (1, 1, p, channels * multiplier), (1, 1)
        )
        for channels, multiplier in product((1, 2, 5, 300), (1, 3))
        for p in (30_000 // channels,)
    ),
]


@with_kernels(GRADIENT_KERNELS, LONG_GRADIENTS, "float64", "float32")
@pytest.mark.parametrize(("a", "b"), [(1.5892403, 1.2661704), (0.1, 0.1)], ids=lambda value: f"{value:.1f}")
def test_filter_grad_keeps_the_contract_on_equal_terms(
    kernel: FilterGradKernel, case: Case, dtype: str, a: float, b: float
) -> None:
    """All positive and equal, in the blocks that the kernel likes, which keep its chains short."""
    plan = case.plan(dtype).using(kernel.name)
    first, second = np.full(case.first, a, dtype), np.full(case.second, b, dtype)
    shares: dict[range, list[np.ndarray]] = {}
    for images in plan.image_ranges():
        for block in plan.blocks(images):
            share = differentiated(kernel, case, (first, second), block)
            shares.setdefault(block.channels, []).append(share)
    terms = plan.batch * plan.height.narrow * plan.width.narrow
    exact = terms * np.longdouble(first.flat[0]) * np.longdouble(second.flat[0])
    for some in shares.values():
        total = np.sum(some, axis=0, dtype=np.longdouble)
        assert (np.abs(total - exact) <= CONTRACT[first.dtype][1] * exact).all()


@pytest.mark.parametrize("channels", [1, 2, 5, 300])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_general_filter_grad_sums_pairwise_for_any_number_of_channels(channels: int, multiplier: int) -> None:
    """NumPy may add another axis first: then the error would grow with the length."""
    pixels = 30_000 // channels
    case = Case("long", (1, 1, pixels, channels), (1, 1, pixels, channels * multiplier), (1, 1))
    first, second = (np.full(shape, 0.1) for shape in case.shapes)
    block = Block(range(1), range(1), range(pixels), range(channels))
    result = differentiated(SUMS, case, (first, second), block)
    # 16 terms for each of 8 accumulators, and log2 of the number of those runs.
    allowed = (16 + 3 + np.log2(pixels) + 1) * 2.0**-53
    assert (np.abs(result - pixels * 0.01) <= allowed * pixels * 0.01).all()


# Scratch memory.

#: Bytes that a block may work in, and that its result may have.
MOST = 64e6
#: Estimated seconds, and Python's loops, beyond which blocks are not computed here.
SECONDS, TAPS = 0.2, 10**5


class Bounded(Scratch):
    """Refuses before it takes more than `MOST` bytes."""

    def array(self, name: str, shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
        needed = self.nbytes + math.prod(shape) * np.dtype(dtype).itemsize
        assert needed <= MOST, f"{name} {shape}: {needed:.2e} bytes in all"
        return super().array(name, shape, dtype)


QUICK = {
    name: plan
    for name, plan in EVERY_KERNEL.items()
    if plan.seconds <= SECONDS * plan.block_count and plan.problem.taps <= TAPS
}


@pytest.mark.parametrize("plan", QUICK.values(), ids=QUICK)
def test_scratch_is_bounded(plan: Plan) -> None:
    """Jobs too large for any memory, on operands that take none."""
    kernel: Any = convgrad.choice.named(plan.problem, plan.strategy)
    first, second = (np.broadcast_to(np.float32(1), tensor.shape) for tensor in plan.operands)
    blocks = list(plan.blocks(plan.image_ranges()[0])) if plan.block_count < 10**5 else []
    for block in blocks[:: max(len(blocks) // 2, 1)] or [next(plan.blocks(plan.image_ranges()[0]))]:
        images, channels = slices(block.images, block.channels)
        scratch = Bounded()
        if plan.operation == "conv2d_transpose":
            shape = tuple(map(len, (block.images, block.rows, block.columns, block.channels)))
            assert 4 * math.prod(shape) <= MOST
            filters = kernel.prepare(second, plan.problem, np.dtype(np.float32))
            kernel.compute(first[images], filters, plan.problem, block, np.empty(shape, np.float32), scratch)
        else:
            parts = np.broadcast_to(np.float32(1), (*second.shape[:3], plan.channels, plan.outputs))
            kernel.compute(
                first[images, ..., channels], parts[images, ..., channels, :], plan.problem, block, scratch
            )
        assert scratch.nbytes <= MOST
