"""Parameters that are functions of other parameters.

A parametrised module has a class of its own, made for its class and the names concerned, in which
those names are properties; what they are computed from is in `module.parametrizations`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn.modules.container import ModuleDict, ModuleList
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter

_cache_depth = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside, every parametrised tensor is computed once."""
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


def _keep(owner: Module, name: str, value: Tensor, trained: bool) -> None:
    if trained:
        is_parameter = isinstance(value, Parameter)
        owner.register_parameter(name, value if is_parameter else Parameter(value))
    else:
        owner.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """The functions of one tensor, in order, and the tensors that the first of them takes."""

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        trained = isinstance(original, Parameter)
        parts = self._parts(original)
        self.is_tensor = isinstance(parts, Tensor)
        self.ntensors = 1 if self.is_tensor else len(parts)
        if self.is_tensor:
            if parts is not original:
                original.data = parts
            _keep(self, "original", original, trained)
        else:
            for i, part in enumerate(parts):
                _keep(self, f"original{i}", part.detach().clone(), trained)

    def _parts(self, value: Tensor) -> Any:
        with tenon.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        return value

    def originals(self) -> list[Tensor]:
        """What the tensor is computed from."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that they give this value."""
        parts = self._parts(value)
        with tenon.no_grad():
            for old, new in zip(self.originals(), [parts] if self.is_tensor else parts):
                old.copy_(new)

    def forward(self) -> Tensor:
        first, *rest = list(self)
        x = first(*self.originals())
        for module in rest:
            x = module(x)
        return x


def _property(name: str) -> property:
    def get(module: Any) -> Tensor:
        if not _cache_depth:
            return module.parametrizations[name]()
        key = (id(module), name)
        if key not in _cache:
            _cache[key] = module.parametrizations[name]()
        return _cache[key]

    def put(module: Any, value: Tensor) -> None:
        module.parametrizations[name].right_inverse(value)

    return property(get, put)


@functools.cache
def _class_for(base: type, names: tuple[str, ...]) -> type:
    """A subclass in which the names are properties."""
    return type("Parametrized" + base.__name__, (base,), {n: _property(n) for n in names})


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has parametrised tensors, or this one is."""
    known = module.__dict__.get("parametrizations")
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """From now on the tensor is what the parametrisation makes of it."""
    if is_parametrized(module, tensor_name):
        functions = module.parametrizations[tensor_name]
        if functions.is_tensor and hasattr(parametrization, "right_inverse"):
            with tenon.no_grad():
                functions.original.data = parametrization.right_inverse(functions.original)
        functions.append(parametrization)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    functions = ParametrizationList([parametrization], original, unsafe)
    made = functions()
    if not unsafe and (made.shape != original.shape or made.dtype != original.dtype):
        raise ValueError(
            "Registering a parametrization may not change the shape or the dtype of the tensor, "
            f"unless the `unsafe` flag is enabled. From: {original.shape}, {original.dtype} "
            f"to: {made.shape}, {made.dtype}"
        )
    base = type(module)
    if is_parametrized(module):
        base = base.__bases__[0]
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = functions
    module.__class__ = _class_for(base, tuple(module.parametrizations))
    return module


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """The tensor becomes a plain one again, with its present or its original value."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    functions = module.parametrizations[tensor_name]
    if not functions.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    first = functions.originals()[0]
    trained = isinstance(first, Parameter)
    with tenon.no_grad():
        value = functions().detach() if leave_parametrized else first.data
    if functions.is_tensor and value.shape == first.shape:
        first.data = value
        value = first
    base = type(module).__bases__[0]
    del module.parametrizations[tensor_name]
    names = tuple(module.parametrizations)
    module.__class__ = _class_for(base, names) if names else base
    if not names:
        del module.parametrizations
    _keep(module, tensor_name, value, trained)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before the first of its tensors was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrizes tensors of to_module as those of from_module, with their originals."""
    if not is_parametrized(from_module):
        return to_module
    every = from_module.parametrizations
    for name in every if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in every[name]:
            register_parametrization(to_module, name, parametrization)
        for own, original in every[name].named_parameters(recurse=False):
            setattr(to_module.parametrizations[name], own, original)
    return to_module
