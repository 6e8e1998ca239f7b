"""Compilers for `aot_function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon._torch._functorch.aot_autograd import aot_function, aot_module, make_boxed_compiler
from tenon._torch._functorch.partitioners import min_cut_rematerialization_partition
from tenon.fx.graph_module import GraphModule

__all__ = ["default_decompositions", "memory_efficient_fusion", "nop", "print_compile"]

default_decompositions: dict[Any, Callable[..., Any]] = {}


def nop(fx_g: GraphModule, _: Any) -> GraphModule:
    """Runs a graph as it is."""
    return fx_g


def print_compile(fx_g: GraphModule, _: Any) -> GraphModule:
    """Prints a graph's code, and runs it as it is."""
    print(fx_g.code)
    return fx_g


@make_boxed_compiler
def ts_compile(fx_g: GraphModule, inps: Any) -> Any:
    """A graph as a recorded program."""
    example = tuple(t.detach().clone() for t in inps)
    return tenon.jit.trace(fx_g, example, check_trace=False, strict=False)


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Any:
    """A function or module whose forward pass keeps as little as it can."""
    settings: dict[str, Any] = {
        "fw_compiler": ts_compile,
        "bw_compiler": ts_compile,
        "partition_fn": min_cut_rematerialization_partition,
        **kwargs,
    }
    if isinstance(fn, tenon.nn.Module):
        return aot_module(fn, **settings)
    return aot_function(fn, **settings)
