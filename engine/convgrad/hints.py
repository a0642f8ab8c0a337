"""What was probably meant: the first single change to a request under which everything fits.

Nothing here knows a shape rule. Each candidate is a changed request, and the solver says whether it fits,
so a hint is never wrong about what would work. Imported when a request has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from .errors import ShapeError
from .findings import joined
from .layout import sizes_in, sizes_nhwc
from .plan import Plan
from .requests import Request
from .shapes import ShapeReport

#: Largest stride or dilation that is tried, and the largest dilation that is a likely slip.
FARTHEST, NEAR = 32, 4


#: Yields hints with the request that each would make of the given one.
Candidates: TypeAlias = Iterator[tuple[str, Request]]
Solve: TypeAlias = Callable[[Request], Plan]


def explained(
    error: ShapeError, request: Request, solve: Solve, mistakes: Callable[[Request], Candidates]
) -> ShapeError:
    """Return `error`, which `solve` raised for `request`, with a hint where there is one.

    Parameters
    ----------
    mistakes : candidates for this operation, likeliest first; other options are tried after them
    """
    hint = _first_fitting(mistakes(request), solve)
    if hint is None:
        hint = _nearest_output(request, error.report, solve)
        options = _first_fitting(_other_options(request), solve)
        if hint is not None and options is not None:
            hint = f"{hint}; {joined(request.sizes or ())} would with {options}"
        elif options is not None:
            hint = f"would match with {options}"
    return ShapeError(error.message, hint=hint, report=error.report)


def transpose_mistakes(request: Request) -> Candidates:
    """Yield hints for a transposed convolution."""
    a, b, c, d = request.other
    yield (
        "filters axes 2 and 3 look swapped: the order is (kh, kw, Cout, Cin)",
        replace(request, other=(a, b, d, c)),
    )
    if c * d <= a * b:  # kernels are small beside channels; 3 input channels alone prove nothing
        yield (
            "filters look like PyTorch's (Cin, Cout, kh, kw): transpose their axes by (2, 3, 1, 0)",
            replace(request, other=(c, d, b, a)),
        )
    yield from _other_layout(request)
    sizes = request.sizes
    if sizes is None:
        return
    if len(sizes) == 2:
        yield "height and width of output_shape look swapped", replace(request, sizes=sizes[::-1])
        return
    other = "NCHW" if request.data_format == "NHWC" else "NHWC"
    reordered = sizes_in(request.data_format, *sizes_nhwc(sizes, other))
    yield f"output_shape looks {other}: {joined(reordered)} would match", replace(request, sizes=reordered)
    n, h, w, channels = sizes_nhwc(sizes, request.data_format)
    swapped = sizes_in(request.data_format, n, w, h, channels)
    yield "height and width of output_shape look swapped", replace(request, sizes=swapped)


def filter_grad_mistakes(request: Request) -> Candidates:
    """Yield hints for a depthwise filter gradient."""
    yield "input and out_backprop look swapped", replace(request, input=request.other, other=request.input)
    yield from _other_layout(request)
    sizes = request.sizes or ()
    channels = sizes_nhwc(request.input, request.data_format)[3]
    products = sizes_nhwc(request.other, request.data_format)[3]
    if len(sizes) == 4 and channels and products % channels == 0:
        right = (*sizes[:2], channels, products // channels)
        yield f"would match with filter_sizes {joined(right)}", replace(request, sizes=right)


def _other_layout(request: Request) -> Iterator[tuple[str, Request]]:
    other = "NCHW" if request.data_format == "NHWC" else "NHWC"
    yield f"input looks {other}: use data_format {other}", replace(request, data_format=other)


def _other_options(request: Request) -> Candidates:
    """Yield other paddings, strides and dilations: small changes before large ones."""
    words = [word for word in ("SAME", "VALID") if word != request.padding_name]
    for word in words:
        yield f"padding {word}", _padded(request, word)
    for strides in _pairs(request.strides):
        yield f"strides {_shown(strides)}", replace(request, strides=strides)
    for near in (True, False):
        for dilations in _pairs(request.dilations):
            if (max(dilations) <= NEAR) == near:
                yield f"dilations {_shown(dilations)}", replace(request, dilations=dilations)
        for word, strides in product(words, _pairs(request.strides)) if near else ():
            yield (
                f"padding {word} and strides {_shown(strides)}",
                replace(_padded(request, word), strides=strides),
            )


def _padded(request: Request, word: str) -> Request:
    return replace(request, padding=("SAME", "SAME") if word == "SAME" else ("VALID", "VALID"))


def _pairs(now: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield other (height, width) values: equal ones first, then one side changed."""
    values = range(1, FARTHEST + 1)
    yield from ((value, value) for value in values)
    yield from ((value, now[1]) for value in values)
    yield from ((now[0], value) for value in values)


def _shown(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]},{pair[1]}"


def _first_fitting(candidates: Candidates, solve: Solve) -> str | None:
    for hint, changed in candidates:
        try:
            plan = solve(changed)
        except ShapeError:
            continue
        if plan.multiply_adds:  # nobody means to compute nothing
            return hint
    return None


def _nearest_output(request: Request, report: ShapeReport | None, solve: Solve) -> str | None:
    """Name the legal output shape nearest to the one asked for, if the rest of the request fits."""
    sizes, axes = request.sizes, report.axes if report else ()
    if sizes is None or not axes or report is None or report.tensors[-1].letters[0] != "N":
        return None
    height, width = (min(max(axis.wide, axis.legal_wide[0]), axis.legal_wide[1]) for axis in axes)
    nearest: tuple[int, ...] = (height, width)
    if len(sizes) == 4:
        n, _, _, channels = sizes_nhwc(sizes, request.data_format)
        nearest = sizes_in(request.data_format, n, height, width, channels)
    return _first_fitting(
        iter([(f"output_shape {joined(nearest)} would match", replace(request, sizes=nearest))]), solve
    )
