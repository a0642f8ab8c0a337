"""Execution: a plan's blocks, over threads, from sources to a sink.

A *source* is anything with `shape`, `dtype` and slicing ``source[start:stop]`` along its first axis that
yields an array (an ndarray, a memory map, an `h5py.Dataset`); a *sink* takes ``sink[start:stop] = array``
in increasing order. Nothing here knows what they are. Where a source has `chunks`, slabs respect them.

Kernels work in float32 where the operands are no wider, and some multiply zeros that stand for padding. So
each block's sums are looked at: where one is not finite, or all are so small that float32 may have lost some,
the general kernel computes that block again, in float64.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import choice
from .blas import one_blas_thread
from .blocks import Block
from .choice import SMALL
from .dtypes import round_to
from .kernels.sums import RunningSum
from .layout import as_nhwc
from .plan import Plan
from .scratch import Scratch
from .slabs import slabs
from .workers import Work

#: Estimated seconds up to which a second thread would take longer to start than it saves.
BRIEF = 5e-4
#: Least mean square of a block's float32 sums: below, some may have come from products too small for it.
TINY = 1e-40
#: Called with (blocks done, blocks in all).
Progress = Callable[[int, int], None]
Array = npt.NDArray[Any]


class Source(Protocol):
    """An array that can be read by slices of its first axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Any byte order."""

    def __getitem__(self, key: slice, /) -> Any:
        """Return elements start..stop of the first axis."""


class Sink(Protocol):
    """An array that can be written by slices of its first axis."""

    def __setitem__(self, key: slice, value: npt.NDArray[Any], /) -> None:
        """Write elements start..stop of the first axis."""


def execute(
    plan: Plan,
    first: Source,
    second: Source,
    out: Sink,
    progress: Progress | None = None,
    *,
    threads: int | None = None,
) -> None:
    """Compute `plan` on its two operands into `out`.

    Parameters
    ----------
    plan : from `plan_conv2d_transpose` or `plan_depthwise_conv2d_backprop_filter`
    first, second : the operands, with the plan's shapes and dtypes
    out : a sink of the plan's output shape and dtype
    progress : called now and then
    threads : at most so many, by default as many as there are cores for this process; no result depends on it
    """
    job = (_Transpose if plan.operation == "conv2d_transpose" else _FilterGrad)(plan, threads, progress)
    # Looking for BLAS's threads would take longer than a small job, to which they would be no use.
    held = one_blas_thread if plan.multiply_adds > SMALL else nullcontext
    with held(), np.errstate(all="ignore"):
        job.run(first, second, out)


def available_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class _Job:
    """What both operations share: a plan, its kernels, and blocks that are counted."""

    def __init__(self, plan: Plan, threads: int | None, progress: Progress | None) -> None:
        self.plan, self.problem = plan, plan.problem
        self.kernel: Any = choice.planned(plan.problem, plan.strategy)
        self.general: Any = choice.general(plan.problem)
        self._threads = available_cores() if threads is None else threads
        self._progress, self._done, self._total = progress, 0, plan.block_count

    def each_block(
        self,
        slab: list[range],
        compute: Callable[[Block, Scratch], Any],
        finish: Callable[[Block, Any], None] | None = None,
    ) -> None:
        """Compute the blocks of a slab."""
        blocks = (block for images in slab for block in self.plan.blocks(images))
        threads = self._threads if self.plan.seconds > BRIEF else 1
        before = self._done
        work = Work(blocks, compute, finish, lambda done: self._report(before + done))
        work.run(max(min(threads, self._total), 1))
        self._report(before + work.done)

    def _report(self, done: int) -> None:
        # The last blocks of a slab may be other threads'.
        if self._progress is not None and done > self._done:
            self._progress(done, self._total)
        self._done = done


class _Transpose(_Job):
    def run(self, input: Source, filters: Source, out: Sink) -> None:
        stored = np.asarray(filters[0 : self.plan.height.kernel])
        self._filters = self.kernel.prepare(stored, self.problem, self.problem.working_dtype)
        self._exact_filters: Any = None
        self._stored_filters = stored
        for slab in slabs(self.plan, input):
            # An array is filled in place; any other sink gets each slab whole.
            start, stop = slab[0].start, slab[-1].stop
            if isinstance(out, np.ndarray):
                self._slab(input[start:stop], out[start:stop], slab)
            else:
                result = np.empty((stop - start, *self.plan.output.shape[1:]), self.plan.output.dtype)
                self._slab(input[start:stop], result, slab)
                out[start:stop] = result
                del result  # before there is another

    def _slab(self, input: npt.ArrayLike, result: Array, slab: list[range]) -> None:
        images = as_nhwc(np.asarray(input), self.plan.data_format)
        results = as_nhwc(result, self.plan.data_format)
        origin = slab[0].start

        def compute(block: Block, scratch: Scratch) -> None:
            here = slice(block.images.start - origin, block.images.stop - origin)
            place = results[
                here,
                block.rows.start : block.rows.stop,
                block.columns.start : block.columns.stop,
                block.channels.start : block.channels.stop,
            ]
            self._block(images[here], place, block, scratch)

        self.each_block(slab, compute)

    def _block(self, images: Array, place: Array, block: Block, scratch: Scratch) -> None:
        working = self.problem.working_dtype
        in_place = place.dtype == working
        out = place if in_place else scratch.array("result", place.shape, working)
        sums = self.kernel.compute(images, self._filters, self.problem, block, out, scratch)
        if working == np.float32 and not _ordinary(sums):
            if self._exact_filters is None:
                self._exact_filters = self.general.prepare(
                    self._stored_filters, self.problem, np.dtype(np.float64)
                )
            out, in_place = scratch.array("result", place.shape, np.float64), False
            self.general.compute(images, self._exact_filters, self.problem, block, out, scratch)
        if not in_place:
            place[...] = round_to(out, place.dtype)


class _FilterGrad(_Job):
    def run(self, input: Source, out_backprop: Source, out: Sink) -> None:
        total = RunningSum(self.plan.output.shape)
        for slab in slabs(self.plan, input, out_backprop):
            start, stop = slab[0].start, slab[-1].stop
            self._slab(input[start:stop], out_backprop[start:stop], total, slab)
        out[0 : self.plan.height.kernel] = round_to(total.result(), self.plan.output.dtype)

    def _slab(
        self, input: npt.ArrayLike, out_backprop: npt.ArrayLike, total: RunningSum, slab: list[range]
    ) -> None:
        images = as_nhwc(np.asarray(input), self.plan.data_format)
        products = as_nhwc(np.asarray(out_backprop), self.plan.data_format)
        # Output channel c*M + m: the axis splits without a copy, whatever its stride.
        gradients = products.reshape(*products.shape[:-1], self.plan.channels, self.plan.outputs)
        origin = slab[0].start

        def compute(block: Block, scratch: Scratch) -> Array:
            here = slice(block.images.start - origin, block.images.stop - origin)
            channels = slice(block.channels.start, block.channels.stop)
            operands = images[here, ..., channels], gradients[here, ..., channels, :]
            share: Array = self.kernel.compute(*operands, self.problem, block, scratch)
            if self.kernel is not self.general and not _ordinary(share.reshape(-1)):
                share = self.general.compute(*operands, self.problem, block, scratch)
            return share

        def finish(block: Block, share: Array) -> None:
            total.add(share, np.s_[:, :, block.channels.start : block.channels.stop])

        self.each_block(slab, compute, finish)


def _ordinary(sums: Array) -> bool:
    """Whether every sum is finite, and they are not all so small that products may have been lost."""
    # One pass: squares of finite sums may overflow too, and are then computed again in vain.
    square = float(np.dot(sums, sums))
    return TINY * sums.size <= square < np.inf
