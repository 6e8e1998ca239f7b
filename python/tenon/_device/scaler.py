"""GradScaler: losses are scaled up so that small gradients of float16 do not vanish."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tenon
from tenon import _C
from tenon._C import _ops


class Stage(Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Multiplies losses by a factor, divides gradients by it before a step, leaves a step out where
    one of them is not finite, and looks for the factor: it grows while all is well."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1.0:
            raise ValueError("GradScaler: growth_factor must be greater than 1")
        if not 0.0 < backoff_factor < 1.0:
            raise ValueError("GradScaler: backoff_factor must lie between 0 and 1")
        self._device = device
        self._enabled = enabled and _is_there(device)
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        # optimizer -> stage, and the number 1 per device where a gradient was not finite
        self._per_optimizer: dict[int, tuple[Stage, dict[Any, Any]]] = {}

    def scale(self, outputs: Any) -> Any:
        """The tensor, or the tensors of a list, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _C.Tensor):
            return outputs * self._scale
        if isinstance(outputs, Iterable):
            scaled = (self.scale(o) for o in outputs)
            return tuple(scaled) if isinstance(outputs, tuple) else list(scaled)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _stage(self, optimizer: Any) -> Stage:
        return self._per_optimizer.get(id(optimizer), (Stage.READY, {}))[0]

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters, as clipping them needs; else `step`
        does it."""
        if not self._enabled:
            return
        stage = self._stage(optimizer)
        if stage is Stage.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if stage is Stage.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        found: dict[Any, Any] = {}
        with tenon.no_grad():
            for device, grads in _gradients(optimizer).items():
                found[device] = tenon.zeros((), device=device)
                _ops._unscale_(grads, found[device], factor=1.0 / self._scale)
        self._per_optimizer[id(optimizer)] = (Stage.UNSCALED, found)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if self._stage(optimizer) is Stage.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if self._stage(optimizer) is Stage.READY:
            self.unscale_(optimizer)
        found = self._per_optimizer[id(optimizer)][1]
        if not found:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        bad = any(float(f) for f in found.values())
        result = None if bad else optimizer.step(*args, **kwargs)
        self._per_optimizer[id(optimizer)] = (Stage.STEPPED, found)
        return result

    def update(self, new_scale: Any = None) -> None:
        """Chooses the factor for what comes, once all optimizers of an iteration have stepped."""
        if not self._enabled:
            return
        flags = [f for _, found in self._per_optimizer.values() for f in found.values()]
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not flags:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(float(f) for f in flags):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._per_optimizer.clear()

    def get_scale(self) -> float:
        """The factor, 1 where it is switched off."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        return self._per_optimizer.get(id(optimizer), (Stage.READY, {}))[1]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; empty where it is switched off."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where a saved scaler was."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]


def _gradients(optimizer: Any) -> dict[Any, list[Any]]:
    """What an optimizer's parameters have, by device; complex ones as pairs of real numbers."""
    found: dict[Any, list[Any]] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.dtype == tenon.float16 and p.dtype == tenon.float16:
                raise ValueError("Attempting to unscale FP16 gradients.")
            grad = tenon.view_as_real(p.grad) if p.grad.is_complex() else p.grad
            found.setdefault(grad.device, []).append(grad)
    return found


def _is_there(device: str) -> bool:
    try:
        _C._autocast_set(device)
    except MemoryError:
        raise
    except RuntimeError:
        warnings.warn(
            f"GradScaler is enabled, but there is no device '{device}'. Disabling.", stacklevel=3
        )
        return False
    return True
