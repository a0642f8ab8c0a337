"""convgrad, as a user calls it."""

from __future__ import annotations

from tasks import Array, Prepared, Task, in_layout

import convgrad


class Adapter:
    """Both operations, everything."""

    operations = ("transpose", "filter-grad")
    layouts = ("NHWC", "NCHW")
    dtypes = ("float32", "float16", "bfloat16", "float64")

    def __init__(self, threads: int) -> None:
        self.version = convgrad.__version__
        self.threads = threads

    def prepare(self, task: Task, first: Array, second: Array) -> Prepared:
        """Lay the data tensors out; filters keep TensorFlow's order."""
        if task.geometry.operation == "transpose":
            return self._transpose(task, in_layout(first, task.layout), second)
        return self._filter_grad(task, in_layout(first, task.layout), in_layout(second, task.layout))

    def _transpose(self, task: Task, input: Array, filters: Array) -> Prepared:
        layer = task.geometry
        options = (layer.wide, layer.stride, layer.padding, task.layout)
        plan = convgrad.plan_conv2d_transpose(input, filters, *options, fast=task.fast)
        return Prepared(
            lambda: convgrad.conv2d_transpose(input, filters, *options, fast=task.fast, threads=self.threads),
            lambda result: result if task.layout == "NHWC" else result.transpose(0, 2, 3, 1),
            plan.strategy,
        )

    def _filter_grad(self, task: Task, input: Array, out_backprop: Array) -> Prepared:
        layer = task.geometry
        arguments = (input, (layer.kernel, layer.kernel), out_backprop)
        options = (layer.stride, layer.padding, task.layout)
        plan = convgrad.plan_depthwise_conv2d_backprop_filter(*arguments, *options)
        return Prepared(
            lambda: convgrad.depthwise_conv2d_backprop_filter(*arguments, *options, threads=self.threads),
            lambda result: result,
            plan.strategy,
        )
