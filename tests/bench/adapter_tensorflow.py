"""TensorFlow on a CPU: eager calls of its public functions, which return when the result is there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from tasks import Array, Prepared, Task


class Adapter:
    """Both operations in NHWC; its CPU kernels refuse NCHW."""

    operations = ("transpose", "filter-grad")
    layouts = ("NHWC",)
    dtypes = ("float32", "float16", "bfloat16")

    def __init__(self, threads: int) -> None:
        self.tf: Any = import_module("tensorflow")
        self.tf.config.threading.set_intra_op_parallelism_threads(threads)
        self.tf.config.threading.set_inter_op_parallelism_threads(1)
        self.version: str = self.tf.__version__

    def prepare(self, task: Task, first: Array, second: Array) -> Prepared:
        """Put the operands into tensors."""
        layer, nn = task.geometry, self.tf.nn
        one, other = self.tf.constant(first), self.tf.constant(second)
        strides, shape = [1, layer.stride, layer.stride, 1], list(layer.result_shape)

        def transpose() -> Any:
            return nn.conv2d_transpose(one, other, shape, strides, layer.padding)

        def filter_grad() -> Any:
            return nn.depthwise_conv2d_backprop_filter(one, shape, other, strides, layer.padding)

        call = transpose if layer.operation == "transpose" else filter_grad
        return Prepared(call, lambda result: np.asarray(result.numpy()))
