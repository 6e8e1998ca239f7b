"""Mixed precision: `autocast` picks dtypes per operator, `GradScaler` keeps gradients alive.

Which operators compute in the short dtype, in float32 or in the widest of their inputs' is said by
the op table (`autocast`); plugins say it of theirs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tenon import _C
from tenon._device.scaler import GradScaler
from tenon._device.scaler import OptState as OptState
from tenon._device.scaler import _refresh_per_optimizer_state as _refresh_per_optimizer_state

__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available",
]  # fmt: skip


def is_autocast_available(device_type: str) -> bool:
    """Whether a device of that kind is there."""
    try:
        _C._autocast_set(device_type)
    except MemoryError:
        raise
    except RuntimeError:
        return False
    return True


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the calling thread is in a region for that kind of device."""
    return is_autocast_available(device_type) and bool(_C._autocast_set(device_type)[0])


def get_autocast_dtype(device_type: str) -> Any:
    """The short dtype; of GPUs, also where there are none, float16 unless it was set."""
    if device_type == "cuda" and not is_autocast_available(device_type):
        return _C.float16
    return _C._autocast_set(device_type)[1]


def get_autocast_gpu_dtype() -> Any:
    """The short dtype of GPUs; the older name."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> Any:
    """The short dtype of the CPU; the older name."""
    return get_autocast_dtype("cpu")


def is_autocast_cpu_enabled() -> bool:
    """Whether the calling thread is in a region for the CPU; the older name."""
    return is_autocast_enabled("cpu")


def clear_autocast_cache() -> None:
    """Forgets the parameters that were converted in the calling thread's region."""
    _C._autocast_clear()


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Begins or ends a region without a with statement."""
    _, dtype, cache = _C._autocast_set(device_type)
    _C._autocast_set(device_type, int(enabled), dtype, cache)


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Changes the short dtype."""
    enabled, _, cache = _C._autocast_set(device_type)
    _C._autocast_set(device_type, enabled, dtype, cache)


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """See set_autocast_dtype."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """See set_autocast_dtype."""
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """See set_autocast_enabled."""
    set_autocast_enabled("cpu", enabled)


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Copies of weights are not kept between calls; nothing changes."""


_nesting = 0


def autocast_increment_nesting() -> int:
    """Counts a region that a program keeps itself."""
    global _nesting
    _nesting += 1
    return _nesting


def autocast_decrement_nesting() -> int:
    """Counts the end of such a region."""
    global _nesting
    _nesting -= 1
    return _nesting


class autocast(_C._Region):  # noqa: N801 - PyTorch's name
    """A with statement, or a decorator, inside which operators choose the dtype they compute in.

    dtype: the short one, bfloat16 on the CPU and float16 elsewhere. Regions nest; one with
    enabled=False switches the outer one off. Backward passes belong behind the region.
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        self._enabled = enabled
        if not is_autocast_available(device_type):
            if enabled:
                warnings.warn(
                    f"User provided device_type of '{device_type}', but there is no such device. "
                    "Disabling autocast.",
                    stacklevel=2,
                )
            self._enabled, self._there = False, False
            self.fast_dtype = dtype
            return
        self._there = True
        _, short, cache = _C._autocast_set(device_type)
        self.fast_dtype = short if dtype is None else dtype
        if enabled and self.fast_dtype not in (_C.bfloat16, _C.float16):
            name = device_type.upper()
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of {_C.bfloat16}, {_C.float16} currently.",
                stacklevel=2,
            )
            self._enabled, self.fast_dtype = False, short
        self._cache = bool(cache) if cache_enabled is None else cache_enabled

    def _region(self) -> tuple[Any, ...]:
        if not self._there:
            return _C._nothing, (), _C._nothing, ()
        now = (self.device, int(self._enabled), self.fast_dtype, self._cache)
        return (
            _C._autocast_enter,
            now,
            _C._autocast_leave,
            (self.device, *_C._autocast_set(self.device)),
        )

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return wrapper


def _converted(value: Any, device_type: str, dtype: Any) -> Any:
    if isinstance(value, _C.Tensor):
        fits = value.is_floating_point() and value.device.type == device_type
        return value.to(dtype) if fits and value.dtype != _C.float64 else value
    if isinstance(value, dict):
        return {k: _converted(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_converted(v, device_type, dtype) for v in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """For `forward` of an autograd.Function: with cast_inputs it runs with its inputs in that dtype
    and outside of autocast, else as the region says."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = is_autocast_enabled(device_type)
        if cast_inputs is None or not ctx._fwd_used_autocast:
            return fwd(*args, **kwargs)
        ctx._fwd_used_autocast = False
        with autocast(device_type, enabled=False):
            return fwd(
                *_converted(args, device_type, cast_inputs),
                **_converted(kwargs, device_type, cast_inputs),
            )

    return wrapper


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """For `backward` of an autograd.Function: it runs under autocast as its forward did."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return wrapper
