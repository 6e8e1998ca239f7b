"""Pruning: parameters whose least important parts are held at zero by a mask.

A pruned parameter `weight` is a plain attribute, computed before each call of its module as
`weight_orig * weight_mask`, a parameter and a buffer; `remove` makes it a parameter again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.dims import wrapped_dim

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip

_Scores = Tensor | None


class BasePruningMethod(ABC):
    """One way of choosing what is held at zero: a subclass says `compute_mask`."""

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Ones where `t` stays, zeros where it or `default_mask` is zero."""

    def apply_mask(self, module: Any) -> Tensor:
        """The original times the mask."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, name + "_orig")
        return getattr(module, name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: _Scores = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes `module.name` by this method, after what already prunes it."""
        before = [
            (key, hook)
            for key, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(before) > 1:
            raise AssertionError(
                "Avoid adding multiple pruning hooks to the same tensor "
                f"{name} of module {module}. Use a PruningContainer."
            )
        method = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(
                "importance_scores should have the same shape as parameter "
                f"{name} of {type(module)}"
            )
        for key, hook in before:
            del module._forward_pre_hooks[key]
            container = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            container.add_pruning_method(method)
            method = container
        if before:
            default = getattr(module, name + "_mask").detach().clone()
        else:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            default = tenon.ones_like(original)
        try:
            mask = method.compute_mask(importance_scores, default_mask=default)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
        except Exception:
            if not before:
                delattr(module, name + "_orig")
                module.register_parameter(name, original)
            raise
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: _Scores = None, importance_scores: _Scores = None
    ) -> Tensor:
        """A pruned copy of a tensor that is nobody's parameter."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        default = tenon.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(importance_scores, default_mask=default)

    def remove(self, module: Any) -> None:
        """Makes the pruned parameter a plain one, zeros and all."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = weight.data
        del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter, one after the other."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        self._tensor_name = args[0]._tensor_name if args else None  # type: ignore[assignment]
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """One more, of the same parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The last method's mask, of what the ones before it left."""
        method, mask = self._pruning_methods[-1], default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = wrapped_dim(method.dim, t.dim())  # type: ignore[attr-defined]
            others = [d for d in range(t.dim()) if d != dim]
            left = (slice(None),) * dim + (mask.sum(dim=others) != 0,)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        new = mask.clone()
        new[left] = method.compute_mask(t[left], default_mask=mask[left]).to(mask.dtype)
        return new


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the mask."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask that was there."""
        return default_mask


def _validate_pruning_amount_init(amount: float) -> None:
    """Refuses what is neither a part nor a number of elements."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float, Integral)):
        raise TypeError(f"Invalid type of amount: {amount}. Must be int or float.")
    whole = isinstance(amount, Integral)
    if amount < 0 or (not whole and amount > 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a "
            "non-negative integer"
        )


def _validate_pruning_amount(amount: float, tensor_size: int) -> None:
    """Refuses a number of elements that are not there."""
    if isinstance(amount, Integral) and amount > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={tensor_size}"
        )


def _compute_nparams_toprune(amount: float, tensor_size: int) -> int:
    """How many elements an amount stands for."""
    return int(amount) if isinstance(amount, Integral) else round(amount * tensor_size)


class _ByAmount(BasePruningMethod):
    """A part, or a number, of what is there."""

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _count(self, size: int) -> int:
        _validate_pruning_amount(self.amount, size)
        return _compute_nparams_toprune(self.amount, size)


class RandomUnstructured(_ByAmount):
    """Elements at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros at the largest of uniform draws."""
        count, mask = self._count(t.nelement()), default_mask.clone()
        if count:
            draws = tenon.rand_like(t).view(-1)
            mask.view(-1)[tenon.topk(draws, k=count).indices] = 0
        return mask


class L1Unstructured(_ByAmount):
    """Elements of the smallest magnitude."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros at the smallest magnitudes."""
        count, mask = self._count(t.nelement()), default_mask.clone()
        if count:
            smallest = tenon.topk(tenon.abs(t).view(-1), k=count, largest=False)
            mask.view(-1)[smallest.indices] = 0
        return mask


class _ByChannel(_ByAmount):
    """Whole channels, the indices of one dimension."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _keep(self, t: Tensor, default_mask: Tensor, scores: Tensor, count: int) -> Tensor:
        """Zeros but in the channels with the `count` highest scores."""
        kept = tenon.topk(scores, k=count, largest=True).indices
        mask = tenon.zeros_like(t)
        mask[(slice(None),) * wrapped_dim(self.dim, t.dim()) + (kept,)] = 1
        return mask * default_mask.to(dtype=mask.dtype)

    def _channels(self, t: Tensor) -> tuple[int, int]:
        """How many channels there are, and how many of them go."""
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found "
                f"tensor of shape {t.shape} with {t.dim()} dims"
            )
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        return size, self._count(size)


class RandomStructured(_ByChannel):
    """Channels at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in the channels with the smallest of uniform draws."""
        size, count = self._channels(t)
        if not count:
            return default_mask
        draws = tenon.rand(size)
        kept = draws > tenon.kthvalue(draws, k=count).values
        mask = tenon.zeros_like(t)
        mask[(slice(None),) * wrapped_dim(self.dim, t.dim()) + (kept,)] = 1
        return mask * default_mask.to(dtype=mask.dtype)


class LnStructured(_ByChannel):
    """Channels with the smallest norm of order n."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in the channels with the smallest norms."""
        size, count = self._channels(t)
        if not count:
            return default_mask
        others = [d for d in range(t.dim()) if d != wrapped_dim(self.dim, t.dim())]
        return self._keep(t, default_mask, tenon.norm(t, p=self.n, dim=others), size - count)


class CustomFromMask(BasePruningMethod):
    """A mask that the caller brings."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The caller's mask where the one before it has ones."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Gives a parameter a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes elements at random."""
    RandomUnstructured.apply(module, name, amount=amount)
    return module


def l1_unstructured(
    module: Any, name: str, amount: float, importance_scores: _Scores = None
) -> Any:
    """Prunes the elements of the smallest magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes channels of a dimension at random."""
    RandomStructured.apply(module, name, amount=amount, dim=dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: _Scores = None
) -> Any:
    """Prunes the channels of a dimension with the smallest norm."""
    LnStructured.apply(
        module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
    )
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes by a mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Any, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters as if they were one."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs, scores = list(parameters), importance_scores or {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    given = [scores.get((m, name), getattr(m, name)) for m, name in pairs]
    masks = [getattr(m, name + "_mask", tenon.ones_like(getattr(m, name))) for m, name in pairs]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    flat = tenon.nn.utils.parameters_to_vector(given)
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    final = container.compute_mask(flat, tenon.nn.utils.parameters_to_vector(masks))
    at = 0
    for module, name in pairs:
        weight = getattr(module, name)
        custom_from_mask(module, name, final[at : at + weight.numel()].view_as(weight))
        at += weight.numel()


def remove(module: Any, name: str) -> Any:
    """Ends the pruning of a parameter; what is zero stays so."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Any) -> bool:
    """Whether a parameter of the module, or of one in it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for _, inner in module.named_modules()
        for hook in inner._forward_pre_hooks.values()
    )
