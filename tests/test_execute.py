"""Execution: any source, any sink, any cut into blocks and slabs, one result."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import threadpoolctl

import convgrad
import cuts
import reference
from assertions import assert_matches, dtype_of
from convgrad import Plan, execute, slabs
from convgrad.blocks import BlockSizes


@dataclass(frozen=True)
class Job:
    """A transposed convolution, or a filter gradient where `sizes` are filter_sizes."""

    name: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    sizes: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def transpose(self) -> bool:
        return "filter-grad" not in self.name

    def operands(self, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Values of very different size, so that another order of summation shows in the bits."""
        made = []
        for which, shape in enumerate((self.first, self.second)):
            rng = np.random.default_rng([len(self.name), which])
            magnitude = 10.0 ** rng.uniform(-2, 1, shape)
            made.append((rng.standard_normal(shape) * magnitude).astype(dtype_of(dtype)))
        return made[0], made[1]

    def plan(self, dtype: str) -> Plan:
        first, second = (convgrad.TensorSpec(s, dtype_of(dtype)) for s in (self.first, self.second))
        if self.transpose:
            return convgrad.plan_conv2d_transpose(first, second, self.sizes, **self.options)
        assert self.sizes is not None
        return convgrad.plan_depthwise_conv2d_backprop_filter(first, self.sizes, second, **self.options)

    def run(
        self, dtype: str = "float64", first: Any = None, second: Any = None, plan: Plan | None = None
    ) -> np.ndarray:
        one, other = self.operands(dtype)
        plan = plan or self.plan(dtype)
        out = np.full(plan.output.shape, 7, plan.output.dtype)
        execute(plan, one if first is None else first, other if second is None else second, out)
        return out

    def expected(self, dtype: str) -> reference.Expected:
        return _expected(JOBS.index(self), dtype)


@functools.cache
def _expected(index: int, dtype: str) -> reference.Expected:
    job = JOBS[index]
    first, second = job.operands(dtype)
    if job.transpose:
        return reference.transpose(first, second, job.sizes, **job.options)
    assert job.sizes is not None
    return reference.filter_grad(first, job.sizes, second, **job.options)


VALID = {"padding": "VALID"}
EXPLICIT = {"padding": [[0, 0], [0, 3], [2, 1], [0, 0]], "strides": (1, 2)}
JOBS = [
    Job("plain", (3, 5, 6, 2), (3, 3, 4, 2)),
    Job("stride-2", (2, 4, 5, 3), (3, 2, 2, 3), (2, 8, 9, 2), {"strides": 2}),
    Job("stride-past-kernel", (2, 3, 3, 2), (2, 1, 3, 2), None, {"strides": (5, 4)}),
    Job("kernel-past-image", (4, 2, 3, 2), (5, 7, 2, 2)),
    Job("dilation", (2, 4, 4, 2), (3, 3, 3, 2), None, {"dilations": (2, 5), **VALID}),
    Job("stride-and-dilation", (2, 3, 4, 2), (2, 3, 2, 2), None, {"strides": (2, 3), "dilations": (3, 2)}),
    Job("explicit", (1, 5, 5, 2), (3, 4, 2, 2), (1, 4, 9, 2), EXPLICIT),
    Job("NCHW", (3, 2, 4, 5), (3, 3, 4, 2), None, {"data_format": "NCHW", "strides": (1, 2)}),
    Job("many-channels", (1, 3, 3, 150), (2, 2, 3, 150)),
    Job("filter-grad", (5, 6, 7, 3), (5, 6, 7, 3), (3, 3)),
    Job("filter-grad-M", (3, 7, 8, 2), (3, 4, 4, 6), (3, 2, 2, 3), {"strides": 2}),
    Job("filter-grad-stride-past-kernel", (2, 12, 9, 2), (2, 3, 3, 4), (2, 1), {"strides": (5, 4), **VALID}),
    Job("filter-grad-kernel-past-image", (4, 2, 3, 2), (4, 2, 3, 2), (5, 7)),
    Job("filter-grad-dilation", (2, 9, 14, 2), (2, 5, 4, 2), (3, 3), {"dilations": (2, 5), **VALID}),
    Job("filter-grad-explicit", (2, 5, 5, 2), (2, 6, 3, 4), (3, 4), EXPLICIT),
    Job("filter-grad-NCHW", (3, 2, 6, 7), (3, 4, 3, 7), (3, 3), {"data_format": "NCHW", "strides": (2, 1)}),
]
BY_NAME = {job.name: job for job in JOBS}
every_job = pytest.mark.parametrize("job", JOBS, ids=str)
#: One of each operation, where all of them would say the same.
PAIR = [BY_NAME["NCHW"], BY_NAME["filter-grad-M"]]
either_job = pytest.mark.parametrize("job", PAIR, ids=str)


