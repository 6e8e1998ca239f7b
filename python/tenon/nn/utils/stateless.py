"""Calls of modules with other parameters than their own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from tenon import Tensor
from tenon.nn.modules.module import Module
from tenon.nn.utils._named_member_accessor import NamedMemberAccessor

__all__ = ["functional_call"]


def _untie_named_tensors_map(
    module: Module, parameters_and_buffers: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors, each under all names that the module has for the tensor in whose place it is."""
    names_of: dict[int, list[str]] = {}
    for name, tensor in NamedMemberAccessor(module).named_tensors(remove_duplicate=False):
        names_of.setdefault(id(tensor), []).append(name)
    untied = dict(parameters_and_buffers)
    for names in names_of.values():
        given = [untied[name] for name in names if name in untied]
        if any(tensor is not given[0] for tensor in given):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, "
                "which are tied. Consider using tie_weights=False"
            )
        if given:
            untied.update(dict.fromkeys(names, given[0]))
    return untied


@contextlib.contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """Within it the module has these tensors in the place of its own. Those that the module then
    replaces, as running statistics are, stand in the dictionary afterwards.

    stack_weights: its own come back in the opposite order.
    """
    accessor = NamedMemberAccessor(module)
    given = parameters_and_buffers
    if tie_weights:
        given = _untie_named_tensors_map(module, given)
    if strict:
        missing, unexpected = accessor.check_keys(given)
        told = [
            f"\n\t{kind} key(s): {', '.join(map(repr, names))}."
            for kind, names in (("Unexpected", unexpected), ("Missing", missing))
            if names
        ]
        if told:
            raise RuntimeError(
                f"Error(s) in reparametrizing for {module._get_name()}:{''.join(told)}"
            )
    own, _ = accessor.swap_tensors_dict(given, allow_missing=True)
    try:
        yield
    finally:
        if stack_weights:
            own = dict(reversed(own.items()))
        left, _ = accessor.swap_tensors_dict(own, allow_missing=True)
        parameters_and_buffers.update({name: left[name] for name in parameters_and_buffers})


def _functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*positional, **(kwargs or {}))


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
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
