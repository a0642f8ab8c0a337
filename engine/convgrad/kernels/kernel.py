"""What every kernel is, whichever operation it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    """

    name: str
    accepts: Callable[[Problem], bool]
    work: Callable[[Problem], Work]
    block_sizes: Callable[[Problem], BlockSizes]

    def seconds(self, problem: Problem) -> float:
        """Estimate the time on one core."""
        return self.work(problem).seconds
