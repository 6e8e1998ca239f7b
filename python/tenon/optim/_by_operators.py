"""Steps as operators on single tensors, for tensors that kernels of whole steps do not take."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor


def sgd_(
    params: list[Tensor], grads: list[Tensor], momenta: list[Tensor], lr: float, momentum: float,
    dampening: float, weight_decay: float, nesterov: bool, maximize: bool, first: bool, rate: Any,
) -> None:  # fmt: skip
    with tenon.no_grad():
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            g = -g if maximize else g
            g = g.add(p, alpha=weight_decay) if weight_decay else g
            if momentum:
                if first:
                    momenta[i].copy_(g)
                else:
                    momenta[i].mul_(momentum).add_(g, alpha=1 - dampening)
                g = g.add(momenta[i], alpha=momentum) if nesterov else momenta[i]
            p.add_(g, alpha=-(lr if rate is None else rate.item()))


def adam_(
    params: list[Tensor], grads: list[Tensor], firsts: list[Tensor], seconds: list[Tensor],
    most: list[Tensor], steps: list[Tensor], lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float, amsgrad: bool, maximize: bool, decoupled: bool, rate: Any,
) -> None:  # fmt: skip
    lr = lr if rate is None else rate.item()
    with tenon.no_grad():
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            t = steps[i].add_(1).item()
            g = -g if maximize else g
            if weight_decay and decoupled:
                p.mul_(1 - lr * weight_decay)
            elif weight_decay:
                g = g.add(p, alpha=weight_decay)
            firsts[i].lerp_(g, 1 - beta1)
            seconds[i].mul_(beta2).addcmul_(g, g, value=1 - beta2)
            spread = seconds[i]
            if amsgrad:
                spread = most[i].copy_(tenon.maximum(most[i], spread))
            root = (spread.sqrt() / (1 - beta2**t) ** 0.5).add_(eps)
            p.addcdiv_(firsts[i], root, value=-(lr / (1 - beta1**t)))