@pytest.fixture
def small_blocks() -> Iterator[None]:
    """Even a small job takes several blocks of images, rows, columns and channels."""
    with cuts.every_plan_cut(cuts.FEW):
        yield


@pytest.fixture
def tiny_blocks() -> Iterator[None]:
    """One block for each position and channel."""
    with cuts.every_plan_cut(cuts.ONES):
        yield


@pytest.fixture
def blocks_of_one_image() -> Iterator[None]:
    with cuts.every_plan_cut(cuts.CUTS["images"]):
        yield


class Source:
    """What the engine may rely on and nothing else: shape, dtype, contiguous parts. Keeps a record."""

    def __init__(
        self, array: np.ndarray, form: Callable[[np.ndarray], np.ndarray] = np.array, chunks: Any = None
    ) -> None:
        self._array, self._form = array, form
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = chunks
        self.parts: list[Part] = []

    @property
    def reads(self) -> list[range]:
        """Images of all parts."""
        return [images for images, _ in self.parts]

    def __getitem__(self, key: Any) -> np.ndarray:
        self.parts.append(part(key, self.shape))
        return self._form(self._array[key])

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("a source is not read whole")


class Sink:
    """Takes contiguous parts in rising order."""

    def __init__(self, plan: Plan) -> None:
        self.shape, self.dtype = plan.output.shape, plan.output.dtype
        self.array = np.full(self.shape, 7, self.dtype)
        self.parts: list[Part] = []

    @property
    def writes(self) -> list[range]:
        """Images of all parts."""
        return [images for images, _ in self.parts]

    def __setitem__(self, key: Any, value: np.ndarray) -> None:
        assert value.shape == self.array[key].shape
        assert value.dtype == self.dtype
        self.parts.append(part(key, self.shape))
        self.array[key] = value


#: Images, and rows where these are cut.
Part = tuple[range, range | None]


def part(key: Any, shape: tuple[int, ...]) -> Part:
    """A slice of the first axis; with one of the second (NHWC), or all of the second and one of the third."""
    slices = key if isinstance(key, tuple) else (key,)
    ranges = []
    for some, size in zip(slices, shape, strict=False):
        assert isinstance(some, slice)
        assert some.step in (None, 1)
        if some != slice(None):
            assert 0 <= some.start <= some.stop <= size
        ranges.append(range(size)[some])
    assert len(ranges) < 3 or slices[1] == slice(None)
    return ranges[0], ranges[-1] if len(ranges) > 1 else None


def lines(parts: list[Part], rows: int) -> list[tuple[int, int]]:
    """Every image and row of the parts, in their order."""
    return [
        (n, row) for images, some in parts for n in images for row in (range(rows) if some is None else some)
    ]


def joined(ranges: list[range]) -> list[int]:
    return [index for some in ranges for index in some]


# Blocks.


