"""The one place that chooses among kernels: the one whose counted work costs the least."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from .errors import ArgumentError
from .problem import Operation, Problem

if TYPE_CHECKING:
    from .kernels.filter_grad.kernel import FilterGradKernel
    from .kernels.transpose.kernel import TransposeKernel

Kernel: TypeAlias = "TransposeKernel | FilterGradKernel"

#: Modules of the kernels by operation. The general one first: it accepts everything and computes exactly what
#: the equation names.
KERNELS: dict[Operation, tuple[str, ...]] = {
    "conv2d_transpose": ("transpose.taps", "transpose.gather", "transpose.tap_planes"),
    "depthwise_conv2d_backprop_filter": (
        "filter_grad.sums",
        "filter_grad.planes",
        "filter_grad.direct",
        "filter_grad.toeplitz",
    ),
}
#: Modules of those that keep a bound for the whole result only.
FAST: dict[Operation, tuple[str, ...]] = {
    "conv2d_transpose": ("transpose.fir",),
    "depthwise_conv2d_backprop_filter": (),
}
#: Multiply-adds up to which the general kernel is taken: importing the others would take longer than the job.
SMALL = 2**14
#: Taps along an axis above which the general kernel is taken: work is counted tap by tap.
HUGE = 2**12


def kernels(operation: Operation, *, fast: bool = False) -> tuple[Kernel, ...]:
    """Return an operation's kernels, the general one first.

    Parameters
    ----------
    fast : also those that keep a bound for the whole result only
    """
    return tuple(map(_kernel, KERNELS[operation] + (FAST[operation] if fast else ())))


def _kernel(module: str) -> Kernel:
    kernel: Kernel = import_module(f".kernels.{module}", __package__).KERNEL
    return kernel


def general(problem: Problem) -> Kernel:
    """Return the kernel that accepts everything."""
    return _kernel(KERNELS[problem.operation][0])


def planned(problem: Problem, name: str) -> Kernel:
    """Return the kernel called `name`, which a plan has chosen."""
    modules = KERNELS[problem.operation] + FAST[problem.operation]
    return _kernel(next(module for module in modules if module.endswith(f".{name}")))


def applicable(problem: Problem, *, fast: bool = False) -> tuple[Kernel, ...]:
    """Return the kernels that accept a problem, the general one first."""
    if _is_huge(problem):
        return (general(problem),)
    return tuple(kernel for kernel in kernels(problem.operation, fast=fast) if kernel.accepts(problem))


def _is_huge(problem: Problem) -> bool:
    return max(problem.height.kernel, problem.width.kernel) > HUGE


def estimate(kernel: Kernel, problem: Problem) -> float:
    """Return the seconds that `kernel` is estimated to take on one core."""
    return 1e-10 * problem.multiply_adds if _is_huge(problem) else kernel.seconds(problem)


def choose(problem: Problem, *, fast: bool = False) -> Kernel:
    """Return the kernel with the least estimate; of equal ones, and for small problems, the general one."""
    if problem.multiply_adds <= SMALL:
        return general(problem)
    return min(applicable(problem, fast=fast), key=lambda kernel: estimate(kernel, problem))


def named(problem: Problem, name: str) -> Kernel:
    """Return the kernel called `name`.

    Raises
    ------
    ArgumentError
        If there is none, or it does not accept the problem.
    """
    found = {kernel.name: kernel for kernel in applicable(problem, fast=True)}
    if name not in found:
        raise ArgumentError(f"strategy: {name} cannot compute this; {', '.join(found)} can")
    return found[name]
