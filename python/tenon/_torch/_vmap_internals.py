"""The first kind of vmap, which packages still import by its private name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tenon._transform.vmap import vmap as _newer


def _vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    allow_none_pass_through: bool = False,
) -> Callable[..., Any]:
    """A function like func for inputs that have one dimension more."""
    if allow_none_pass_through:
        raise NotImplementedError("_vmap: allow_none_pass_through is not there")
    return _newer(func, in_dims, out_dims)


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """The same with a warning."""
    warnings.warn(
        "Please use `torch.vmap` instead of `torch._vmap_internals.vmap`.",
        FutureWarning,
        stacklevel=2,
    )
    return _vmap(func, in_dims, out_dims)
