"""fir: fast FIR (Winograd) along both axes, all stride phases from one transformed input. On request only.

Each stride phase is a correlation of the same narrow windows (see `tiling`), and a correlation takes fewer
products between transforms (see `toom_cook`): along both axes at once

    V = (Bh x Bw) input        U = (Gh x Gw) filters        out = (Ah x Aw) (V @ U for each pair of points)

where ``V @ U`` is the sum over channels as a matrix product (tiles, Cin) @ (Cin, Cout), and all phases share
`V`. A 3 x 3 kernel at stride 1 takes 16 products for four results instead of 36.

Four points an axis (0, 1, -1, infinity) are the most whose transforms are additions alone, and keep the error
near that of a plain sum; so windows over 3 are not for this kernel. Since results of one tile share products,
a small result next to large ones is only as good as these, and NaN and inf spread over a tile: the executor
then has the block done again by the general kernel.

Samples lie as (row mod m, row div m, column mod m, column div m, image, channel). Then one sample of all
tiles is a few long runs, and so is every operand of every addition.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from convgrad.blocks import Block, BlockSizes, block_counts, even
from convgrad.dtypes import convert
from convgrad.geometry import ceil_div
from convgrad.kernels.costs import Work
from convgrad.kernels.transposition import copy_pixels, swap_last_two
from convgrad.problem import Problem
from convgrad.scratch import Scratch

from . import toom_cook
from .kernel import TransposeKernel
from .tiling import Terms, Tiling, meeting, tiling

Array = npt.NDArray[Any]
#: Of rows and of columns.
Tilings: TypeAlias = tuple[Tiling, Tiling]

#: Longest chain of additions inside a matrix product: on equal terms it is off by 22 units of roundoff.
CHAIN = 86
#: Least input and output channels: with fewer the transforms cost more than the products they save.
FEWEST = 16
#: Output channels of a block.
OUTPUTS = 512
#: Tiles that a block should have: with fewer BLAS is less busy, with more the cache overflows ...
TILES = 256, 1024
#: ... as it does with more elements of transformed input at one row point (1 MB).
ELEMENTS = 2**18
#: Elements that none of a block's arrays exceeds (10 MB), unless one tile does ...
LARGEST = 5 * 2**19
#: ... and that the transformed filters may have (64 MB).
LARGEST_FILTERS = 2**24
#: NumPy's default, 8192 elements, has it copy runs that are shorter into its buffers before it adds them.
BUFFER = 128


def _tilings(problem: Problem) -> Tilings:
    rows, columns = tiling(problem.height), tiling(problem.width)
    if rows is None or columns is None:
        raise ValueError("not a problem that this kernel accepts")
    return rows, columns


def prepare(filters: Array, problem: Problem, dtype: np.dtype[Any]) -> Array:
    """U (rows of Gh, rows of Gw, Cin, Cout) = (Gh x Gw) filters (kh, kw, Cout, Cin), one matrix product."""
    rows, columns = _tilings(problem)
    swapped = np.empty((problem.taps, problem.channels, problem.outputs), dtype)
    swap_last_two(swapped, filters.reshape(problem.taps, problem.outputs, problem.channels))
    both = np.kron(rows.filters, columns.filters).astype(dtype)
    transformed: Array = both @ swapped.reshape(problem.taps, -1)
    return transformed.reshape(len(rows.filters), len(columns.filters), problem.channels, problem.outputs)


def compute(
    images: Array, filters: Array, problem: Problem, block: Block, out: Array, scratch: Scratch
) -> Array:
    """Fill `out` with the block's results; see `kernel.Compute`."""
    tilings = _tilings(problem)
    samples = _samples(images, tilings, block, filters.dtype, scratch)
    filters = filters[..., block.channels.start : block.channels.stop]
    tiles = tilings[0].tiles(block.rows), tilings[1].tiles(block.columns), len(images)
    with np.errstate():  # restores the buffer size too
        np.setbufsize(BUFFER)
        sums = _sums(samples, filters, tilings, tiles, scratch)
    _store(out, sums, tilings, block, scratch)
    return sums.reshape(-1)


