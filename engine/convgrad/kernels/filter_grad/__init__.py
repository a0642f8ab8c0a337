"""Kernels for depthwise filter gradients, one module each; `KERNELS` are those a plan may choose from."""

from . import direct, planes, sums, toeplitz

#: The general one first: it accepts everything and computes exactly what the equation names.
KERNELS = (sums.KERNEL, planes.KERNEL, direct.KERNEL, toeplitz.KERNEL)
