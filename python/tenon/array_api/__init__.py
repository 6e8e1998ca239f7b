"""tenon.array_api: the array API standard, version 2025.12, on tensors.

`x.__array_namespace__()` gives this module, so that libraries written for the standard (SciPy,
scikit-learn) compute with tensors. Functions follow the standard where `tenon` follows PyTorch:
axes and keepdims, promotion of arrays without dimensions, errors. Tensors keep PyTorch's operators
and methods, which no function can change (docs/pytorch-users.md).
"""

from __future__ import annotations

import math as _math

import tenon as _tn
from tenon.array_api import _elementwise, _search, fft, linalg
from tenon.array_api._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from tenon.array_api._dtypes import (
    ALL,
    astype,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    result_type,
)
from tenon.array_api._elementwise import *  # noqa: F403
from tenon.array_api._info import __array_namespace_info__
from tenon.array_api._manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from tenon.array_api._search import *  # noqa: F403
from tenon.array_api._statistics import (
    all,
    any,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from tenon.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot

__array_api_version__ = "2025.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
e, pi, inf, nan, newaxis = _math.e, _math.pi, _math.inf, _math.nan, None
globals().update(ALL)
device = _tn.device

__all__ = [
    *_elementwise.__all__, *_search.__all__, *ALL, "__array_api_version__",
    "__array_namespace_info__", "all", "any", "arange", "asarray", "astype", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "concat", "cumulative_prod", "cumulative_sum",
    "diff", "e", "empty", "empty_like", "expand_dims", "eye", "fft", "finfo", "flip",
    "from_dlpack", "full", "full_like", "iinfo", "inf", "isdtype", "linalg", "linspace", "matmul",
    "matrix_transpose", "max", "mean", "meshgrid", "min", "moveaxis", "nan", "newaxis", "ones",
    "ones_like", "permute_dims", "pi", "prod", "repeat", "reshape", "result_type", "roll",
    "squeeze", "stack", "std", "sum", "tensordot", "tile", "tril", "triu", "unstack", "var",
    "vecdot", "zeros", "zeros_like",
]  # fmt: skip
