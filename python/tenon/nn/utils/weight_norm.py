"""The older weight_norm: two parameters and a hook that multiplies them before each call."""

from __future__ import annotations

import warnings
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.dims import wrapped_dim
from tenon.nn._results import known_as
from tenon.nn.parameter import Parameter


def parameter_of(module: Any, name: str) -> Any:
    """The parameter of that name that a module itself has; it may be None."""
    if name not in module._parameters:
        raise KeyError(f"{type(module).__name__} has no parameter {name!r} of its own")
    return module._parameters[name]


def _norm_except(weight: Tensor, dim: int | None) -> Tensor:
    """The norm over all dimensions but `dim`; None and -1: over all of them."""
    kept = None if dim is None else wrapped_dim(dim, weight.dim())
    if kept is None or dim == -1:
        return weight.norm()
    others = [d for d in range(weight.dim()) if d != kept]
    return weight.norm(2, others, keepdim=True)


def scaled(v: Tensor, g: Tensor, dim: int | None) -> Tensor:
    """v with the norm g."""
    return known_as(v * (g / _norm_except(v, dim)), "WeightNormInterfaceBackward0")


class WeightNorm:
    """The forward pre-hook that sets weight = v * (g / |v|)."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = dim

    def compute(self, module: Any) -> Tensor:
        v = getattr(module, self.name + "_v")
        g = getattr(module, self.name + "_g")
        return scaled(v, g, self.dim)

    def __call__(self, module: Any, args: Any) -> None:
        setattr(module, self.name, self.compute(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces a weight by its direction (name_v) and its length (name_g)."""
    package = str(tenon.float32).split(".")[0]
    warnings.warn(
        f"`{package}.nn.utils.weight_norm` is deprecated in favor of "
        f"`{package}.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            raise RuntimeError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
    norm = WeightNorm(name, dim)
    weight = getattr(module, name)
    parameter_of(module, name)
    with tenon.no_grad():
        length = _norm_except(weight, dim).clone()
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(length))
    module.register_parameter(name + "_v", Parameter(weight.data))
    setattr(module, name, norm.compute(module))
    module.register_forward_pre_hook(norm)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Puts the computed weight back in the place of its two parts."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute(module).detach()
            delattr(module, name)
            del module._parameters[name + "_g"], module._parameters[name + "_v"]
            setattr(module, name, Parameter(weight))
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
