"""Steps as functions of lists: parameters, gradients and states in, all of them changed in place.

Programs that keep the state themselves call these, e.g. optimizers over shards. A step is one call
into C for all tensors; `foreach`, `fused` and `has_complex`, which name forms of PyTorch's step,
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _ops
from tenon.optim._rules import step_places
from tenon.optim._steps import step_rows
from tenon.optim.optimizer import as_real, rate_of

Tensors = list[Tensor]


def _real(tensors: Sequence[Any]) -> Tensors:
    return [as_real(t) for t in tensors]


def _check(
    name: str, grads: Tensors, steps: Sequence[Any], differentiable: bool, *scales: Tensor | None
) -> None:
    if differentiable:
        raise NotImplementedError(
            f"{name}: differentiable=True is not there for steps of lists; optimizers have it"
        )
    if not all(isinstance(t, Tensor) for t in steps):
        raise RuntimeError(
            f"{name}: API has changed, `state_steps` argument must contain a list of singleton "
            "tensors"
        )
    if any(scale is not None for scale in scales):
        raise NotImplementedError(
            f"{name}: grad_scale and found_inf are not there yet; unscale the gradients first"
        )
    if any(grad.is_sparse for grad in grads):
        raise RuntimeError(f"{name} does not support sparse gradients")


def adam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors, state_steps: Tensors, foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False,
    decoupled_weight_decay: bool = False, *, amsgrad: bool, beta1: float | Tensor,
    beta2: float | Tensor, lr: float | Tensor, weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """Adam's step; see Adam."""
    _check("adam", grads, state_steps, differentiable, grad_scale, found_inf)
    _ops._adam_(
        _real(params),
        _real(grads),
        _real(exp_avgs),
        _real(exp_avg_sqs),
        _real(max_exp_avg_sqs) if amsgrad else [],
        state_steps,
        **rate_of(lr, capturable),
        beta1=float(beta1),
        beta2=float(beta2),
        eps=float(eps),
        weight_decay=float(weight_decay),
        amsgrad=amsgrad,
        maximize=maximize,
        decoupled=decoupled_weight_decay,
    )


def adamw(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors, state_steps: Tensors, foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False,
    *, amsgrad: bool, beta1: float | Tensor, beta2: float | Tensor, lr: float | Tensor,
    weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """AdamW's step; see AdamW."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach, capturable,
        differentiable, fused, grad_scale, found_inf, has_complex, True, amsgrad=amsgrad,
        beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip


def sgd(
    params: Tensors, d_p_list: Tensors, momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False, foreach: bool | None = None, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, *, weight_decay: float,
    momentum: float, lr: float | Tensor, dampening: float, nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """SGD's step; see SGD. With momentum, a buffer that is None is made and put into the list."""
    dense = [grad for grad in d_p_list if not grad.is_sparse]
    _check("sgd", dense, (), False, grad_scale, found_inf)
    options = {
        "momentum": float(momentum),
        "dampening": float(dampening),
        "weight_decay": float(weight_decay),
        "nesterov": nesterov,
        "maximize": maximize,
    }
    going: tuple[Tensors, Tensors, Tensors] = ([], [], [])
    fresh: tuple[Tensors, Tensors, Tensors] = ([], [], [])
    for i, (p, grad) in enumerate(zip(params, d_p_list, strict=True)):
        buffer = momentum_buffer_list[i] if momentum != 0 else None
        if grad.is_sparse:
            buffer = step_rows(p, grad, buffer, {**options, "lr": lr})
            if momentum != 0:
                momentum_buffer_list[i] = buffer
            continue
        lists = going
        if momentum != 0 and buffer is None:
            lists = fresh
            buffer = momentum_buffer_list[i] = tenon.empty_like(p)
        lists[0].append(as_real(p))
        lists[1].append(as_real(grad))
        if buffer is not None:
            lists[2].append(as_real(buffer))
    for lists, first in ((going, False), (fresh, True)):
        if lists[0]:
            _ops._sgd_(*lists, **rate_of(lr), **options, first=first)


def _rule(
    rule: str, params: Tensors, grads: Tensors, states: Sequence[Tensors], steps: Tensors,
    lr: float | Tensor, capturable: bool, eps: float, weight_decay: float, maximize: bool,
    decoupled: bool = False, **numbers: float,
) -> None:  # fmt: skip
    """The step of a rule of optim/rule.c; numbers are its a .. d."""
    lists = [_real(state) for state in states]
    lists += [[] for _ in range(3 - len(lists))]
    _ops._rule_(
        _real(params),
        _real(grads),
        *lists,
        steps,
        rule,
        **rate_of(lr, capturable),
        **{name: float(number) for name, number in numbers.items()},
        eps=float(eps),
        weight_decay=float(weight_decay),
        maximize=maximize,
        decoupled=decoupled,
    )


def adadelta(
    params: Tensors, grads: Tensors, square_avgs: Tensors, acc_deltas: Tensors,
    state_steps: Tensors, capturable: bool = False, foreach: bool | None = None,
    differentiable: bool = False, has_complex: bool = False, *, lr: float, rho: float, eps: float,
    weight_decay: float, maximize: bool,
) -> None:  # fmt: skip
    """Adadelta's step; see Adadelta."""
    _check("adadelta", grads, state_steps, differentiable)
    _rule(
        "adadelta", params, grads, (square_avgs, acc_deltas), state_steps, lr, capturable, eps,
        weight_decay, maximize, a=rho,
    )  # fmt: skip


def adagrad(
    params: Tensors, grads: Tensors, state_sums: Tensors, state_steps: Tensors,
    fused: bool | None = None, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
    has_sparse_grad: bool = False, foreach: bool | None = None, differentiable: bool = False,
    has_complex: bool = False, *, lr: float, weight_decay: float, lr_decay: float, eps: float,
    maximize: bool,
) -> None:  # fmt: skip
    """Adagrad's step; see Adagrad. A sparse gradient changes the places that it names."""
    dense = [grad for grad in grads if not grad.is_sparse]
    _check("adagrad", dense, state_steps, differentiable, grad_scale, found_inf)
    options = {"weight_decay": weight_decay, "maximize": maximize, "lr": lr, "eps": eps,
               "lr_decay": lr_decay}  # fmt: skip
    going: tuple[Tensors, Tensors, Tensors, Tensors] = ([], [], [], [])
    for each in zip(params, grads, state_sums, state_steps, strict=True):
        if each[1].is_sparse:
            step_places(*each, options)
            continue
        for list_, t in zip(going, each, strict=True):
            list_.append(t)
    params, grads, state_sums, state_steps = going
    if params:
        _rule(
            "adagrad", params, grads, (state_sums,), state_steps, lr, False, eps, weight_decay,
            maximize, a=lr_decay,
        )  # fmt: skip


def adamax(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_infs: Tensors, state_steps: Tensors,
    foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    capturable: bool = False, has_complex: bool = False, *, eps: float, beta1: float,
    beta2: float, lr: float, weight_decay: float,
) -> None:  # fmt: skip
    """Adamax's step; see Adamax."""
    _check("adamax", grads, state_steps, differentiable)
    _rule(
        "adamax", params, grads, (exp_avgs, exp_infs), state_steps, lr, capturable, eps,
        weight_decay, maximize, a=beta1, b=beta2,
    )  # fmt: skip


def asgd(
    params: Tensors, grads: Tensors, axs: Tensors, mus: Tensors, etas: Tensors,
    state_steps: Tensors, foreach: bool | None = None, maximize: bool = False,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False, *,
    lambd: float, lr: float, t0: float, alpha: float, weight_decay: float,
) -> None:  # fmt: skip
    """ASGD's step; see ASGD."""
    _check("asgd", grads, state_steps, differentiable)
    _rule(
        "asgd", params, grads, (axs, etas, mus), state_steps, lr, capturable, 0.0, weight_decay,
        maximize, a=lambd, b=alpha, c=t0,
    )  # fmt: skip


def nadam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    mu_products: Tensors, state_steps: Tensors, decoupled_weight_decay: bool = False,
    foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
    has_complex: bool = False, maximize: bool = False, *, beta1: float, beta2: float, lr: float,
    weight_decay: float, momentum_decay: float, eps: float,
) -> None:  # fmt: skip
    """NAdam's step; see NAdam."""
    _check("nadam", grads, state_steps, differentiable)
    _rule(
        "nadam", params, grads, (exp_avgs, exp_avg_sqs, mu_products), state_steps, lr, capturable,
        eps, weight_decay, maximize, decoupled_weight_decay, a=beta1, b=beta2, c=momentum_decay,
    )  # fmt: skip


