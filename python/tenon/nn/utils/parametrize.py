"""Parameters that are functions of other parameters.

A parametrised module has a class of its own, made for its class and the names concerned, in which
those names are properties; what they are computed from is in `module.parametrizations`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
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


def _difference(a: Tensor, b: Tensor, facts: Sequence[str]) -> tuple[str, Any, Any] | None:
    """The first of the facts in which two tensors differ, and what it is of each."""
    found = ((fact, getattr(a, fact), getattr(b, fact)) for fact in facts)
    return next((f for f in found if f[1] != f[2]), None)


def _check_alike(made: Any, original: Tensor) -> None:
    """A function that is not `unsafe` gives tensors of its argument's dtype and shape."""
    if not isinstance(made, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
    if differ := _difference(original, made, ("dtype", "shape")):
        fact, was, now = differ
        raise ValueError(
            f"Registering a parametrization may not change the {fact} of the tensor, unless "
            f"the `unsafe` flag is enabled.\nunparametrized {fact}: {was}\n"
            f"parametrized {fact}: {now}"
        )


def _check_inverse(parametrization: Any, made: Tensor, value: Tensor) -> None:
    """The inverse of a function that follows others gives such tensors, too."""
    try:
        back = parametrization.right_inverse(made)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        kind = type(back).__name__
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {kind}")
    if differ := _difference(value, back, ("dtype", "shape")):
        fact, was, now = differ
        raise ValueError(
            "The tensor returned by parametrization.right_inverse must have the same "
            f"{fact} as the module's, unless the `unsafe` flag is enabled.\n"
            f"{fact} of the module's tensor: {was}\nreturned {fact}: {now}"
        )


class ParametrizationList(ModuleList):
    """The functions of one tensor, in order, and the tensors that the first of them takes."""

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        if not len(modules):
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        trained = isinstance(original, Parameter)
        parts = self._first_parts(original)
        self.is_tensor = isinstance(parts, Tensor)
        self.ntensors = 1 if self.is_tensor else len(parts)
        if not unsafe:
            with tenon.no_grad():
                _check_alike(self._of([parts] if self.is_tensor else parts), original)
        if self.is_tensor:
            if parts is not original:
                original.data = parts
            _keep(self, "original", original, trained)
        else:
            for i, part in enumerate(parts):
                _keep(self, f"original{i}", part.detach().clone(), trained)

    def _first_parts(self, original: Tensor) -> Any:
        """What the functions make the original of. One that cannot tell takes it as it is."""
        parts: Any = original
        with tenon.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        parts = module.right_inverse(parts)
                    except NotImplementedError:
                        continue
        if isinstance(parts, Tensor):
            if differ := _difference(original, parts, ("dtype", "device")):
                fact, was, now = differ
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {fact}.\n"
                    f"original.{fact}: {was}\nright_inverse(original).{fact}: {now}"
                )
            return parts
        wanted = "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
        if not isinstance(parts, Sequence):
            raise ValueError(f"{wanted}Got {type(parts).__name__}")
        for i, part in enumerate(parts):
            if not isinstance(part, Tensor):
                kind = type(part).__name__
                raise ValueError(f"{wanted}Got element {i} of the sequence with type {kind}.")
        return parts

    def _parts(self, value: Tensor) -> list[Tensor]:
        """The originals that give this value."""
        parts: Any = value
        with tenon.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    kind = type(module).__name__
                    raise RuntimeError(f"parametrization {kind} does not implement right_inverse.")
                parts = module.right_inverse(parts)
        if self.is_tensor:
            if not isinstance(parts, Tensor):
                kind = type(parts).__name__
                raise ValueError(f"`right_inverse` should return a tensor. Got {kind}")
            return [parts]
        if not isinstance(parts, Sequence) or not all(isinstance(p, Tensor) for p in parts):
            kind = type(parts).__name__
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {kind}.")
        if len(parts) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got a sequence of length {len(parts)}."
            )
        return list(parts)

    def originals(self) -> list[Tensor]:
        """What the tensor is computed from."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that they give this value."""
        pairs = list(zip(self.originals(), self._parts(value), strict=True))
        for old, new in pairs:
            if new.dtype != old.dtype:
                raise ValueError(
                    f"The tensor returned by `right_inverse` has dtype {new.dtype} "
                    f"while `original` has dtype {old.dtype}"
                )
        with tenon.no_grad():
            for old, new in pairs:
                if new.shape == old.shape:
                    old.copy_(new)
                else:
                    old.data = new.detach().clone()

    def _of(self, originals: Sequence[Tensor]) -> Any:
        first, *rest = list(self)
        x = first(*originals)
        for module in rest:
            x = module(x)
        return x

    def forward(self) -> Tensor:
        return self._of(self.originals())


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


def _no_state(module: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). Save the "
        "state_dict, and load it into a module that is parametrized in the same way."
    )


def _copied(module: Any, memo: dict[int, Any]) -> Any:
    twin = type(module).__new__(type(module))
    memo[id(module)] = twin
    twin.__dict__ = copy.deepcopy(module.__dict__, memo)
    return twin


@functools.cache
def _class_for(base: type, names: tuple[str, ...]) -> type:
    """A subclass in which the names are properties."""
    members: dict[str, Any] = {n: _property(n) for n in names}
    members["__getstate__"] = _no_state
    if not hasattr(base, "__deepcopy__"):
        members["__deepcopy__"] = _copied
    return type("Parametrized" + base.__name__, (base,), members)


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
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        functions = module.parametrizations[tensor_name]
        if not unsafe:
            with tenon.no_grad():
                value = getattr(module, tensor_name)
                made = parametrization(value)
                _check_alike(made, value)
                if hasattr(parametrization, "right_inverse"):
                    _check_inverse(parametrization, made, value)
        functions.append(parametrization)
        functions.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    functions = ParametrizationList([parametrization], original, unsafe)
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
