"""What the rest of the program knows of files: sources to read blocks from, targets and sinks to write to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

if TYPE_CHECKING:  # importing this module costs no NumPy
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
    DType: TypeAlias = np.dtype[Any]


class Source(Protocol):
    """An array in a file, read in blocks along axis 0. Close it, or use it in a `with` statement.

    Attributes
    ----------
    address : str
        Address that can be pasted back; the dataset is filled in where it was left out.
    shape : tuple of int
        Sizes in elements.
    dtype : numpy.dtype
        In native byte order; two-byte void stays void unless it was to be read as bfloat16.
    chunks : tuple of int or None
        HDF5 chunk sizes in elements.
    matlab : bool
        Whether the file is MATLAB v7.3, which shows its axes in reverse order.
    notes : tuple of str
        Things the user should hear about, one line each.
    kept_bytes : int
        Bytes of data held in memory once anything has been read: 0 where blocks are read one by one.
    """

    address: str
    shape: tuple[int, ...]
    dtype: DType
    chunks: tuple[int, ...] | None
    matlab: bool
    notes: tuple[str, ...]
    kept_bytes: int = 0

    def __getitem__(self, key: slice) -> Array:
        """Rows `start:stop` along axis 0, in native byte order; strides may be any."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sink(Protocol):
    """A result being written: every row along axis 0 once, in increasing order."""

    def __setitem__(self, key: slice, value: Array) -> None:
        """Write `value` as the rows `start:stop` along axis 0."""
        ...


class Target(Protocol):
    """An output address found writable; nothing is written before `open`.

    Attributes
    ----------
    streams : bool
        Whether it is a pipe or a device, written as it comes and not taken back.
    keeps_attributes : bool
        Whether the format has a place for attributes.
    """

    keeps_attributes: ClassVar[bool]

    @property
    def streams(self) -> bool:
        """See above."""
        ...

    def check_layout(self, shape: tuple[int, ...]) -> None:
        """Find out whether an array of these sizes can be laid out as asked for."""
        ...

    def open(
        self, shape: tuple[int, ...], dtype: DType, attributes: Mapping[str, str]
    ) -> AbstractContextManager[Sink]:
        """Sink for one array; the target changes only when the `with` block ends without an exception."""
        ...


class Hdf5Options(NamedTuple):
    """How an HDF5 dataset is laid out, as h5py takes it; a field left at its default is not passed on.

    Attributes
    ----------
    chunks : tuple of int, bool or None
        Chunk sizes in elements, or True for sizes of h5py's choice.
    compression : str or None
        `gzip`, `lzf` or `szip`.
    compression_level : int or None
        0 to 9, for gzip only.
    shuffle : bool
        Whether bytes are regrouped before compression.
    """

    chunks: tuple[int, ...] | bool | None = None
    compression: str | None = None
    compression_level: int | None = None
    shuffle: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Command-line flags of the fields that are set."""
        given = {
            "--chunks": self.chunks is not None,
            "--compression": self.compression is not None,
            "--compression-level": self.compression_level is not None,
            "--shuffle": self.shuffle,
        }
        return tuple(flag for flag, is_given in given.items() if is_given)


def rows(key: slice, length: int) -> tuple[int, int]:
    """`(start, stop)` of a slice along an axis of `length` elements.

    Raises
    ------
    ValueError
        The slice has a step: HDF5 is extremely slow on stepped selections, so nothing may ask for one.
    """
    start, stop, step = key.indices(length)
    if step != 1:
        raise ValueError(f"blocks are contiguous: step 1, got {step}")
    return start, max(start, stop)
