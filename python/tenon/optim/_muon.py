"""Muon: momentum whose direction is made orthogonal, for the matrices of hidden layers."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon import Tensor
from tenon.optim.optimizer import Optimizer, step_with_closure

__all__ = ["Muon"]

_RATES = (None, "original", "match_rms_adamw")


def _orthogonal(grad: Tensor, coefficients: tuple[float, ...], steps: int, eps: float) -> Tensor:
    """About the nearest matrix with orthogonal rows or columns, by an odd polynomial of degree five
    in the singular values, applied `steps` times (Newton and Schulz). In bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = grad.size(0) > grad.size(1)
    x = grad.bfloat16()
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = tenon.addmm(x, tenon.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


def _ratio(rule: str | None, shape: tuple[int, ...]) -> float:
    """What the learning rate of a matrix is multiplied by: all get updates of a like size."""
    rows, cols = shape
    if rule == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, cols))
    return math.sqrt(max(1, rows / cols))


class Muon(Optimizer):
    """Momentum made orthogonal. Parameters are matrices; others need another optimizer.

    Step: m = momentum m + (1 - momentum) g, made orthogonal by a few Newton-Schulz iterations; p =
        p (1 - lr weight_decay) - lr' m.

    >>> p = nn.Parameter(tn.eye(2))
    >>> optimizer = tn.optim.Muon([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([[0.8775, 0.0000],
            [0.0000, 0.8775]])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        options = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        words = {"lr": "Learning rate", "momentum": "momentum", "weight_decay": "weight decay"}
        for key, text in words.items():
            if not options[key] >= 0.0:
                raise ValueError(f"{text} should be >= 0 but is: {options[key]}")
        if adjust_lr_fn not in _RATES:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, options)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.size()}"
                    )

    @step_with_closure
    def step(self) -> None:
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            if isinstance(lr, Tensor):  # its products are rounded to its dtype, as PyTorch's are
                lr = lr.squeeze()
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.is_complex():
                    raise RuntimeError("Muon does not support complex parameters")
                if p.grad.is_sparse:
                    raise RuntimeError("Muon does not support sparse gradients")
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = tenon.zeros_like(p.grad)
                buffer = state["momentum_buffer"].lerp_(p.grad, 1 - momentum)
                update = p.grad.lerp(buffer, momentum) if group["nesterov"] else buffer
                update = _orthogonal(
                    update, group["ns_coefficients"], group["ns_steps"], group["eps"]
                )
                p.mul_(1 - lr * group["weight_decay"])
                ratio = _ratio(group["adjust_lr_fn"], tuple(p.shape))
                p.add_(update, alpha=-float(lr * ratio))
