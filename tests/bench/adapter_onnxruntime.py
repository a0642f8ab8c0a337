"""ONNX Runtime on a CPU: a graph of one `ConvTranspose`, its filters a constant it may pack beforehand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from layers import Layer
from tasks import Array, Prepared, Task, in_layout


class Adapter:
    """Transposed convolutions in NCHW; it has no filter gradient."""

    operations = ("transpose",)
    layouts = ("NCHW",)
    dtypes = ("float32",)

    def __init__(self, threads: int) -> None:
        self.onnx: Any = import_module("onnx")
        self.ort: Any = import_module("onnxruntime")
        self.threads = threads
        self.version: str = self.ort.__version__

    def prepare(self, task: Task, first: Array, second: Array) -> Prepared:
        """Build a session and bind its input, so that a call copies nothing."""
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        model = self._model(task.geometry, second)
        session = self.ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", self.ort.OrtValue.ortvalue_from_numpy(in_layout(first, "NCHW")))
        binding.bind_output("y", "cpu")
        return Prepared(
            lambda: session.run_with_iobinding(binding),
            lambda _: np.asarray(binding.copy_outputs_to_cpu()[0]).transpose(0, 2, 3, 1),
        )

    def _model(self, layer: Layer, filters: Array) -> bytes:
        helper, float32 = self.onnx.helper, self.onnx.TensorProto.FLOAT
        (top, bottom), (left, right) = layer.pads
        extra = [
            max(wide - (narrow - 1) * layer.stride - layer.kernel, 0)
            for wide, narrow in zip(layer.wide, layer.narrow, strict=True)
        ]
        node = helper.make_node(
            "ConvTranspose", ["x", "w"], ["y"],
            strides=[layer.stride] * 2, pads=[top, left, bottom, right], output_padding=extra,
        )  # fmt: skip
        batch, height, width, channels = layer.first_shape
        weights = np.ascontiguousarray(filters.transpose(3, 2, 0, 1))
        graph = helper.make_graph(
            [node],
            "layer",
            [helper.make_tensor_value_info("x", float32, (batch, channels, height, width))],
            [helper.make_tensor_value_info("y", float32, None)],
            [self.onnx.numpy_helper.from_array(weights, "w")],
        )
        # An older format than the newest, which the runtime of the day may not read yet.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        serialized: bytes = model.SerializeToString()
        return serialized
