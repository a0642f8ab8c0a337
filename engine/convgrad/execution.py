"""Execution: a plan's blocks, over threads, from sources to a sink.

A *source* is anything with `shape`, `dtype` and slicing along its leading axes that yields an array (an
ndarray, a memory map, an `h5py.Dataset`); a *sink* takes ``sink[slices] = array``, in increasing order.
Nothing here knows what they are. What is no array passes through memory in slabs (see `slabs`), read ahead
and written behind.

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
from .layout import Band, as_nhwc
from .plan import Plan
from .scratch import Scratch
from .slabs import Slab, Slabs
from .streaming import read_ahead, write_behind
from .workers import Work

#: Estimated seconds up to which a second thread would take longer to start than it saves.
BRIEF = 5e-4
#: Least mean square of a block's float32 sums: below, some may have come from products too small for it.
TINY = 1e-40
#: Called with (blocks done, blocks in all).
Progress = Callable[[int, int], None]
Array = npt.NDArray[Any]


class Source(Protocol):
    """An array that can be read in contiguous parts.

    One that has ``read_into(key, out)``, with a tuple of slices and an array to fill, is read that way.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Any byte order."""

    def __getitem__(self, key: Any, /) -> Any:
        """Return elements start..stop of the first axis, or of some leading axes where one image is large."""


class Sink(Protocol):
    """An array that can be written in contiguous parts."""

    def __setitem__(self, key: Any, value: npt.NDArray[Any], /) -> None:
        """Write elements start..stop of the first axis, or of some leading axes where one image is large."""


def execute(
    plan: Plan,
    first: Source,
    second: Source,
    out: Sink,
    progress: Progress | None = None,
    *,
    threads: int | None = None,
    slabs: Slabs | None = None,
) -> None:
    """Compute `plan` on its two operands into `out`.

    Parameters
    ----------
    plan : from `plan_conv2d_transpose` or `plan_depthwise_conv2d_backprop_filter`
    first, second : the operands, with the plan's shapes and dtypes
    out : a sink of the plan's output shape and dtype
    progress : called now and then
    threads : at most so many, by default as many as there are cores for this process; no result depends on it
    slabs : what is held at a time, by default all of arrays, and of others what is worth it
    """
    threads = available_cores() if threads is None else threads
    if slabs is None:
        if all(isinstance(one, np.ndarray) for one in (first, second, out)):
            slabs = Slabs.whole(plan, threads)
        else:
            slabs = Slabs.of(plan, threads=threads, chunks=chunks_of(plan, first, second, out))
    job = (_Transpose if plan.operation == "conv2d_transpose" else _FilterGrad)(slabs, progress)
    # Looking for BLAS's threads would take longer than a small job, to which they would be no use.
    held = one_blas_thread if plan.multiply_adds > SMALL else nullcontext
    with held(), np.errstate(all="ignore"):
        job.run(first, second, out)


def chunks_of(plan: Plan, *arrays: Any) -> tuple[Any, ...]:
    """Return the chunks of those of the two operands and the result that are read or written by image."""
    tensors = (*plan.operands, plan.output)
    return tuple(
        getattr(array, "chunks", None)
        for array, tensor in zip(arrays, tensors, strict=True)
        if tensor.letters[0] == "N"
    )


def available_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class _Job:
    """What both operations share: a plan, its kernels, and blocks that are counted."""

    def __init__(self, slabs: Slabs, progress: Progress | None) -> None:
        self.slabs, self.plan, self.problem = slabs, slabs.plan, slabs.plan.problem
        self.kernel: Any = choice.planned(self.problem, self.plan.strategy)
        self.general: Any = choice.general(self.problem)
        self._progress, self._done, self._total = progress, 0, self.plan.block_count

    def each_block(
        self,
        slab: Slab,
        compute: Callable[[Block, Scratch], Any],
        finish: Callable[[Block, Any], None] | None = None,
    ) -> None:
        """Compute the blocks of a slab."""
        blocks = (block for images in slab.images for block in self.plan.blocks(images, slab.rows))
        threads = self.slabs.threads if self.plan.seconds > BRIEF else 1
        before = self._done
        work = Work(blocks, compute, finish, lambda done: self._report(before + done))
        work.run(max(min(threads, self._total), 1))
        self._report(before + work.done)

    def _report(self, done: int) -> None:
        # The last blocks of a slab may be other threads'.
        if self._progress is not None and done > self._done:
            self._progress(done, self._total)
        self._done = done

    def key(self, slab: Slab, rows: range, of: int) -> tuple[slice, ...]:
        """Return what a slab has of a tensor by image: some images and, of `of` rows, `rows`."""
        if len(rows) == of:
            return (slab.span,)
        some = slice(rows.start, rows.stop)
        return (slab.span, some) if self.plan.data_format == "NHWC" else (slab.span, slice(None), some)

    def images(self, array: Array, rows: range, of: int) -> Any:
        """Return what was read of `rows` of `of` as (n, h, w, c), addressed as if all rows were there."""
        images = as_nhwc(array, self.plan.data_format)
        return images if len(rows) == of else Band(images, rows.start, of)


class _Transpose(_Job):
    def run(self, input: Source, filters: Source, out: Sink) -> None:
        self._stored_filters = np.asarray(filters[0 : self.plan.height.kernel])
        self._filters = self.kernel.prepare(self._stored_filters, self.problem, self.problem.working_dtype)
        self._exact_filters: Any = None
        height = self.plan.height

        def read(slab: Slab, buffers: Scratch) -> Any:
            rows = self.plan.rows_met(slab.rows)
            array = _read(input, self.key(slab, rows, height.narrow), buffers, "input")
            return self.images(array, rows, height.narrow)

        if isinstance(out, np.ndarray):  # filled in place
            for slab, images in read_ahead(self.slabs, read, self.slabs.depth):
                self._slab(images, out[self.key(slab, slab.rows, height.wide)], slab)
            return
        shape = self.plan.output.shape
        with write_behind(out, self.slabs.depth) as results:
            for slab, images in read_ahead(self.slabs, read, self.slabs.depth):
                key = self.key(slab, slab.rows, height.wide)
                result = results.empty(_cut_shape(shape, key), self.plan.output.dtype)
                self._slab(images, result, slab)
                results.write(key if len(key) > 1 else key[0], result)

    def _slab(self, images: Any, result: Array, slab: Slab) -> None:
        results = as_nhwc(result, self.plan.data_format)

        def compute(block: Block, scratch: Scratch) -> None:
            here = slice(block.images.start - slab.first, block.images.stop - slab.first)
            place = results[
                here,
                block.rows.start - slab.rows.start : block.rows.stop - slab.rows.start,
                block.columns.start : block.columns.stop,
                block.channels.start : block.channels.stop,
            ]
            self._block(images[here, ...], place, block, scratch)

        self.each_block(slab, compute)

    def _block(self, images: Any, place: Array, block: Block, scratch: Scratch) -> None:
        working = self.problem.working_dtype
        in_place = place.dtype == working
        out = place if in_place else scratch.array("result", place.shape, working)
        sums = self.kernel.compute(images, self._filters, self.problem, block, out, scratch)
        if working == np.float32 and not _ordinary(sums, images[:, _slice(self.plan.rows_met(block.rows))]):
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
        height = self.plan.height

        def read(slab: Slab, buffers: Scratch) -> tuple[Any, Any]:
            rows = self.plan.rows_met(slab.rows)
            images = _read(input, self.key(slab, rows, height.wide), buffers, "input")
            products = _read(out_backprop, self.key(slab, slab.rows, height.narrow), buffers, "out_backprop")
            gradients = as_nhwc(products, self.plan.data_format)
            # Output channel c*M + m: the axis splits without a copy, whatever its stride.
            gradients = gradients.reshape(*gradients.shape[:-1], self.plan.channels, self.plan.outputs)
            if len(slab.rows) < height.narrow:
                return self.images(images, rows, height.wide), Band(gradients, slab.rows.start, height.narrow)
            return self.images(images, rows, height.wide), gradients

        for slab, operands in read_ahead(self.slabs, read, self.slabs.depth):
            self._slab(*operands, total, slab)
        out[0 : self.plan.height.kernel] = round_to(total.result(), self.plan.output.dtype)

    def _slab(self, images: Any, gradients: Any, total: RunningSum, slab: Slab) -> None:
        def compute(block: Block, scratch: Scratch) -> Array:
            here = slice(block.images.start - slab.first, block.images.stop - slab.first)
            channels = slice(block.channels.start, block.channels.stop)
            operands = images[here, ..., channels], gradients[here, ..., channels, :]
            share: Array = self.kernel.compute(*operands, self.problem, block, scratch)
            met = operands[1][:, _slice(block.rows)]
            if self.kernel is not self.general and not _ordinary(share.reshape(-1), met):
                share = self.general.compute(*operands, self.problem, block, scratch)
            return share

        def finish(block: Block, share: Array) -> None:
            total.add(share, np.s_[:, :, block.channels.start : block.channels.stop])

        self.each_block(slab, compute, finish)


def _read(source: Source, key: tuple[slice, ...], buffers: Scratch, name: str) -> Array:
    """Return a part of a source: in a buffer if it knows how, else as it gives it."""
    if isinstance(source, np.ndarray):
        return source[key]
    read_into = getattr(source, "read_into", None)
    if read_into is None:
        return np.asarray(source[key if len(key) > 1 else key[0]])
    array = buffers.array(name, _cut_shape(source.shape, key), source.dtype)
    read_into(key, array)
    return array


def _cut_shape(shape: tuple[int, ...], key: tuple[slice, ...]) -> tuple[int, ...]:
    cut = tuple(len(range(*some.indices(size))) for some, size in zip(key, shape, strict=False))
    return cut + shape[len(key) :]


def _slice(positions: range) -> slice:
    """Return a range as a slice."""
    return slice(positions.start, positions.stop)


def _ordinary(sums: Array, met: Array) -> bool:
    """Whether every sum is finite, and they are not all so small that products may have been lost.

    Parameters
    ----------
    sums : (elements,)
    met : an operand's part in them: if there is nothing but zeros in it, nothing was lost
    """
    # One pass: squares of finite sums may overflow too, and are then computed again in vain.
    square = float(np.dot(sums, sums))
    return TINY * sums.size <= square < np.inf or (square == 0 and not met.any())
