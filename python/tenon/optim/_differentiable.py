"""Steps that record what they do, for differentiable=True: gradients go through parameters, their
gradients, states, rates and decays that are tensors.

A step is a formula over tensors, one parameter at a time. The parameter is written to; what becomes
of its states are new tensors, since those before may be needed in a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.optim.optimizer import as_real

States = dict[str, Any]


def differentiable_step(
    rule: str, p: Tensor, grad: Tensor, state: States, group: dict[str, Any]
) -> None:
    """One step of a parameter by a rule below, with the options of its group."""
    if grad.is_sparse:
        raise RuntimeError(f"{rule}: differentiable=True does not support sparse gradients")
    with tenon.no_grad():
        if "step" in state:
            state["step"] += 1
    with tenon.enable_grad():
        w = as_real(p).clone()
        g = -as_real(grad) if group["maximize"] else as_real(grad)
        decay = group.get("weight_decay", 0)
        if group.get("decoupled_weight_decay", False):
            w = w * (1 - group["lr"] * decay)
        elif isinstance(decay, Tensor) or decay != 0:
            g = g + decay * w
        own = {k: as_real(v) if isinstance(v, Tensor) else v for k, v in state.items()}
        after = _RULES[rule](w, g, own, group)
        for key, value in own.items():
            if value is not state.get(key):
                whole = p.is_complex() and value.shape[:-1] == p.shape and value.dim() > p.dim()
                state[key] = tenon.view_as_complex(value) if whole else value
        as_real(p).copy_(after)


def _toward(old: Tensor, new: Tensor, weight: Any) -> Tensor:
    return old + (new - old) * weight


def _squares(old: Tensor, x: Tensor, keep: Any) -> Tensor:
    return old * keep + (1 - keep) * x * x


def _sgd(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    momentum = o["momentum"]
    if momentum != 0:
        before = s.get("momentum_buffer")
        v = g.clone() if before is None else before * momentum + g * (1 - o["dampening"])
        s["momentum_buffer"] = v
        g = g + v * momentum if o["nesterov"] else v
    return w - o["lr"] * g


def _adam(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    beta1, beta2 = o["betas"]
    t = float(s["step"])
    s["exp_avg"] = _toward(s["exp_avg"], g, 1 - beta1)
    top = s["exp_avg_sq"] = _squares(s["exp_avg_sq"], g, beta2)
    if o["amsgrad"]:
        top = s["max_exp_avg_sq"] = tenon.maximum(s["max_exp_avg_sq"], top)
    root = top.sqrt() / (1 - beta2**t) ** 0.5 + o["eps"]
    return w - o["lr"] / (1 - beta1**t) * s["exp_avg"] / root


def _rmsprop(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    square = s["square_avg"] = _squares(s["square_avg"], g, o["alpha"])
    if o["centered"]:
        s["grad_avg"] = _toward(s["grad_avg"], g, 1 - o["alpha"])
        square = square - s["grad_avg"].square()
    d = g / (square.sqrt() + o["eps"])
    if o["momentum"] > 0:
        d = s["momentum_buffer"] = s["momentum_buffer"] * o["momentum"] + d
    return w - o["lr"] * d


def _adagrad(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    s["sum"] = s["sum"] + g * g
    rate = o["lr"] / (1 + (float(s["step"]) - 1) * o["lr_decay"])
    return w - rate * g / (s["sum"].sqrt() + o["eps"])


def _adadelta(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    rho, eps = o["rho"], o["eps"]
    s["square_avg"] = _squares(s["square_avg"], g, rho)
    d = (s["acc_delta"] + eps).sqrt() / (s["square_avg"] + eps).sqrt() * g
    s["acc_delta"] = _squares(s["acc_delta"], d, rho)
    return w - o["lr"] * d


def _adamax(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    beta1, beta2 = o["betas"]
    s["exp_avg"] = _toward(s["exp_avg"], g, 1 - beta1)
    s["exp_inf"] = tenon.maximum(s["exp_inf"] * beta2, g.abs() + o["eps"])
    return w - o["lr"] / (1 - beta1 ** float(s["step"])) * s["exp_avg"] / s["exp_inf"]


def _nadam(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    (beta1, beta2), t = o["betas"], float(s["step"])
    mu, after = (beta1 * (1 - 0.5 * 0.96 ** (n * o["momentum_decay"])) for n in (t, t + 1))
    s["mu_product"] = s["mu_product"] * mu
    product = s["mu_product"].double()
    s["exp_avg"] = _toward(s["exp_avg"], g, 1 - beta1)
    s["exp_avg_sq"] = _squares(s["exp_avg_sq"], g, beta2)
    root = (s["exp_avg_sq"] / (1 - beta2**t)).sqrt() + o["eps"]
    w = w - o["lr"] * (1 - mu) / (1 - product) * g / root
    return w - o["lr"] * after / (1 - product * after) * s["exp_avg"] / root


def _radam(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    (beta1, beta2), t = o["betas"], float(s["step"])
    s["exp_avg"] = _toward(s["exp_avg"], g, 1 - beta1)
    s["exp_avg_sq"] = _squares(s["exp_avg_sq"], g, beta2)
    d = o["lr"] / (1 - beta1**t) * s["exp_avg"]
    left, longest = 1 - beta2**t, 2 / (1 - beta2) - 1
    length = longest - 2 * t * beta2**t / left
    if length <= 5:  # the variance is not known
        return w - d
    share = (length - 4) * (length - 2) * longest
    share /= (longest - 4) * (longest - 2) * length
    return w - d * (left * share) ** 0.5 / (s["exp_avg_sq"].sqrt() + o["eps"])


def _asgd(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    eta, mu, t = float(s["eta"]), float(s["mu"]), float(s["step"])
    w = w * (1 - o["lambd"] * eta) - eta * g
    s["ax"] = _toward(s["ax"], w, mu)
    rate = float(o["lr"])
    s["eta"] = tenon.full_like(s["eta"], rate / (1 + o["lambd"] * rate * t) ** o["alpha"])
    s["mu"] = tenon.full_like(s["mu"], 1 / max(1.0, t - o["t0"]))
    return w


def _rprop(w: Tensor, g: Tensor, s: States, o: dict[str, Any]) -> Tensor:
    (down, up), turn = o["etas"], (g * s["prev"]).detach()
    factor = tenon.where(turn > 0, up, tenon.where(turn < 0, down, tenon.ones_like(g)))
    g = s["prev"] = tenon.where(turn < 0, 0, g)
    s["step_size"] = (s["step_size"] * factor).clamp(*o["step_sizes"])
    return w - g.sign() * s["step_size"]


_RULES: dict[str, Callable[[Tensor, Tensor, States, dict[str, Any]], Tensor]] = {
    "sgd": _sgd, "adam": _adam, "rmsprop": _rmsprop, "adagrad": _adagrad, "adadelta": _adadelta,
    "adamax": _adamax, "nadam": _nadam, "radam": _radam, "asgd": _asgd, "rprop": _rprop,
}  # fmt: skip
