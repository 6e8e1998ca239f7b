"""Which nodes a backend takes: questions that partitioners ask."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from tenon.fx.node import Node
from tenon.fx.passes.shape_prop import TensorMetadata
from tenon.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target
from tenon.nn import Module

__all__ = [
    "IsNodeSupported", "OpSupports", "OperatorSupport", "OperatorSupportBase", "SupportDict",
    "SupportedArgumentDTypes", "TargetTypeName", "any_chain", "chain", "create_op_support",
    "get_node_target",
]  # fmt: skip

TargetTypeName = str
SupportedArgumentDTypes = Any
SupportDict = Mapping[TargetTypeName, SupportedArgumentDTypes]
IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Says of a node whether it is taken."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool: ...


class OperatorSupport(OperatorSupportBase):
    """Takes nodes whose target `support_dict` names, with any dtypes (None) or with those that it
    lists: by position, and by name. Dtypes are those that ShapeProp has noted."""

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        dtypes = self._support_dict[target]
        if dtypes is None:
            return True
        by_position, by_name = dtypes
        asked = list(zip(node.args, by_position, strict=False))
        asked += [(node.kwargs[k], kinds) for k, kinds in by_name.items() if k in node.kwargs]
        return all(
            kinds is None or not isinstance(arg, Node) or _dtype(arg) in kinds
            for arg, kinds in asked
        )


def _dtype(arg: Node) -> Any:
    known = arg.meta.get("tensor_meta")
    return known.dtype if isinstance(known, TensorMetadata) else arg.meta["type"]


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """A function as an object that partitioners take."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Takes what all of them take."""
    return create_op_support(
        lambda modules, node: all(s.is_node_supported(modules, node) for s in op_support)
    )


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Takes what one of them takes."""
    return create_op_support(
        lambda modules, node: any(s.is_node_supported(modules, node) for s in op_support)
    )


class OpSupports:
    """Small ones to make others of."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Takes nodes without an input of that dtype."""
        return create_op_support(
            lambda _, node: all(_dtype(arg) != dtype for arg in node.all_input_nodes)
        )

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Takes nodes that have none of these names."""
        return create_op_support(lambda _, node: node.name not in disallow_set)
