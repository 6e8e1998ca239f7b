"""What all operators of ONNX share: where their functions are kept, and what these are given."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon.io.errors import FileFormatError

FUNCTIONS: dict[str, Callable[..., Any]] = {}


class OnnxLoadError(FileFormatError):
    """A model that cannot be read or run."""


class Subgraph:
    """A graph that is an attribute of a node."""

    inputs: list[str]
    outputs: list[str]

    def run(self, around: dict[str, Any], inputs: Sequence[Any] = ()) -> tuple[Any, ...]:
        raise NotImplementedError


class Context:
    """What a node's function may want to know beside its inputs."""

    def __init__(self, opsets: dict[str, int], functions: dict[tuple[str, str], Any]) -> None:
        self.opsets, self.functions = opsets, functions
        self.made: dict[Any, Any] = {}  # functions that are ready to be called; None: nearly
        self.missing: set[str] = set()
        self.outputs = 1  # how many the node has
        self.values: dict[str, Any] = {}  # what a graph within the node sees

    @property
    def opset(self) -> int:
        return self.opsets.get("", 1)

    def of_node(self, outputs: int) -> Context:
        made = copy.copy(self)
        made.outputs = outputs
        return made

    def of_function(self, opsets: dict[str, int]) -> Context:
        made = copy.copy(self)
        made.opsets = opsets
        return made

    def among(self, values: dict[str, Any]) -> Context:
        self.values = values
        return self


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function(context, *inputs, **attributes) under operators' names."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FUNCTIONS[name] = fn
        return fn

    return register


def ints(value: Any) -> list[int] | None:
    """A list of whole numbers, that of an attribute or of a tensor; None: it is not there."""
    if value is None:
        return None
    if isinstance(value, tenon.Tensor):
        return [int(v) for v in value.reshape(-1).tolist()]
    return [value] if isinstance(value, int) else [int(v) for v in value]


def number(value: Any, default: Any = None) -> Any:
    """The number of a tensor with one element."""
    if value is None:
        return default
    return value.reshape(()).item() if isinstance(value, tenon.Tensor) else value


_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64",
    15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz",
    19: "float8_e5m2", 20: "float8_e5m2fnuz",
}  # fmt: skip


def dtype_of(number: int) -> Any:
    """The dtype of a TensorProto.DataType."""
    name = _DTYPES.get(number, f"number {number} of ONNX")
    found = getattr(tenon, name, None)
    if found is None:
        raise OnnxLoadError(f"onnx.load: there is no dtype {name}")
    return found


def number_of(dtype: Any) -> int:
    """The TensorProto.DataType of a dtype."""
    return next(n for n, name in _DTYPES.items() if getattr(tenon, name, None) == dtype)
