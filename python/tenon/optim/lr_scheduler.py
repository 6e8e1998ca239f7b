"""Schedules of learning rates; see _lr_base.py for what they share.

Those that stand here are functions of the epoch. Cycles are in _lr_cycles.py; sequences, chains and
the one that looks at a measure are in _lr_several.py.
"""

from __future__ import annotations

import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tenon.optim._lr_base import (
    LRScheduler,
    _enable_get_lr_call,  # noqa: F401 - schedules of packages import both
    _values,
    _warn_get_lr_called_within_step,  # noqa: F401
)
from tenon.optim._lr_cycles import CyclicLR, OneCycleLR
from tenon.optim._lr_several import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from tenon.optim.optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


class _Closed(LRScheduler):
    """A schedule that knows the rate of any epoch."""

    def _closed(self, base: Any) -> Any:
        raise NotImplementedError

    def _get_closed_form_lr(self) -> list[Any]:
        return [self._closed(base) for base in self.base_lrs]


class _ByFunction(LRScheduler):
    """Schedules by functions of the epoch; functions are saved only where they are objects."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
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
    """The initial rate times a function of the epoch.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.5, 0.3333, 0.25, 0.2]
    """

    def get_lr(self) -> list[Any]:
        return [base * fn(self.last_epoch) for fn, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_ByFunction):
    """The present rate times a function of the epoch.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.5, 0.25, 0.125, 0.0625]
    """

    def get_lr(self) -> list[Any]:
        lrs = _values(self.optimizer, "lr")
        if self._is_initial:
            return lrs
        return [lr * fn(self.last_epoch) for fn, lr in zip(self.lr_lambdas, lrs)]


class StepLR(_Closed):
    """Times gamma every step_size epochs.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [1.0, 0.1, 0.1, 0.01]
    """

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
    """Times gamma at each milestone.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3])
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.1, 0.1, 0.01, 0.01]
    """

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
    """Times factor for the first total_iters epochs.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.5, 1.0, 1.0, 1.0]
    """

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
    """A factor that moves from start_factor to end_factor in total_iters epochs.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.5, 0.75, 1.0, 1.0]
    """

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
    """Times gamma every epoch.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.5, 0.25, 0.125, 0.0625]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, group: dict[str, Any], base: Any) -> Any:
        return group["lr"] if self._is_initial else group["lr"] * self.gamma

    def _closed(self, base: Any) -> Any:
        return base * self.gamma**self.last_epoch


class PolynomialLR(_Closed):
    """Falls to zero as a power of the epochs that are left.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.75, 0.5, 0.25, 0.0]
    """

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
    """Half a cosine from the initial rate to eta_min in T_max epochs, and back.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.8536, 0.5, 0.1464, 0.0]
    """

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
    """Half a cosine that starts again after T_0, T_0 * T_mult, ... epochs.

    >>> optimizer = tn.optim.SGD([nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    >>> rates
    [0.5, 1.0, 0.5, 1.0]
    """

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
        self._set_lrs(self._inside_step(self.get_lr))


_LRScheduler = LRScheduler
