"""Tools of passes."""

from tenon._submodules import on_demand
from tenon.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]

on_demand(globals())
