"""Blocks of other sizes than a kernel likes: a job is cut into many although it is small."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

from convgrad import Plan
from convgrad.blocks import BlockSizes

#: Sizes by name, None for the kernel's own. They divide nothing evenly and heed no stride.
CUTS = {
    "ones": BlockSizes(1, 1, 1, 1),
    "few": BlockSizes(2, 3, 2, 1),
    "images": BlockSizes(1, 10**6, 10**6, 10**6),
    "rows": BlockSizes(1, 1, 10**6, 10**6),
    "columns": BlockSizes(2, 10**6, 3, 2),
    "channels": BlockSizes(10**6, 10**6, 10**6, 1),
    "whole": BlockSizes(10**6, 10**6, 10**6, 10**6),
    "own": None,
}
ONES, FEW = BlockSizes(1, 1, 1, 1), BlockSizes(2, 3, 2, 1)


def cut(plan: Plan, sizes: BlockSizes | None) -> Plan:
    """The plan with blocks of these sizes."""
    return plan if sizes is None else dataclasses.replace(plan, block_sizes=sizes)


@contextlib.contextmanager
def every_plan_cut(sizes: BlockSizes | None) -> Iterator[None]:
    """Every plan that is made inside has blocks of these sizes."""
    of = Plan.of

    def planned(*args: Any, **options: Any) -> Plan:
        return cut(of(*args, **options), sizes)

    with mock.patch.object(Plan, "of", planned):
        yield
