"""What all schedules of learning rates share.

A schedule sets the groups' learning rates once when it is made and again at every step(). Most are
chainable: the next rate is the present one times a factor (`_next`), so several may work on one
optimizer. `_closed`, where there is one, gives the rate of an epoch directly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
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


def _warn_get_lr_called_within_step(scheduler: LRScheduler) -> None:
    """Warns where get_lr() is asked for from outside of step()."""
    if not scheduler._get_lr_called_within_step:
        warnings.warn(
            "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
            stacklevel=3,
        )


@contextmanager
def _enable_get_lr_call(scheduler: LRScheduler) -> Iterator[None]:
    """Within it, get_lr() is step()'s."""
    scheduler._get_lr_called_within_step = True
    try:
        yield
    finally:
        scheduler._get_lr_called_within_step = False


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
        _warn_get_lr_called_within_step(self)
        return [
            self._next(group, base)
            for group, base in zip(self.optimizer.param_groups, self.base_lrs)
        ]

    def _inside_step(self, find: Callable[[], list[Any]]) -> list[Any]:
        with _enable_get_lr_call(self):
            return find()

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
        if epoch is None:
            self.last_epoch += 1
            closed = None
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
        self._set_lrs(self._inside_step(closed or self.get_lr))