def radam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    state_steps: Tensors, decoupled_weight_decay: bool = False, foreach: bool | None = None,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False,
    maximize: bool = False, *, beta1: float, beta2: float, lr: float, weight_decay: float,
    eps: float,
) -> None:  # fmt: skip
    """RAdam's step; see RAdam."""
    _check("radam", grads, state_steps, differentiable)
    _rule(
        "radam", params, grads, (exp_avgs, exp_avg_sqs), state_steps, lr, capturable, eps,
        weight_decay, maximize, decoupled_weight_decay, a=beta1, b=beta2,
    )  # fmt: skip


def rmsprop(
    params: Tensors, grads: Tensors, square_avgs: Tensors, grad_avgs: Tensors,
    momentum_buffer_list: Tensors, state_steps: Tensors, foreach: bool | None = None,
    maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    has_complex: bool = False, *, lr: float, alpha: float, eps: float, weight_decay: float,
    momentum: float, centered: bool,
) -> None:  # fmt: skip
    """RMSprop's step; see RMSprop."""
    states = (square_avgs, momentum_buffer_list if momentum > 0 else [],
              grad_avgs if centered else [])  # fmt: skip
    _check("rmsprop", grads, state_steps, differentiable)
    _rule(
        "rmsprop", params, grads, states, state_steps, lr, capturable, eps, weight_decay, maximize,
        a=alpha, b=momentum,
    )  # fmt: skip


def rprop(
    params: Tensors, grads: Tensors, prevs: Tensors, step_sizes: Tensors, state_steps: Tensors,
    foreach: bool | None = None, capturable: bool = False, maximize: bool = False,
    differentiable: bool = False, has_complex: bool = False, *, step_size_min: float,
    step_size_max: float, etaminus: float, etaplus: float,
) -> None:  # fmt: skip
    """Rprop's step; see Rprop."""
    _check("rprop", grads, state_steps, differentiable)
    _rule(
        "rprop", params, grads, (prevs, step_sizes), state_steps, 0.0, capturable, 0.0, 0.0,
        maximize, a=etaminus, b=etaplus, c=step_size_min, d=step_size_max,
    )  # fmt: skip
