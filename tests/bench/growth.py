"""Growth: whether the time per element stays the same from 1 to 64 images and from 14 to 448 pixels a side.

Elements are those of the result for a transposed convolution and of `out_backprop` for a filter gradient,
whose result has the same size whatever the images. Images have the layer's own size; pixels are those of
the wide side of one image. One thread, one core, into an array that is there already.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from display import RESULTS, console, machine, ratio, write_json
from layers import LAYERS, Layer
from rich.table import Table

import convgrad

TYPICAL = (
    "res4-3x3s1",
    "pose-256-256",
    "dcgan-256-128",
    "mbv1-14x512",
    "effb0-28x240",
    "convnext-14x384",
)
IMAGES = (1, 2, 4, 8, 16, 32, 64)
PIXELS = (14, 28, 56, 112, 224, 448)
#: Rounds over all sizes, so that a disturbance does not hit one size alone.
ROUNDS = 3
#: A small job is repeated within a round.
SECONDS = 0.05


def main() -> None:
    """Measure, print tables, write a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", nargs="*", choices=TYPICAL, default=TYPICAL)
    parser.add_argument("--images", nargs="*", type=int, default=IMAGES)
    parser.add_argument("--pixels", nargs="*", type=int, default=PIXELS)
    parser.add_argument("--json", type=Path, default=RESULTS / "growth.json", metavar="FILE")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    out = console()
    out.print(machine(), markup=False)
    results = {}
    for what, sizes in (("images", options.images), ("pixels", options.pixels)):
        table = Table("layer", *map(str, sizes), "worst/best", title=f"ns per element, by {what}")
        for name in options.layers:
            times = per_element([sized(LAYERS[name], what, size) for size in sizes])
            results[f"{name} by {what}"] = dict(zip(sizes, times, strict=True))
            cells = [f"{1e9 * seconds:.3g}" for seconds in times]
            table.add_row(name, *cells, ratio(max(times) / min(times)))
        out.print(table)
    write_json(options.json, results)


def sized(layer: Layer, what: str, size: int) -> Layer:
    """Return a layer with another number of images, or one image of another size."""
    if what == "images":
        return replace(layer, batch=size)
    narrow = -(-size // layer.stride)
    return replace(layer, batch=1, wide=(size, size), narrow=(narrow, narrow))


def per_element(layers: list[Layer]) -> list[float]:
    """Return the least seconds per element of each layer."""
    least = [float("inf")] * len(layers)
    for _ in range(ROUNDS):
        for place, layer in enumerate(layers):
            least[place] = min(least[place], seconds(layer) / elements(layer))
    return least


def elements(layer: Layer) -> int:
    """Return the number of elements that the time is divided by."""
    return int(np.prod(layer.result_shape if layer.operation == "transpose" else layer.second_shape))


def seconds(layer: Layer) -> float:
    """Return the least time of a few calls."""
    rng = np.random.default_rng(0)
    first, second = (
        rng.standard_normal(shape, np.float32) for shape in (layer.first_shape, layer.second_shape)
    )
    out = np.zeros(layer.result_shape, np.float32)
    call(layer, first, second, out)
    times: list[float] = []
    while not times or sum(times) < SECONDS:
        start = time.perf_counter()
        call(layer, first, second, out)
        times.append(time.perf_counter() - start)
    return min(times)


def call(layer: Layer, first: Any, second: Any, out: Any) -> None:
    """Compute a layer once."""
    options: Any = {"strides": layer.stride, "padding": layer.padding, "out": out, "threads": 1}
    if layer.operation == "transpose":
        convgrad.conv2d_transpose(first, second, layer.wide, **options)
    else:
        sizes = (layer.kernel, layer.kernel)
        convgrad.depthwise_conv2d_backprop_filter(first, sizes, second, **options)


if __name__ == "__main__":
    main()
