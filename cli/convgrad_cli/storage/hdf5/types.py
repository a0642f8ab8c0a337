"""Element types of HDF5 datasets, read from the stored type.

NumPy has no bfloat16, so h5py shows a dataset of HDF5's 16-bit float with an 8-bit exponent as float32; and
HDF5's own conversion to it does not round to nearest even. Hence its elements are moved as raw bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
from h5py import h5t

from convgrad.dtypes import dtype_from_name
from convgrad_cli.errors import StorageError

if TYPE_CHECKING:
    from convgrad_cli.storage.protocols import DType

# (sign position, exponent position, exponent bits, mantissa position, mantissa bits), exponent bias
_BFLOAT16 = ((15, 7, 8, 0, 7), 127)
_FLOAT16 = ((15, 10, 5, 0, 10), 15)

_CLASS_NAMES = {
    h5t.STRING: "string",
    h5t.COMPOUND: "compound",
    h5t.REFERENCE: "reference",
    h5t.ENUM: "enum",
    h5t.VLEN: "variable-length",
    h5t.ARRAY: "array",
    h5t.TIME: "time",
}


def bfloat16_type() -> h5t.TypeFloatID:
    """HDF5's 16-bit float type with an 8-bit exponent, little-endian, as HDF5 2.0 predefines it."""
    fields, bias = _BFLOAT16
    stored = h5t.IEEE_F16LE.copy()
    stored.set_fields(*fields)
    stored.set_ebias(bias)
    return stored


def element_dtype(dataset: h5py.Dataset, address: str) -> DType:
    """NumPy dtype of a dataset's elements as stored, either byte order.

    Raises
    ------
    StorageError
        The elements are not numbers, or 16-bit floats of a layout that is neither float16 nor bfloat16.
    """
    stored = dataset.id.get_type()
    if stored.get_class() == h5t.FLOAT and stored.get_size() == 2:
        fields, bias = stored.get_fields(), stored.get_ebias()
        if (fields, bias) == _BFLOAT16:
            return dtype_from_name("bfloat16")
        if (fields, bias) != _FLOAT16:
            got = f"{fields[2]} exponent bits, {fields[4]} mantissa bits, bias {bias}"
            raise StorageError(f"{address}: 16-bit float that is neither float16 nor bfloat16: {got}")
    try:
        dtype: DType = dataset.dtype
    except TypeError:  # h5py: no NumPy equivalent
        raise StorageError(f"{address}: dtype {_class_name(stored)} is not numeric") from None
    # An enum of False and True is h5py's bool; of any other names, it is not a number.
    is_enum = stored.get_class() == h5t.ENUM and dtype.kind != "b"
    if dtype.kind not in "biufcV" or dtype.names or dtype.subdtype or is_enum:
        raise StorageError(f"{address}: dtype {_class_name(stored)} is not numeric")
    return dtype


def element_name(dataset: h5py.Dataset) -> str:
    """Name of a dataset's element type for a listing, whatever it is."""
    try:
        return element_dtype(dataset, "").name
    except StorageError:
        return _class_name(dataset.id.get_type())


def _class_name(stored: h5t.TypeID) -> str:
    return _CLASS_NAMES.get(stored.get_class(), "of an unknown kind")
