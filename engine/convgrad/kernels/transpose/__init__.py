"""Kernels for transposed convolutions, one module each; `KERNELS` are those that a plan may choose from."""

from . import fir, gather, tap_planes, taps
from .kernel import TransposeKernel

#: The general one first: it accepts everything and computes exactly what the equation names.
KERNELS = (taps.KERNEL, gather.KERNEL, tap_planes.KERNEL)
#: Kernels that keep a bound for the whole result only.
FAST: tuple[TransposeKernel, ...] = (fir.KERNEL,)
