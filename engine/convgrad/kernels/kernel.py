"""What every kernel is, whichever operation it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convgrad.blocks import BlockSizes
from convgrad.problem import Problem

from .costs import Work


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an operation.

    Attributes
    ----------
    name : as plans show it
    accepts : whether it can compute a problem
    work : what a problem makes it do
    block_sizes : the blocks it likes
    halo : rows of the operand that it looks at beyond those it needs, in strides on the wide side
    """

    name: str
    accepts: Callable[[Problem], bool]
    work: Callable[[Problem], Work]
    block_sizes: Callable[[Problem], BlockSizes]
    halo: int = field(default=0, kw_only=True)

    def seconds(self, problem: Problem) -> float:
        """Estimate the time on one core."""
        return self.work(problem).seconds
