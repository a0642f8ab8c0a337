"""What a worker is asked and what an implementation must offer: shared by parent and children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from layers import LAYERS, Layer

Array = npt.NDArray[Any]

#: In the order of the tables' columns; each is a module ``adapter_<name>``.
IMPLEMENTATIONS = ("convgrad", "tensorflow", "torch", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to time.

    Attributes
    ----------
    layer : a name in `LAYERS`
    layout : ``NHWC`` or ``NCHW``, of the data tensors
    dtype : ``float32``, ``float16`` or ``bfloat16``
    fast : allow kernels that bound the error by the largest terms nearby (convgrad only)
    """

    layer: str
    layout: str = "NHWC"
    dtype: str = "float32"
    fast: bool = False

    @property
    def geometry(self) -> Layer:
        """The layer itself."""
        return LAYERS[self.layer]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that is ready to be timed.

    Attributes
    ----------
    call : computes the result and returns only when it is there
    channels_last : gives the call's value as an array of the layer's `result_shape`
    strategy : name of the kernel, where the implementation says
    """

    call: Callable[[], Any]
    channels_last: Callable[[Any], Array]
    strategy: str = ""


class Adapter(Protocol):
    """One implementation, made once per worker process with its number of threads."""

    version: str
    operations: tuple[str, ...]
    layouts: tuple[str, ...]
    dtypes: tuple[str, ...]

    def prepare(self, task: Task, first: Array, second: Array) -> Prepared:
        """Bring channels-last operands into the implementation's favourite form."""


def in_layout(array: Array, layout: str) -> Array:
    """Return a channels-last array as a contiguous one in `layout`."""
    return array if layout == "NHWC" else np.ascontiguousarray(np.moveaxis(array, 3, 1))
