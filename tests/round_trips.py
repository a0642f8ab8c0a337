"""Jobs that give back what convgrad reads: a transposed convolution with a filter of one number, 1."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from arrays_on_disk import load, save
from assertions import dtype_of
from commandline import Completed, call


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype_of(dtype))


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def identity(folder: Path, dtype: str = "float32") -> str:
    return save(folder / "one.npy", np.ones((1, 1, 1, 1), dtype_of(dtype)))


def through(address: object, folder: Path, *flags: str, dtype: str = "float32") -> np.ndarray:
    """What convgrad reads from an address."""
    target = folder / "read.npy"
    call("transpose", address, identity(folder, dtype), "-o", target, "--overwrite", *flags).succeeded()
    return load(target)


def refused(
    address: object, folder: Path, status: int, *words: str, flags: tuple[str, ...] = ()
) -> Completed:
    """Assert that an address is refused, by name, and that nothing is written."""
    one = identity(folder)
    before = sorted(folder.iterdir())
    done = call("transpose", address, one, "-o", folder / "refused.npy", *flags)
    done.refused(status, *words)
    assert sorted(folder.iterdir()) == before
    return done
