"""The two functions as a caller meets them: operands of any kind, `out`, dtypes, nothing touched."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import convgrad
import cuts
import reference
from assertions import BFLOAT16, assert_matches, dtype_of
from convgrad import conv2d_transpose
from convgrad import depthwise_conv2d_backprop_filter as filter_grad
from convgrad.blocks import BlockSizes

DTYPES = ["float16", "bfloat16", "float32", "float64"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Values of very different size, so that another order of summation shows in the bits."""
    rng = np.random.default_rng([seed, math.prod(shape)])
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 1, shape)).astype(dtype_of(dtype))


class Operation:
    """One of the two functions with fixed shapes and options."""

    def __init__(self, name: str, first: Any, second: Any, call: Any, plan: Any) -> None:
        self.name, self.shapes, self.call, self.plan = name, (first, second), call, plan

    def __str__(self) -> str:
        return self.name

    def operands(self, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
        return random(self.shapes[0], dtype), random(self.shapes[1], dtype, 1)


def transpose(name: str, first: Any, second: Any, **options: Any) -> Operation:
    def call(first: Any, second: Any, **out: Any) -> Any:
        return conv2d_transpose(first, second, **options, **out)

    def plan(first: Any, second: Any) -> Any:
        return convgrad.plan_conv2d_transpose(first, second, **options)

    return Operation(name, first, second, call, plan)


def gradient(name: str, first: Any, sizes: Any, second: Any, **options: Any) -> Operation:
    def call(first: Any, second: Any, **out: Any) -> Any:
        return filter_grad(first, sizes, second, **options, **out)

    def plan(first: Any, second: Any) -> Any:
        return convgrad.plan_depthwise_conv2d_backprop_filter(first, sizes, second, **options)

    return Operation(name, first, second, call, plan)


OPERATIONS = [
    transpose("transpose", (2, 5, 6, 7), (3, 3, 7, 7)),
    transpose("transpose-NCHW", (2, 37, 5, 6), (3, 2, 9, 37), strides=(2, 1), data_format="NCHW"),
    gradient("filter-grad", (3, 9, 11, 5), (3, 3), (3, 5, 6, 10), strides=2),
    gradient("filter-grad-NCHW", (3, 5, 9, 11), (3, 2), (3, 15, 7, 10), padding="VALID", data_format="NCHW"),
]
every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=str)


# The signatures.


def test_arguments_are_named_and_ordered_as_in_tensorflow() -> None:
    assert list(inspect.signature(conv2d_transpose).parameters) == [
        "input",
        "filters",
        "output_shape",
        "strides",
        "padding",
        "data_format",
        "dilations",
        "out",
        "fast",
        "threads",
        "memory",
    ]
    assert list(inspect.signature(filter_grad).parameters) == [
        "input",
        "filter_sizes",
        "out_backprop",
        "strides",
        "padding",
        "data_format",
        "dilations",
        "out",
        "threads",
        "memory",
    ]


@pytest.mark.parametrize(
    ("plan", "compute"),
    [
        (convgrad.plan_conv2d_transpose, conv2d_transpose),
        (convgrad.plan_depthwise_conv2d_backprop_filter, filter_grad),
    ],
    ids=["transpose", "filter-grad"],
)
def test_plans_take_what_the_operations_take(plan: Callable[..., Any], compute: Callable[..., Any]) -> None:
    planned, computed = inspect.signature(plan).parameters, inspect.signature(compute).parameters
    assert list(planned) == [name for name in computed if name not in ("out", "threads", "memory")]
    assert [p.default for p in planned.values()] == [computed[name].default for name in planned]
    own = computed.keys() - {"fast", *list(computed)[:7]}
    assert own == {"out", "threads", "memory"}
    for parameter in list(computed.values())[7:] + list(planned.values())[7:]:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


def test_positional_calls() -> None:
    x, w = random((1, 4, 4, 2), "float64"), random((3, 3, 2, 2), "float64")
    by_position = conv2d_transpose(x, w, (1, 7, 7, 2), [1, 2, 2, 1], "SAME", "NHWC", [1, 2, 2, 1])
    by_name = conv2d_transpose(x, w, output_shape=(7, 7), strides=2, dilations=2)
    assert np.array_equal(by_position, by_name)
    assert np.array_equal(
        filter_grad(x, (2, 2, 2, 1), x, [1, 1, 1, 1], "SAME", "NHWC", [1, 3, 3, 1]),
        filter_grad(x, (2, 2), x, dilations=3),
    )


