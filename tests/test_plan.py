"""Plans: what they say, what their blocks cover, and how much a block may hold."""

from __future__ import annotations

import dataclasses
import json
import pickle
from itertools import islice
from typing import Any

import numpy as np
import pytest

import convgrad
import cuts
from assertions import dtype_of
from convgrad import Block, Plan, TensorSpec, slabs
from convgrad.blocks import BlockSizes
from extremes import EVERY_KERNEL, EXTREME, filter_grad, transpose

#: Elements that one array of a block may hold, and that a block of the chosen kernel is worth having for.
MOST, WORTH = 2**22, 2**18


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype_of(dtype))


PLANS = {
    "transpose": transpose((2, 4, 5, 3), (3, 2, 7, 3), strides=(2, 3)),
    "transpose-NCHW": transpose((2, 3, 4, 5), (3, 2, 7, 3), padding="VALID", data_format="NCHW"),
    "transpose-explicit": transpose(
        (1, 4, 5, 3), (3, 3, 7, 3), padding=[[0, 0], [2, 1], [0, 1], [0, 0]], dilations=2
    ),
    "filter-grad": filter_grad((2, 8, 15, 3), (3, 2), (2, 4, 5, 6), strides=(2, 3)),
    "filter-grad-NCHW": filter_grad(
        (2, 3, 9, 5), (3, 2, 3, 2), (2, 6, 5, 4), padding="VALID", data_format="NCHW", dilations=(2, 1)
    ),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


# What a plan says.


def test_tensors_by_hand() -> None:
    plan = PLANS["transpose"]
    assert plan.operation == "conv2d_transpose"
    assert [(tensor.role, tensor.letters, tensor.shape) for tensor in (*plan.operands, plan.output)] == [
        ("input", ("N", "h", "w", "Cin"), (2, 4, 5, 3)),
        ("filters", ("kh", "kw", "Cout", "Cin"), (3, 2, 7, 3)),
        ("output", ("N", "H", "W", "Cout"), (2, 8, 15, 7)),
    ]
    assert (plan.batch, plan.channels, plan.outputs) == (2, 3, 7)
    assert plan.multiply_adds == 2 * 4 * 5 * 3 * 2 * 3 * 7
    assert plan.total_bytes == 4 * (2 * 4 * 5 * 3 + 3 * 2 * 7 * 3 + 2 * 8 * 15 * 7)
    assert plan.padding == "SAME"
    assert (plan.height.pad_before, plan.height.pad_after) == (0, 1)
    assert (plan.width.pad_before, plan.width.pad_after) == (0, 0)


def test_filter_gradient_by_hand() -> None:
    plan = PLANS["filter-grad-NCHW"]
    assert plan.operation == "depthwise_conv2d_backprop_filter"
    assert [(tensor.role, tensor.letters) for tensor in (*plan.operands, plan.output)] == [
        ("input", ("N", "C", "H", "W")),
        ("out_backprop", ("N", "C*M", "h", "w")),
        ("output", ("kh", "kw", "C", "M")),
    ]
    assert plan.output.shape == (3, 2, 3, 2)
    assert (plan.batch, plan.channels, plan.outputs) == (2, 3, 2)
    assert (plan.height.wide, plan.height.narrow, plan.height.effective_kernel) == (9, 5, 5)
    assert (plan.width.wide, plan.width.narrow, plan.width.dilation) == (5, 4, 1)


@every_plan
def test_printed(plan: Plan) -> None:
    """Every size with its letter, and of every axis the pads, the kernel and the legal sizes."""
    text = str(plan)
    for tensor in (*plan.operands, plan.output):
        sizes = ", ".join(
            f"{letter}={size}" for letter, size in zip(tensor.letters, tensor.shape, strict=True)
        )
        row = next(line for line in text.splitlines() if line.startswith(f"{tensor.role} "))
        assert f"({sizes})" in row
        assert row.split()[-2:] == [tensor.dtype.name, str(np.prod(tensor.shape) * tensor.dtype.itemsize)]
    for axis in plan.axes:
        row = next(line for line in text.splitlines() if line.startswith(axis.name)).split()
        assert row == [
            axis.name,
            str(axis.wide),
            str(axis.kernel),
            str(axis.effective_kernel),
            str(axis.stride),
            str(axis.dilation),
            f"{axis.pad_before}/{axis.pad_after}",
            str(axis.narrow),
            axis.legal_wide_text,
        ]
    assert text.startswith(f"{plan.operation}  {plan.data_format}  padding {plan.padding}  ")
    assert f"{plan.block_count} blocks" in text
    assert "!" not in text  # nothing disagrees


@every_plan
def test_to_dict_survives_json(plan: Plan) -> None:
    read = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert read == plan.to_dict()
    assert [tensor["shape"] for tensor in read["tensors"]] == [
        list(tensor.shape) for tensor in (*plan.operands, plan.output)
    ]
    assert [tensor["dtype"] for tensor in read["tensors"]] == ["float32"] * 3
    assert [tensor["disagrees"] for tensor in read["tensors"]] == [[], [], []]
    assert [(axis["axis"], axis["pad_before"], axis["pad_after"]) for axis in read["geometry"]] == [
        ("height", plan.height.pad_before, plan.height.pad_after),
        ("width", plan.width.pad_before, plan.width.pad_after),
    ]
    assert all(axis["legal"] for axis in read["geometry"])
    assert read["operation"] == plan.operation
    assert read["total_bytes"] == plan.total_bytes
    assert read["blocks"] == plan.block_count
    assert read["strategy"] == plan.strategy


def test_numpy_integers_leave_no_trace() -> None:
    """They would wrap, and JSON does not take them."""
    sizes, strides = np.array([1, 8, 8, 7]), np.array([2, 2], np.int8)
    plan = transpose((1, 4, 4, 3), (3, 3, 7, 3), sizes, strides=strides)
    json.dumps(plan.to_dict())
    plan = filter_grad((1, 4, 4, 3), np.array([3, 3]), (1, 4, 4, 3))
    json.dumps(plan.to_dict())


@every_plan
def test_frozen_and_comparable(plan: Plan) -> None:
    block = next(plan.blocks(plan.image_ranges()[0]))
    parts = (plan, plan.problem, plan.height, plan.output, plan.block_sizes, plan.report, block)
    for part in parts:
        name = dataclasses.fields(part)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, None)
    again = dataclasses.replace(plan)
    assert again == plan
    assert hash(again) == hash(plan)


