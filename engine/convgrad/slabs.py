"""How many images are held at a time where operands and result are files, and what that takes.

Slabs are for memory only. Blocks never cross them, and no bit of a result depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .plan import Plan

#: Bytes of operands and result that are worth holding at a time.
SLAB_BYTES = 2**28
#: How far a slab may grow beyond that to hold whole chunks: reading part of one means reading all of it.
CHUNK_ROOM = 4


def images_per_slab(plan: Plan, *operands: Any) -> int:
    """Return how many images a slab has: whole blocks and, where there is room, whole chunks.

    Parameters
    ----------
    plan : of the job
    operands : those read by image; HDF5 datasets have `chunks`
    """
    by_image = [tensor for tensor in (*plan.operands, plan.output) if tensor.letters[0] == "N"]
    each = max(sum(tensor.nbytes for tensor in by_image) // max(plan.batch, 1), 1)
    fitting = max(SLAB_BYTES // each, 1)
    step = plan.block_sizes.images
    for operand in operands:
        chunks = getattr(operand, "chunks", None)
        if chunks and isinstance(chunks[0], int):  # other libraries' chunks are lists of sizes
            # A chunk that reaches past the last image ends with it.
            aligned = math.lcm(step, min(chunks[0], max(plan.batch, 1)))
            step = aligned if aligned <= CHUNK_ROOM * fitting else step
    return max(fitting // step, 1) * step


def slabs(plan: Plan, *operands: Any) -> Iterator[list[range]]:
    """Yield the plan's image ranges in the runs that are read together."""
    ranges = plan.image_ranges()
    together = images_per_slab(plan, *operands) // plan.block_sizes.images
    for start in range(0, len(ranges), together):
        yield ranges[start : start + together]


def held_bytes(plan: Plan, *operands: Any) -> int:
    """Return the bytes held at a time: a slab of each tensor, and float64 copies of filters or gradient.

    Parameters
    ----------
    plan, operands : as for `images_per_slab`
    """
    share = min(images_per_slab(plan, *operands), plan.batch)
    held = 0
    for tensor in (*plan.operands, plan.output):
        by_image = tensor.letters[0] == "N"
        held += tensor.nbytes * share // max(plan.batch, 1) if by_image else tensor.nbytes
    if plan.operation == "conv2d_transpose":
        return held + plan.problem.working_dtype.itemsize * plan.operands[1].elements
    # The running sum, its compensation, and the share of one block.
    return held + 3 * 8 * plan.output.elements
