"""What packages ask about PyTorch's tracer of tensors; make_fx by a recording of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def get_proxy_mode() -> None:
    """The tracer that is recording."""


def make_fx(
    f: Callable[..., Any], decomposition_table: Any = None, tracing_mode: str = "real", **_: Any
) -> Callable[..., Any]:
    """What calls f with example arguments and returns its operators as a GraphModule."""

    def wrapped(*args: Any) -> Any:
        from tenon._program.as_fx import traced_module

        return traced_module(f, args)

    return wrapped