def _samples(images: Array, tilings: Tilings, block: Block, dtype: np.dtype[Any], scratch: Scratch) -> Array:
    """Return the pixels (row mod m, row div m, column mod m, column div m, n, Cin), zero beyond the edges."""
    steps = [own.step for own in tilings]
    (top, down), (left, across) = tilings[0].samples(block.rows), tilings[1].samples(block.columns)
    # What lies before the first sample is left out, and samples may begin before the first pixel.
    images = images[:, max(top, 0) : max(top + down * steps[0], 0)]
    images = images[:, :, max(left, 0) : max(left + across * steps[1], 0)]
    n, height, width, channels = images.shape
    if images.strides[3] != images.itemsize and channels > 1:
        # Channels first: swapped once, fast, and not by each strided copy below.
        swapped = scratch.array("pixels", images.shape, dtype)
        copy_pixels(swapped, images)
        images = swapped
    samples = scratch.array("samples", (steps[0], down, steps[1], across, n, channels), dtype)
    samples[...] = 0
    for row, column in itertools.product(range(steps[0]), range(steps[1])):
        i, those = meeting(min(top, 0) + row, steps[0], down, height)
        j, others = meeting(min(left, 0) + column, steps[1], across, width)
        place = samples[row, those, column, others].transpose(2, 0, 1, 3)
        convert(place, images[:, i, j])
    return samples


