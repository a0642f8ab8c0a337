"""The independent pieces of a job and how a job is cut into them.

What the blocks are depends on the problem alone, never on threads or memory: hence the same bits whatever
these are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .geometry import ceil_div
from .problem import Problem

#: Blocks that are enough for the threads of one machine to share, and multiply-adds worth sharing.
PARTS, WORTH_SHARING = 4, 2**23


@dataclass(frozen=True, slots=True)
class Block:
    """One independent piece of work.

    Rows and columns lie on the result's side for a transposed convolution (wide) and on the side of
    `out_backprop` for a filter gradient (narrow). `channels` are the output channels of a transposed
    convolution, and the input channels of a filter gradient.
    """

    images: range
    rows: range
    columns: range
    channels: range


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """How many images, rows, columns and channels a block has at most."""

    images: int
    rows: int
    columns: int
    channels: int


def block_counts(problem: Problem, sizes: BlockSizes) -> tuple[int, int, int, int]:
    """Return into how many pieces images, rows, columns and channels are cut."""
    parts = (sizes.images, sizes.rows, sizes.columns, sizes.channels)
    n, rows, columns, channels = map(ceil_div, problem.cut_sizes, parts)
    return n, rows, columns, channels


def at_most(size: int, limit: int) -> int:
    """Return `size`, or `limit` if that is less, but at least 1."""
    return max(min(size, limit), 1)


def even(size: int, limit: int) -> int:
    """Return the size of the pieces when `size` is cut into few even ones of at most `limit`."""
    pieces = ceil_div(max(size, 1), max(limit, 1))
    # Three pieces would keep two threads busy for as long as four.
    return max(ceil_div(size, pieces + (pieces > 2 and pieces % 2)), 1)


def shared_out(problem: Problem, sizes: BlockSizes, least: int) -> BlockSizes:
    """Cut channels into smaller pieces, if otherwise there would be too few blocks for threads to share.

    Parameters
    ----------
    problem : whose filter gradient is cut
    sizes : the blocks so far
    least : channels that a block should not have fewer of
    """
    if problem.multiply_adds < WORTH_SHARING:
        return sizes
    blocks = max(math.prod(block_counts(problem, sizes)), 1)
    wanted = min(ceil_div(PARTS, blocks), max(sizes.channels // least, 1))
    return replace(sizes, channels=even(problem.channels, ceil_div(sizes.channels, wanted)))


def cut(whole: range, size: int) -> Iterator[range]:
    """Yield `whole` in pieces of `size`, the last one shorter where it does not divide."""
    return (whole[start : start + size] for start in range(0, len(whole), max(size, 1)))
