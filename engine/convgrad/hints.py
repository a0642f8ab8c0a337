"""What was probably meant: the first single change to a request under which everything fits.

Nothing here knows a shape rule. Each candidate is a changed request, and the solver says whether it fits,
so a hint is never wrong about what would work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from .errors import ShapeError
from .layout import sizes_in, sizes_nhwc
from .plan import Plan
from .requests import Request
from .shapes import ShapeReport

#: Largest stride or dilation that is tried.
FARTHEST = 32


def explained(request: Request, solve: Callable[[Request], Plan], candidates: Candidates) -> Plan:
    """Solve `request`; where that fails, add a hint to the error.

    Raises
    ------
    ShapeError
        As `solve` does, with the hint of the first candidate that fits.
    """
    try:
        return solve(request)
    except ShapeError as error:
        for hint, changed in candidates(request):
            if _fits(changed, solve):
                raise ShapeError(error.message, hint=hint, report=error.report) from None
        nearest = _nearest_stride(request, error.report) if candidates is transpose_candidates else None
        raise ShapeError(error.message, hint=nearest, report=error.report) from None


Candidates = Callable[[Request], Iterator[tuple[str, Request]]]


def transpose_candidates(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield hints for a transposed convolution, likeliest mistakes first."""
    a, b, c, d = request.other
    yield (
        "filters axes 2 and 3 look swapped: the order is (kh, kw, Cout, Cin)",
        replace(request, other=(a, b, d, c)),
    )
    yield (
        "filters look like PyTorch's (Cin, Cout, kh, kw): permute their axes by (2, 3, 1, 0)",
        replace(request, other=(c, d, b, a)),
    )
    yield from _other_layout(request)
    sizes = request.sizes
    if sizes is not None:
        if len(sizes) == 4:
            other = "NCHW" if request.data_format == "NHWC" else "NHWC"
            reordered = sizes_in(request.data_format, *sizes_nhwc(sizes, other))
            shown = ",".join(map(str, reordered))
            yield f"output_shape looks {other}: {shown} would match", replace(request, sizes=reordered)
            n, h, w, channels = sizes_nhwc(sizes, request.data_format)
            swapped = sizes_in(request.data_format, n, w, h, channels)
        else:
            swapped = (sizes[1], sizes[0])
        yield "height and width of output_shape look swapped", replace(request, sizes=swapped)
    yield from _other_options(request)


def filter_grad_candidates(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield hints for a depthwise filter gradient, likeliest mistakes first."""
    yield "input and out_backprop look swapped", replace(request, input=request.other, other=request.input)
    yield from _other_layout(request)
    sizes = request.sizes or ()
    if len(sizes) == 4:
        channels = sizes_nhwc(request.input, request.data_format)[3]
        products = sizes_nhwc(request.other, request.data_format)[3]
        if channels and products % channels == 0:
            right = (sizes[0], sizes[1], channels, products // channels)
            shown = ",".join(map(str, right))
            yield f"would match with filter_sizes {shown}", replace(request, sizes=right)
    yield from _other_options(request)


def _other_layout(request: Request) -> Iterator[tuple[str, Request]]:
    other = "NCHW" if request.data_format == "NHWC" else "NHWC"
    yield f"input looks {other}: use data_format {other}", replace(request, data_format=other)


def _other_options(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield other paddings, strides and dilations."""
    paddings = [word for word in ("SAME", "VALID") if word != request.padding_name]
    for word in paddings:
        yield f"would match with padding {word}", _padded(request, word)
    for strides in _pairs(request.strides):
        yield f"would match with strides {_shown(strides)}", replace(request, strides=strides)
    for dilations in _pairs(request.dilations):
        if max(dilations) <= 4:
            yield f"would match with dilations {_shown(dilations)}", replace(request, dilations=dilations)
    for word, strides in product(paddings, _pairs(request.strides)):
        changed = replace(_padded(request, word), strides=strides)
        yield f"would match with padding {word} and strides {_shown(strides)}", changed
    for dilations in _pairs(request.dilations):
        yield f"would match with dilations {_shown(dilations)}", replace(request, dilations=dilations)


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


def _fits(request: Request, solve: Callable[[Request], Plan]) -> bool:
    try:
        solve(request)
    except ShapeError:
        return False
    return True


def _nearest_stride(request: Request, report: ShapeReport | None) -> str | None:
    """Say what the stride nearest to the asked enlargement can give, where no option fits exactly."""
    for axis, rule in zip(report.axes if report else (), request.rules((1, 1)), strict=False):
        stride = axis.wide // max(axis.narrow, 1)
        if not axis.legal and axis.legal_wide[1] >= 0 and 1 <= stride != axis.stride and axis.narrow:
            nearby = replace(rule, kernel=axis.kernel, stride=stride)
            least, most = nearby.legal_wide(axis.narrow)
            return f"at stride {stride}, {axis.name} {axis.narrow} can give {least}..{most}"
    return None