# Results.


@every_operation
@every_dtype
def test_results_are_plain_new_arrays(operation: Operation, dtype: str) -> None:
    first, second = operation.operands(dtype)
    result = operation.call(first, second)
    plan = operation.plan(first, second)
    assert type(result) is np.ndarray
    assert (result.shape, result.dtype) == (plan.output.shape, dtype_of(dtype))
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.flags.owndata
    assert result.dtype.isnative
    assert not np.may_share_memory(result, first)


@every_operation
@every_dtype
def test_operands_are_left_alone(operation: Operation, dtype: str) -> None:
    first, second = operation.operands(dtype)
    before = first.tobytes(), second.tobytes()
    first.flags.writeable = second.flags.writeable = False
    operation.call(first, second)
    assert (first.tobytes(), second.tobytes()) == before


@every_operation
@every_dtype
def test_repeated_calls_give_the_same_bits(operation: Operation, dtype: str) -> None:
    first, second = operation.operands(dtype)
    assert len({operation.call(first, second).tobytes() for _ in range(4)}) == 1


# Operands.


def at_byte(offset: int) -> Callable[[np.ndarray], np.ndarray]:
    """Put the data `offset` bytes after where NumPy would."""

    def form(array: np.ndarray) -> np.ndarray:
        raw = np.empty(array.nbytes + offset, np.uint8)
        view = raw[offset:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view

    return form


def swapped_axes(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, 3)), 3, 1)


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "fortran": np.asfortranarray,
    "axes-swapped-in-memory": swapped_axes,
    "backwards": lambda array: array[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1],
    "every-second": lambda array: np.repeat(np.repeat(array, 2, axis=3), 2, axis=1)[:, ::2, :, ::2],
    "one-byte-off": at_byte(1),
    "eight-bytes-off": at_byte(8),
    "sixteen-bytes-off": at_byte(16),
    "read-only-buffer": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    "subclass": lambda array: array.view(np.memmap),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_operation
@every_form
@every_dtype
def test_the_bits_do_not_depend_on_memory_layout(operation: Operation, form: Any, dtype: str) -> None:
    first, second = operation.operands(dtype)
    result = operation.call(form(first), form(second))
    assert type(result) is np.ndarray
    assert result.flags.c_contiguous
    assert result.tobytes() == operation.call(first, second).tobytes()


@every_operation
@pytest.mark.parametrize("which", [0, 1])
def test_a_broadcast_operand(operation: Operation, which: int) -> None:
    operands = list(operation.operands("float64"))
    operands[which] = np.broadcast_to(operands[which][:, :, :1], operands[which].shape)
    expected = operation.call(*map(np.ascontiguousarray, operands))
    assert operation.call(*operands).tobytes() == expected.tobytes()


@every_operation
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("which", ["first", "second", "both"])
def test_foreign_byte_order(operation: Operation, dtype: str, which: str) -> None:
    first, second = operation.operands(dtype)
    swapped = dtype_of(dtype).newbyteorder("S")
    result = operation.call(
        first.astype(swapped) if which != "second" else first,
        second.astype(swapped) if which != "first" else second,
    )
    assert result.dtype.isnative
    assert result.tobytes() == operation.call(first, second).tobytes()


@every_operation
def test_lists_are_float64(operation: Operation) -> None:
    first, second = operation.operands("float64")
    result = operation.call(first.tolist(), second.tolist())
    assert result.dtype == np.float64
    assert result.tobytes() == operation.call(first, second).tobytes()


@every_operation
def test_lists_beside_another_dtype_are_not_promoted(operation: Operation) -> None:
    first, second = operation.operands("float32")
    with pytest.raises(convgrad.DTypeError, match="float64"):
        operation.call(first, second.tolist())


@every_operation
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "complex64", "longdouble", "V2", "O"])
def test_other_dtypes_are_refused(operation: Operation, dtype: str) -> None:
    first, second = (np.zeros(shape, dtype) for shape in operation.shapes)
    with pytest.raises(convgrad.DTypeError, match=r"^input: dtype "):
        operation.call(first, second)


@pytest.mark.parametrize("value", [3.0, None, "data", np.float64(3), {}], ids=repr)
def test_what_is_no_array_is_refused(value: Any) -> None:
    with pytest.raises(convgrad.ShapeError, match=r"^input: needs 4 axes"):
        conv2d_transpose(value, np.ones((1, 1, 1, 1)))


