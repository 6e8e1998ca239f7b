"""Schedules of learning rates.

A schedule sets the groups' learning rates once when it is made and again at every step(). Most are
chainable: the next rate is the present one times a factor (`_next`), so several may work on one
optimizer. `_closed`, where there is one, gives the rate of an epoch directly.
"""

from __future__ import annotations

import math
import types
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon import Tensor
from tenon.optim.optimizer import Optimizer

_EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler."
)


def _values(optimizer: Optimizer, key: str) -> list[Any]:
    """A value of every group; tensors are copied."""
    values = (group[key] for group in optimizer.param_groups)
    return [v.clone() if isinstance(v, Tensor) else v for v in values]


def _set_value(group: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(group[key], Tensor):
        group[key].fill_(float(value))
    else:
        group[key] = value


def _for_groups(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for every group out of one value or a list."""
    groups = optimizer.param_groups
    if not isinstance(value, (list, tuple)):
        return [value] * len(groups)
    if len(value) != len(groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {len(groups)}."
        )
    return list(value)


class LRScheduler:
    """The base of the schedules. Subclasses define get_lr, or _next for one group."""

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                lr = group["lr"]
                group.setdefault("initial_lr", lr.clone() if isinstance(lr, Tensor) else lr)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0"
                )
        self.base_lrs = _values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a saved state."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates that the last step set."""
        return self._last_lr

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        """The next rate of a group from its present one."""
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        """The rates that step() is about to set."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                stacklevel=2,
            )
        return [
            self._next(group, base)
            for group, base in zip(self.optimizer.param_groups, self.base_lrs)
        ]

    @contextmanager
    def _inside_step(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _set_lrs(self, lrs: Iterable[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, lrs):
            _set_value(group, "lr", lr)
        self._last_lr = _values(self.optimizer, "lr")

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch and sets its rates."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should "
                "call them in the opposite order: `optimizer.step()` before "
                "`lr_scheduler.step()`. Failure to do this will result in skipping the first "
                "value of the learning rate schedule.",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(_EPOCH_WARNING, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._inside_step():
            if epoch is None:
                self.last_epoch += 1
                lrs = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                lrs = closed() if closed is not None else self.get_lr()
        self._set_lrs(lrs)


class _Closed(LRScheduler):
    """A schedule that knows the rate of any epoch."""

    def _closed(self, base: Any) -> Any:
        raise NotImplementedError

    def _get_closed_form_lr(self) -> list[Any]:
        return [self._closed(base) for base in self.base_lrs]


class _ByFunction(LRScheduler):
    """Schedules by functions of the epoch; functions are saved only where they are objects."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != len(optimizer.param_groups):
                raise ValueError(
                    f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}"
                )
            self.lr_lambdas: list[Callable[[int], float]] = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}
        state["lr_lambdas"] = [
            None if isinstance(fn, types.FunctionType) else fn.__dict__.copy()
            for fn in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = {k: v for k, v in state_dict.items() if k != "lr_lambdas"}
        self.__dict__.update(rest)
        for fn, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if saved is not None:
                fn.__dict__.update(saved)


class LambdaLR(_ByFunction):
    """The initial rate times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        return [base * fn(self.last_epoch) for fn, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_ByFunction):
    """The present rate times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        lrs = _values(self.optimizer, "lr")
        if self._is_initial:
            return lrs
        return [lr * fn(self.last_epoch) for fn, lr in zip(self.lr_lambdas, lrs)]


class StepLR(_Closed):
    """Times gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return group["lr"]
        return group["lr"] * self.gamma

    def _closed(self, base: Any) -> Any:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_Closed):
    """Times gamma at each milestone."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        if self.last_epoch not in self.milestones:
            return group["lr"]
        return group["lr"] * self.gamma ** self.milestones[self.last_epoch]

    def _closed(self, base: Any) -> Any:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return base * self.gamma**passed


class ConstantLR(_Closed):
    """Times factor for the first total_iters epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        if self.last_epoch == 0:
            return group["lr"] * self.factor
        if self.last_epoch != self.total_iters:
            return group["lr"]
        return group["lr"] * (1.0 / self.factor)

    def _closed(self, base: Any) -> Any:
        inside = self.last_epoch < self.total_iters
        return base * (self.factor + (not inside) * (1 - self.factor))


class LinearLR(_Closed):
    """A factor that moves from start_factor to end_factor in total_iters epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        if self.last_epoch == 0:
            return group["lr"] * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return group["lr"]
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return group["lr"] * (1.0 + rise / before)

    def _closed(self, base: Any) -> Any:
        rise = self.end_factor - self.start_factor
        done = min(self.total_iters, self.last_epoch)
        return base * (self.start_factor + rise * done / self.total_iters)


class ExponentialLR(_Closed):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        return group["lr"] if self._is_initial else group["lr"] * self.gamma

    def _closed(self, base: Any) -> Any:
        return base * self.gamma**self.last_epoch


class PolynomialLR(_Closed):
    """Falls to zero as a power of the epochs that are left."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        if self._is_initial or self.last_epoch > self.total_iters:
            return group["lr"]
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return group["lr"] * (left / before) ** self.power

    def _closed(self, base: Any) -> Any:
        done = min(self.total_iters, self.last_epoch)
        return base * (1.0 - done / self.total_iters) ** self.power


class CosineAnnealingLR(_Closed):
    """Half a cosine from the initial rate to eta_min in T_max epochs, and back."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        if self._is_initial:
            return group["lr"]
        span = base - self.eta_min
        if self._step_count == 1 and self.last_epoch > 0:
            return self._closed(base)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The rate was eta_min, so it cannot be scaled up.
            return group["lr"] + span * (1 - math.cos(math.pi / self.T_max)) / 2
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return now / before * (group["lr"] - self.eta_min) + self.eta_min

    def _closed(self, base: Any) -> Any:
        wave = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return self.eta_min + (base - self.eta_min) * wave / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine that starts again after T_0, T_0 * T_mult, ... epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        wave = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return self.eta_min + (base - self.eta_min) * wave / 2

    def step(self, epoch: float | None = None) -> None:
        """Goes on by one epoch, or to a (fractional) epoch."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur = self.T_cur % self.T_i
                self.T_i = self.T_i * self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i = self.T_0
            self.T_cur = epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        with self._inside_step():
            lrs = self.get_lr()
        self._set_lrs(lrs)


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _linear(start: float, end: float, share: float) -> float:
    return (end - start) * share + start


class OneCycleLR(LRScheduler):
    """Up to max_lr and down to almost nothing, with momentum the other way round."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        given = {"total_steps": total_steps}
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        for name, value in given.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        self.total_steps = math.prod(given.values())
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        top = float(pct_start * self.total_steps) - 1
        last = self.total_steps - 1
        if three_phase:
            phases = [
                (top, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                (
                    float(2 * pct_start * self.total_steps) - 2,
                    "max_lr",
                    "initial_lr",
                    "base_momentum",
                    "max_momentum",
                ),
                (last, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            phases = [
                (top, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                (last, "max_lr", "min_lr", "base_momentum", "max_momentum"),
            ]
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        self._schedule_phases = [dict(zip(names, phase)) for phase in phases]
        self._anneal_func_type = anneal_strategy
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, _for_groups("max_lr", optimizer, max_lr)):
                group["initial_lr"] = lr / div_factor
                group["max_lr"] = lr
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _check_momentum(optimizer)
            self.use_beta1 = "betas" in optimizer.defaults
            highs = _for_groups("max_momentum", optimizer, max_momentum)
            lows = _for_groups("base_momentum", optimizer, base_momentum)
            if last_epoch == -1:
                for high, low, group in zip(highs, lows, optimizer.param_groups):
                    _set_momentum(group, high, self.use_beta1)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. "
                f"The specified number of total steps is {self.total_steps}"
            )
        anneal = _cosine if self._anneal_func_type == "cos" else _linear
        start = 0.0
        phase = self._schedule_phases[-1]
        for candidate in self._schedule_phases:
            if step <= candidate["end_step"] or candidate is phase:
                phase = candidate
                break
            start = candidate["end_step"]
        share = (step - start) / (phase["end_step"] - start)
        if self.cycle_momentum:
            momentum = anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
            _set_momentum(group, momentum, self.use_beta1)
        return anneal(group[phase["start_lr"]], group[phase["end_lr"]], share)


def _check_momentum(optimizer: Optimizer) -> None:
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )


def _set_momentum(group: dict[str, Any], value: float, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """Back and forth between two rates."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.optimizer = optimizer
        if last_epoch == -1:
            for lr, group in zip(
                _for_groups("base_lr", optimizer, base_lr), optimizer.param_groups
            ):
                _set_value(group, "lr", lr)
        self.max_lrs = _for_groups("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _check_momentum(optimizer)
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = _for_groups("base_momentum", optimizer, base_momentum)
            self.max_momentums = _for_groups("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for high, low, group in zip(
                    self.max_momentums, self.base_momentums, optimizer.param_groups
                ):
                    _set_momentum(group, high, self.use_beta1)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = _for_groups("base_lr", optimizer, base_lr)

    def scale_fn(self, x: float) -> float:
        """How much of the way to the upper rate is used."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        ratio = self.step_ratio
        share = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(
                self.base_momentums, self.max_momentums, self.optimizer.param_groups
            ):
                momentum = high - (high - low) * share * scale
                _set_momentum(group, momentum, self.use_beta1)
        return [
            low + (high - low) * share * scale for low, high in zip(self.base_lrs, self.max_lrs)
        ]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        fn = state.pop("_scale_fn_custom")
        saved = None
        if fn is not None and not isinstance(fn, types.FunctionType):
            saved = fn.__dict__.copy()
        state["_scale_fn_custom"] = saved
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)


class _Several(LRScheduler):
    """Schedules made of schedules of one optimizer."""

    def _check(self, schedulers: Sequence[Any], optimizer: Any) -> None:
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional kwargs to be specified when calling `step`, but got one at "
                    f"index {i} in the given schedulers sequence."
                )
            if optimizer != scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler {type(scheduler).__name__} at index {i} with another one."
                )

    def state_dict(self) -> dict[str, Any]:
        state = {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("optimizer", "_schedulers")
        }
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = {k: v for k, v in state_dict.items() if k != "_schedulers"}
        self.__dict__.update(rest)
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(saved)


