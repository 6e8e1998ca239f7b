"""SGD, Adam and AdamW: each step is one call into C for all tensors of a group."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _ops
from tenon.optim._differentiable import differentiable_step
from tenon.optim.optimizer import (
    Optimizer,
    as_real,
    check_at_least,
    rate_of,
    step_with_closure,
)


def _check_lr(lr: Any, options: dict[str, Any]) -> None:
    check_at_least(lr, "learning rate")
    if isinstance(lr, Tensor) and options.get("foreach") and options.get("capturable") is False:
        raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
    if options.get("fused") and options.get("differentiable"):
        raise RuntimeError("`fused` does not support `differentiable`")
    if options.get("fused") and options.get("foreach"):
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _check_betas(betas: tuple[Any, Any], options: dict[str, Any]) -> None:
    kinds = {isinstance(beta, Tensor) for beta in betas}
    if len(kinds) > 1:
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        if isinstance(beta, Tensor):
            if options["foreach"] and not options["capturable"]:
                raise ValueError(
                    f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
                )
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def _as_reals(name: str, grad: Tensor, *others: Tensor | None) -> list[Tensor | None]:
    """Complex tensors as pairs of real numbers; refuses a sparse gradient."""
    if grad.is_sparse:
        raise RuntimeError(f"{name} does not support sparse gradients")
    return [None if t is None else as_real(t) for t in (grad, *others)]


def step_rows(
    p: Tensor, grad: Tensor, buffer: Tensor | None, group: dict[str, Any]
) -> Tensor | None:
    """SGD by a gradient of a few rows: changes these alone, unless there is momentum.

    Returns the buffer, made from the gradient where there was none.
    """
    momentum, lr = float(group["momentum"]), float(group["lr"])
    if group["weight_decay"] != 0:
        raise RuntimeError("SGD: weight_decay is not possible with sparse gradients")
    if group["maximize"]:
        grad = -grad
    if momentum != 0:
        if buffer is None:
            buffer = grad.detach().clone()
        else:
            buffer.mul_(momentum).add_(grad, alpha=1 - float(group["dampening"]))
        grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
    p.add_(grad, alpha=-lr)
    return buffer


class SGD(Optimizer):
    """Gradient descent, with momentum.

    Step: v = momentum v + (1 - dampening) g; p = p - lr v, where g has weight_decay p added.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.SGD([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.8000])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        modes = {"foreach": foreach, "differentiable": differentiable, "fused": fused}
        _check_lr(lr, modes)
        check_at_least(momentum, "momentum value")
        check_at_least(weight_decay, "weight_decay value")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            **modes,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key in ("nesterov", "maximize", "differentiable"):
                group.setdefault(key, False)
            group.setdefault("foreach", None)
            group.setdefault("fused", False)

    @step_with_closure
    def step(self) -> None:
        for group in self.param_groups:
            momentum = group["momentum"]
            going: tuple[list[Tensor], ...] = ([], [], [])
            fresh: tuple[list[Tensor], ...] = ([], [], [])
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if group["differentiable"]:
                    differentiable_step("sgd", p, grad, self.state[p], group)
                    continue
                if grad.is_sparse:
                    buffer = self.state[p].get("momentum_buffer") if momentum != 0 else None
                    buffer = step_rows(p, grad, buffer, group)
                    if momentum != 0:
                        self.state[p]["momentum_buffer"] = buffer
                    continue
                lists = going
                buffer = None
                if momentum != 0:
                    state = self.state[p]
                    buffer = state.get("momentum_buffer")
                    if buffer is None:
                        self._check_new_state()
                        lists = fresh
                        buffer = state["momentum_buffer"] = tenon.empty_like(p)
                if p.is_complex():
                    grad, p, buffer = _as_reals("SGD", grad, p, buffer)
                lists[0].append(p)
                lists[1].append(grad)
                if buffer is not None:
                    lists[2].append(buffer)
            for lists, first in ((going, False), (fresh, True)):
                if lists[0]:
                    _ops._sgd_(
                        *lists,
                        **rate_of(group["lr"]),
                        momentum=float(momentum),
                        dampening=float(group["dampening"]),
                        weight_decay=float(group["weight_decay"]),
                        nesterov=group["nesterov"],
                        maximize=group["maximize"],
                        first=first,
                    )


class Adam(Optimizer):
    """Adam; with decoupled_weight_decay it is AdamW.

    Step: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p = p - lr (m / (1 - b1**t)) / (sqrt(v /
        (1 - b2**t)) + eps), where g has weight_decay p added.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.Adam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.9000])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        modes = {
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
        }
        _check_lr(lr, modes)
        check_at_least(eps, "epsilon value")
        _check_betas(betas, modes)
        check_at_least(weight_decay, "weight_decay value")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            **modes,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key in ("amsgrad", "maximize", "capturable", "differentiable"):
                group.setdefault(key, False)
            group.setdefault("foreach", None)
            group.setdefault("decoupled_weight_decay", False)
            fused = group.setdefault("fused", None)
            for p in group["params"]:
                own = self.state.get(p, {})
                if own and not isinstance(own["step"], Tensor):
                    own["step"] = tenon.tensor(float(own["step"]), dtype=_step_dtype(fused))
                if own:
                    own["step"] = own["step"].to(_counter_device(p, group))

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {
            "step": tenon.zeros(
                (), dtype=_step_dtype(group["fused"]), device=_counter_device(p, group)
            ),
            "exp_avg": tenon.zeros_like(p),
            "exp_avg_sq": tenon.zeros_like(p),
        }
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = tenon.zeros_like(p)
        return state

    @step_with_closure
    def step(self) -> None:
        states = self.state
        for group in self.param_groups:
            amsgrad = group["amsgrad"]
            params: list[Tensor] = []
            grads: list[Tensor] = []
            means: list[Tensor] = []
            squares: list[Tensor] = []
            largest: list[Tensor] = []
            steps: list[Tensor] = []
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                state = states[p]
                if not state:
                    self._check_new_state()
                    state.update(self._new_state(p, group))
                if group["differentiable"]:
                    differentiable_step("adam", p, grad, state, group)
                    continue
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                top = state["max_exp_avg_sq"] if amsgrad else None
                if grad.is_sparse or p.is_complex():
                    grad, p, mean, square, top = _as_reals("Adam", grad, p, mean, square, top)
                params.append(p)
                grads.append(grad)
                means.append(mean)
                squares.append(square)
                if amsgrad:
                    largest.append(top)
                steps.append(state["step"])
            if params:
                beta1, beta2 = group["betas"]
                _ops._adam_(
                    params,
                    grads,
                    means,
                    squares,
                    largest,
                    steps,
                    **rate_of(group["lr"], group["capturable"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    eps=float(group["eps"]),
                    weight_decay=float(group["weight_decay"]),
                    amsgrad=amsgrad,
                    maximize=group["maximize"],
                    decoupled=group["decoupled_weight_decay"],
                )


class AdamW(Adam):
    """Adam whose weights decay by themselves, not through the gradient.

    Step: p = p (1 - lr weight_decay), then Adam's step without decay in the gradient.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.AdamW([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.8990])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def _step_dtype(fused: bool | None = None) -> Any:
    """Counters are float32, or float64 where that is the default dtype."""
    if fused or tenon.get_default_dtype() != tenon.float64:
        return tenon.float32
    return tenon.float64


def _counter_device(p: Tensor, group: dict[str, Any]) -> Any:
    """Beside the parameter where a graph of its device shall advance them."""
    return p.device if group.get("capturable") else "cpu"
