"""GradScaler: losses are scaled up so that small gradients of float16 do not vanish."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tenon
from tenon import _C
from tenon._C import _ops


class OptState(Enum):
    """How far an iteration is with an optimizer."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


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
        self._per_optimizer_states = _fresh_states()

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

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters, as clipping them needs; else `step`
        does it."""
        if not self._enabled:
            return
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        found: dict[Any, Any] = {}
        with tenon.no_grad():
            for device, grads in _gradients(optimizer).items():
                found[device] = tenon.zeros((), device=device)
                _ops._unscale_(grads, found[device], factor=1.0 / self._scale)
        state.update(stage=OptState.UNSCALED, found_inf_per_device=found)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        found = state["found_inf_per_device"]
        if not found:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        bad = any(float(f) for f in found.values())
        result = None if bad else optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Chooses the factor for what comes, once all optimizers of an iteration have stepped."""
        if not self._enabled:
            return
        states = self._per_optimizer_states.values()
        flags = [f for state in states for f in state["found_inf_per_device"].values()]
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
        self._per_optimizer_states = _fresh_states()

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
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

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


def _fresh_states() -> defaultdict[int, dict[str, Any]]:
    return defaultdict(_refresh_per_optimizer_state)


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
