"""`convgrad filter-grad`: the depthwise filter gradient of two saved arrays."""

from __future__ import annotations

from typing import Any

import click

from convgrad_cli import options


@click.command(
    "filter-grad",
    short_help="Depthwise filter gradient, as tf.nn.depthwise_conv2d_backprop_filter.",
    epilog="""\b
Examples:
  convgrad filter-grad x.npy dy.npy --filter-sizes 3,3 -o dw.npy
  convgrad filter-grad net.h5::/dw/input net.h5::/dw/out_backprop --filter-sizes 3x3 -s 2 -o grads.h5::/dw
  convgrad filter-grad x.npy dy.npy --filter-sizes 5,5,32,1 -s 2,1 -d 1,2 -p VALID --dry-run

\b
The result (kh,kw,C,M) for other frameworks:
  PyTorch, ONNX depthwise  (C*M,1,kh,kw)  dw.transpose(2, 3, 0, 1).reshape(C*M, 1, kh, kw)
  and back                                w.reshape(C, M, kh, kw).transpose(2, 3, 0, 1)
Output channel c*M+m belongs to input channel c.
""",
)
@options.operands("input", "out_backprop")
@click.option(
    "--filter-sizes",
    type=options.SizesType(),
    required=True,
    help="kh,kw or kh,kw,C,M. C and M follow from the operands where left out.",
)
@options.common
def command(input: str, out_backprop: str, filter_sizes: tuple[int, ...], **given: Any) -> None:
    """Gradient of a depthwise 2-D convolution with respect to its filter.

    INPUT (N,H,W,C) and OUT_BACKPROP (N,h,w,C*M) give (kh,kw,C,M), as
    tf.nn.depthwise_conv2d_backprop_filter, dilations honoured. Each is an address: FILE (.npy),
    FILE.h5::/dataset, or - for .npy on standard input.
    """
    from convgrad_cli.job import OPERATIONS, CommonOptions, run

    run(OPERATIONS["filter-grad"], (input, out_backprop), filter_sizes, CommonOptions(**given))
