"""What a kernel for depthwise filter gradients is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from convgrad.blocks import Block
from convgrad.dtypes import Float64
from convgrad.kernels.kernel import Kernel
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
class FilterGradKernel(Kernel):
    """One way to compute a depthwise filter gradient.

    Attributes
    ----------
    compute : one block
    """

    compute: Compute
