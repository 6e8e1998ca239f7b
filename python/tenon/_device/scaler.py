"""GradScaler: losses are scaled up so that small gradients of float16 do not vanish."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._C import _ops
from tenon._tensor.foreach import _amp_update_scale_


class OptState(Enum):
    """How far an iteration is with an optimizer."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Multiplies losses by a factor, divides gradients by it before a step, leaves a step out where
    one of them is not finite, and looks for the factor: it grows while all is well.

    The factor and the count of good steps are tensors on the device of the first loss."""

    _scale: Tensor | None
    _growth_tracker: Tensor | None

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled and _is_there(device)
        if self._enabled and growth_factor <= 1.0:
            raise AssertionError("GradScaler: The growth factor must be > 1.0.")
        if self._enabled and backoff_factor >= 1.0:
            raise AssertionError("GradScaler: The backoff factor must be < 1.0.")
        self._init_scale = float(init_scale)
        self._scale = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker = None
        # optimizer -> stage, and the number 1 per device where a gradient was not finite
        self._per_optimizer_states = _fresh_states()

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[Tensor, Tensor]:
        if self._scale is None or self._growth_tracker is None:
            raise AssertionError(
                f"Attempted {funcname} but _scale is None.  This may indicate your script did not "
                "use scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale, self._growth_tracker

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        self._scale = tenon.full((), self._init_scale, dtype=tenon.float32, device=dev)
        start = self._init_growth_tracker
        self._growth_tracker = tenon.full((), start, dtype=tenon.int32, device=dev)

    def scale(self, outputs: Any) -> Any:
        """The tensor, or the tensors of a list, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            scale, _ = self._check_scale_growth_tracker("scale")
            return outputs * scale.to(outputs.device, non_blocking=True)
        if isinstance(outputs, Iterable):
            scaled = (self.scale(o) for o in outputs)
            return tuple(scaled) if isinstance(outputs, tuple) else list(scaled)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        """Multiplies gradients; whether one was not finite, by device: 1 or found_inf's number."""
        found: dict[Any, Tensor] = {}
        factor = float(inv_scale)
        with tenon.no_grad():
            for device, grads in _gradients(optimizer, allow_fp16).items():
                found[device] = found_inf.to(device, copy=True)
                _ops._unscale_(grads, found[device], factor=factor)
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters, as clipping them needs; else `step`
        does it."""
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = scale.double().reciprocal().float()
        found = tenon.zeros((), dtype=tenon.float32, device=scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, found, False)
        state["stage"] = OptState.UNSCALED

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """Looks at the gradients, and leaves them as they are."""
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        one, zero = (
            tenon.full((), v, dtype=tenon.float32, device=scale.device) for v in (1.0, 0.0)
        )
        found = self._unscale_grads_(optimizer, one, zero, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _maybe_opt_step(self, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if any(float(f) for f in state["found_inf_per_device"].values()):
            return None
        return optimizer.step(*args, **kwargs)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is infinite or NaN.

        One with `_step_supports_amp_scaling` looks itself: it finds the factor, None where the
        gradients are divided already, and whether one was not finite in `grad_scale`, `found_inf`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_of_scaling(optimizer, state, args, kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not state["found_inf_per_device"]:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _step_of_scaling(self, optimizer: Any, state: Any, args: Any, kwargs: Any) -> Any:
        """The step of an optimizer that takes the factor into account."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer: let step look at self.grad_scale and self.found_inf.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **kwargs, grad_scaler=self)
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        scale, _ = self._check_scale_growth_tracker("step")
        flags = [f.to(scale.device) for f in state["found_inf_per_device"].values()]
        optimizer.grad_scale = None if state["stage"] is OptState.UNSCALED else scale
        optimizer.found_inf = sum(flags, tenon.zeros_like(scale))
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale: Any = None) -> None:
        """Chooses the factor for what comes, once all optimizers of an iteration have stepped."""
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        states = self._per_optimizer_states.values()
        flags = [f for state in states for f in state["found_inf_per_device"].values()]
        if isinstance(new_scale, Tensor):
            if new_scale.numel() != 1 or new_scale.requires_grad or new_scale.dtype != scale.dtype:
                raise AssertionError(
                    "update(): new_scale should be a float or a float32 tensor of one element with "
                    f"requires_grad=False, not {new_scale}"
                )
            scale.copy_(new_scale.reshape(()))
        elif new_scale is not None:
            scale.fill_(float(new_scale))
        elif not flags:
            raise AssertionError("No inf checks were recorded prior to update.")
        else:
            found = sum((f.to(scale.device) for f in flags), tenon.zeros_like(scale))
            _amp_update_scale_(
                scale, tracker, found, self._growth_factor, self._backoff_factor,
                self._growth_interval,
            )  # fmt: skip
        self._per_optimizer_states = _fresh_states()

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The factor, 1 where it is switched off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

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

    def _get_growth_tracker(self) -> int:
        """The steps since the factor changed, 0 where it is switched off."""
        if not self._enabled:
            return 0
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return int(self._growth_tracker.item())

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; empty where it is switched off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
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
        self._init_scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = int(state_dict["_growth_tracker"])
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._per_optimizer_states:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update()."
            )
        now = {"_init_scale": self.get_scale(), "_init_growth_tracker": self._get_growth_tracker()}
        return {**self.__dict__, **now, "_scale": None, "_growth_tracker": None}


def _fresh_states() -> defaultdict[int, dict[str, Any]]:
    return defaultdict(_refresh_per_optimizer_state)


def _gradients(optimizer: Any, allow_fp16: bool) -> dict[Any, list[Tensor]]:
    """What an optimizer's parameters have, by device; of sparse gradients the values, each element
    once, and complex ones as pairs of real numbers."""
    found: dict[Any, list[Tensor]] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.dtype == tenon.float16 and not allow_fp16:
                raise ValueError("Attempting to unscale FP16 gradients.")
            grad = p.grad
            if grad.is_sparse:
                # Values of one element may be finite, and their sum not.
                p.grad = grad.coalesce() if grad.dtype == tenon.float16 else grad
                grad = p.grad._values()
            grad = tenon.view_as_real(grad) if grad.is_complex() else grad
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
