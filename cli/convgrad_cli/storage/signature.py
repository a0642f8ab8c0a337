"""What a file is, from its first bytes; its name says nothing."""

from __future__ import annotations

from typing import BinaryIO

from convgrad_cli.errors import StorageError

NPY = b"\x93NUMPY"
HDF5 = b"\x89HDF\r\n\x1a\n"
HEAD_BYTES = 64

_OTHERS: tuple[tuple[bytes | tuple[bytes, ...], str, str], ...] = (
    (
        (b"PK\x03\x04", b"PK\x05\x06"),
        "a zip or .npz archive",
        "extract the member: numpy.save('x.npy', numpy.load('x.npz')['name'])",
    ),
    (
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "a Python pickle",
        "load it where it comes from, and save the array with numpy.save",
    ),
    (b"\x1f\x8b", "gzip-compressed data", "decompress it first: gunzip"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data", "decompress it first: unzstd"),
    (b"MATLAB 5.0", "a MATLAB v5 file", "save it from MATLAB with -v7.3, which is HDF5"),
    (b"CDF", "a classic netCDF file", "convert it to netCDF-4, which is HDF5: nccopy -k nc4"),
    (HDF5[:4], "an HDF5 file damaged in its first bytes", "copy it again, in binary mode"),
)


def is_npy(head: bytes) -> bool:
    """Whether a file begins as .npy; a file cut inside the signature counts."""
    return bool(head) and (head.startswith(NPY) or NPY.startswith(head))


def is_hdf5(file: BinaryIO) -> bool:
    """Whether the HDF5 signature is at byte 0, 512, 1024, 2048, ...: a user block may come before it."""
    size = file.seek(0, 2)
    offset = 0
    while offset < size:
        file.seek(offset)
        if file.read(len(HDF5)) == HDF5:
            return True
        offset = max(512, 2 * offset)
    return False


def unrecognised(label: str, head: bytes) -> StorageError:
    """The error for a file that cannot be read, with what its first bytes suggest."""
    if not head:
        return StorageError(f"{label} is empty (0 bytes)")
    if head.startswith(HDF5):  # a file on disk would have been read as such
        return StorageError(f"{label}: HDF5 cannot be read through a pipe", hint="give the file's name")
    for signature, description, hint in _OTHERS:
        if head.startswith(signature):
            return StorageError(f"{label} is neither .npy nor HDF5: it looks like {description}", hint=hint)
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        found, hint = f"it looks like text, {head[:20].decode()!r}", "save the array with numpy.save"
    else:
        found = f"its first bytes are {head[:8].hex(' ')}"
        hint = "raw data needs a header: numpy.save('x.npy', numpy.fromfile(FILE, dtype).reshape(shape))"
    return StorageError(f"{label} is neither .npy nor HDF5: {found}", hint=hint)
