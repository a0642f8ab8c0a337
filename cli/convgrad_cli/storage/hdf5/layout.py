"""Layout options of an HDF5 dataset: checked against one another and the shape, named as in h5py."""

from __future__ import annotations

from typing import Any

import h5py

from convgrad_cli.errors import AddressError
from convgrad_cli.storage.protocols import Hdf5Options

_COMPRESSIONS = ("gzip", "lzf", "szip")


def check_options(options: Hdf5Options) -> None:
    """Find contradictions that show without a shape.

    Raises
    ------
    AddressError
        Names the flag.
    """
    compression, level = options.compression, options.compression_level
    if compression is not None and compression not in _COMPRESSIONS:
        raise AddressError(f"--compression {compression}: unknown", hint=f"one of {', '.join(_COMPRESSIONS)}")
    if compression is not None and compression not in h5py.filters.encode:
        raise AddressError(f"--compression {compression}: this build of HDF5 cannot write it")
    if level is not None and compression != "gzip":
        got = "no compression" if compression is None else compression
        raise AddressError(f"--compression-level {level}: goes with --compression gzip, got {got}")
    if level is not None and not 0 <= level <= 9:
        raise AddressError(f"--compression-level {level}: expected 0 to 9")
    if options.chunks is False and (compression is not None or options.shuffle):
        flag = "--shuffle" if compression is None else "--compression"
        raise AddressError(f"{flag}: needs chunks, and --chunks says none")


def layout(options: Hdf5Options, shape: tuple[int, ...], label: str) -> dict[str, Any]:
    """Keywords for h5py's `create_dataset`.

    Raises
    ------
    AddressError
        The chunks do not fit the shape.
    """
    if 0 in shape:
        return {}  # there is nothing to cut into chunks or to compress
    keywords: dict[str, Any] = {}
    if isinstance(options.chunks, tuple):
        fits = len(options.chunks) == len(shape)
        if not fits or not all(1 <= chunk <= size for chunk, size in zip(options.chunks, shape, strict=True)):
            raise AddressError(
                f"{label}: --chunks {options.chunks} does not fit the result's shape {shape}",
                hint="one size per axis, from 1 to the axis's size",
            )
    if options.chunks:
        keywords["chunks"] = options.chunks
    if options.compression is not None:
        keywords["compression"] = options.compression
    if options.compression_level is not None:
        keywords["compression_opts"] = options.compression_level
    if options.shuffle:
        keywords["shuffle"] = True
    return keywords
