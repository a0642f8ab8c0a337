"""A whole job with a framework, as a script one would write: files in, one call, a file out.

``job_peer.py tensorflow|torch transpose|filter-grad FIRST SECOND OUT KERNEL STRIDE HEIGHT WIDTH``, SAME
padding, the last two being those of the wide side.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np


def main() -> None:
    """Run the job."""
    peer, operation, first, second, out, *numbers = sys.argv[1:]
    compute = {"tensorflow": tensorflow, "torch": torch}[peer]
    np.save(out, compute(operation, np.load(first), np.load(second), *map(int, numbers)))


def tensorflow(operation: str, x: Any, y: Any, kernel: int, stride: int, height: int, width: int) -> Any:
    """Compute with TensorFlow."""
    tf: Any = import_module("tensorflow")
    if operation == "transpose":
        shape = [len(x), height, width, y.shape[2]]
        return tf.nn.conv2d_transpose(x, y, shape, stride, "SAME").numpy()
    sizes = [kernel, kernel, x.shape[3], y.shape[3] // x.shape[3]]
    return tf.nn.depthwise_conv2d_backprop_filter(x, sizes, y, [1, stride, stride, 1], "SAME").numpy()


def torch(operation: str, x: Any, y: Any, kernel: int, stride: int, height: int, width: int) -> Any:
    """Compute with PyTorch, on views in its axis order: the arrays are `channels_last` as they lie."""
    library: Any = import_module("torch")
    functional = library.nn.functional
    (top, bottom), (left, right) = same(height, kernel, stride), same(width, kernel, stride)
    images = library.from_numpy(x).permute(0, 3, 1, 2)
    if operation == "transpose":
        filters = library.from_numpy(y).permute(3, 2, 0, 1)
        # It crops as much after as before: what is too much is cut off, what is missing is asked for.
        extra = [
            max(wide - (narrow - 1) * stride - kernel + 2 * before, 0)
            for wide, narrow, before in zip((height, width), x.shape[1:3], (top, left), strict=True)
        ]
        result = functional.conv_transpose2d(
            images, filters, stride=stride, padding=(top, left), output_padding=extra
        )
        return result[:, :, :height, :width].permute(0, 2, 3, 1).contiguous().numpy()
    padding = [top, left]
    if (top, left) != (bottom, right):
        images, padding = functional.pad(images, (left, right, top, bottom)), [0, 0]
    gradient, channels = library.from_numpy(y).permute(0, 3, 1, 2), x.shape[3]
    filters = library.zeros(y.shape[3], 1, kernel, kernel)
    result = library.ops.aten.convolution_backward(
        gradient, images, filters, None, [stride] * 2, padding, [1, 1], False, [0, 0], channels,
        [False, True, False],
    )[1]  # fmt: skip
    return result.numpy().reshape(channels, -1, kernel, kernel).transpose(2, 3, 0, 1)


def same(wide: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return SAME padding (before, after) of one axis."""
    total = max((-(-wide // stride) - 1) * stride + kernel - wide, 0)
    return total // 2, total - total // 2


if __name__ == "__main__":
    main()
