"""The one place that chooses among kernels: the one whose cost model says the least seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from .errors import ArgumentError
from .problem import Problem

if TYPE_CHECKING:
    from .kernels.filter_grad.kernel import FilterGradKernel
    from .kernels.transpose.kernel import TransposeKernel

Kernel: TypeAlias = "TransposeKernel | FilterGradKernel"

#: Taps along an axis above which the general kernel alone is considered: work is counted tap by tap.
HUGE = 2**12


def applicable(problem: Problem, *, fast: bool = False) -> tuple[Kernel, ...]:
    """Return the kernels that accept a problem, the general one first.

    Parameters
    ----------
    problem : the sizes
    fast : also those that keep a bound for the whole result only
    """
    # Only one operation's kernels are needed in most processes.
    if problem.operation == "conv2d_transpose":
        from .kernels import transpose

        kernels: tuple[Kernel, ...] = transpose.KERNELS + (transpose.FAST if fast else ())
    else:
        from .kernels import filter_grad

        kernels = filter_grad.KERNELS
    if max(problem.height.kernel, problem.width.kernel) > HUGE:
        return kernels[:1]
    return tuple(kernel for kernel in kernels if kernel.accepts(problem))


def estimate(kernel: Kernel, problem: Problem) -> float:
    """Return the seconds that `kernel` is estimated to take on one core."""
    if max(problem.height.kernel, problem.width.kernel) > HUGE:
        return 1e-10 * problem.multiply_adds
    return kernel.seconds(problem)


def choose(problem: Problem, *, fast: bool = False) -> Kernel:
    """Return the kernel with the least estimate; of equal ones the more general."""
    return min(applicable(problem, fast=fast), key=lambda kernel: estimate(kernel, problem))


def named(problem: Problem, name: str) -> Kernel:
    """Return the kernel called `name`.

    Raises
    ------
    ArgumentError
        If there is none, or it does not accept the problem.
    """
    kernels = {kernel.name: kernel for kernel in applicable(problem, fast=True)}
    if name not in kernels:
        raise ArgumentError(f"strategy: {name} cannot compute this; {', '.join(kernels)} can")
    return kernels[name]
