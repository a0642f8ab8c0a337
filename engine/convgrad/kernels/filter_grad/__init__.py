"""Kernels for depthwise filter gradients, one module each; `convgrad.choice` has their names."""