@every_operation
def test_a_shape_without_data_is_refused(operation: Operation) -> None:
    first, second = (convgrad.TensorSpec(shape, np.dtype(np.float32)) for shape in operation.shapes)
    with pytest.raises(convgrad.ConvgradError, match=r"^input: "):
        operation.call(first, second)


class Source:
    """Slices along axis 0 and nothing else, as a file gives them: here in Fortran order, big-endian."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, key: slice) -> np.ndarray:
        assert isinstance(key, slice)
        assert key.step in (None, 1)
        part = np.asfortranarray(self._array[key])
        return part if part.dtype == BFLOAT16 else part.astype(part.dtype.newbyteorder(">"))


class Sink:
    """Takes slices along axis 0 in increasing order and nothing else."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.parts: list[np.ndarray] = []

    def __setitem__(self, key: slice, value: np.ndarray) -> None:
        assert key.step in (None, 1)
        assert key.start == sum(map(len, self.parts))
        assert len(value) == key.stop - key.start
        self.parts.append(value.copy())

    @property
    def array(self) -> np.ndarray:
        return np.concatenate(self.parts)


@every_operation
@every_dtype
def test_sources_and_sinks(operation: Operation, dtype: str) -> None:
    first, second = operation.operands(dtype)
    expected = operation.call(first, second)
    sink = Sink(expected.shape, expected.dtype)
    assert operation.call(Source(first), Source(second), out=sink) is sink
    assert sink.array.shape == expected.shape
    assert sink.array.tobytes() == expected.tobytes()
    assert operation.call(Source(first), second).tobytes() == expected.tobytes()


@every_operation
def test_datasets_and_memory_maps(operation: Operation, tmp_path: Path) -> None:
    first, second = operation.operands("float32")
    expected = operation.call(first, second)
    np.save(tmp_path / "first.npy", first)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, expected.shape)
    with h5py.File(tmp_path / "second.h5", "w") as file:
        dataset = file.create_dataset("second", data=second, chunks=True)
        mapped = np.load(tmp_path / "first.npy", mmap_mode="r")
        assert operation.call(mapped, dataset, out=out) is out
        target = file.create_dataset("result", expected.shape, np.float32)
        assert operation.call(mapped, dataset, out=target) is target
        assert target[()].tobytes() == expected.tobytes()
    out.flush()
    assert np.load(tmp_path / "out.npy").tobytes() == expected.tobytes()


# `out`.


def in_a_larger_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    whole = np.full([2 * size + 1 for size in shape], 7, dtype)
    return whole[tuple(slice(1, None, 2) for _ in shape)]


OUTS: dict[str, Callable[[tuple[int, ...], Any], np.ndarray]] = {
    "c-order": np.empty,
    "fortran": lambda shape, dtype: np.empty(shape, dtype, order="F"),
    "strided": in_a_larger_array,
    "backwards": lambda shape, dtype: np.empty(shape, dtype)[::-1, :, ::-1],
    "axes-swapped-in-memory": lambda shape, dtype: swapped_axes(np.empty(shape, dtype)),
    "one-byte-off": lambda shape, dtype: at_byte(1)(np.empty(shape, dtype)),
}


@every_operation
@pytest.mark.parametrize("make", OUTS.values(), ids=OUTS)
@every_dtype
def test_out_is_filled_and_returned(operation: Operation, make: Any, dtype: str) -> None:
    first, second = operation.operands(dtype)
    expected = operation.call(first, second)
    out = make(expected.shape, expected.dtype)
    out[...] = 7
    assert operation.call(first, second, out=out) is out
    assert out.tobytes() == expected.tobytes()


@every_operation
def test_what_lies_between_a_strided_out_is_kept(operation: Operation) -> None:
    first, second = operation.operands("float32")
    expected = operation.call(first, second)
    out = in_a_larger_array(expected.shape, np.float32)
    operation.call(first, second, out=out)
    assert out.base is not None
    outside = out.base.copy()
    outside[tuple(slice(1, None, 2) for _ in out.shape)] = 7
    assert (outside == 7).all()


