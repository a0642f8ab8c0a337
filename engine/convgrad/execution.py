"""Execution: a plan's blocks, one after the other, from sources to a sink.

A *source* is anything with `shape`, `dtype` and slicing ``source[start:stop]`` along its first axis that
yields an array (an ndarray, a memory map, an `h5py.Dataset`); a *sink* takes ``sink[start:stop] = array``
in increasing order. Nothing here knows what they are. Where a source has `chunks`, slabs respect them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .blas import one_blas_thread
from .dtypes import Float64, round_to
from .kernels.filter_grad import filter_grad_block
from .kernels.sums import CHAIN, RunningSum
from .kernels.transpose import arranged_filters, by_image, transpose_block
from .layout import as_nhwc
from .plan import Plan
from .slabs import slabs

#: Multiply-adds up to which looking for BLAS's threads would take longer than the job.
SMALL = 2**14
#: Called with (blocks done, blocks in all) after each block.
Progress = Callable[[int, int], None]


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


def execute(plan: Plan, first: Source, second: Source, out: Sink, progress: Progress | None = None) -> None:
    """Compute `plan` on its two operands into `out`.

    Parameters
    ----------
    plan : from `plan_conv2d_transpose` or `plan_depthwise_conv2d_backprop_filter`
    first, second : the operands, with the plan's shapes and dtypes
    out : a sink of the plan's output shape and dtype
    progress : called after each block
    """
    run = _transpose if plan.operation == "conv2d_transpose" else _filter_grad
    report = _counted(plan.block_count, progress)
    # Only matrix products are BLAS's, and none is worth a second thread to it in a job this small.
    threads = one_blas_thread if run is _transpose and plan.multiply_adds > SMALL else nullcontext
    with threads(), np.errstate(all="ignore"):
        run(plan, first, second, out, report)


def _transpose(plan: Plan, input: Source, filters: Source, out: Sink, report: Callable[[], None]) -> None:
    arranged = arranged_filters(np.asarray(filters[0 : plan.height.kernel]))
    for slab in slabs(plan, input):
        # An array is filled in place; any other sink gets each slab whole.
        start, stop = slab[0].start, slab[-1].stop
        if isinstance(out, np.ndarray):
            _transpose_slab(plan, input[start:stop], arranged, out[start:stop], slab, report)
        else:
            result = np.empty((stop - start, *plan.output.shape[1:]), plan.output.dtype)
            _transpose_slab(plan, input[start:stop], arranged, result, slab, report)
            out[start:stop] = result
            del result  # before there is another


def _transpose_slab(
    plan: Plan,
    input: npt.ArrayLike,
    arranged: Float64,
    result: npt.NDArray[Any],
    slab: list[range],
    report: Callable[[], None],
) -> None:
    terms = plan.height.kernel * plan.width.kernel * plan.channels
    compensated = plan.output.dtype == np.float64 and terms > CHAIN
    images, results = as_nhwc(np.asarray(input), plan.data_format), as_nhwc(result, plan.data_format)
    for some in slab:
        here = slice(some.start - slab[0].start, some.stop - slab[0].start)
        for block in plan.blocks(some):
            computed = transpose_block(images[here], arranged, plan.axes, block, compensated=compensated)
            rows = slice(block.rows.start, block.rows.stop)
            columns = slice(block.columns.start, block.columns.stop)
            results[here, rows, columns] = round_to(by_image(computed), plan.output.dtype)
            report()


def _filter_grad(
    plan: Plan, input: Source, out_backprop: Source, out: Sink, report: Callable[[], None]
) -> None:
    total = RunningSum(plan.output.shape, compensated=True)
    for slab in slabs(plan, input, out_backprop):
        start, stop = slab[0].start, slab[-1].stop
        _filter_grad_slab(plan, input[start:stop], out_backprop[start:stop], total, slab, report)
    out[0 : plan.height.kernel] = round_to(total.result(), plan.output.dtype)


def _filter_grad_slab(
    plan: Plan,
    input: npt.ArrayLike,
    out_backprop: npt.ArrayLike,
    total: RunningSum,
    slab: list[range],
    report: Callable[[], None],
) -> None:
    images = as_nhwc(np.asarray(input), plan.data_format)
    products = as_nhwc(np.asarray(out_backprop), plan.data_format)
    # Output channel c*M + m: the axis splits without a copy, whatever its stride.
    gradients = products.reshape(*products.shape[:-1], plan.channels, plan.outputs)
    for some in slab:
        here = slice(some.start - slab[0].start, some.stop - slab[0].start)
        for block in plan.blocks(some):
            part = slice(block.channels.start, block.channels.stop)
            share = filter_grad_block(
                images[here, ..., part], gradients[here, ..., part, :], plan.axes, block
            )
            total.add(share, np.s_[:, :, part])
            report()


def _counted(total: int, progress: Progress | None) -> Callable[[], None]:
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return report
