"""How much of a job is held in memory at a time: slabs of whole blocks, read, computed and written in turn.

A slab has the images of some blocks, or, where one block's images are too large, some of their rows. Slabs
are for memory only: blocks never cross them, they come in the plan's order, and no bit of a result depends
on where they end. With more than one slab the next is read and the last is written while one is computed, so
two of each are held.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .blocks import cut
from .geometry import ceil_div
from .plan import Plan
from .shapes import Tensor

#: Bytes of operands and result that are worth holding at a time.
SLAB_BYTES = 2**27
#: How far a slab may grow beyond that to hold whole chunks: reading part of one means reading all of it.
CHUNK_ROOM = 4
#: The most that one thread's scratch is taken for.
SCRATCH_BYTES = 2**26


class Slab(NamedTuple):
    """Part of a job: blocks of `images`, those of one block if `rows` are not all, and of these rows."""

    images: list[range]
    rows: range

    @property
    def first(self) -> int:
        """The first image."""
        return self.images[0].start

    @property
    def span(self) -> slice:
        """All images."""
        return slice(self.images[0].start, self.images[-1].stop)


@dataclass(frozen=True, slots=True)
class Slabs:
    """A plan's way through memory.

    Attributes
    ----------
    plan : what is computed
    images : the most images of a slab
    rows : the most rows of a slab, on the side that blocks are cut on
    threads : that compute, each in scratch of its own
    array_bytes : of operands and result, and what is made of them, held at a time
    scratch_bytes : of one thread, about: an estimate from the size of a block
    """

    plan: Plan
    images: int
    rows: int
    threads: int
    array_bytes: int
    scratch_bytes: int

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        memory: int | None = None,
        threads: int = 1,
        chunks: tuple[Any, ...] = (),
        whole_images: bool = False,
    ) -> Slabs:
        """Cut a plan so that what it holds fits in `memory`.

        Parameters
        ----------
        plan : of the job
        memory : bytes; None for as many as are worth it
        threads : at most so many; fewer where their scratch does not fit
        chunks : of the tensors that are read and written by image, each a tuple of sizes or None
        whole_images : whether images must not be cut, for the result goes where there is no way back

        Returns
        -------
        The largest slabs that fit, or the smallest there are: then `held_bytes` is more than `memory`.
        """
        shape = _Shape(plan)
        rows, chunked = shape.rows, CHUNK_ROOM * SLAB_BYTES
        room = SLAB_BYTES
        if memory is not None:
            threads = max(min(threads, (memory // 2 - shape.fixed) // max(shape.scratch, 1)), 1)
            # Two of each tensor are held, unless one slab is all there is.
            left = (memory - shape.fixed - threads * shape.scratch) // 2
            room, chunked = min(room, left), min(chunked, left)
        images = plan.batch if shape.bytes(plan.batch, rows) <= 2 * room else 0
        images = images or shape.images_within(room, chunked, chunks)
        if not images:
            images = min(plan.block_sizes.images, plan.batch)
            rows = rows if whole_images else shape.rows_within(room)
        found = cls(plan, images, rows, threads, 0, shape.scratch)
        found = replace(found, array_bytes=shape.fixed + found.depth * shape.bytes(images, rows))
        if memory is not None and found.held_bytes > memory and threads > 1:
            return cls.of(plan, memory=memory, threads=1, chunks=chunks, whole_images=whole_images)
        return found

    @classmethod
    def whole(cls, plan: Plan, threads: int) -> Slabs:
        """Hold everything at a time: it is in memory anyway."""
        return cls(plan, plan.batch, _cut_rows(plan), threads, 0, 0)

    @property
    def held_bytes(self) -> int:
        """Bytes of everything that is held at a time."""
        return self.array_bytes + self.threads * self.scratch_bytes

    @property
    def depth(self) -> int:
        """How many slabs are held at a time."""
        return 1 if self.count == 1 else 2

    @property
    def count(self) -> int:
        """How many slabs there are."""
        return ceil_div(self.plan.batch, self.images or 1) * max(
            ceil_div(_cut_rows(self.plan), self.rows or 1), 1
        )

    @property
    def passes(self) -> tuple[float, float]:
        """How often each operand is read: rows that two slabs need are read for both."""
        plan = self.plan
        met = sum(len(plan.rows_met(rows)) for rows in self._row_ranges())
        transposed = plan.operation == "conv2d_transpose"
        return met / max(plan.height.narrow if transposed else plan.height.wide, 1), 1.0

    def _row_ranges(self) -> Iterator[range]:
        # Of no rows there is one slab too: a sink is to see that the images are there.
        return cut(range(_cut_rows(self.plan)), self.rows) if _cut_rows(self.plan) else iter((range(0),))

    def __iter__(self) -> Iterator[Slab]:
        """Yield the slabs in the order of their blocks."""
        ranges = self.plan.image_ranges()
        together = max(ceil_div(self.images, self.plan.block_sizes.images), 1)
        for start in range(0, len(ranges), together):
            for rows in self._row_ranges():
                yield Slab(ranges[start : start + together], rows)


def _cut_rows(plan: Plan) -> int:
    return plan.problem.cut_sizes[1]


class _Shape:
    """Bytes of a plan's tensors by images and rows."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = _cut_rows(plan)
        tensors = (*plan.operands, plan.output)
        self._by_image = [tensor for tensor in tensors if tensor.letters[0] == "N"]
        others = [tensor for tensor in tensors if tensor.letters[0] != "N"]
        self.fixed = sum(tensor.nbytes for tensor in others)
        if plan.operation == "conv2d_transpose":
            # What kernels make of the filters.
            self.fixed += 2 * plan.problem.working_dtype.itemsize * plan.operands[1].elements
        else:
            # The running sum, its compensation, and the share of one block.
            self.fixed += 3 * 8 * plan.output.elements
        sizes = plan.block_sizes
        block = self.bytes(min(sizes.images, plan.batch), min(sizes.rows, self.rows))
        block *= plan.problem.working_dtype.itemsize // plan.output.dtype.itemsize
        # Two copies, of a small block many more: what large kernels and many taps need beside.
        self.scratch = min(2 * block + min(50 * block, SCRATCH_BYTES // 8), SCRATCH_BYTES)

    def bytes(self, images: int, rows: int) -> int:
        """Bytes of the tensors for so many images and rows at most."""
        each = (self._row_bytes(tensor) * self._rows_of(tensor, rows) for tensor in self._by_image)
        return sum(each) * images

    def _row_bytes(self, tensor: Tensor) -> int:
        """Bytes of one row of one image."""
        axes = zip(tensor.letters, tensor.shape, strict=True)
        return (
            math.prod(size for letter, size in axes if letter not in ("N", "H", "h")) * tensor.dtype.itemsize
        )

    def _rows_of(self, tensor: Tensor, rows: int) -> int:
        """The most rows that a tensor has where blocks have `rows`."""
        plan = self.plan
        if tensor.role == ("output" if plan.operation == "conv2d_transpose" else "out_backprop"):
            return rows
        axis, halo = plan.height, 2 * plan.halo
        if plan.operation == "conv2d_transpose":
            return min((rows + axis.effective_kernel - 2) // axis.stride + 1 + halo, axis.narrow)
        return min((rows - 1 + halo) * axis.stride + axis.effective_kernel, axis.wide)

    def images_within(self, room: int, chunked: int, chunks: tuple[Any, ...]) -> int:
        """Return how many images to hold: whole blocks of them; 0 if not one fits.

        Parameters
        ----------
        room : bytes that are worth it
        chunked : bytes that whole chunks may take instead
        chunks : sizes of the chunks of each tensor, or None
        """
        plan = self.plan
        step = plan.block_sizes.images
        each = max(self.bytes(1, self.rows), 1)
        if room // each < min(step, plan.batch):
            return 0
        for sizes in chunks:
            if sizes and isinstance(sizes[0], int):  # other libraries' chunks are lists of sizes
                # A chunk that reaches past the last image ends with it.
                aligned = math.lcm(step, min(sizes[0], max(plan.batch, 1)))
                step = aligned if aligned * each <= chunked else step
        return max(room // each // step, 1) * step

    def rows_within(self, room: int) -> int:
        """Return how many rows of one block's images to hold: those of whole blocks, of one at least."""
        plan = self.plan
        images, step = min(plan.block_sizes.images, plan.batch), plan.block_sizes.rows
        choices = range(step, self.rows + step, step)
        fitting = bisect.bisect_right(choices, room, key=lambda rows: self.bytes(images, rows))
        return min(choices[max(fitting - 1, 0)], self.rows) if choices else self.rows
