"""Optimizers that are a rule for one tensor, written over operators.

A class says what its options and its state are and how one parameter moves; Rule does the rest:
gradients that are missing, complex numbers as pairs, maximize, weight decay and counters.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, _capture
from tenon.optim._steps import _step_dtype
from tenon.optim.optimizer import Optimizer, as_real, check_at_least, step_with_closure


def _check_betas(betas: tuple[float, float]) -> None:
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def _counter(value: float = 0.0) -> Tensor:
    return tenon.full((), value, dtype=_step_dtype(), device="cpu")


class Rule(Optimizer):
    """The loop around a rule."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, default in self._late_options.items():
                group.setdefault(key, default)
            for p in group["params"]:
                own = self.state.get(p, {})
                if own and not isinstance(own["step"], Tensor):
                    own["step"] = _counter(float(own["step"]))

    # Options that old files lack.
    _late_options: dict[str, Any] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        raise NotImplementedError

    def _follows_count(self, group: dict[str, Any]) -> bool:
        """Whether a step depends on how many there were, which a graph's replay would not count."""
        return True

    def _decay(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient with weight decay in it, or the parameter decayed by itself."""
        decay = group.get("weight_decay", 0)
        if decay == 0:
            return grad
        if group.get("decoupled_weight_decay", False):
            p.mul_(1 - float(group["lr"]) * decay)
            return grad
        return grad.add(p, alpha=decay)

    @step_with_closure
    def step(self) -> None:
        capturing = _capture.is_current_stream_capturing()
        for group in self.param_groups:
            if capturing and self._follows_count(group):
                raise RuntimeError(
                    f"{type(self).__name__}: the step counts on the host and cannot be captured"
                )
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
                state = self.state[p]
                if not state:
                    state.update(self._new_state(p, group))
                state["step"] += 1
                grad = as_real(-p.grad if group["maximize"] else p.grad)
                real = as_real(p)
                parts = {
                    key: as_real(value) if isinstance(value, Tensor) else value
                    for key, value in state.items()
                }
                grad = self._decay(real, grad, group)
                self._update(real, grad, parts, float(state["step"]), group)


class RMSprop(Rule):
    """Divides by a running root mean square of the gradient."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        check_at_least(eps, "epsilon value")
        check_at_least(momentum, "momentum value")
        check_at_least(weight_decay, "weight_decay value")
        check_at_least(alpha, "alpha value")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _follows_count(self, group: dict[str, Any]) -> bool:
        return False

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": _counter(), "square_avg": tenon.zeros_like(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = tenon.zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = tenon.zeros_like(p)
        return state

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        alpha, lr = group["alpha"], float(group["lr"])
        square = state["square_avg"]
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            root = square.addcmul(mean, mean, value=-1).sqrt_()
        else:
            root = square.sqrt()
        root.add_(group["eps"])
        if group["momentum"] > 0:
            buffer = state["momentum_buffer"]
            buffer.mul_(group["momentum"]).addcdiv_(grad, root)
            p.add_(buffer, alpha=-lr)
        else:
            p.addcdiv_(grad, root, value=-lr)


class Adagrad(Rule):
    """Divides by the root of the sum of all squared gradients."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_at_least(lr, "learning rate")
        check_at_least(lr_decay, "lr_decay value")
        check_at_least(weight_decay, "weight_decay value")
        check_at_least(initial_accumulator_value, "initial_accumulator_value value")
        check_at_least(eps, "epsilon value")
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._new_state(p, group)

    _late_options = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def _follows_count(self, group: dict[str, Any]) -> bool:
        return group["lr_decay"] != 0

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        start = complex(start, start) if p.is_complex() else start
        return {"step": _counter(), "sum": tenon.full_like(p, start)}

    def share_memory(self) -> None:
        """Moves the state to memory that other processes can map."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        rate = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        state["sum"].addcmul_(grad, grad, value=1)
        p.addcdiv_(grad, state["sum"].sqrt().add_(group["eps"]), value=-rate)


class Adadelta(Rule):
    """Scales by the ratio of running means of updates and gradients."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_at_least(eps, "epsilon value")
        check_at_least(weight_decay, "weight_decay value")
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _follows_count(self, group: dict[str, Any]) -> bool:
        return False

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(),
            "square_avg": tenon.zeros_like(p),
            "acc_delta": tenon.zeros_like(p),
        }

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        rho, eps = group["rho"], group["eps"]
        state["square_avg"].mul_(rho).addcmul_(grad, grad, value=1 - rho)
        root = state["square_avg"].add(eps).sqrt_()
        delta = state["acc_delta"].add(eps).sqrt_().div_(root).mul_(grad)
        state["acc_delta"].mul_(rho).addcmul_(delta, delta, value=1 - rho)
        p.add_(delta, alpha=-float(group["lr"]))


class _Moments(Rule):
    """Rules with Adam's two running means."""

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(),
            "exp_avg": tenon.zeros_like(p),
            "exp_avg_sq": tenon.zeros_like(p),
        }

    @staticmethod
    def _advance(grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)


