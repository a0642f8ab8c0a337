"""Operands to files and results from files, bfloat16 in both, without the code under test."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from assertions import BFLOAT16


def save(path: Path, array: np.ndarray) -> str:
    """Write a .npy under exactly this name and return it."""
    with path.open("wb") as file:
        np.save(file, array)
    return str(path)


def load(path: Path) -> np.ndarray:
    """Read a .npy; 2-byte void is bfloat16."""
    array = np.load(path)
    return array.view(BFLOAT16) if array.dtype == np.dtype("V2") else array


def is_bfloat16(data: h5py.Dataset) -> bool:
    """Whether the stored type is a 16-bit float with an 8-bit exponent, which h5py reports as float32."""
    stored = data.id.get_type()
    return isinstance(stored, h5py.h5t.TypeFloatID) and stored.get_size() == 2 and stored.get_fields()[2] == 8


def load_h5(path: Path, name: str) -> np.ndarray:
    """Read a dataset; a true 16-bit float type with an 8-bit exponent comes as bfloat16."""
    with h5py.File(path) as file:
        data = file[name]
        if not is_bfloat16(data):
            return data[()]
        return data.astype(np.float32)[()].astype(BFLOAT16)