@pytest.mark.parametrize("sizes", [None, cuts.FEW], ids=["one-block", "many-blocks"])
@every_dtype
def test_out_may_be_the_input(dtype: str, sizes: BlockSizes | None) -> None:
    x, w = OPERATIONS[0].operands(dtype)
    with cuts.every_plan_cut(sizes):
        expected = conv2d_transpose(x, w)
        assert conv2d_transpose(x, w, out=x) is x
    assert x.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "place",
    [np.s_[:2], np.s_[1:3], np.s_[2:0:-1], np.s_[::2]],
    ids=["head", "tail", "reversed", "every-second"],
)
def test_out_may_overlap_the_input(place: Any) -> None:
    whole = random((4, 5, 6, 7), "float32")
    w = random((3, 3, 7, 7), "float32")
    x, out = whole[1:3], whole[place]
    expected = conv2d_transpose(x.copy(), w)
    rest = np.delete(whole, np.arange(4)[place], axis=0)
    conv2d_transpose(x, w, out=out)
    assert out.tobytes() == expected.tobytes()
    assert np.array_equal(np.delete(whole, np.arange(4)[place], axis=0), rest)


def test_out_may_overlap_the_filters() -> None:
    w = random((3, 3, 2, 2), "float64")
    x = random((3, 3, 3, 2), "float64")
    expected = conv2d_transpose(x, w.copy())
    whole = np.zeros((3, 3, 3, 2))
    filters = whole.reshape(-1)[: w.size].reshape(w.shape)
    filters[...] = w
    conv2d_transpose(x, filters, out=whole)
    assert whole.tobytes() == expected.tobytes()


def test_out_of_a_filter_gradient_may_overlap_either_operand() -> None:
    x, g = random((3, 3, 3, 2), "float64"), random((3, 3, 3, 2), "float64", 1)
    expected = filter_grad(x, (3, 3), g)
    for which in (0, 1):
        operands = [x.copy(), g.copy()]
        out = operands[which].reshape(-1)[: expected.size].reshape(expected.shape)
        filter_grad(operands[0], (3, 3), operands[1], out=out)
        assert out.tobytes() == expected.tobytes()


def test_operands_may_be_one_array() -> None:
    x = random((2, 5, 5, 3), "float64")
    assert_matches(filter_grad(x, (3, 3), x), *reference.filter_grad(x, (3, 3), x), np.float64)


def refused_out(out: Any, error: type[convgrad.ConvgradError]) -> str:
    x, w = random((1, 4, 4, 2), "float32"), random((3, 3, 5, 2), "float32")
    with pytest.raises(error) as caught:
        conv2d_transpose(x, w, out=out)
    assert caught.value.message.startswith("out: ")
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "shape",
    [(1, 4, 4, 2), (1, 5, 4, 4), (2, 4, 4, 5), (4, 4, 5), (1, 1, 4, 4, 5), (80,), ()],
    ids=str,
)
def test_out_of_another_shape(shape: tuple[int, ...]) -> None:
    out = np.full(shape, 7, np.float32)
    message = refused_out(out, convgrad.ShapeError)
    assert "(1, 4, 4, 5)" in message
    assert str(shape) in message
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_out_of_another_dtype(dtype: str) -> None:
    out = np.full((1, 4, 4, 5), 7, dtype_of(dtype))
    message = refused_out(out, convgrad.DTypeError)
    assert "float32" in message
    assert dtype in message
    assert (out == 7).all()


def test_out_in_foreign_byte_order_is_filled_or_refused_for_that_reason() -> None:
    """Never with: must be float32, got float32."""
    x, w = random((1, 4, 4, 2), "float32"), random((3, 3, 5, 2), "float32")
    out = np.full((1, 4, 4, 5), 7, np.dtype(np.float32).newbyteorder("S"))
    refusal = None
    try:
        conv2d_transpose(x, w, out=out)
    except convgrad.DTypeError as error:
        refusal = error.message
    if refusal is None:
        assert np.array_equal(out, conv2d_transpose(x, w))
    else:
        assert "byte order" in refusal


def test_out_that_is_read_only() -> None:
    out = np.full((1, 4, 4, 5), 7, np.float32)
    out.flags.writeable = False
    assert "read-only" in refused_out(out, convgrad.ArgumentError)
    assert (out == 7).all()


@pytest.mark.parametrize("out", [[[0.0]], 0, "result.npy", object()], ids=["list", "int", "string", "object"])
def test_out_that_is_no_sink(out: Any) -> None:
    """Every error that a caller can provoke is a ConvgradError."""
    refused_out(out, convgrad.ConvgradError)


def test_a_refused_request_leaves_out_alone() -> None:
    out = np.full((3, 3, 2, 1), 7, np.float32)
    x = random((1, 4, 4, 2), "float32")
    with pytest.raises(convgrad.ShapeError):
        filter_grad(x, (3, 3), random((1, 5, 4, 2), "float32"), out=out)
    assert (out == 7).all()


