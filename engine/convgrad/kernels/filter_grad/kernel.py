"""What a kernel for depthwise filter gradients is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes
from convgrad.dtypes import Float64
from convgrad.problem import Problem
from convgrad.scratch import Scratch

Array = npt.NDArray[Any]


class Compute(Protocol):
    """Computes the share of one block."""

    def __call__(
        self, input: Array, out_backprop: Array, problem: Problem, block: Block, scratch: Scratch
    ) -> Float64:
        """Return the block's share in the filter gradient of its channels, (kh, kw, c, M) float64.

        Parameters
        ----------
        input : (n, H, W, c), any supported dtype, any strides: the block's images and channels
        out_backprop : (n, h, w, c, M), likewise
        problem : the sizes
        block : its rows and columns are narrow positions
        """


@dataclass(frozen=True, slots=True)
class FilterGradKernel:
    """One way to compute a depthwise filter gradient.

    Attributes
    ----------
    name : as plans show it
    accepts : whether it can compute a problem
    seconds : estimate for one core
    block_sizes : the blocks it likes
    compute : one block
    """

    name: str
    accepts: Callable[[Problem], bool]
    seconds: Callable[[Problem], float]
    block_sizes: Callable[[Problem], BlockSizes]
    compute: Compute
