"""Weights that layers call as ever, and whose gradient a backward pass leaves per sample."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.autograd import Function
from tenon.nn import functional as F

__all__ = ["ExpandedWeight"]

# What is left out where a sample is computed again: what changes a tensor, and what PyTorch's
# gradients per sample do not know.
_ALONE: dict[Callable[..., Any], dict[str, Any]] = {
    F.linear: {},
    F.conv1d: {},
    F.conv2d: {},
    F.conv3d: {},
    F.layer_norm: {},
    F.group_norm: {},
    F.instance_norm: {"running_mean": None, "running_var": None, "use_input_stats": True},
    F.embedding: {"padding_idx": None, "max_norm": None, "scale_grad_by_freq": False,
                  "sparse": False},
}  # fmt: skip
# How many dimensions an input has at least, the samples' among them.
_DIMENSIONS = {F.linear: 2, F.conv1d: 3, F.conv2d: 4, F.conv3d: 5, F.embedding: 2}


class ExpandedWeight(Tensor):
    """A parameter for `batch_size` samples: what is called with it gives the same numbers, and
    `backward` adds to the parameter's `grad_sample`, not to its `grad`."""

    orig_weight: Tensor
    batch_size: int
    loss_reduction: str
    takes_whole_functions = True

    def __new__(cls, orig_weight: Any, batch_size: int, loss_reduction: str) -> ExpandedWeight:
        if not isinstance(orig_weight, Tensor):
            raise RuntimeError(
                f"Can only make Expanded Weights of Tensors, got {type(orig_weight).__name__}"
            )
        if not orig_weight.requires_grad:
            raise RuntimeError(
                "Can only build ExpandedWeights objects of tensors that requires_grad"
            )
        weight: ExpandedWeight = Tensor._make_subclass(cls, orig_weight, True)
        weight.orig_weight = orig_weight
        weight.batch_size = batch_size
        weight.loss_reduction = loss_reduction
        return weight

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in _ALONE:
            raise RuntimeError(
                f"Expanded Weights encountered but cannot handle function {func.__name__}"
            )
        call = _Call(func, args, kwargs or {})
        return _PerSample.apply(call, call.data, *(w.orig_weight for w in call.weights))


class _Call:
    """A function, what it was called with, and where the weights belong."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func = func
        data, *_ = given = inspect.signature(func).bind(*args, **kwargs).arguments
        self.rest = {name: value for name, value in given.items() if name != data}
        self.names = [n for n, x in self.rest.items() if isinstance(x, ExpandedWeight)]
        self.weights = [self.rest[name] for name in self.names]
        self.data = given[data]
        self._check(self.data)

    def _check(self, data: Any) -> None:
        name = self.func.__name__
        if isinstance(data, ExpandedWeight):
            raise RuntimeError(
                "Expanded Weights do not support inputs that are also ExpandedWeights. "
                f"Input must be a Tensor, got ExpandedWeight in function {name}"
            )
        if data.dim() < _DIMENSIONS.get(self.func, 1):
            raise RuntimeError(
                f"Expanded Weights requires a batch dimension but got an input of {data.dim()} "
                f"dimensions in function {name}"
            )
        for weight in self.weights:
            if weight.batch_size != data.shape[0]:
                raise RuntimeError(
                    "Expected ExpandedWeights to have batch size matching input but got input "
                    f"batch size of {data.shape[0]} with ExpandedWeight of batch size "
                    f"{weight.batch_size}"
                )
        if len({weight.loss_reduction for weight in self.weights}) > 1:
            raise RuntimeError(
                "Expected ExpandedWeights to all have the same loss_reduction argument"
            )

    def on(self, data: Tensor, weights: tuple[Tensor, ...], **other: Any) -> Tensor:
        """The function's result with these weights."""
        known = dict(zip(self.names, weights, strict=True))
        result: Tensor = self.func(data, **(self.rest | known | other))
        return result

    def samples(self, data: Tensor, grad: Tensor, weights: tuple[Tensor, ...]) -> Any:
        """The weights' gradients for each sample."""

        def one(x: Tensor, g: Tensor) -> Any:
            def of(*w: Tensor) -> Tensor:
                return self.on(x.unsqueeze(0), w, **_ALONE[self.func]).squeeze(0)

            return tenon.func.vjp(of, *weights)[1](g)

        return tenon.vmap(one)(data, grad)


class _PerSample(Function):
    """A call whose backward pass writes `grad_sample`."""

    @staticmethod
    def forward(ctx: Any, call: _Call, data: Tensor, *weights: Tensor) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(data, *weights)
        return call.on(data, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        data, *rest = ctx.saved_tensors
        call, weights = ctx.call, tuple(w.detach() for w in rest)
        for expanded, sample in zip(
            call.weights, call.samples(data.detach(), grad, weights), strict=True
        ):
            if expanded.loss_reduction == "mean":
                sample = sample * expanded.batch_size
            before = getattr(expanded.orig_weight, "grad_sample", None)
            expanded.orig_weight.grad_sample = sample if before is None else before + sample
        back = None
        if ctx.needs_input_grad[1]:
            with tenon.enable_grad():
                again = data.detach().requires_grad_()
                (back,) = tenon.autograd.grad(
                    call.on(again, weights, **_ALONE[call.func]), again, grad
                )
        return (None, back, *(None for _ in weights))