@every_plan
def test_plans_and_blocks_can_be_sent_elsewhere(plan: Plan) -> None:
    """Another executor takes a plan's blocks as they are."""
    assert pickle.loads(pickle.dumps(plan)) == plan
    for images in plan.image_ranges():
        blocks = list(plan.blocks(images))
        assert pickle.loads(pickle.dumps(blocks)) == blocks


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_dtype_is_carried_through(dtype: str) -> None:
    plan = convgrad.plan_conv2d_transpose(spec(1, 2, 2, 1, dtype=dtype), spec(1, 1, 1, 1, dtype=dtype))
    assert plan.output.dtype == dtype_of(dtype)
    assert dtype in str(plan)
    swapped = TensorSpec((1, 2, 2, 1), np.dtype(">f4"))
    assert convgrad.plan_conv2d_transpose(swapped, spec(1, 1, 1, 1)).output.dtype.isnative


def test_the_same_request_gives_the_same_plan() -> None:
    assert transpose((2, 4, 5, 3), (3, 2, 7, 3), strides=(2, 3)) == PLANS["transpose"]
    assert transpose((2, 4, 5, 3), (3, 2, 7, 3), (8, 15), strides=[1, 2, 3, 1]) == PLANS["transpose"]


# What the blocks cover.

#: Small jobs.
COVERED = {
    "transpose": lambda: transpose((5, 4, 7, 2), (3, 3, 2, 2), strides=2),
    "transpose-one-row": lambda: transpose((2, 1, 60, 1), (1, 5, 1, 1)),
    "transpose-many-images": lambda: transpose((70, 1, 1, 1), (1, 1, 1, 1)),
    "transpose-channels": lambda: transpose((2, 3, 4, 40), (2, 2, 50, 40), padding="VALID"),
    "transpose-dilated": lambda: transpose((3, 6, 6, 2), (3, 3, 1, 2), dilations=(4, 7), padding="VALID"),
    "transpose-stride-past-kernel": lambda: transpose((2, 5, 5, 1), (2, 2, 3, 1), strides=(9, 4)),
    "filter-grad": lambda: filter_grad((5, 9, 11, 3), (3, 3), (5, 5, 6, 3), strides=2),
    "filter-grad-channels": lambda: filter_grad((2, 3, 3, 50), (3, 3), (2, 3, 3, 200)),
    "filter-grad-many-images": lambda: filter_grad((70, 1, 1, 2), (1, 1), (70, 1, 1, 2)),
    "filter-grad-one-row": lambda: filter_grad((2, 1, 60, 1), (1, 5), (2, 1, 60, 1)),
    "filter-grad-NCHW": lambda: filter_grad(
        (3, 4, 9, 9), (2, 2), (3, 8, 7, 7), dilations=2, padding="VALID", data_format="NCHW"
    ),
}  # fmt: skip
any_cut = pytest.mark.parametrize("sizes", cuts.CUTS.values(), ids=cuts.CUTS)