@every_dtype
def test_an_empty_out(dtype: str) -> None:
    kind = dtype_of(dtype)
    out = np.empty((0, 4, 4, 5), kind)
    assert conv2d_transpose(np.empty((0, 4, 4, 2), kind), np.ones((3, 3, 5, 2), kind), out=out) is out
    out = np.full((3, 3, 2, 1), 7, kind)
    empty = np.empty((0, 4, 4, 2), kind)
    assert filter_grad(empty, (3, 3), empty, out=out) is out
    assert (out == 0).all()


# NaN, inf and overflow say nothing, whatever the caller's settings.


def special(dtype: str) -> dict[str, tuple[float, float]]:
    """Pairs of values whose products are remarkable."""
    largest = {"float16": 6e4, "bfloat16": 3e38, "float32": 3e38, "float64": 1.7e308}[dtype]
    return {
        "nan": (np.nan, 1.0),
        "inf": (np.inf, -1.0),
        "inf-minus-inf": (np.inf, np.nan),
        "inf-times-zero": (np.inf, 0.0),
        "overflow": (largest, largest),
        "underflow": (5e-324 if dtype == "float64" else 1e-40 if dtype != "float16" else 6e-8, 1e-7),
    }


@every_operation
@every_dtype
@pytest.mark.parametrize("which", special("float32"))
def test_nothing_is_warned_of(operation: Operation, dtype: str, which: str) -> None:
    kind = dtype_of(dtype)
    one, other = np.array(special(dtype)[which]).astype(kind)
    first, second = (np.full(shape, one, kind) for shape in operation.shapes)
    second.reshape(-1)[::2] = other
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = operation.call(first, second)
    assert result.dtype == kind


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_signalling_nan(dtype: str) -> None:
    bits = {
        "float16": (0x7C01, np.uint16),
        "bfloat16": (0x7F81, np.uint16),
        "float32": (0x7F800001, np.uint32),
    }
    pattern, unsigned = bits[dtype]
    x = np.full((1, 2, 2, 1), pattern, unsigned).view(dtype_of(dtype))
    ones = np.ones((1, 1, 1, 1), dtype_of(dtype))
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert np.isnan(conv2d_transpose(x, ones).astype(float)).all()
        assert np.isnan(filter_grad(x, (1, 1), x).astype(float)).all()


def test_the_callers_error_state_is_kept() -> None:
    with np.errstate(over="raise", divide="ignore", under="warn", invalid="print"):
        before = np.geterr()
        conv2d_transpose(np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1)))
        assert np.geterr() == before


@every_dtype
def test_overflow_by_hand(dtype: str) -> None:
    """One product past the largest value is inf with its sign; its neighbour is untouched."""
    kind = dtype_of(dtype)
    largest = special(dtype)["overflow"][0]
    x = np.array([largest, -largest, 1.0]).astype(kind).reshape(1, 1, 3, 1)
    w = np.array([2.0]).astype(kind).reshape(1, 1, 1, 1)
    assert conv2d_transpose(x, w).astype(float).ravel().tolist() == [np.inf, -np.inf, 2.0]
    assert filter_grad(x[:, :, :1], (1, 1), x[:, :, :1]).astype(float).item() == np.inf


def test_negative_zero_sums_to_zero() -> None:
    """A result whose terms are all zero is 0, and so is one that has no terms."""
    x = np.full((1, 2, 2, 1), -0.0)
    result = conv2d_transpose(x, np.ones((1, 1, 1, 1)), strides=2)
    assert (result == 0).all()
    assert not np.signbit(filter_grad(x, (3, 3), np.ones((1, 2, 2, 1)))).any()


def test_masked_arrays_are_refused() -> None:
    """What lies under a mask must not be computed with as if it were data."""
    w = np.ones((1, 1, 1, 1))
    with pytest.raises(convgrad.ArgumentError, match="masked"):
        conv2d_transpose(np.ma.masked_array(np.ones((1, 2, 2, 1)), mask=True), w)


def test_chunks_of_another_library_are_no_matter() -> None:
    """Some libraries' `chunks` are tuples of sizes for each axis."""

    class Chunked:
        data = np.ones((2, 2, 2, 1))
        shape, dtype, chunks = data.shape, data.dtype, ((1, 1), (2,), (2,), (1,))

        def __getitem__(self, key: slice) -> np.ndarray:
            return self.data[key]

    result = conv2d_transpose(Chunked(), np.ones((1, 1, 1, 1)))
    assert np.array_equal(result, Chunked.data)
