"""Say how far a result is from its expected value: distance.py NAME RESULT EXPECTED (addresses)."""

import sys

import h5py
import numpy as np


def load(address: str) -> np.ndarray:
    """Read FILE.npy or FILE.h5::/dataset whole, in float64."""
    name, _, dataset = address.partition("::")
    if not dataset:
        return np.load(name).astype(np.float64)
    with h5py.File(name) as file:
        return file[dataset][:].astype(np.float64)


name, result, expected = sys.argv[1], load(sys.argv[2]), load(sys.argv[3])
if result.shape != expected.shape:
    sys.exit(f"{name}: shape {result.shape}, expected {expected.shape}")
largest = np.abs(result - expected).max()
print(f"{name}: at most {largest:.1e} from the stored value (values up to {np.abs(expected).max():.4g})")
