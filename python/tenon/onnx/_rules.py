"""Translations of a program's own: what `register_custom_op_symbolic` was given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tenon

if TYPE_CHECKING:
    from tenon.onnx._translate import Call

_rules: dict[str, dict[int, Callable[..., Any]]] = {}
_SUFFIXES = ("f", "i", "s", "t")


def add(name: str, rule: Callable[..., Any], opset: int) -> None:
    """The rule for an operator's calls in models of this opset and later ones."""
    if not re.fullmatch(r"[a-zA-Z0-9-_]+::[a-zA-Z0-9-_]+[a-zA-Z0-9-_.]*", name):
        raise ValueError(
            f"Failed to register operator {name}. The symbolic name must match the format "
            "domain::name, and should start with a letter and contain only alphanumerical "
            "characters"
        )
    _rules.setdefault(name, {})[opset] = rule


def remove(name: str, opset: int) -> None:
    _rules.get(name, {}).pop(opset, None)


def find(op: str, opset: int) -> Callable[..., Any] | None:
    """The latest rule for an operator: by its own name, or that of `aten`."""
    known = _rules.get(op if "::" in op else f"aten::{op}", {})
    fitting = [version for version in known if version <= opset]
    return known[max(fitting)] if fitting else None


class Value(str):
    """A value of the model, as rules have it: its name."""

    def setType(self, type_: Any) -> Value:  # noqa: N802 - PyTorch's name
        """The value: types follow from shapes here."""
        del type_
        return self


class GraphContext:
    """What a rule makes nodes with."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.opset = call.writer.opset

    def op(self, opname: str, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
        """`g.op("domain::Name", x, alpha_f=0.5)`: a node; numbers and tensors are constants."""
        *domain, name = opname.split("::")
        attributes: dict[str, Any] = {}
        for key, value in kwargs.items():
            plain, _, suffix = key.rpartition("_")
            if not plain or suffix not in _SUFFIXES:
                raise ValueError(
                    f"Invalid attribute specifier '{key}' names must be suffixed with type, e.g. "
                    "'dim_i' or 'dims_i'"
                )
            attributes[plain] = _attribute(value, suffix)
        if domain and domain[0] != "aten":
            attributes["domain"] = domain[0]
            self._call.writer.domains.add(domain[0])
        inputs = [self._input(v) for v in raw_args]
        made = self._call.writer.emit(name, inputs, outputs, attributes)
        return Value(made) if isinstance(made, str) else tuple(Value(m) for m in made)

    def _input(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, tenon.Tensor):
            return self._call.const(value.detach().cpu().numpy())
        return self._call.const(value, "float32" if isinstance(value, float) else None)


def _attribute(value: Any, suffix: str) -> Any:
    from onnx import numpy_helper

    if suffix == "t":
        return numpy_helper.from_array(np.asarray(value.detach().cpu().numpy()))
    kind = {"f": float, "i": int, "s": str}[suffix]
    return [kind(v) for v in value] if isinstance(value, list | tuple) else kind(value)


def translate(rule: Callable[..., Any], call: Call) -> Any:
    """What the rule makes of a call, whose arguments it gets in order."""
    args = [_given(v) for v in call.args.values()]
    made = rule(GraphContext(call), *args)
    results = made if isinstance(made, Sequence) and not isinstance(made, str) else [made]
    if not all(isinstance(r, str) for r in results):
        call.refuse("the rule that was registered for it returns no values of the model")
    return list(results)


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(v) for v in value]
    return Value(value) if isinstance(value, str) else value
