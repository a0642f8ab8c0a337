"""Kernels for transposed convolutions, one module each; `convgrad.choice` has their names."""