class NAdam(_Moments):
    """Adam with Nesterov momentum."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        check_at_least(eps, "epsilon value")
        _check_betas(betas)
        check_at_least(weight_decay, "weight_decay value")
        check_at_least(momentum_decay, "momentum_decay value")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        moments = super()._new_state(p, group)
        return {"step": moments.pop("step"), "mu_product": _counter(1.0), **moments}

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        (beta1, beta2), lr = group["betas"], float(group["lr"])
        decay = group["momentum_decay"]
        mu = beta1 * (1.0 - 0.5 * (0.96 ** (step * decay)))
        mu_next = beta1 * (1.0 - 0.5 * (0.96 ** ((step + 1) * decay)))
        state["mu_product"].mul_(mu)
        product = float(state["mu_product"])
        self._advance(grad, state, group)
        root = state["exp_avg_sq"].div(1 - beta2**step).sqrt_().add_(group["eps"])
        p.addcdiv_(grad, root, value=-lr * (1.0 - mu) / (1.0 - product))
        p.addcdiv_(state["exp_avg"], root, value=-lr * mu_next / (1.0 - product * mu_next))


class RAdam(_Moments):
    """Adam that waits until the variance of its step is known."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        check_at_least(eps, "epsilon value")
        _check_betas(betas)
        check_at_least(weight_decay, "weight_decay value")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        (beta1, beta2), lr = group["betas"], float(group["lr"])
        self._advance(grad, state, group)
        left = 1 - beta2**step
        mean = state["exp_avg"] / (1 - beta1**step)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * (beta2**step) / left
        update = mean * lr
        if length > 5.0:
            share = (length - 4) * (length - 2) * longest
            rectified = (share / ((longest - 4) * (longest - 2) * length)) ** 0.5
            root = state["exp_avg_sq"].sqrt().add_(group["eps"])
            update = update * ((left**0.5) / root) * rectified
        p.add_(update, alpha=-1.0)


class Adamax(Rule):
    """Adam with the largest gradient in the place of the root mean square."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        check_at_least(eps, "epsilon value")
        _check_betas(betas)
        check_at_least(weight_decay, "weight_decay value")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(),
            "exp_avg": tenon.zeros_like(p),
            "exp_inf": tenon.zeros_like(p),
        }

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        beta1, beta2 = group["betas"]
        state["exp_avg"].lerp_(grad, 1 - beta1)
        largest = state["exp_inf"]
        largest.copy_(tenon.maximum(largest.mul(beta2), grad.abs().add_(group["eps"])))
        rate = float(group["lr"]) / (1 - beta1**step)
        p.addcdiv_(state["exp_avg"], largest, value=-rate)


class Rprop(Rule):
    """Looks at the signs of the gradients only; every element has a step size of its own."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _follows_count(self, group: dict[str, Any]) -> bool:
        return False

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        lr = float(group["lr"])
        first = complex(lr, lr) if p.is_complex() else lr
        return {
            "step": _counter(),
            "prev": tenon.zeros_like(p),
            "step_size": tenon.full_like(p, first),
        }

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        down, up = group["etas"]
        turn = grad.mul(state["prev"]).sign()
        size = state["step_size"]
        changed = tenon.where(turn > 0, size * up, tenon.where(turn < 0, size * down, size))
        size.copy_(changed.clamp(*group["step_sizes"]))
        # Where the sign turned, this step is left out.
        grad = tenon.where(turn < 0, tenon.zeros_like(grad), grad)
        p.addcmul_(grad.sign(), state["step_size"], value=-1)
        state["prev"].copy_(grad)


class ASGD(Rule):
    """Steps that get shorter, and beside them the average of where they led."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_at_least(lr, "learning rate")
        check_at_least(weight_decay, "weight_decay value")
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(),
            "eta": _counter(float(group["lr"])),
            "mu": _counter(1.0),
            "ax": tenon.zeros_like(p),
        }

    def _update(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], step: float, group: dict[str, Any]
    ) -> None:
        eta, mu, lr, lambd = state["eta"], state["mu"], float(group["lr"]), group["lambd"]
        p.mul_(1 - lambd * eta.item())
        p.add_(grad, alpha=-eta.item())
        state["ax"].lerp_(p, mu.item())
        eta.fill_(lr / (1 + lambd * lr * step) ** group["alpha"])
        mu.fill_(1 / max(1.0, step - group["t0"]))
