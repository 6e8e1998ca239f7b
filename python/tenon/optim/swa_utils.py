"""Averages of models over training: stochastic weight averaging and moving averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Literal

import tenon
from tenon import Tensor
from tenon.nn.modules.batchnorm import _BatchNorm
from tenon.nn.modules.module import Module
from tenon.optim._lr_base import LRScheduler, _for_groups
from tenon.optim.optimizer import Optimizer
from tenon.utils._foreach_utils import (  # noqa: F401 - packages import it here
    _group_tensors_by_device_and_dtype,
)


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """avg_fn of a moving average: decay * averaged + (1 - decay) * current."""
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1].")

    def update(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        with tenon.no_grad():
            return decay * averaged + (1 - decay) * current

    return update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """avg_fn of the plain mean of all models."""

    def update(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        with tenon.no_grad():
            return averaged + (current - averaged) / (count + 1)

    return update


def _each(fn: Callable[[Tensor, Tensor, Any], Tensor]) -> Callable[..., None]:
    def update(averaged: Iterable[Tensor], current: Iterable[Tensor], count: Any) -> None:
        for old, new in zip(averaged, current):
            old.copy_(fn(old, new, count))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """get_ema_avg_fn for lists of tensors."""
    each = _each(get_ema_avg_fn(decay))

    def update(averaged: Iterable[Tensor], current: Iterable[Tensor], count: Any) -> None:
        old, new = list(averaged), list(current)
        if old and all(t.is_floating_point() for t in (*old, *new)):
            with tenon.no_grad():
                tenon._foreach_lerp_(old, new, 1 - decay)
        else:
            each(old, new, count)

    return update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """get_swa_avg_fn for lists of tensors."""
    return _each(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model whose parameters are averages over the updates."""

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tenon.tensor(0, dtype=tenon.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes a model's parameters into the average."""

        def tensors(m: Module) -> list[Tensor]:
            return [*m.parameters(), *(m.buffers() if self.use_buffers else ())]

        averaged = [t.detach() for t in tensors(self.module)]
        current = [t.detach().to(a.device) for t, a in zip(tensors(model), averaged)]
        count = int(self.n_averaged)
        with tenon.no_grad():
            if count == 0:
                for old, new in zip(averaged, current):
                    old.copy_(new)
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(averaged, current, self.n_averaged)
            else:
                _each(self.avg_fn or get_swa_avg_fn())(averaged, current, self.n_averaged)
            if not self.use_buffers:
                for old, new in zip(self.module.buffers(), model.buffers()):
                    old.detach().copy_(new.detach().to(old.device))
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the running statistics of all batch norms anew with one pass over the data."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    was_training = model.training
    model.train()
    momenta = [m.momentum for m in norms]
    for module in norms:
        module.reset_running_stats()
        module.momentum = None
    with tenon.no_grad():
        for batch in loader:
            input = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(input.to(device) if device is not None else input)
    for module, momentum in zip(norms, momenta):
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Goes from the present rates to swa_lr within anneal_epochs steps, and stays there."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = _for_groups("swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way is done after so many steps: 0 to 1."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self._anneal_strategy == "cos" else done

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        # The rate at the start follows from the present one, so that others may change it too.
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        goal, rate = group["swa_lr"], group["lr"]
        start = goal if before == 1 else (rate - before * goal) / (1 - before)
        return goal * now + start * (1 - now)
