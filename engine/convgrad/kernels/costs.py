"""What a kernel does, counted, and what that costs on one core: by this kernels are chosen.

Each kernel counts the work that a problem makes it do, by kind (`Work`); the nanoseconds here turn that into
seconds. They were fitted to the times of all kernels on 300 random problems, on a core of 2024 with vectors
of 512 bits. A choice needs only their ratios, which differ little between machines; an estimate may well be
off by two.
"""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """Amounts of work, each with its cost in nanoseconds below.

    Attributes
    ----------
    calls : of NumPy, with the Python around them
    multiply_adds : in matrix products
    packed : numbers that matrix products read, once for each product
    moved : numbers stored, copied or added in long runs
    runs : of numbers in copies and additions
    swapped : numbers moved from pixels to planes or back by matrix products
    scattered : numbers copied one by one
    dotted : multiply-adds in vector dot products
    dots : vector dot products
    summed : multiply-adds in an einsum along rows
    doubles : operations in float64
    double_runs : of numbers in operations in float64
    """

    calls: float = 0
    multiply_adds: float = 0
    packed: float = 0
    moved: float = 0
    runs: float = 0
    swapped: float = 0
    scattered: float = 0
    dotted: float = 0
    dots: float = 0
    summed: float = 0
    doubles: float = 0
    double_runs: float = 0

    @property
    def seconds(self) -> float:
        """The estimate."""
        return 1e-9 * sum(amount * cost for amount, cost in zip(self, NANOSECONDS, strict=True))


NANOSECONDS = Work(
    calls=700,
    multiply_adds=0.0093,
    packed=0.13,
    moved=0.065,
    runs=2.5,
    swapped=0.48,
    scattered=0.47,
    dotted=0.022,
    dots=17,
    summed=0.155,
    doubles=0.22,
    double_runs=3.3,
)
