"""Backends made of compilers of both passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon._torch._functorch.aot_autograd import aot_module_simplified
from tenon.fx.graph_module import GraphModule

__all__ = ["aot_autograd", "device_from_inputs", "dtype_from_inputs", "fake_tensor_unsupported"]


class AotAutograd:
    """`aot_autograd(fw_compiler=..., bw_compiler=...)`: a backend of `compile`."""

    def __init__(self, **kwargs: Any) -> None:
        self.__name__ = "compiler_fn"
        self.kwargs = kwargs

    def __call__(
        self, gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any
    ) -> Callable[..., Any]:
        return aot_module_simplified(gm, example_inputs, **self.kwargs)


aot_autograd = AotAutograd


def fake_tensor_unsupported(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a backend that needs values; all example inputs have some."""
    return fn


def device_from_inputs(example_inputs: Sequence[Any]) -> tenon.device:
    """Of the first that has one."""
    found = (x.device for x in example_inputs if hasattr(x, "device"))
    return next(found, tenon.device("cpu"))


def dtype_from_inputs(example_inputs: Sequence[Any]) -> tenon.dtype:
    """Of the first that has one."""
    return next((x.dtype for x in example_inputs if hasattr(x, "dtype")), tenon.float32)