def all_blocks(plan: Plan) -> list[Block]:
    return [block for images in plan.image_ranges() for block in plan.blocks(images)]


@any_cut
@pytest.mark.parametrize("make", COVERED.values(), ids=COVERED)
def test_blocks_cover_the_job_once(make: Any, sizes: BlockSizes | None) -> None:
    for strategy in make().strategies:
        plan = cuts.cut(make().using(strategy), sizes)
        blocks = all_blocks(plan)
        assert plan.block_count == len(blocks)
        ranges = plan.image_ranges()
        assert [image for images in ranges for image in images] == list(range(plan.batch))
        if plan.operation == "conv2d_transpose":
            shape = plan.batch, plan.height.wide, plan.width.wide, plan.outputs
        else:
            shape = plan.batch, plan.height.narrow, plan.width.narrow, plan.channels
        covered = np.zeros(shape, int)
        for block in blocks:
            covered[np.ix_(block.images, block.rows, block.columns, block.channels)] += 1
        assert (covered == 1).all()
        most = plan.block_sizes
        for block in blocks:
            assert 1 <= len(block.images) <= most.images
            assert 1 <= len(block.rows) <= most.rows
            assert 1 <= len(block.columns) <= most.columns
            assert 1 <= len(block.channels) <= most.channels


@any_cut
@pytest.mark.parametrize("make", COVERED.values(), ids=COVERED)
def test_the_order_of_blocks_is_fixed(make: Any, sizes: BlockSizes | None) -> None:
    blocks = all_blocks(cuts.cut(make(), sizes))
    assert blocks == all_blocks(cuts.cut(make(), sizes))
    starts = [(b.images.start, b.rows.start, b.columns.start, b.channels.start) for b in blocks]
    assert starts == sorted(starts)


# Kernels.


@every_plan
def test_the_strategy_is_the_one_with_the_least_estimate(plan: Plan) -> None:
    seconds = {name: plan.using(name).seconds for name in plan.strategies}
    assert len(seconds) == len(plan.strategies)
    assert plan.strategy in plan.strategies
    small = plan.multiply_adds <= convgrad.choice.SMALL
    assert plan.seconds == seconds[plan.strategy] == min(list(seconds.values())[: 1 if small else None])
    assert plan.using(plan.strategy) == plan


@every_plan
def test_another_strategy_changes_nothing_else(plan: Plan) -> None:
    for name in plan.strategies:
        other = plan.using(name)
        assert other.strategy == name
        assert name in str(other)
        assert other.to_dict()["strategy"] == name
        same = dataclasses.replace(
            other, strategy=plan.strategy, seconds=plan.seconds, block_sizes=plan.block_sizes
        )
        assert same == plan


def test_the_general_strategy_comes_first() -> None:
    """And is the only one in float64 where the others are for float32."""
    assert {plan.strategies[0] for plan in EXTREME.values()} == {"taps", "sums"}
    assert {name for plan in EXTREME.values() for name in plan.strategies} > {"taps", "sums"}


@every_plan
@pytest.mark.parametrize("name", ["", "winograd", "TAPS"])
def test_a_strategy_that_cannot_compute_this_is_refused(plan: Plan, name: str) -> None:
    with pytest.raises(convgrad.ArgumentError) as caught:
        plan.using(name)
    assert all(strategy in caught.value.message for strategy in plan.strategies)


def test_a_strategy_of_the_other_operation_is_refused() -> None:
    for plan, other in ((PLANS["transpose"], "sums"), (PLANS["filter-grad"], "taps")):
        with pytest.raises(convgrad.ArgumentError):
            plan.using(other)


