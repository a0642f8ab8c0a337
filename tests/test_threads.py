"""Threads: the same bits whatever their number, and an end to all when one fails or is interrupted."""

from __future__ import annotations

import hashlib
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
import forced
from convgrad import ArgumentError, execution
from convgrad.blocks import BlockSizes
from convgrad.kernels.transpose import taps
from convgrad.scratch import Scratch
from convgrad.workers import Work
from forced import Problem

THREADS = [1, 2, 3, 4]
#: Nothing here takes long; what waits longer is never going to end.
PATIENCE = 60


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


# Results.

PROBLEMS = [
    Problem("transpose", (3, 10, 11, 33), (3, 3, 18, 33), None, {"strides": 2}),
    Problem("transpose-at-stride-1", (3, 10, 11, 33), (3, 3, 18, 33), nchw=True),
    Problem("gradient", (3, 17, 19, 5), (3, 17, 19, 5), (3, 3)),
    Problem("gradient-of-stride-2", (3, 17, 19, 5), (3, 9, 10, 10), (3, 3), {"strides": 2}, nchw=True),
]


def many(plan: convgrad.Plan) -> convgrad.Plan:
    """The plan in many blocks, as if it took long: else one thread would do it."""
    return replace(plan, block_sizes=BLOCKS[plan.operation], seconds=1.0)


BLOCKS = {
    "conv2d_transpose": BlockSizes(1, 6, 12, 9),
    "depthwise_conv2d_backprop_filter": BlockSizes(1, 5, 7, 3),
}


def operands(problem: Problem, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal(shape) for shape in (problem.first, problem.second)]
    return problem.laid(*arrays, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_one_hash_whatever_the_threads(problem: Problem, dtype: str) -> None:
    first, second = operands(problem, dtype)
    plan = problem.plan(first, second)
    assert many(plan).block_count >= 12
    for name in plan.strategies:
        print(name)  # shown when the assertion fails
        hashes = {
            hashlib.sha256(
                forced.run(
                    plan, name, first, second, threads=threads, blocks=many(plan).block_sizes
                ).tobytes()
            ).hexdigest()
            for threads in THREADS
            for _ in range(10)
        }
        assert len(hashes) == 1


@pytest.mark.parametrize("name", sorted({*forced.TRANSPOSE, *forced.FILTER_GRAD}))
def test_every_kernel_is_among_them(name: str) -> None:
    assert any(name in problem.plan(*operands(problem)).strategies for problem in PROBLEMS)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_one_hash_where_blocks_are_done_again(problem: Problem) -> None:
    """NaN, inf and overflow in some blocks: the general kernel does these, and no thread warns."""
    first, second = operands(problem)
    first.flat[[5, 99]] = np.nan, np.inf
    second.flat[7] = 3e38
    plan = problem.plan(first, second)
    for name in plan.strategies:
        print(name)  # shown when the assertion fails
        bits = {
            forced.run(plan, name, first, second, threads=threads, blocks=many(plan).block_sizes).tobytes()
            for threads in THREADS
        }
        assert len(bits) == 1


def test_the_functions_take_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "BRIEF", 0)
    started = 0

    class Counted(threading.Thread):
        def start(self) -> None:
            nonlocal started
            started += 1
            super().start()

    monkeypatch.setattr(threading, "Thread", Counted)
    rng = np.random.default_rng(3)
    x, w = rng.random((40, 30, 30, 16), np.float32), rng.random((3, 3, 8, 16), np.float32)
    for threads in (1, 3):
        started = 0
        convgrad.conv2d_transpose(x, w, threads=threads)
        convgrad.depthwise_conv2d_backprop_filter(x, (3, 3), x, threads=threads)
        assert (started > 0) == (threads > 1)
        assert started <= 2 * (threads - 1)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", np.float64(2), [2]], ids=repr)
def test_threads_that_are_no_number_of_threads(threads: Any) -> None:
    x = np.ones((1, 2, 2, 1))
    with pytest.raises(ArgumentError, match=r"^threads: "):
        convgrad.conv2d_transpose(x, x[0, ..., None], threads=threads)
    with pytest.raises(ArgumentError, match=r"^threads: "):
        convgrad.depthwise_conv2d_backprop_filter(x, (1, 1), x, threads=threads)


