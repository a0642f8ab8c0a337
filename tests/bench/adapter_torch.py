"""PyTorch on a CPU: contiguous tensors for NCHW, `channels_last` ones for NHWC."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from layers import Layer
from tasks import Array, Prepared, Task


class Adapter:
    """Both operations in both layouts."""

    operations = ("transpose", "filter-grad")
    layouts = ("NHWC", "NCHW")
    dtypes = ("float32", "float16", "bfloat16")

    def __init__(self, threads: int) -> None:
        self.torch: Any = import_module("torch")
        self.torch.set_num_threads(threads)
        self.torch.set_num_interop_threads(1)
        self.torch.set_grad_enabled(False)
        self.version: str = self.torch.__version__

    def prepare(self, task: Task, first: Array, second: Array) -> Prepared:
        """Bring operands into PyTorch's axis order, filters (Cin, Cout, kh, kw), in the layout's memory."""
        layer, axes = task.geometry, (0, 3, 1, 2)
        if layer.operation == "transpose":
            one, other = self._tensor(first, axes, task), self._tensor(second, (3, 2, 0, 1), task)
            return self._transpose(layer, one, other)
        return self._filter_grad(layer, self._tensor(first, axes, task), self._tensor(second, axes, task))

    def _tensor(self, array: Array, axes: tuple[int, ...], task: Task) -> Any:
        torch = self.torch
        moved = np.ascontiguousarray(array.transpose(axes))
        if task.dtype == "bfloat16":  # not a dtype that PyTorch takes from NumPy
            tensor = torch.from_numpy(moved.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(moved)
        return tensor.contiguous(
            memory_format=torch.channels_last if task.layout == "NHWC" else torch.contiguous_format
        )

    def _numpy(self, tensor: Any) -> Array:
        return np.asarray(tensor.to(self.torch.float64).numpy())

    def _transpose(self, layer: Layer, input: Any, filters: Any) -> Prepared:
        conv_transpose2d = self.torch.nn.functional.conv_transpose2d
        height, width = layer.wide
        before = [pads[0] for pads in layer.pads]
        # It crops as much after as before. One row more than asked for, where the odd pad goes after, is
        # left out by a view; rows that no tap reaches are its `output_padding`.
        reached = [
            (narrow - 1) * layer.stride + layer.kernel - 2 * pad
            for narrow, pad in zip(layer.narrow, before, strict=True)
        ]
        extra = [max(wide - size, 0) for wide, size in zip(layer.wide, reached, strict=True)]

        def call() -> Any:
            result = conv_transpose2d(
                input, filters, stride=layer.stride, padding=before, output_padding=extra
            )
            return result[:, :, :height, :width]

        return Prepared(call, lambda result: self._numpy(result).transpose(0, 2, 3, 1))

    def _filter_grad(self, layer: Layer, input: Any, out_backprop: Any) -> Prepared:
        torch, kernel = self.torch, layer.kernel
        (top, bottom), (left, right) = layer.pads
        even = (top, left) == (bottom, right)
        # Only the shape of the filters matters to their gradient.
        filters = torch.zeros(layer.channels * layer.outputs, 1, kernel, kernel, dtype=input.dtype)
        strides, padding = [layer.stride] * 2, [top, left] if even else [0, 0]
        wanted = [False, True, False]  # gradients of input, filters, bias

        def call() -> Any:
            # Its convolutions pad evenly, so an odd pad is a copy that is part of the work.
            padded = input if even else torch.nn.functional.pad(input, (left, right, top, bottom))
            return torch.ops.aten.convolution_backward(
                out_backprop, padded, filters, None, strides, padding, [1, 1], False, [0, 0],
                layer.channels, wanted,
            )[1]  # fmt: skip

        def channels_last(result: Any) -> Array:
            return (
                self._numpy(result)
                .reshape(layer.channels, layer.outputs, kernel, kernel)
                .transpose(2, 3, 0, 1)
            )

        return Prepared(call, channels_last)
