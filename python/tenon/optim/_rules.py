"""Optimizers that are a rule for each element: a step is one call into C for a group's tensors.

A class says what its options are, what state a parameter has, and which number of `_rule_` (its
entry in dispatch/ops/optim.toml) is which option; Rule does the rest.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _ops
from tenon.optim._differentiable import differentiable_step
from tenon.optim._steps import _counter_device, _step_dtype
from tenon.optim.optimizer import (
    Optimizer,
    as_real,
    check_at_least,
    rate_of,
    step_with_closure,
)


def _counter(p: Tensor, group: dict[str, Any], value: float = 0.0) -> Tensor:
    return tenon.full((), value, dtype=_step_dtype(), device=_counter_device(p, group))


_TEXTS = {"lr": "learning rate", "eps": "epsilon value"}


class Rule(Optimizer):
    """The step that the rules share."""

    _rule: str  # the name that `_rule_` knows it by
    _states: tuple[str, ...]  # keys of a parameter's state, in the order of the lists

    # PyTorch's order of the options in a state_dict, where it is not that of the arguments.
    _options = ""
    # Options that are not negative.
    _at_least_zero: tuple[str, ...] = ("lr", "eps", "weight_decay")
    # Options that old files lack.
    _late_options: dict[str, Any] = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def _begin(self, params: Any, given: dict[str, Any]) -> None:
        """The constructor: its arguments are the options."""
        listed = self._options.split() or [k for k in given if k not in ("self", "params")]
        options = {name: given[name] for name in listed}
        for name in self._at_least_zero:
            if name in options:
                check_at_least(options[name], _TEXTS.get(name, f"{name} value"))
        for i, beta in enumerate(options.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, default in self._late_options.items():
                group.setdefault(key, default)
            for p in group["params"]:
                own = self.state.get(p, {})
                for key in self._counters:
                    if key in own:
                        value = own[key]
                        own[key] = (
                            value.to(_counter_device(p, group))
                            if isinstance(value, Tensor)
                            else _counter(p, group, float(value))
                        )

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        """The numbers a .. d of a group."""
        raise NotImplementedError

    def _step_places(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """The step by a gradient that names its places."""
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")

    @step_with_closure
    def step(self) -> None:
        # A key that somebody adds to the groups is no option of the step.
        decays = "weight_decay" in self.defaults
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Tensor] = []
            steps: list[Tensor] = []
            states: tuple[list[Tensor], ...] = ([], [], [])
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                recorded = group.get("differentiable", False)
                if grad.is_sparse and not recorded:
                    self._step_places(p, grad, group)
                    continue
                state = self.state[p]
                if not state:
                    self._check_new_state()
                    state.update(self._new_state(p, group))
                if recorded:
                    differentiable_step(self._rule, p, grad, state, group)
                    continue
                params.append(as_real(p))
                grads.append(as_real(grad))
                steps.append(state["step"])
                for key, list_ in zip(self._states, states):
                    if key in state:
                        list_.append(as_real(state[key]))
            if params:
                _ops._rule_(
                    params,
                    grads,
                    *states,
                    steps,
                    self._rule,
                    **rate_of(group["lr"], group.get("capturable", False)),
                    **self._numbers(group),
                    eps=group.get("eps", 0.0),
                    weight_decay=group["weight_decay"] if decays else 0.0,
                    maximize=group["maximize"],
                    decoupled=group.get("decoupled_weight_decay", False),
                )


class RMSprop(Rule):
    """Divides by a running root mean square of the gradient.

    Step: v = alpha v + (1 - alpha) g g; p = p - lr g / (sqrt(v) + eps); with momentum the
        quotients are added up first.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.RMSprop([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([5.9605e-08])
    """

    _rule = "rmsprop"
    _states = ("square_avg", "momentum_buffer", "grad_avg")
    _options = (
        "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable"
    )

    _at_least_zero = ("lr", "eps", "momentum", "weight_decay", "alpha")

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
        self._begin(params, locals())

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": _counter(p, group), "square_avg": tenon.zeros_like(p)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = tenon.zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = tenon.zeros_like(p)
        return state

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"a": group["alpha"], "b": group["momentum"]}


class Adagrad(Rule):
    """Divides by the root of the sum of all squared gradients.

    Step: s = s + g g; p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). A sparse gradient
        changes the places that it names.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.Adagrad([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.9000])
    """

    _rule = "adagrad"
    _states = ("sum",)
    _options = (
        "lr lr_decay eps weight_decay "
        "initial_accumulator_value foreach maximize differentiable fused"
    )

    _at_least_zero = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

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
        self._begin(params, locals())
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._new_state(p, group)

    _late_options = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        start = self.defaults["initial_accumulator_value"]
        start = complex(start, start) if p.is_complex() else start
        return {"step": _counter(p, group), "sum": tenon.full_like(p, start)}

    def share_memory(self) -> None:
        """Moves the state to memory that other processes can map."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"a": group["lr_decay"]}

    def _step_places(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        step_places(p, grad, self.state[p]["sum"], self.state[p]["step"], group)


def step_places(
    p: Tensor, grad: Tensor, total: Tensor, step: Tensor, group: dict[str, Any]
) -> None:
    """Adagrad's step by a gradient of a few rows: changes these alone."""
    if group["weight_decay"] != 0:
        raise RuntimeError("Adagrad: weight_decay is not possible with sparse gradients")
    step += 1
    grad = grad.coalesce()
    values = as_real(-grad._values() if group["maximize"] else grad._values())
    p, total = as_real(p), as_real(total)

    def at_places(values: Tensor) -> Tensor:
        return tenon.sparse_coo_tensor(grad._indices(), values, p.shape, is_coalesced=True)

    total.add_(at_places(values.square()))
    root = total.sparse_mask(at_places(values))._values().sqrt().add_(group["eps"])
    rate = float(group["lr"]) / (1 + (float(step) - 1) * group["lr_decay"])
    p.add_(at_places(values / root), alpha=-rate)


class Adadelta(Rule):
    """Scales by the ratio of running means of updates and gradients.

    Step: v = rho v + (1 - rho) g g; step = g sqrt((u + eps) / (v + eps)); u = rho u + (1 - rho)
        step step; p = p - lr step.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.Adadelta([p])
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.9968])
    """

    _rule = "adadelta"
    _states = ("square_avg", "acc_delta")
    _options = "lr rho eps weight_decay maximize capturable foreach differentiable"

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
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        self._begin(params, locals())

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(p, group),
            "square_avg": tenon.zeros_like(p),
            "acc_delta": tenon.zeros_like(p),
        }

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"a": group["rho"]}