def _sums(
    samples: Array, filters: Array, tilings: Tilings, tiles: tuple[int, int, int], scratch: Scratch
) -> Array:
    """Return the sums (row phase, row of a tile, column phase, column of a tile, down, across, n, Cout).

    One row point at a time, so that what is multiplied and the products stay in the cache.

    Parameters
    ----------
    samples : from `_samples`
    filters : U (rows of Gh, rows of Gw, Cin, Cout)
    tiles : down, across, images
    """
    (rows, columns), (down, across, n) = tilings, tiles
    size, dtype = down * across * n, filters.dtype
    channels, outputs = filters.shape[2:]
    phases, step, points = columns.axis.stride, columns.step, len(columns.inputs)
    half = scratch.array("half transformed", (down, *samples.shape[2:]), dtype)
    values = scratch.array("transformed", (points, *tiles, channels), dtype)
    levels = (ceil_div(channels, CHAIN) - 1).bit_length() + 1
    products = scratch.array("products", (levels, points, size, outputs), dtype)
    halves = scratch.array("half summed", (len(rows.filters), phases, step, size * outputs), dtype)
    sums = scratch.array("sums", (rows.axis.stride, rows.step, phases, step, size * outputs), dtype)
    above = [samples[i % rows.step, i // rows.step :][:down] for i in range(len(rows.inputs))]
    beside = [half[:, i % step, i // step :][:, :across] for i in range(points)]
    for point, terms in enumerate(rows.inputs):
        _combine(half, terms, above)
        for value, others in zip(values, columns.inputs, strict=True):
            _combine(value, others, beside)
        for own, here in zip(rows.rows, rows.points, strict=True):
            if point in here:
                row = own.start + here.index(point)
                for phase, those in enumerate(columns.points):
                    left = values[those.start : those.stop].reshape(len(those), size, channels)
                    places = products[:, : len(those)]
                    _multiply(left, filters[row, columns.rows[phase]], places)
                    flat = places[0].reshape(len(those), size * outputs)
                    for target, others in zip(halves[row, phase], columns.outputs[phase], strict=True):
                        _combine(target, others, flat)
    for phase, own in enumerate(rows.rows):
        for target, terms in zip(sums[phase], rows.outputs[phase], strict=True):
            _combine(target, terms, halves[own])
    return sums.reshape(*sums.shape[:4], *tiles, outputs)


def _combine(out: Array, terms: Terms, sources: Any) -> None:
    """out[...] = the sum of `terms` of `sources`"""
    if len(terms) < 2:
        out[...] = sources[terms[0][0]] if terms else 0
        return
    total = sources[terms[0][0]]
    for index, kind in terms[1:]:
        kind(total, sources[index], out=out)
        total = out


def _multiply(left: Array, right: Array, places: Array) -> None:
    """places[0] = left @ right, in chains of at most `CHAIN` terms, added pairwise in the other places."""
    terms = left.shape[-1]
    pieces = ceil_div(terms, CHAIN)
    if pieces == 1:
        np.matmul(left, right, out=places[0])
        return
    half = terms * (pieces // 2) // pieces
    _multiply(left[..., half:], right[..., half:, :], places)
    _multiply(left[..., :half], right[..., :half, :], places[1:])
    np.add(places[0], places[1], out=places[0])


def _store(out: Array, sums: Array, tilings: Tilings, block: Block, scratch: Scratch) -> None:
    """Copy the sums of a block to `out` (n, rows, columns, Cout)."""
    # Channels first: swapped once, fast, and not by each strided copy below.
    swap = out.strides[3] != out.itemsize and out.shape[3] > 1
    target = scratch.array("pixels", out.shape, out.dtype) if swap else out
    places = tilings[0].places(block.rows), tilings[1].places(block.columns)
    for row, column in itertools.product(*places):
        part = sums[row.phase, row.position, column.phase, column.position, row.tiles, column.tiles]
        np.copyto(target[:, row.here, column.here], part.transpose(2, 0, 1, 3))
    if swap:
        copy_pixels(out, target)


def accepts(problem: Problem) -> bool:
    """Whether windows are short, transformed filters not too large, and channels enough for it to pay."""
    height, width = problem.height, problem.width
    if problem.dtype == np.float64 or min(problem.channels, problem.outputs) < FEWEST:
        return False
    if 0 in (problem.batch, height.narrow, width.narrow, height.wide, width.wide):
        return False
    if height.stride * width.stride > problem.taps:
        return False
    rows, columns = tiling(height), tiling(width)
    if rows is None or columns is None or rows.step == columns.step == 1:
        return False
    transformed = len(rows.filters) * len(columns.filters) * problem.channels * problem.outputs
    return transformed <= LARGEST_FILTERS


def block_sizes(problem: Problem) -> BlockSizes:
    """Cut a problem: output channels first, then images, rows, and columns of one row that is too long."""
    rows, columns = _tilings(problem)
    height, width = problem.height, problem.width
    down, across = rows.tiles(range(height.wide)), columns.tiles(range(width.wide))
    outputs = even(problem.outputs, OUTPUTS)
    points = len(columns.inputs)
    levels = (ceil_div(problem.channels, CHAIN) - 1).bit_length() + 1
    # Of a tile: samples, and as many beside it; input and products at one row point; sums half done.
    largest = max(
        2 * rows.step * columns.step * problem.channels,
        points * max(problem.channels, levels * outputs),
        len(rows.filters) * width.stride * columns.step * outputs,
    )
    most = max(LARGEST // largest, 1)
    wanted = min(max(ELEMENTS // (points * problem.channels), TILES[0]), TILES[1])
    # Two blocks at least, for two threads, unless each would be too small.
    wanted = min(wanted, most, max(ceil_div(problem.batch * down * across, 2), TILES[0] // 4))
    if across > most or across >= 2 * wanted:
        return BlockSizes(1, rows.wide(1), columns.wide(even(across, wanted)), outputs)
    image = down * across
    if image > most or image >= 2 * wanted:
        whole = even(down, min(ceil_div(wanted, across), most // across))
        return BlockSizes(1, rows.wide(whole), width.wide, outputs)
    images = even(problem.batch, min((wanted + image // 2) // image, most // image))
    return BlockSizes(images, height.wide, width.wide, outputs)


def work(problem: Problem) -> Work:
    """Count the work."""
    rows, columns = _tilings(problem)
    channels, outputs, sizes = problem.channels, problem.outputs, block_sizes(problem)
    images, down, across, parts = block_counts(problem, sizes)
    blocks, pieces = images * down * across, ceil_div(channels, CHAIN)
    prepared, filters = len(rows.filters) * len(columns.filters), channels * outputs
    products = problem.batch * rows.products * columns.products
    values = products // prepared * len(rows.inputs) * len(columns.inputs) * channels * parts
    read = problem.batch * problem.height.narrow * problem.width.narrow * channels * parts
    written = problem.batch * problem.height.wide * problem.width.wide * outputs
    each = len(rows.filters) * problem.width.stride * (2 * pieces + 2 * columns.step)
    return Work(
        calls=100 + blocks * parts * (60 + len(rows.inputs) * (len(columns.inputs) + 2) + each),
        multiply_adds=products * filters + prepared * problem.taps * filters,
        packed=products * channels * parts + blocks * prepared * filters,
        moved=2.5 * (values + products * outputs * pieces) + 2 * (read + written) + 6 * prepared * filters,
        runs=read / channels + written / sizes.channels,
        swapped=problem.taps * filters + (read + written) * (problem.data_format == "NCHW"),
    )


KERNEL = TransposeKernel(
    name="fir",
    accepts=accepts,
    work=work,
    block_sizes=block_sizes,
    prepare=prepare,
    compute=compute,
    halo=toom_cook.MOST,
)
