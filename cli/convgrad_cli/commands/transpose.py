"""`convgrad transpose`: the transposed convolution of two saved arrays."""

from __future__ import annotations

from typing import Any

import click

from convgrad_cli import options


@click.command(
    "transpose",
    short_help="Transposed 2-D convolution, as tf.nn.conv2d_transpose.",
    epilog="""\b
Examples:
  convgrad transpose x.npy w.npy -s 2 -o y.npy
  convgrad transpose net.h5::/up/input net.h5::/up/filters -s 2x2 --output-shape 15,15 -o up.h5::/y
  convgrad transpose acts/*.npy w.npy -s 2 -o 'up/{stem}.npy'
  convgrad transpose x.npy w.npy -p 1,1,0,0 -d 2 --data-format NCHW --dry-run

\b
Filters of other frameworks, and the NumPy call that makes them (kh,kw,Cout,Cin):
  PyTorch ConvTranspose2d, ONNX ConvTranspose  (Cin,Cout,kh,kw)  w.transpose(2, 3, 1, 0)
  Keras Conv2DTranspose, tf.nn                 (kh,kw,Cout,Cin)  as it is
Filters are not flipped.
""",
)
@options.operands("input", "filters", several=True)
@click.option(
    "--output-shape",
    type=options.SizesType(),
    help="H,W or all four sizes. Left out: SAME h*s, VALID h*s + max(ke-s,0), explicit pads the least legal.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Allow fast FIR (Winograd) kernels, whose error is bounded by the largest results, not by each one.",
)
@options.common
def command(
    input: tuple[str, ...], filters: str, output_shape: tuple[int, ...] | None, fast: bool, **given: Any
) -> None:
    """Transposed 2-D convolution, the gradient of a convolution with respect to its input.

    INPUT (N,h,w,Cin) and FILTERS (kh,kw,Cout,Cin) give (N,H,W,Cout), as tf.nn.conv2d_transpose. Each is an
    address: FILE (.npy), FILE.h5::/dataset, or - for .npy on standard input. Of several inputs, one job each,
    the output names {stem} or {name}; the first that fails ends it.
    """
    if not input:  # one word alone is taken for the filters
        raise click.UsageError("Missing argument 'FILTERS'.", click.get_current_context())
    from convgrad_cli.job import OPERATIONS, CommonOptions, run_each

    run_each(OPERATIONS["transpose"], input, filters, output_shape, CommonOptions(**given), fast=fast)
