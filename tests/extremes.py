"""Plans of jobs that are too large or too lopsided for one block. None of them is ever allocated."""

from __future__ import annotations

from typing import Any

import numpy as np

import convgrad
from convgrad import Plan, TensorSpec


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, np.dtype(dtype))


def transpose(input: tuple[int, ...], filters: tuple[int, ...], *sizes: Any, **options: Any) -> Plan:
    return convgrad.plan_conv2d_transpose(spec(*input), spec(*filters), *sizes, **options)


def filter_grad(input: tuple[int, ...], sizes: Any, gradient: tuple[int, ...], **options: Any) -> Plan:
    return convgrad.plan_depthwise_conv2d_backprop_filter(spec(*input), sizes, spec(*gradient), **options)


EXTREME = {
    "square": transpose((8, 512, 512, 64), (3, 3, 64, 64)),
    "one-huge-row": transpose((1, 1, 10**8, 1), (1, 3, 1, 1)),
    "one-huge-row-of-channels": transpose((1, 1, 10**6, 64), (1, 3, 64, 64)),
    "one-huge-row-to-one-channel": transpose((1, 1, 10**6, 64), (1, 3, 1, 64)),
    "one-huge-row-from-one-channel": transpose((1, 1, 10**6, 1), (1, 3, 64, 1)),
    "one-huge-column": transpose((1, 10**8, 1, 1), (3, 1, 1, 1)),
    "huge-channels": transpose((1, 4, 4, 10**5), (3, 3, 8, 10**5)),
    "huge-channels-wide-row": transpose((1, 1, 1000, 10**5), (1, 3, 1, 10**5)),
    "huge-outputs": transpose((1, 4, 4, 8), (3, 3, 10**5, 8)),
    "huge-stride": transpose((1, 10, 10, 8), (3, 3, 8, 8), strides=10**4),
    "huge-stride-in-height": transpose((1, 10**5, 64, 64), (3, 3, 8, 64), strides=(10**4, 1)),
    "stride-past-a-small-result": transpose((10**6, 1, 1, 1000), (1, 1, 1, 1000), (1, 1), strides=1000),
    "huge-dilation": transpose((1, 2000, 2000, 8), (3, 3, 8, 8), dilations=500),
    "huge-dilation-one-row": transpose((1, 1, 10**7, 1), (1, 3, 1, 1), dilations=10**6, padding="VALID"),
    "long-kernel": transpose((1, 1, 10**6, 4), (1, 200, 2000, 4), padding="VALID"),
    "images-of-one-pixel": transpose((10**6, 1, 1, 32), (1, 1, 32, 32)),
    "images-of-one-pixel-one-channel": transpose((10**6, 1, 1, 1), (3, 3, 1, 1)),
    "gradient-square": filter_grad((8, 512, 512, 64), (3, 3), (8, 512, 512, 64)),
    "gradient-one-huge-row": filter_grad((1, 1, 10**8, 1), (1, 3), (1, 1, 10**8, 1)),
    "gradient-one-huge-row-of-channels": filter_grad((1, 1, 10**6, 64), (1, 3), (1, 1, 10**6, 128)),
    "gradient-huge-channels": filter_grad((1, 4, 4, 10**6), (3, 3), (1, 4, 4, 10**6)),
    "gradient-huge-multiplier": filter_grad((1, 4, 4, 2), (3, 3), (1, 4, 4, 10**5)),
    "gradient-huge-stride": filter_grad((4, 10**6, 10**6, 8), (3, 3), (4, 100, 100, 8), strides=10**4),
    "gradient-huge-dilation": filter_grad((1, 4000, 4000, 8), (3, 3), (1, 4000, 4000, 8), dilations=500),
    "gradient-long-kernel": filter_grad((1, 1, 10**6, 4), (1, 5000), (1, 1, 10**6, 4)),
    "gradient-images-of-one-pixel": filter_grad((10**6, 1, 1, 32), (1, 1), (10**6, 1, 1, 32)),
}
#: Every job with each kernel that can do it.
EVERY_KERNEL = {
    f"{name}-{strategy}": plan.using(strategy)
    for name, plan in EXTREME.items()
    for strategy in plan.strategies
}
