"""Kernels: pure functions that compute one block. They check nothing; the plan has."""
