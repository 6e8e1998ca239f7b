"""The older spectral_norm: a hook that divides a weight by its largest singular value."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.parameter import Parameter
from tenon.nn.utils.weight_norm import parameter_of


class SpectralNorm:
    """The forward pre-hook that sets weight = orig / sigma, by steps of the power method."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """A row for each index of the dimension `dim`."""
        return weight.movedim(self.dim, 0).reshape(weight.size(self.dim), -1)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        """The weight of the next call; u and v are written in place, then copied for backward."""
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with tenon.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(tenon.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(tenon.mv(matrix, v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()
        return weight / tenon.dot(u, tenon.mv(matrix, v))

    def remove(self, module: Any) -> None:
        """Makes the weight of the last step a parameter again."""
        with tenon.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for part in ("_u", "_v", "_orig"):
            delattr(module, self.name + part)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(
        module: Any, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Takes the parameter apart and registers the hook."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two spectral_norm hooks on the same parameter {name}"
                )
        norm = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = parameter_of(module, name)
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with tenon.no_grad():
            rows, columns = norm.reshape_weight_to_matrix(weight).size()
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(f"{name}_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(norm)
        return norm


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divides a parameter by its largest singular value before each call of the module."""
    if dim is None:
        from tenon.nn import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Ends what spectral_norm began."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}")
