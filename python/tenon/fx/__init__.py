"""fx: functions and modules as graphs of Python calls, to be looked at, changed and run."""

from __future__ import annotations

from tenon._submodules import on_demand
from tenon.fx._symbolic_trace import PH, Tracer, symbolic_trace, wrap
from tenon.fx.graph import CodeGen, Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Interpreter, Transformer
from tenon.fx.node import Node, has_side_effect, map_arg
from tenon.fx.proxy import Proxy, ProxyableClassMeta, TraceError
from tenon.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy",
    "ProxyableClassMeta", "TraceError", "Tracer", "Transformer", "has_side_effect", "map_arg",
    "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip

on_demand(globals())