@pytest.mark.parametrize("threads", [1, 2, np.int64(2), 100, None], ids=repr)
def test_threads_that_are(threads: Any) -> None:
    x = np.ones((1, 2, 2, 1))
    assert convgrad.conv2d_transpose(x, x[0, ..., None], padding="VALID", threads=threads)[0, 1, 1, 0] == 4
    assert convgrad.depthwise_conv2d_backprop_filter(x, (1, 1), x, threads=threads).item() == 4


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_progress_counts_every_block(problem: Problem, threads: int) -> None:
    first, second = operands(problem)
    plan = many(problem.plan(first, second))
    calls: list[tuple[int, int]] = []
    asking = set()

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        asking.add(threading.current_thread())

    out = np.empty(plan.output.shape, plan.output.dtype)
    convgrad.execute(plan, first, second, out, progress, threads=threads)
    assert asking == {threading.current_thread()}
    assert {total for _, total in calls} == {plan.block_count}
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1][0] == plan.block_count


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_interrupted_in_progress(problem: Problem, threads: int) -> None:
    first, second = operands(problem)
    plan = many(problem.plan(first, second))

    def progress(done: int, total: int) -> None:
        raise KeyboardInterrupt

    out = np.empty(plan.output.shape, plan.output.dtype)
    with pytest.raises(KeyboardInterrupt):
        convgrad.execute(plan, first, second, out, progress, threads=threads)


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_in_a_kernel_is_raised(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next call works as if nothing had been."""
    first, second = operands(PROBLEMS[0])
    plan = PROBLEMS[0].plan(first, second).using("taps")
    wanted = forced.run(plan, "taps", first, second)
    calls = itertools.count()

    def compute(*arguments: Any, **_: Any) -> Any:
        if next(calls) == 5:
            raise MemoryError("no room")
        return plan_compute(*arguments)

    plan_compute = taps.KERNEL.compute
    broken = replace(taps.KERNEL, compute=compute)
    with monkeypatch.context() as context:
        context.setattr(taps, "KERNEL", broken)
        with pytest.raises(MemoryError, match="no room"):
            forced.run(plan, "taps", first, second, threads=threads, blocks=many(plan).block_sizes)
    assert next(calls) < many(plan).block_count, "the others stopped"
    assert forced.run(plan, "taps", first, second).tobytes() == wanted.tobytes()


# The pool by itself.


def nothing(*_: object) -> None:
    pass


def asking() -> bool:
    return threading.current_thread() is threading.main_thread()


class Stop(Exception):
    pass


@pytest.mark.parametrize("threads", [*THREADS, 20])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
def test_everything_is_done_once_and_finished_in_order(count: int, threads: int) -> None:
    computed: list[int] = []
    finished: list[tuple[int, int]] = []
    reported: list[int] = []

    def compute(item: int, scratch: Scratch) -> int:
        computed.append(item)
        return item * item

    work = Work(
        iter(range(count)), compute, lambda item, square: finished.append((item, square)), reported.append
    )
    work.run(threads)
    assert sorted(computed) == list(range(count))
    assert finished == [(item, item * item) for item in range(count)]
    assert reported == sorted(set(reported))
    assert work.done == count


@pytest.mark.parametrize("threads", THREADS)
def test_without_finish(threads: int) -> None:
    computed: list[int] = []
    work = Work(iter(range(50)), lambda item, _: computed.append(item), None, nothing)
    work.run(threads)
    assert sorted(computed) == list(range(50))
    assert work.done == 50


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_a_late_first_item_is_finished_first(threads: int) -> None:
    """Item 0 is not computed before another one is; its result still comes first."""
    other = threading.Event()
    finished: list[int] = []

    def compute(item: int, scratch: Scratch) -> None:
        if item == 0:
            assert other.wait(PATIENCE)
        else:
            other.set()

    Work(iter(range(20)), compute, lambda item, _: finished.append(item), nothing).run(threads)
    assert finished == list(range(20))


def test_finish_is_never_two_at_a_time() -> None:
    lock = threading.Lock()

    def finish(item: int, result: None) -> None:
        assert lock.acquire(blocking=False)
        lock.release()

    Work(iter(range(300)), nothing, finish, nothing).run(4)


def test_workers_work_together_in_scratches_of_their_own() -> None:
    everyone = threading.Barrier(3, timeout=PATIENCE)
    scratches: dict[str, Scratch] = {}

    def compute(item: int, scratch: Scratch) -> None:
        everyone.wait()
        scratches[threading.current_thread().name] = scratch

    Work(iter(range(3)), compute, None, nothing).run(3)
    assert len(scratches) == len({id(scratch) for scratch in scratches.values()}) == 3


def test_one_thread_starts_none() -> None:
    seen = set()
    Work(iter(range(5)), lambda *_: seen.add(threading.current_thread()), nothing, nothing).run(1)
    assert seen == {threading.current_thread()}


@pytest.mark.parametrize("threads", THREADS)
def test_workers_are_silent(threads: int) -> None:
    """Overflow and NaN are for results to show. Warnings are errors here."""

    def compute(item: int, scratch: Scratch) -> None:
        large = np.full(4, 3e38, np.float32)
        assert np.isnan(large * large - large * large).all()
        assert np.isinf(1 / np.zeros(3)).all()
        assert (np.full(3, 1e-300) * np.full(3, 1e-300) == 0).all()

    Work(iter(range(20)), compute, None, nothing).run(threads)
    with pytest.raises(RuntimeWarning), np.errstate(all="warn"):
        compute(0, Scratch())


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("error", [Stop, MemoryError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("threads", THREADS)
class TestErrors:
    """Items never end here: were any worker not to stop, neither would the test."""

    def run(
        self,
        threads: int,
        ordered: bool,
        error: type[BaseException],
        compute: Callable[[int, Scratch], None] = nothing,
        finish: Callable[[int, None], None] = nothing,
        report: Callable[[int], None] = nothing,
        items: Iterator[int] | None = None,
    ) -> None:
        endless = itertools.count() if items is None else items
        work: Work[int, None] = Work(endless, compute, finish if ordered else None, report)
        with pytest.raises(error):
            work.run(threads)
        assert {thread for thread in threading.enumerate() if "_help" in thread.name} == set()

    def test_in_compute_of_the_asking_thread(
        self, threads: int, error: type[BaseException], ordered: bool
    ) -> None:
        def compute(item: int, scratch: Scratch) -> None:
            if asking() and item > 10:
                raise error

        self.run(threads, ordered, error, compute)

    def test_in_compute_of_another_thread(
        self, threads: int, error: type[BaseException], ordered: bool
    ) -> None:
        if threads == 1:
            return

        def compute(item: int, scratch: Scratch) -> None:
            if not asking():
                raise error

        self.run(threads, ordered, error, compute)

    def test_in_compute_of_all(self, threads: int, error: type[BaseException], ordered: bool) -> None:
        everyone = threading.Barrier(threads, timeout=PATIENCE)

        def compute(item: int, scratch: Scratch) -> None:
            everyone.wait()
            raise error

        self.run(threads, ordered, error, compute)

    def test_in_report(self, threads: int, error: type[BaseException], ordered: bool) -> None:
        def report(done: int) -> None:
            raise error

        self.run(threads, ordered, error, report=report)

    def test_in_finish(self, threads: int, error: type[BaseException], ordered: bool) -> None:
        if not ordered:
            return

        def finish(item: int, result: None) -> None:
            if item == 30:
                raise error

        self.run(threads, ordered, error, finish=finish)

    def test_among_the_items(self, threads: int, error: type[BaseException], ordered: bool) -> None:
        def items() -> Iterator[int]:
            yield from range(30)
            raise error

        self.run(threads, ordered, error, items=items())

    def test_while_others_wait_for_their_turn(
        self, threads: int, error: type[BaseException], ordered: bool
    ) -> None:
        """Item 0 fails when every other worker has computed an item that waits to be finished."""
        others = threading.Semaphore(0)

        def compute(item: int, scratch: Scratch) -> None:
            if item == 0:
                for _ in range(threads - 1):
                    assert others.acquire(timeout=PATIENCE)
                raise error
            others.release()

        self.run(threads, ordered, error, compute)


def test_the_first_error_is_raised() -> None:
    failed = threading.Event()

    def compute(item: int, scratch: Scratch) -> None:
        if item == 0:
            assert failed.wait(PATIENCE)
            raise Stop("second")
        failed.set()
        raise Stop("first")

    def stopped() -> bool:
        return work._error is not None

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            # Not before the first error has arrived.
            return super().wait(timeout) and all(iter(stopped, True)) is True

    failed = Waiting()
    work: Work[int, None] = Work(itertools.count(), compute, None, nothing)
    with pytest.raises(Stop, match="first"):
        work.run(2)


# Ctrl-C arrives in the asking thread, wherever that is.


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def asking_thread_waits() -> bool:
    """Whether the asking thread waits for another one, for its turn or its end."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    # Nor at the beginning, nor in the tests' own waiting.
    return not names.isdisjoint({"wait", "join"}) and names.isdisjoint({"start", "compute"})


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to a thread")
class TestControlC:
    """One helper is made to be at work while the asking thread waits for it, and interrupts that."""

    def run(self, *, ordered: bool, count: int) -> bool:
        """Return whether the helper had ended when `run` had."""
        busy, over = threading.Event(), threading.Event()
        helper: list[threading.Thread] = []
        ended: list[bool] = []

        def compute(item: int, scratch: Scratch) -> None:
            if asking():
                assert busy.wait(PATIENCE)
                return
            if helper:
                return
            helper.append(threading.current_thread())
            busy.set()
            while not asking_thread_waits():
                pass
            interrupt()
            # At work for a while yet, unless nobody waits for it.
            over.wait(0.3)
            ended.append(True)

        work: Work[int, None] = Work(iter(range(count)), compute, nothing if ordered else None, nothing)
        with pytest.raises(KeyboardInterrupt):
            work.run(2)
        # Not is_alive(): CPython 3.11 takes a thread for ended when waiting for it was interrupted.
        waited = bool(ended)
        over.set()
        while helper[0] in threading.enumerate():
            pass
        return waited

    def test_while_it_waits_for_its_turn(self) -> None:
        assert self.run(ordered=True, count=100)

    def test_while_it_waits_for_the_others_to_end(self) -> None:
        assert self.run(ordered=False, count=2)

    def test_while_it_computes(self) -> None:
        computed: list[int] = []

        def compute(item: int, scratch: Scratch) -> None:
            computed.append(item)
            if asking():
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            Work(itertools.count(), compute, None, nothing).run(3)
        assert len(computed) == len(set(computed))
