"""Calls of modules with other parameters than their own."""

from __future__ import annotations

import warnings
from typing import Any

from tenon import Tensor
from tenon.func import functional_call as _functional_call
from tenon.nn.modules.module import Module

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`tenon.func.functional_call` under its older name."""
    warnings.warn(
        "nn.utils.stateless.functional_call is deprecated; use func.functional_call instead",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, () if args is None else args, kwargs,
        tie_weights=tie_weights, strict=strict,
    )  # fmt: skip
