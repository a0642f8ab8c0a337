"""The header of a .npy file: parsed without trusting it, and never unpickled.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from convgrad_cli.errors import StorageError
from convgrad_cli.storage.signature import HEAD_BYTES, NPY, is_npy, unrecognised

if TYPE_CHECKING:
    from convgrad_cli.storage.protocols import DType

# A numeric array's header has some hundred bytes. NumPy draws the line here too: long text stalls the parser.
_LONGEST_HEADER = 10_000
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}


class NpyHeader(NamedTuple):
    """What a header promises.

    Attributes
    ----------
    shape : tuple of int
        Sizes in elements.
    dtype : numpy.dtype
        As stored: either byte order.
    fortran_order : bool
        Whether the first axis varies fastest.
    data_start : int
        Offset of the data in bytes.
    """

    shape: tuple[int, ...]
    dtype: DType
    fortran_order: bool
    data_start: int

    @property
    def data_bytes(self) -> int:
        """Promised size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO, label: str) -> NpyHeader:
    """Read and check a header; the file is left at the first byte of the data.

    Parameters
    ----------
    file : binary file
        At its first byte. A pipe will do: nothing is sought, nothing beyond the header is consumed.
    label : str
        Address or file name as the user gave it.

    Raises
    ------
    StorageError
        The file is not .npy, is cut inside its header, or the header is not that of a numeric array.
    """
    head = _read(file, len(NPY))
    if not is_npy(head):
        raise unrecognised(label, head + _read(file, HEAD_BYTES) if head else head)
    preamble = _read_all(file, 2, label)
    version = (preamble[0], preamble[1])
    if version not in _LENGTH_BYTES:
        raise StorageError(f"{label}: .npy version {version[0]}.{version[1]} is not 1.0, 2.0 or 3.0")
    length_bytes = _LENGTH_BYTES[version]
    length = int.from_bytes(_read_all(file, length_bytes, label), "little")
    if length > _LONGEST_HEADER:
        raise StorageError(f"{label}: .npy header of {length} bytes; at most {_LONGEST_HEADER} are read")
    text = _read_all(file, length, label)
    fields = _parse(text.decode("latin1" if version < (3, 0) else "utf8", "replace"), label)
    dtype = _dtype(fields["descr"], label)
    return NpyHeader(
        shape=_shape(fields["shape"], dtype.itemsize, label),
        dtype=dtype,
        fortran_order=_flag(fields["fortran_order"], label),
        data_start=len(NPY) + 2 + length_bytes + length,
    )


def _read(file: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes; fewer only at the end of the file (one read of a pipe may return fewer)."""
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def _read_all(file: BinaryIO, size: int, label: str) -> bytes:
    data = _read(file, size)
    if len(data) < size:
        raise StorageError(f"{label} is truncated inside its .npy header")
    return data


def _parse(text: str, label: str) -> dict[str, object]:
    # Python 2 wrote sizes as long integers, "(3L, 4L)".
    text = re.sub(r"(?<=\d)L\b", "", text)
    try:
        fields = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
        found = text.strip()[:80]
        raise StorageError(f"{label}: .npy header has no descr, fortran_order and shape: {found!r}")
    return fields


def _shape(value: object, item_bytes: int, label: str) -> tuple[int, ...]:
    # type(), not isinstance(): True and False are ints too.
    if not isinstance(value, tuple) or not all(type(size) is int and size >= 0 for size in value):
        raise StorageError(f"{label}: .npy header has shape {value!r}, expected a tuple of sizes")
    # Sizes of 0 do not help: NumPy counts the bytes of an empty array without them.
    if math.prod(size for size in value if size) * item_bytes > np.iinfo(np.intp).max:
        raise StorageError(f"{label}: .npy header has the impossible shape {value!r}")
    return value


def _flag(value: object, label: str) -> bool:
    if not isinstance(value, bool):
        raise StorageError(f"{label}: .npy header has fortran_order {value!r}, expected True or False")
    return value


def _dtype(descr: object, label: str) -> DType:
    try:
        dtype: DType = np.lib.format.descr_to_dtype(descr)  # type: ignore[arg-type]
    except (TypeError, ValueError, SyntaxError):
        raise StorageError(f"{label}: .npy header has the unknown dtype {descr!r}") from None
    if dtype.hasobject:
        raise StorageError(
            f"{label}: object array, which only a pickle can hold; re-save as a numeric dtype",
            hint="numpy.save(FILE, array.astype(numpy.float32)); numpy.stack(array) if it holds arrays",
        )
    # isbuiltin is 2 for a dtype that another library registered: whether such a name is known must not
    # depend on what happens to be imported.
    if dtype.kind not in "biufcV" or dtype.names or dtype.subdtype or dtype.isbuiltin == 2:
        raise StorageError(f"{label}: dtype {descr!r} is not numeric; re-save as a numeric dtype")
    return dtype