class _Moments(Rule):
    """Rules with Adam's two running means."""

    _late_options = {**Rule._late_options, "decoupled_weight_decay": False}

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(p, group),
            "exp_avg": tenon.zeros_like(p),
            "exp_avg_sq": tenon.zeros_like(p),
        }

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {"a": float(beta1), "b": float(beta2)}


class NAdam(_Moments):
    """Adam with Nesterov momentum.

    Step: Adam's step with the mean as it will be one step later.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.NAdam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.8944])
    """

    _rule = "nadam"
    _states = ("exp_avg", "exp_avg_sq", "mu_product")
    _options = (
        "lr betas eps weight_decay momentum_decay "
        "decoupled_weight_decay maximize foreach capturable differentiable"
    )
    _counters = ("step", "mu_product")

    _at_least_zero = ("lr", "eps", "weight_decay", "momentum_decay")

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
        self._begin(params, locals())

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        moments = super()._new_state(p, group)
        return {"step": moments.pop("step"), "mu_product": _counter(p, group, 1.0), **moments}

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {**super()._numbers(group), "c": group["momentum_decay"]}


class RAdam(_Moments):
    """Adam that waits until the variance of its step is known.

    Step: Adam's step times a factor that makes up for the variance of v; while that is unknown, p
        = p - lr m / (1 - b1**t).

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.RAdam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.8000])
    """

    _rule = "radam"
    _states = ("exp_avg", "exp_avg_sq")
    _options = (
        "lr betas eps weight_decay "
        "maximize foreach capturable decoupled_weight_decay differentiable"
    )

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
        self._begin(params, locals())


class Adamax(Rule):
    """Adam with the largest gradient in the place of the root mean square.

    Step: m = b1 m + (1 - b1) g; u = max(b2 u, abs(g) + eps); p = p - lr / (1 - b1**t) m / u.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.Adamax([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.9000])
    """

    _rule = "adamax"
    _states = ("exp_avg", "exp_inf")

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
        self._begin(params, locals())

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(p, group),
            "exp_avg": tenon.zeros_like(p),
            "exp_inf": tenon.zeros_like(p),
        }

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {"a": float(beta1), "b": float(beta2)}


class Rprop(Rule):
    """Looks at the signs of the gradients only; every element has a step size of its own.

    Step: p = p - sign(g) s; each s grows by etas[1] where the sign stays and shrinks by etas[0]
        where it changes.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.Rprop([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.9000])
    """

    _rule = "rprop"
    _states = ("prev", "step_size")
    _options = "lr etas step_sizes foreach maximize differentiable capturable"

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
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        self._begin(params, locals())

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        lr = float(group["lr"])
        first = complex(lr, lr) if p.is_complex() else lr
        return {
            "step": _counter(p, group),
            "prev": tenon.zeros_like(p),
            "step_size": tenon.full_like(p, first),
        }

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        (down, up), (low, high) = group["etas"], group["step_sizes"]
        return {"a": down, "b": up, "c": low, "d": high}


class ASGD(Rule):
    """Steps that get shorter, and beside them the average of where they led.

    Step: The gradient step with lr / (1 + lambd lr t)**alpha; from step t0 on `ax` in the state is
        the mean of the parameters.

    >>> p = nn.Parameter(tn.ones(1))
    >>> optimizer = tn.optim.ASGD([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.8000])
    """

    _rule = "asgd"
    _states = ("ax", "eta", "mu")
    _counters = ("step", "eta", "mu")

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
        self._begin(params, locals())

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": _counter(p, group),
            "eta": _counter(p, group, float(group["lr"])),
            "mu": _counter(p, group, 1.0),
            "ax": tenon.zeros_like(p),
        }

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        return {"a": group["lambd"], "b": group["alpha"], "c": group["t0"]}