def _undo(scheduler: Any) -> None:
    """Takes back the step that every schedule made when it was created."""
    if hasattr(scheduler, "_schedulers"):
        for part in scheduler._schedulers:
            _undo(part)
    elif hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1


class SequentialLR(_Several):
    """One schedule after the other, changing at the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler, but got no scheduler."
            )
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more "
                "than the number of milestone points, but got number of schedulers "
                f"{len(schedulers)} and the number of milestones to be equal to "
                f"{len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            _set_value(group, "lr", group["initial_lr"])
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        """Steps the schedule that is in force."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Several chainable schedules at once."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, "
                "but got no scheduler."
            )
        optimizer = optimizer or schedulers[0].optimizer
        self._check(schedulers, optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = _values(optimizer, "lr")

    def step(self) -> None:
        """Steps all schedules."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = _values(self.optimizer, "lr")


class ReduceLROnPlateau(LRScheduler):
    """Times factor when a measure has not got better for `patience` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        self.factor = factor
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != len(optimizer.param_groups):
                raise ValueError(
                    f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}"
                )
            self.default_min_lr = None
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * len(optimizer.param_groups)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = _values(optimizer, "lr")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs are not counted at present."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether `a` is better than the best by more than the threshold."""
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bound = best * (1.0 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return a > bound if self.mode == "max" else a < bound

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Takes the measure of an epoch."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(_EPOCH_WARNING, stacklevel=2)
        self.last_epoch = epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = _values(self.optimizer, "lr")

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    "The number of param groups in the `optimizer` "
                    f"({len(groups)}) differs from when `ReduceLROnPlateau` was initialized "
                    f"({len(self.min_lrs)}), usually due to a new param group being added to "
                    "the optimizer. Please modify the `min_lrs` field to match the length of "
                    "the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                _set_value(group, "lr", new)


_LRScheduler = LRScheduler