@every_job
@pytest.mark.parametrize("sizes", cuts.CUTS.values(), ids=cuts.CUTS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_any_blocks_give_the_result(job: Job, sizes: BlockSizes | None, dtype: str) -> None:
    """Whatever kernel computes them."""
    for strategy in job.plan(dtype).strategies:
        plan = cuts.cut(job.plan(dtype).using(strategy), sizes)
        if sizes in (cuts.ONES, cuts.FEW):
            assert plan.block_count > (8 if sizes == cuts.ONES else 1)
        assert_matches(job.run(dtype, plan=plan), *job.expected(dtype), dtype_of(dtype))


@every_job
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_added_before_they_are_rounded(job: Job, dtype: str) -> None:
    assert_matches(job.run(dtype), *job.expected(dtype), dtype_of(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.usefixtures("tiny_blocks")
def test_ones_over_thousands_of_blocks(dtype: str) -> None:
    """One block for each pixel of each image: a partial sum in the dtype itself would stall."""
    ones = np.ones((30, 10, 10, 1), dtype_of(dtype))
    result = convgrad.depthwise_conv2d_backprop_filter(ones, (1, 1), ones)
    assert float(result.item()) == float(dtype_of(dtype).type(3000))


@pytest.mark.parametrize("first", [0, 1500, 2999])
@pytest.mark.usefixtures("tiny_blocks")
def test_thousands_of_blocks_are_added_without_loss(first: int) -> None:
    """A running float64 sum drops each 1e-16 beside 1; together they are 30 times what is allowed."""
    x = np.full((30, 10, 10, 1), 1e-16)
    x.reshape(-1)[first] = 1
    result = convgrad.depthwise_conv2d_backprop_filter(x, (1, 1), np.ones_like(x))
    exact = np.full((1, 1, 1, 1), 1 + 2999e-16)
    assert_matches(result, exact, exact, np.float64)


@every_job
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [cuts.FEW, None], ids=["small-blocks", "own-blocks"])
def test_non_finite_values_stay_in_their_sums_across_blocks(
    job: Job, dtype: str, sizes: BlockSizes | None
) -> None:
    first, second = job.operands(dtype)
    first.reshape(-1)[[0, first.size // 2]] = np.nan, np.inf
    second.reshape(-1)[-1] = -np.inf
    if job.transpose:
        expected = reference.transpose(first, second, job.sizes, **job.options)
    else:
        assert job.sizes is not None
        expected = reference.filter_grad(first, job.sizes, second, **job.options)
    for strategy in job.plan(dtype).strategies:
        plan = cuts.cut(job.plan(dtype).using(strategy), sizes)
        assert_matches(job.run(dtype, first, second, plan), *expected, dtype_of(dtype))


# Slabs.


@every_job
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [cuts.FEW, None], ids=["small-blocks", "own-blocks"])
def test_the_bits_do_not_depend_on_slabs(
    job: Job, dtype: str, sizes: BlockSizes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for strategy in job.plan(dtype).strategies:
        plan = cuts.cut(job.plan(dtype).using(strategy), sizes)
        monkeypatch.setattr(slabs, "SLAB_BYTES", 2**28)
        whole = job.run(dtype, plan=plan)
        for slab in (1, 300, 2000, 10**5):
            monkeypatch.setattr(slabs, "SLAB_BYTES", slab)
            assert job.run(dtype, plan=plan).tobytes() == whole.tobytes()


@every_job
@pytest.mark.parametrize("slab", [1, 300, 2000, 2**28])
@pytest.mark.usefixtures("small_blocks")
def test_sources_are_read_once_in_order(job: Job, slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for rows of the input that two parts need: those are read for both."""
    monkeypatch.setattr(slabs, "SLAB_BYTES", slab)
    first, second = map(Source, job.operands("float64"))
    plan = job.plan("float64")
    result = job.run(first=first, second=second)
    height, cut_rows = plan.height, plan.problem.cut_sizes[1]
    reach = height.narrow_reach if job.transpose else height.wide_reach
    needed = [(n, row) for n in range(plan.batch) for row in reach(range(cut_rows))]
    seen = lines(first.parts, height.narrow if job.transpose else height.wide)
    assert set(needed) <= set(seen)
    if all(rows is None for _, rows in first.parts):
        assert joined(first.reads) == list(range(first.shape[0]))
    if job.transpose:
        assert second.parts == [(range(height.kernel), None)]
    else:
        assert sorted(lines(second.parts, height.narrow)) == [
            (n, row) for n in range(plan.batch) for row in range(height.narrow)
        ]
        assert first.reads == second.reads
    assert result.tobytes() == job.run().tobytes()


@every_job
@pytest.mark.usefixtures("small_blocks")
def test_the_smallest_slabs_cut_images(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slabs, "SLAB_BYTES", 1)
    first, second = map(Source, job.operands("float64"))
    plan = job.plan("float64")
    job.run(first=first, second=second)
    is_cut = plan.problem.cut_sizes[1] > plan.block_sizes.rows
    assert (max(map(len, first.reads)) <= plan.block_sizes.images) or not is_cut
    passes = slabs.Slabs.of(plan).passes[0]
    read = lines(first.parts, plan.height.narrow if job.transpose else plan.height.wide)
    rows = plan.height.narrow if job.transpose else plan.height.wide
    assert len(read) == pytest.approx(passes * plan.batch * rows)


@pytest.mark.parametrize("chunk", [2, 3, 4, 7, 25])
@either_job
@pytest.mark.usefixtures("blocks_of_one_image")
def test_slabs_begin_where_chunks_do(job: Job, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a chunk is not four times a slab; else a chunk is read several times."""
    second = job.second if job.transpose else (60, *job.second[1:])
    long = Job(job.name, (60, *job.first[1:]), second, job.sizes, job.options)
    plan = long.plan("float64")
    by_image = [t for t in (*plan.operands, plan.output) if t.letters[0] == "N"]
    each = sum(tensor.nbytes for tensor in by_image) // 60
    monkeypatch.setattr(slabs, "SLAB_BYTES", 6 * each)
    assert slabs.Slabs.of(plan).images == 6
    first, _ = long.operands("float64")
    plain = long.run()
    source = Source(first, chunks=(chunk, *first.shape[1:]))
    result = long.run(first=source)
    wanted = {2: 6, 3: 6, 4: 4, 7: 7, 25: 6}[chunk]
    assert {some.start % wanted for some in source.reads} == {0}
    assert max(map(len, source.reads)) == wanted
    assert joined(source.reads) == list(range(60))
    assert result.tobytes() == plain.tobytes()


# Sources.


def unaligned(array: np.ndarray) -> np.ndarray:
    raw = np.empty(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


FORMS = {
    "view": lambda array: array,
    "fortran": np.asfortranarray,
    "unaligned": unaligned,
    "read-only": read_only,
    "every-second": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "backwards": lambda array: array[:, ::-1, :, ::-1].copy()[:, ::-1, :, ::-1],
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
@either_job
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.usefixtures("small_blocks")
def test_sources_may_return_any_array(job: Job, form: Any, dtype: str) -> None:
    first, second = job.operands(dtype)
    result = job.run(dtype, Source(first, form), Source(second, form))
    assert result.tobytes() == job.run(dtype).tobytes()


@either_job
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sources_may_return_either_byte_order(job: Job, dtype: str) -> None:
    first, second = (array.astype(array.dtype.newbyteorder(">")) for array in job.operands(dtype))
    result = job.run(dtype, Source(first, np.asfortranarray), Source(second))
    assert result.dtype.isnative
    assert result.tobytes() == job.run(dtype).tobytes()


@every_job
@pytest.mark.usefixtures("small_blocks")
def test_every_kind_of_source_gives_the_same_bits(job: Job, tmp_path: Path) -> None:
    first, second = job.operands("float32")
    plain = job.run("float32").tobytes()
    maps = []
    for name, array in (("first", first), ("second", second)):
        np.save(tmp_path / f"{name}.npy", array)
        maps.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    assert job.run("float32", *maps).tobytes() == plain
    with h5py.File(tmp_path / "operands.h5", "w") as file:
        contiguous = file.create_dataset("first", data=first), file.create_dataset("second", data=second)
        chunked = (
            file.create_dataset("c/first", data=first, chunks=(1, *first.shape[1:]), compression="gzip"),
            file.create_dataset("c/second", data=second.astype(">f4"), chunks=True),
        )
        assert job.run("float32", *contiguous).tobytes() == plain
        assert job.run("float32", *chunked).tobytes() == plain


# Sinks.


@every_job
@pytest.mark.parametrize("slab", [1, 2000, 2**28])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
@pytest.mark.usefixtures("small_blocks")
def test_a_sink_is_written_once_in_order(
    job: Job, slab: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slabs, "SLAB_BYTES", slab)
    plan = job.plan(dtype)
    sink = Sink(plan)
    execute(plan, *job.operands(dtype), sink)
    rows = plan.problem.cut_sizes[1] if job.transpose else 1
    # Rows of several images may come together, but each once.
    written = sorted(lines(sink.parts, rows))
    assert written == [(n, row) for n in range(plan.output.shape[0]) for row in range(rows)]
    assert sink.array.tobytes() == job.run(dtype).tobytes()


@pytest.mark.usefixtures("blocks_of_one_image")
def test_a_slab_is_written_before_the_next_but_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not pile up in memory: one is computed, one written, one read."""
    monkeypatch.setattr(slabs, "SLAB_BYTES", 1)
    job = BY_NAME["plain"]
    plan = job.plan("float64")
    sink = Sink(plan)

    class Watched(Source):
        def __getitem__(self, key: slice) -> np.ndarray:
            assert len(sink.writes) >= key.start - 3
            return super().__getitem__(key)

    first, second = job.operands("float64")
    execute(plan, Watched(first), second, sink)
    assert len(sink.writes) == 3


@every_job
@pytest.mark.usefixtures("small_blocks")
def test_a_dataset_is_a_sink(job: Job, tmp_path: Path) -> None:
    plan = job.plan("float32")
    with h5py.File(tmp_path / "result.h5", "w") as file:
        dataset = file.create_dataset("result", plan.output.shape, plan.output.dtype, chunks=True)
        execute(plan, *job.operands("float32"), dataset)
        assert dataset[()].tobytes() == job.run("float32").tobytes()


@pytest.mark.parametrize(
    ("first", "second", "sizes"),
    [
        pytest.param((0, 3, 3, 2), (2, 2, 1, 2), None, id="no-images"),
        pytest.param((2, 0, 3, 2), (2, 2, 1, 2), None, id="no-rows"),
        pytest.param((2, 3, 3, 0), (2, 2, 1, 0), None, id="no-input-channels"),
        pytest.param((2, 3, 3, 2), (2, 2, 0, 2), None, id="no-output-channels"),
        pytest.param((0, 3, 3, 2), (0, 3, 3, 2), (2, 2), id="filter-grad-no-images"),
        pytest.param((2, 0, 3, 2), (2, 0, 3, 2), (2, 2), id="filter-grad-no-rows"),
        pytest.param((2, 3, 3, 0), (2, 3, 3, 0), (2, 2, 0, 3), id="filter-grad-no-channels"),
        pytest.param((2, 3, 3, 2), (2, 3, 3, 0), (2, 2), id="filter-grad-no-multiplier"),
    ],
)
def test_nothing_to_sum(first: Any, second: Any, sizes: Any) -> None:
    """Zeros, or an empty result; the sink is covered all the same."""
    job = Job("filter-grad" if sizes else "transpose", first, second, sizes)
    plan = job.plan("float32")
    sink, calls = Sink(plan), []
    execute(plan, *job.operands("float32"), sink, lambda done, total: calls.append((done, total)), threads=1)
    assert joined(sink.writes) == list(range(plan.output.shape[0]))
    assert (sink.array == 0).all()
    assert (job.run("float32") == 0).all()
    assert len(calls) == plan.block_count


# Progress, failures.


@every_job
@pytest.mark.usefixtures("small_blocks")
def test_progress_counts_every_block(job: Job) -> None:
    plan = job.plan("float32")
    calls: list[tuple[int, int]] = []
    out = np.empty(plan.output.shape, plan.output.dtype)
    execute(plan, *job.operands("float32"), out, lambda done, total: calls.append((done, total)), threads=1)
    assert calls == [(done, plan.block_count) for done in range(1, plan.block_count + 1)]
    assert len(calls) > 1


@every_job
@pytest.mark.parametrize("slab", [1, 2**28])
@pytest.mark.usefixtures("small_blocks")
def test_progress_of_several_threads_ends_with_all(
    job: Job, slab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers may be skipped, but never go back, and the last one is there."""
    monkeypatch.setattr(slabs, "SLAB_BYTES", slab)
    plan = long(job.plan("float32"))
    calls: list[tuple[int, int]] = []
    callers: set[int] = set()

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        callers.add(threading.get_ident())

    out = np.empty(plan.output.shape, plan.output.dtype)
    execute(plan, *job.operands("float32"), out, progress, threads=3)
    done = [number for number, _ in calls]
    assert done == sorted(set(done))
    assert done[0] >= 1
    assert calls[-1] == (plan.block_count, plan.block_count)
    assert {total for _, total in calls} == {plan.block_count}
    assert callers == {threading.get_ident()}


def long(plan: Plan) -> Plan:
    """The plan as if its job took long: a brief one is not worth a second thread."""
    return replace(plan, seconds=1.0)


def blas_threads() -> list[int]:
    return [info["num_threads"] for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("where", ["source", "sink", "progress"])
@either_job
@pytest.mark.usefixtures("small_blocks")
def test_a_failure_half_way_passes_through(
    job: Job, where: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was raised, with the BLAS threads and the error state as they were, and no thread left."""
    monkeypatch.setattr(slabs, "SLAB_BYTES", 1)
    plan = long(job.plan("float32"))
    first, second = job.operands("float32")
    sink = Sink(plan)

    class Failing(Source):
        def __getitem__(self, key: Any) -> np.ndarray:
            if self.parts:
                raise KeyboardInterrupt
            return super().__getitem__(key)

    class Full(Sink):
        def __setitem__(self, key: slice, value: np.ndarray) -> None:
            raise KeyboardInterrupt

    def stop(done: int, total: int) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    source: Any = Failing(first) if where == "source" else first
    target: Any = Full(plan) if where == "sink" else sink
    with threadpoolctl.threadpool_limits(2, "blas"), np.errstate(all="raise"):
        before, running = (blas_threads(), np.geterr()), threading.active_count()
        with pytest.raises(KeyboardInterrupt):
            execute(plan, source, second, target, stop if where == "progress" else None, threads=threads)
        assert (blas_threads(), np.geterr()) == before
    assert threading.active_count() == running
    assert joined(sink.writes) == list(range(len(joined(sink.writes))))
    assert len(sink.writes) < plan.output.shape[0]


# Threads.

LARGE = [
    Job("square", (2, 24, 24, 96), (3, 3, 64, 96), None, {"strides": 2}),
    Job("to-one-channel", (1, 40, 40, 200), (3, 3, 1, 200)),
    Job("filter-grad-square", (4, 40, 40, 16), (4, 40, 40, 32), (3, 3)),
]


large_jobs = pytest.mark.parametrize(
    ("job", "dtype", "strategy"),
    [
        pytest.param(job, dtype, strategy, id=f"{job}-{dtype}-{strategy}")
        for job in LARGE
        for dtype in ("float32", "float64")
        for strategy in job.plan(dtype).strategies
    ],
)


@large_jobs
def test_the_bits_do_not_depend_on_blas_threads(job: Job, dtype: str, strategy: str) -> None:
    results = []
    plan = job.plan(dtype).using(strategy)
    for threads in (1, 2, 1):
        with threadpoolctl.threadpool_limits(threads, "blas"):
            before = blas_threads()
            results.append(job.run(dtype, plan=plan).tobytes())
            assert blas_threads() == before
    assert len(set(results)) == 1


@large_jobs
def test_the_bits_do_not_depend_on_where_memory_lies(job: Job, dtype: str, strategy: str) -> None:
    """Arrays of other sizes in between move the next call's."""
    kept, results = [], set()
    plan = job.plan(dtype).using(strategy)
    for size in (8, 24, 1000, 4096, 70_000):
        kept.append(np.empty(size, np.uint8))
        results.add(job.run(dtype, plan=plan).tobytes())
    assert len(results) == 1


@every_job
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_do_not_depend_on_threads(job: Job, dtype: str) -> None:
    first, second = job.operands(dtype)
    for strategy in job.plan(dtype).strategies:
        plan = long(cuts.cut(job.plan(dtype).using(strategy), cuts.FEW))
        results = set()
        for threads in (1, 2, 5):
            out = np.full(plan.output.shape, 7, plan.output.dtype)
            execute(plan, first, second, out, threads=threads)
            results.add(out.tobytes())
        assert len(results) == 1


def test_calls_at_the_same_time_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to end leaves the other its one BLAS thread; the last gives the caller's threads back."""
    monkeypatch.setattr("convgrad.execution.SMALL", 0)
    job = BY_NAME["plain"]
    first, second = job.operands("float64")
    plan = job.plan("float64")
    one_reads, other_reads, one_has_ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[list[int]] = []

    class One(Source):
        def __getitem__(self, key: slice) -> np.ndarray:
            one_reads.set()
            assert other_reads.wait(60)
            return super().__getitem__(key)

    class Other(Source):
        def __getitem__(self, key: slice) -> np.ndarray:
            other_reads.set()
            assert one_has_ended.wait(60)
            seen.append(blas_threads())
            return super().__getitem__(key)

    def start(source: Source) -> threading.Thread:
        out = np.empty(plan.output.shape)
        thread = threading.Thread(target=execute, args=(plan, source, second, out))
        thread.start()
        return thread

    with threadpoolctl.threadpool_limits(2, "blas"):
        before = blas_threads()
        if not before or max(before) < 2:
            pytest.skip("no BLAS whose threads can be set")
        one = start(One(first))
        assert one_reads.wait(60)
        other = start(Other(first))
        one.join()
        one_has_ended.set()
        other.join()
        after = blas_threads()
    assert seen == [[1] * len(before)]
    assert after == before
