"""Arguments of functions by their signatures: the same call is written in one way."""

from __future__ import annotations

import inspect
import numbers
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import tenon
from tenon._tensor.called import arguments_of, is_inplace, name_of
from tenon.nn import Module

__all__ = [
    "ArgsKwargsPair", "check_for_mutable_operation", "create_type_hint",
    "get_signature_for_torch_op", "normalize_function", "normalize_module", "type_matches",
]  # fmt: skip


class ArgsKwargsPair(NamedTuple):
    """A call's arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def get_signature_for_torch_op(
    op: Callable[..., Any], return_schemas: bool = False
) -> list[inspect.Signature] | None | tuple[None, None]:
    """The signature of an operator or function of the library; None: it is none of them."""
    schemas = _signatures(op)
    return (None, None) if return_schemas and schemas is None else schemas


def _signatures(op: Any) -> list[inspect.Signature] | None:
    if not (getattr(op, "__module__", None) or "").startswith("tenon"):
        return None
    try:
        found = inspect.signature(op)
    except (TypeError, ValueError):
        return None
    kept = [
        p for p in found.parameters.values()
        if not (p.name == "out" and p.kind is p.KEYWORD_ONLY)
    ]  # fmt: skip
    return [found.replace(parameters=kept)]


def create_type_hint(x: Any) -> Any:
    """A type for a container of types, where its members have one."""
    if isinstance(x, (list, tuple)):
        made: Any = list if isinstance(x, list) else tuple
        if not x:
            return made[Any] if made is list else tuple[Any, ...]
        base = x[0]
        for t in x:
            if issubclass(t, base):
                continue
            if not issubclass(base, t):
                return list[Any] if made is list else tuple[Any, ...]
            base = t
        return list[base] if made is list else tuple[base, ...]
    return x


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether an argument of one type may stand where another is asked for."""
    origin, inside = typing.get_origin(signature_type), typing.get_args(signature_type)
    if signature_type is argument_type:
        return True
    if origin is typing.Union or type(signature_type).__name__ == "UnionType":
        return any(type_matches(t, argument_type) for t in inside)
    if origin is list and inside == (int,):
        if typing.get_origin(argument_type) is list:
            return all(issubclass(t, int) for t in typing.get_args(argument_type))
        if argument_type is int:
            return True
        return typing.get_origin(argument_type) is tuple and all(
            t is int for t in typing.get_args(argument_type) if t is not ...
        )
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    return (
        inspect.isclass(argument_type)
        and inspect.isclass(signature_type)
        and issubclass(argument_type, signature_type)
    )


def check_for_mutable_operation(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises where the call writes to its arguments."""
    name = name_of(target)
    writes = is_inplace(name) or any(arguments_of(name).values())
    given = f"aten::{name}.out" if kwargs.get("out") is not None else name
    if writes or kwargs.get("out") is not None or kwargs.get("inplace"):
        raise RuntimeError(
            f"Tried to trace mutable operation {given}. FX only supports functional code, so "
            "operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
        )


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call with all defaults, by name as far as they have to be, or all of them;
    None: the function has no signature, or none that takes them."""
    signatures = _signatures(target)
    if signatures is None and inspect.isfunction(target):
        signatures = [inspect.signature(target)] if _is_of_layers(target) else None
    for signature in signatures or ():
        found = _normal(signature, args, kwargs or {}, normalize_to_only_use_kwargs)
        if found is not None:
            return found
    return None


def _is_of_layers(target: Any) -> bool:
    return getattr(tenon.nn.functional, target.__name__, None) is target


def normalize_module(
    root: Module,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same of a call of one of the library's layers."""
    try:
        submod = root.get_submodule(target)
    except AttributeError as err:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from err
    kind = type(submod)
    if getattr(tenon.nn, kind.__name__, None) is not kind:
        return None
    signature = inspect.signature(submod.forward)
    return _normal(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def _normal(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], named: bool
) -> ArgsKwargsPair | None:
    kinds = {p.kind for p in signature.parameters.values()}
    if kinds - {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    if named:
        return ArgsKwargsPair((), dict(bound.arguments))
    given = len(args)
    left = {k: v for i, (k, v) in enumerate(bound.arguments.items()) if i >= given}
    return ArgsKwargsPair(tuple(args), left)
