"""What the rest of the program knows of files: sources to read blocks from, targets and sinks to write to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

if TYPE_CHECKING:  # importing this module costs no NumPy
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
    DType: TypeAlias = np.dtype[Any]


class Source(Protocol):
    """An array in a file, read in contiguous parts. Close it, or use it in a `with` statement.

    Those that need not hold all of it also have ``read_into(key, out)``, which fills a C-contiguous array.

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

    def __getitem__(self, key: Any) -> Array:
        """A part (see `box`), in native byte order; strides may be any."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sink(Protocol):
    """A result being written: every element once, images and, where these are cut, rows in rising order."""

    def __setitem__(self, key: Any, value: Array) -> None:
        """Write `value` as a part (see `box`)."""
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

    def chunks(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Chunk sizes of such an array, if it will have any."""
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


def box(key: Any, shape: tuple[int, ...]) -> tuple[range, ...]:
    """The positions that `key` takes along each axis: a slice of the first, or slices of some leading ones.

    Raises
    ------
    ValueError
        A slice has a step: HDF5 is extremely slow on stepped selections, so nothing may ask for one.
    """
    slices = key if isinstance(key, tuple) else (key,)
    found = []
    for axis, size in enumerate(shape):
        start, stop, step = slices[axis].indices(size) if axis < len(slices) else (0, size, 1)
        if step != 1:
            raise ValueError(f"parts are contiguous: step 1, got {step}")
        found.append(range(start, max(start, stop)))
    return tuple(found)


def runs(part: tuple[range, ...], shape: tuple[int, ...]) -> tuple[int, Iterator[int]]:
    """How a part of an array lies in C order: elements of each contiguous run, and where the runs begin."""
    length, axis = 1, len(shape)
    while axis and (length == 0 or len(part[axis - 1]) == shape[axis - 1]):
        axis -= 1
        length *= shape[axis]
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    inside = 0
    if axis:
        axis -= 1
        inside = part[axis].start * strides[axis]
        length *= len(part[axis])
    places = itertools.product(*part[:axis])
    return length, (
        inside + sum(place * stride for place, stride in zip(each, strides, strict=False)) for each in places
    )


def pieces(
    part: tuple[range, ...], chunks: tuple[int, ...] | None, elements: int
) -> Iterator[tuple[tuple[range, ...], tuple[slice, ...]]]:
    """Cut a part along its first axis of more than one position, into whole chunks of about so many elements.

    Yields
    ------
    The piece, and where it lies within the part: contiguously.
    """
    axis = next((axis for axis, along in enumerate(part) if len(along) != 1), len(part) - 1)
    if axis < 0:
        yield part, ()
        return
    step = chunks[axis] if chunks else 1
    step *= max(elements // max(step * math.prod(map(len, part[axis + 1 :])), 1), 1)
    whole, first = part[axis], part[axis].start
    while first < whole.stop:
        last = min(first - first % step + step, whole.stop)
        here = slice(first - whole.start, last - whole.start)
        yield (*part[:axis], range(first, last), *part[axis + 1 :]), (slice(None),) * axis + (here,)
        first = last