@every_plan
def test_a_plan_names_its_problem(plan: Plan) -> None:
    problem = plan.problem
    assert (problem.operation, problem.data_format) == (plan.operation, plan.data_format)
    assert (problem.height, problem.width) == plan.axes
    assert (problem.batch, problem.channels, problem.outputs) == (plan.batch, plan.channels, plan.outputs)
    assert problem.dtype == plan.output.dtype
    assert problem.taps == plan.height.kernel * plan.width.kernel
    assert problem.multiply_adds == plan.multiply_adds


def test_fast_is_remembered_and_allows_no_less() -> None:
    plain = transpose((1, 32, 32, 64), (3, 3, 64, 64))
    fast = transpose((1, 32, 32, 64), (3, 3, 64, 64), fast=True)
    assert (plain.fast, fast.fast) == (False, True)
    assert set(plain.strategies) <= set(fast.strategies)
    assert fast.seconds <= plain.seconds


# How much a block may hold. None of these jobs is ever allocated.

every_extreme = pytest.mark.parametrize("plan", EXTREME.values(), ids=EXTREME)


def sampled_ranges(whole: int, size: int) -> list[range]:
    """The first, a middle and the last of the pieces of a cut axis."""
    pieces = -(-whole // size)
    starts = sorted({piece * size for piece in (0, pieces // 2, pieces - 1)})
    return [range(start, min(start + size, whole)) for start in starts]


def block_arrays(plan: Plan, rows: range, columns: range) -> dict[str, int]:
    """Elements of what a block has to have at hand: its result, and what one tap reads."""
    sizes = plan.block_sizes
    height, width = plan.axes
    if plan.operation == "conv2d_transpose":
        met_rows = max(len(height.narrow_range(tap, rows)) for tap in range(height.kernel))
        met_columns = max(len(width.narrow_range(tap, columns)) for tap in range(width.kernel))
        pixels = sizes.images * met_rows * met_columns
        return {
            "result": sizes.images * len(rows) * len(columns) * sizes.channels,
            "operand": pixels * plan.channels,
            "product": pixels * sizes.channels,
        }
    pixels = sizes.images * len(rows) * len(columns)
    return {"operand": pixels * sizes.channels, "product": pixels * sizes.channels * plan.outputs}


@pytest.mark.parametrize("plan", EVERY_KERNEL.values(), ids=EVERY_KERNEL)
def test_blocks_are_bounded(plan: Plan) -> None:
    transpose = plan.operation == "conv2d_transpose"
    height = plan.height.wide if transpose else plan.height.narrow
    width = plan.width.wide if transpose else plan.width.narrow
    for rows in sampled_ranges(height, plan.block_sizes.rows):
        for columns in sampled_ranges(width, plan.block_sizes.columns):
            held = block_arrays(plan, rows, columns)
            assert {name: size for name, size in held.items() if size > MOST} == {}


@every_extreme
def test_blocks_are_not_needlessly_small(plan: Plan) -> None:
    """A job of n elements is done in about n / WORTH blocks, not one per pixel."""
    elements = sum(tensor.elements for tensor in (*plan.operands, plan.output))
    outputs = max(plan.outputs, 1)
    per_pixel = max(plan.channels, outputs)
    if per_pixel * max(plan.height.kernel, plan.width.kernel) < WORTH // 4:
        assert plan.block_count <= 64 * (elements // WORTH + 1)


@every_extreme
def test_block_count_is_known_without_listing(plan: Plan) -> None:
    assert plan.block_count >= 1
    if plan.block_count < 5000:
        assert plan.block_count == len(all_blocks(plan))
    else:
        every = (block for images in plan.image_ranges() for block in plan.blocks(images))
        first = list(islice(every, 10))
        assert len(set(first)) == 10


@every_extreme
@pytest.mark.parametrize("memory", [1, 10**6, 10**8, 10**9, None], ids=["byte", "1M", "100M", "1G", "any"])
def test_slabs_are_whole_blocks_and_fit(plan: Plan, memory: int | None) -> None:
    found = slabs.Slabs.of(plan, memory=memory, threads=2)
    sizes, rows = plan.block_sizes, plan.problem.cut_sizes[1]
    assert found.images == plan.batch or found.images % sizes.images == 0
    assert found.rows == rows or (found.rows % sizes.rows == 0 and found.images <= sizes.images)
    listed = list(islice(found, 5000))
    if found.count < 5000:
        assert len(listed) == found.count
        assert sum(len(range(plan.batch)[slab.span]) * len(slab.rows) for slab in listed) == plan.batch * rows
    smallest = found.images <= sizes.images and found.rows <= sizes.rows and found.threads == 1
    assert memory is None or found.held_bytes <= memory or smallest


@every_extreme
def test_held_bytes_are_slabs_and_what_has_no_batch(plan: Plan) -> None:
    """Of what lies by image two slabs, of filters and filter gradients at least everything."""
    tensors = (*plan.operands, plan.output)
    by_image = sum(t.nbytes for t in tensors if t.letters[0] == "N")
    others = sum(t.nbytes for t in tensors if t.letters[0] != "N")
    found = slabs.Slabs.of(plan, threads=2)
    most = [max(len(range(plan.batch)[slab.span]) for slab in islice(found, 100))]
    if found.rows == plan.problem.cut_sizes[1]:
        held = min(found.depth * most[0], plan.batch)
        assert found.held_bytes >= others + by_image * held // plan.batch - len(tensors)
    assert found.held_bytes <= 13 * others + 2 * by_image + 2 * slabs.SCRATCH_BYTES


# Sizes at the ends: nothing, and more than any machine has.

NOTHING = {
    "transpose-batch": ((0, 4, 4, 2), (3, 3, 5, 2), (0, 4, 4, 5)),
    "transpose-rows": ((2, 0, 4, 2), (3, 3, 5, 2), (2, 0, 4, 5)),
    "transpose-no-pixels": ((2, 0, 0, 2), (1, 1, 5, 2), (2, 0, 0, 5)),
    "transpose-input-channels": ((2, 4, 4, 0), (3, 3, 5, 0), (2, 4, 4, 5)),
    "transpose-output-channels": ((2, 4, 4, 2), (3, 3, 0, 2), (2, 4, 4, 0)),
    "transpose-everything": ((0, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 0)),
}


@pytest.mark.parametrize(("input", "filters", "output"), NOTHING.values(), ids=NOTHING)
def test_transposes_of_nothing(
    input: tuple[int, ...], filters: tuple[int, ...], output: tuple[int, ...]
) -> None:
    plan = transpose(input, filters)
    assert plan.output.shape == output
    check_plan_of_nothing(plan)


@pytest.mark.parametrize(
    ("input", "sizes", "gradient", "output"),
    [
        pytest.param((0, 4, 4, 2), (3, 3), (0, 4, 4, 4), (3, 3, 2, 2), id="batch"),
        pytest.param((2, 0, 4, 2), (3, 3), (2, 0, 4, 4), (3, 3, 2, 2), id="rows"),
        pytest.param((2, 4, 4, 0), (3, 3, 0, 2), (2, 4, 4, 0), (3, 3, 0, 2), id="channels"),
        pytest.param((2, 4, 4, 2), (3, 3), (2, 4, 4, 0), (3, 3, 2, 0), id="multiplier"),
        pytest.param((0, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 0), (1, 1, 0, 0), id="everything"),
    ],
)
def test_filter_gradients_of_nothing(
    input: tuple[int, ...], sizes: Any, gradient: tuple[int, ...], output: tuple[int, ...]
) -> None:
    plan = filter_grad(input, sizes, gradient)
    assert plan.output.shape == output
    check_plan_of_nothing(plan)


def check_plan_of_nothing(plan: Plan) -> None:
    assert plan.block_count == len(all_blocks(plan))
    found = slabs.Slabs.of(plan, memory=1)
    assert len(list(found)) == found.count
    assert found.held_bytes >= 0
    assert min(found.passes) >= 0
    assert "=0" in str(plan)
    json.dumps(plan.to_dict())


HUGE = 2**70


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(lambda: transpose((1, 2, 1, 1), (1, 1, 1, 1), strides=HUGE), id="stride"),
        pytest.param(lambda: transpose((1, 1, 1, 1), (HUGE, 1, 1, 1), padding="VALID"), id="kernel"),
        pytest.param(
            lambda: transpose((1, 1, 1, 1), (2, 1, 1, 1), padding="VALID", dilations=HUGE), id="dilation"
        ),
        pytest.param(lambda: transpose((1, 2**40, 2**40, 1), (1, 1, 1, 1)), id="product-of-sizes"),
        pytest.param(lambda: transpose((1, 2**31, 2**31, 1), (1, 1, 1, 1), strides=1), id="bytes-only"),
        pytest.param(lambda: transpose((1, HUGE, 1, 1), (1, 1, 1, 1)), id="input"),
        pytest.param(lambda: filter_grad((1, 4, 4, 1), (HUGE, 1), (1, 4, 4, 1)), id="filter-gradient-kernel"),
        pytest.param(lambda: transpose((0, 1, 1, 1), (1, 1, 1, 1), strides=HUGE), id="empty-batch"),
        pytest.param(lambda: transpose((0, 1, 1, 1), (1, 1, 1, 1), strides=2**40), id="empty-batch-product"),
        pytest.param(lambda: transpose((1, 1, 1, 1), (1, 1, 0, 1), strides=HUGE), id="no-outputs"),
        pytest.param(lambda: filter_grad((1, 4, 4, 0), (2**40, 2**40, 0, 1), (1, 4, 4, 0)), id="no-channels"),
    ],
)
def test_sizes_beyond_any_machine_are_refused_by_the_plan(refused: Any) -> None:
    """A result that NumPy cannot describe is refused here, an empty one of such sizes too."""
    with pytest.raises(convgrad.ShapeError) as caught:
        refused()
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400


def test_sizes_past_32_bits_are_planned() -> None:
    plan = transpose((1, 2**33, 1, 1), (1, 1, 1, 1), strides=(4, 1))
    assert plan.output.shape == (1, 2**35, 1, 1)
    assert plan.total_bytes == 4 * (2**33 + 1 + 2**35)
    assert plan.block_count >= 2**35 // MOST
    assert plan.block_count * plan.block_sizes.rows >= 2**35


def test_planning_reads_no_data() -> None:
    """Anything with a shape and a dtype will do."""

    class Bare:
        shape = (1, 4, 4, 1)
        dtype = np.dtype("f4")

    plan = convgrad.plan_depthwise_conv2d_backprop_filter(Bare(), (3, 3), Bare())
    assert plan.output.shape == (3, 3, 1, 1)


@pytest.mark.parametrize(
    "shape", [(), (4,), (4, 4), (4, 4, 1), (1, 1, 4, 4, 1)], ids=lambda s: f"{len(s)}-axes"
)
def test_operands_need_four_axes(shape: tuple[int, ...]) -> None:
    good = spec(1, 4, 4, 1)
    for role, attempt in (
        ("input", lambda: convgrad.plan_conv2d_transpose(spec(*shape), spec(1, 1, 1, 1))),
        ("filters", lambda: convgrad.plan_conv2d_transpose(good, spec(*shape))),
        ("input", lambda: convgrad.plan_depthwise_conv2d_backprop_filter(spec(*shape), (1, 1), good)),
        ("out_backprop", lambda: convgrad.plan_depthwise_conv2d_backprop_filter(good, (1, 1), spec(*shape))),
    ):
        with pytest.raises(convgrad.ShapeError) as caught:
            attempt()
        assert caught.value.message.startswith(f"{role}: ")
        assert f"has {len(shape)}" in caught.value.message
        assert "4 axes" in caught.value.message
        # The report can be shown although the number of axes is wrong.
        assert role in str(caught.value.report)


def test_the_report_of_an_error_marks_every_axis_that_disagrees() -> None:
    with pytest.raises(convgrad.ShapeError) as caught:
        filter_grad((2, 8, 8, 3), (3, 3), (4, 5, 7, 3))
    report = caught.value.report
    assert report is not None
    assert report.tensors[1].wrong == {0, 1, 2}
    text = str(report)
    assert "(N=4!, h=5!, w=7!, C*M=3)" in text
    assert "8!" in text
    read = json.loads(json.dumps(report.to_dict()))
    assert read["tensors"][1]["disagrees"] == [0, 1, 2]
    assert [axis["legal"] for axis in read["geometry"]] == [False, False]


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_the_report_marks_the_output_shape(data_format: str) -> None:
    nchw = data_format == "NCHW"
    input, asked = ((1, 3, 4, 4), (2, 6, 9, 8)) if nchw else ((1, 4, 4, 3), (2, 9, 8, 6))
    with pytest.raises(convgrad.ShapeError) as caught:
        transpose(input, (3, 3, 5, 3), asked, strides=2, data_format=data_format)
    assert caught.value.report is not None
    output = caught.value.report.tensors[2]
    assert output.shape == asked
    assert output.wrong == ({0, 1, 2} if nchw else {0, 1, 3})
