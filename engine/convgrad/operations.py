"""The two operations and their plans: what a caller uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .arguments import Padding, Sizes, check_memory, check_threads
from .errors import ArgumentError, DTypeError, ShapeError
from .execution import Source, available_cores, chunks_of, execute
from .plan import Plan
from .requests import Shaped, read_request
from .slabs import Slabs
from .solve_filter_grad import solve_filter_grad
from .solve_transpose import solve_transpose


def plan_conv2d_transpose(
    input: Shaped,
    filters: Shaped,
    output_shape: Sequence[int] | None = None,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    *,
    fast: bool = False,
) -> Plan:
    """Plan `conv2d_transpose` from shapes and dtypes alone.

    Parameters
    ----------
    input, filters : anything with `shape` and `dtype`: arrays, sources, `TensorSpec`
    output_shape, strides, padding, data_format, dilations, fast : as for `conv2d_transpose`

    Returns
    -------
    Plan
        Frozen; ``print(plan)`` shows tensors and geometry.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        As `conv2d_transpose`.

    Examples
    --------
    >>> import numpy as np
    >>> from convgrad import TensorSpec
    >>> small = TensorSpec((1, 4, 4, 16), np.dtype("float32"))
    >>> filters = TensorSpec((3, 3, 8, 16), np.dtype("float32"))
    >>> plan_conv2d_transpose(small, filters, strides=2).output.shape
    (1, 8, 8, 8)
    """
    request = read_request(
        input,
        ("filters", filters),
        ("output_shape", output_shape),
        strides=strides,
        padding=padding,
        data_format=data_format,
        dilations=dilations,
        fast=fast,
    )
    try:
        return solve_transpose(request)
    except ShapeError as error:
        from . import hints

        raise hints.explained(error, request, solve_transpose, hints.transpose_mistakes) from None


def plan_depthwise_conv2d_backprop_filter(
    input: Shaped,
    filter_sizes: Sequence[int],
    out_backprop: Shaped,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
) -> Plan:
    """Plan `depthwise_conv2d_backprop_filter` from shapes and dtypes alone.

    Parameters
    ----------
    input, out_backprop : anything with `shape` and `dtype`: arrays, sources, `TensorSpec`
    filter_sizes, strides, padding, data_format, dilations : as for `depthwise_conv2d_backprop_filter`

    Returns
    -------
    Plan
        Frozen; ``print(plan)`` shows tensors and geometry.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        As `depthwise_conv2d_backprop_filter`.

    Examples
    --------
    >>> import numpy as np
    >>> from convgrad import TensorSpec
    >>> images = TensorSpec((128, 8, 8, 8), np.dtype("float32"))
    >>> gradient = TensorSpec((128, 4, 4, 16), np.dtype("float32"))
    >>> plan_depthwise_conv2d_backprop_filter(images, (3, 3), gradient, strides=2).output.shape
    (3, 3, 8, 2)
    """
    request = read_request(
        input,
        ("out_backprop", out_backprop),
        ("filter_sizes", filter_sizes),
        strides=strides,
        padding=padding,
        data_format=data_format,
        dilations=dilations,
    )
    try:
        return solve_filter_grad(request)
    except ShapeError as error:
        from . import hints

        raise hints.explained(error, request, solve_filter_grad, hints.filter_grad_mistakes) from None


def conv2d_transpose(
    input: npt.ArrayLike | Source,
    filters: npt.ArrayLike | Source,
    output_shape: Sequence[int] | None = None,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    *,
    out: Any = None,
    fast: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> Any:
    """out[n, i*sh + u*dh - top, j*sw + v*dw - left, o] += input[n, i, j, c] * filters[u, v, o, c]

    The transposed 2-D convolution of `tf.nn.conv2d_transpose`: the gradient of a convolution with respect
    to its input. Every option works in every combination. The filter is not flipped.

    Parameters
    ----------
    input : (N, h, w, Cin), or (N, Cin, h, w) for ``NCHW``
        float16, bfloat16, float32 or float64: an array or a source.
    filters : (kh, kw, Cout, Cin)
        Same dtype as `input`, whatever the data format.
    output_shape : ``(H, W)`` or all four sizes in `data_format` order, in elements
        Left out: ``h*s`` for SAME, ``h*s + max(ke-s, 0)`` for VALID, the least legal size for explicit
        padding, with ``ke = (k-1)*d + 1``.
    strides, dilations : one int, ``(H, W)``, or four ints in `data_format` order, 1 for batch and channels
    padding : ``"SAME"``, ``"VALID"`` or explicit ``[[0, 0], [top, bottom], [left, right], [0, 0]]``
        Explicit pairs are in `data_format` order, in elements. Padding is that of the forward convolution.
    data_format : ``"NHWC"`` or ``"NCHW"``
    out : array or sink of the result's shape and dtype, optional
        Where the result goes; an array may overlap the operands.
    fast : allow kernels that multiply less (fast FIR, Winograd)
        Their error is bounded by the largest terms of the whole result, not of each element.
    threads : at most so many threads; by default as many as there are cores for this process
        The result is the same to the bit whatever it is.
    memory : bytes to hold at a time of operands and result that are no arrays, and of scratch
        By default as many as are worth it. The result is the same to the bit whatever it is.

    Returns
    -------
    (N, H, W, Cout), or (N, Cout, H, W) for ``NCHW``, in the operands' dtype; or `out`
        Summed in float32 (float64 for float64) in short chains, and rounded once, to nearest even.

    Raises
    ------
    ArgumentError
        An option is malformed.
    ShapeError
        The shapes do not fit each other and the options.
    DTypeError
        A dtype is not supported, or the operands' dtypes differ.
    MemoryError
        `memory` is too little even for the smallest parts.

    Notes
    -----
    Source of the semantics: TensorFlow 2.21, `tf.nn.conv2d_transpose`, compiled with XLA.

    Examples
    --------
    >>> import numpy as np
    >>> conv2d_transpose(np.ones((1, 2, 2, 1)), np.ones((2, 2, 1, 1)))[0, :, :, 0]
    array([[1., 2.],
           [2., 4.]])
    """
    first, second = _operand("input", input), _operand("filters", filters)
    plan = plan_conv2d_transpose(
        first, second, output_shape, strides, padding, data_format, dilations, fast=fast
    )
    return _run(plan, first, second, out, threads, memory)


def depthwise_conv2d_backprop_filter(
    input: npt.ArrayLike | Source,
    filter_sizes: Sequence[int],
    out_backprop: npt.ArrayLike | Source,
    strides: Sizes = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    *,
    out: Any = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Any:
    """out[u, v, c, m] = sum input[n, i*sh + u*dh - top, j*sw + v*dw - left, c] * out_backprop[n, i, j, c*M+m]

    The filter gradient of a depthwise 2-D convolution, as `tf.nn.depthwise_conv2d_backprop_filter`: the sum
    runs over images n, rows i and columns j. `dilations` are honoured.

    Parameters
    ----------
    input : (N, H, W, C), or (N, C, H, W) for ``NCHW``
        float16, bfloat16, float32 or float64: an array or a source.
    filter_sizes : (kh, kw) or (kh, kw, C, M), in elements
        C and M left out follow from the operands.
    out_backprop : (N, h, w, C*M), or (N, C*M, h, w) for ``NCHW``
        Gradient with respect to the convolution's output, same dtype as `input`.
    strides, dilations, padding, data_format : as for `conv2d_transpose`
    out : array or sink of the result's shape and dtype, optional
        Where the result goes; an array may overlap the operands.
    threads, memory : as for `conv2d_transpose`

    Returns
    -------
    (kh, kw, C, M) in the operands' dtype, or `out`
        Summed in short chains of float32, those in float64, and rounded once, to nearest even.

    Raises
    ------
    ArgumentError
        An option is malformed.
    ShapeError
        The shapes do not fit each other and the options.
    DTypeError
        A dtype is not supported, or the operands' dtypes differ.
    MemoryError
        `memory` is too little even for the smallest parts.

    Notes
    -----
    Source of the semantics: TensorFlow 2.21, `tf.nn.depthwise_conv2d_backprop_filter`, compiled with XLA.

    Examples
    --------
    >>> import numpy as np
    >>> ones = np.ones((1, 64, 64, 1), np.float16)
    >>> float(depthwise_conv2d_backprop_filter(ones, (1, 1), ones)[0, 0, 0, 0])
    4096.0
    """
    first, second = _operand("input", input), _operand("out_backprop", out_backprop)
    plan = plan_depthwise_conv2d_backprop_filter(
        first, filter_sizes, second, strides, padding, data_format, dilations
    )
    return _run(plan, first, second, out, threads, memory)


def _operand(argument: str, value: Any) -> Any:
    """Return a source as it is, anything else as an array.

    Raises
    ------
    ArgumentError
        On a masked array: computing on what is under the mask would be silent, and wrong.
    """
    if isinstance(value, np.ndarray) and hasattr(value, "mask"):
        raise ArgumentError(f"{argument}: masked arrays are not supported, fill it first")
    is_source = hasattr(value, "shape") and isinstance(getattr(value, "dtype", None), np.dtype)
    return value if is_source and hasattr(value, "__getitem__") else np.asarray(value)


def _run(plan: Plan, first: Source, second: Source, out: Any, threads: object, memory: object) -> Any:
    """Compute into `out`, or into a new array."""
    count = None if threads is None else check_threads(threads)
    room = None if memory is None else check_memory(memory)
    if out is None:
        out = np.empty(plan.output.shape, plan.output.dtype)
        _compute(plan, first, second, out, count, room)
        return out
    if not (hasattr(out, "shape") and hasattr(out, "dtype") and hasattr(out, "__setitem__")):
        raise ArgumentError(f"out: must be an array or a sink, got {type(out).__name__}")
    if tuple(out.shape) != plan.output.shape:
        raise ShapeError(
            f"out: shape must be {plan.output.shape}, got {tuple(out.shape)}", report=plan.report
        )
    if np.dtype(out.dtype).newbyteorder("=") != plan.output.dtype:
        raise DTypeError(f"out: dtype must be {plan.output.dtype.name}, got {np.dtype(out.dtype).name}")
    if isinstance(out, np.ndarray):
        if not out.flags.writeable:
            raise ArgumentError("out: the array is read-only")
        if any(isinstance(one, np.ndarray) and np.may_share_memory(one, out) for one in (first, second)):
            out[...] = _run(plan, first, second, None, threads, memory)
            return out
    _compute(plan, first, second, out, count, room)
    return out


def _compute(
    plan: Plan, first: Source, second: Source, out: Any, threads: int | None, memory: int | None
) -> None:
    slabs = None
    if memory is not None and not all(isinstance(one, np.ndarray) for one in (first, second, out)):
        chunks = chunks_of(plan, first, second, out)
        slabs = Slabs.of(plan, memory=memory, threads=threads or available_cores(), chunks=chunks)
        if slabs.held_bytes > memory:
            raise MemoryError(f"this job holds {slabs.held_bytes:,} bytes at a time, memory is {memory:,}")
    execute(plan, first, second, out, threads=threads, slabs=slabs)
