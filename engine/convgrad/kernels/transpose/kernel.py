"""What a kernel for transposed convolutions is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block
from convgrad.kernels.kernel import Kernel
from convgrad.problem import Problem
from convgrad.scratch import Scratch

Array = npt.NDArray[Any]


class Compute(Protocol):
    """Computes one block."""

    def __call__(
        self, images: Array, filters: Any, problem: Problem, block: Block, out: Array, scratch: Scratch
    ) -> Array:
        """Fill `out` with the block's results.

        Parameters
        ----------
        images : (n, h, w, Cin), any supported dtype, any strides: the images of the block
        filters : what `prepare` made of them
        problem : the sizes
        block : rows, columns and output channels of the result
        out : (n, rows, columns, channels of the block) in the dtype of the sums, any strides, any content

        Returns
        -------
        (elements,) every sum that went into `out`, to be looked at: where one is not finite, this kernel may
        have made it so
        """


@dataclass(frozen=True, slots=True)
class TransposeKernel(Kernel):
    """One way to compute a transposed convolution.

    Attributes
    ----------
    prepare : from filters (kh, kw, Cout, Cin) to the form that `compute` takes, in a dtype, once a job
    compute : one block
    """

    prepare: Callable[[Array, Problem, np.dtype[Any]], Any]
    compute: Compute
