"""Settings of the process, and constructors with PyTorch's old names."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from tenon import _C
from tenon._C import Tensor, device, dtype
from tenon._tape import overridable

_precision = "highest"


class layer:
    """`with tn.layer("oplog"): ...` shows every operator call inside, of this thread, to a layer.

    A layer is code of a plugin or program above the kernels; `name` loads the plugin that
    offers it. Raises ImportError when no plugin does.
    """

    def __init__(self, name: str) -> None:
        self._id = _C._layer_find(name)
        self._old: list[bool] = []

    def __enter__(self) -> layer:
        self._old.append(_C._layer_enable(self._id, True))
        return self

    def __exit__(self, *exc: object) -> None:
        _C._layer_enable(self._id, self._old.pop())


_POLICIES = ("allow", "warn", "error")


def set_fallback_policy(policy: str) -> None:
    """What a call does whose device has no kernel for it: 'allow' runs it on the CPU, with copies
    both ways; 'warn', the default, says so once per operator and device; 'error' raises. For the
    whole process; the environment's TENON_FALLBACK is the start."""
    if policy not in _POLICIES:
        raise ValueError(f"expected one of {', '.join(_POLICIES)}, got {policy!r}")
    _C._set_fallback_policy(_POLICIES.index(policy))


def get_fallback_policy() -> str:
    """What `set_fallback_policy` was given: 'allow', 'warn' or 'error'."""
    return _POLICIES[_C._fallback_policy()]


def set_float32_matmul_precision(precision: str) -> None:
    """'highest': products of float32 are in float32. 'high', 'medium': GPUs may take TF32."""
    from tenon.backends import cuda

    global _precision
    if not isinstance(precision, str):
        kind = type(precision).__name__
        raise RuntimeError(f"set_float32_matmul_precision expects a str, but got {kind}")
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', and 'medium'; the precision of float32 "
            "matrix products stays as it is.",
            stacklevel=2,
        )
        return
    _precision = precision
    cuda.matmul.allow_tf32 = precision != "highest"


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given."""
    return _precision


_warn_only = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """True: kernels, and the libraries of a GPU, give the same bits every time. Those of the CPU
    always do."""
    from tenon.backends import _options

    global _warn_only
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            kind = type(value).__name__
            raise TypeError(f"use_deterministic_algorithms(): {name} must be bool, not {kind}")
    _warn_only = warn_only
    _C._set_deterministic(mode)
    _options.put("deterministic", "TENON_CUDA_DETERMINISTIC", mode)


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was given."""
    return _C._is_deterministic()


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The `warn_only` that `use_deterministic_algorithms` was given; nothing here has to warn."""
    return _warn_only


def set_default_device(device: Any) -> None:
    """Where new tensors are made unless a call says otherwise; None: the CPU."""
    _C._set_default_device("cpu" if device is None else device)


def run_on_device(where: device, function: Any) -> Any:
    """A device as a decorator: what the function makes is made there."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with where:
            return function(*args, **kwargs)

    return inside


def get_default_device() -> device:
    """Where new tensors are made."""
    return _C._get_default_device()


def set_default_tensor_type(t: Any) -> None:
    """The old way to set the default dtype and device: by a type of tensors, such as
    `torch.cuda.FloatTensor`, or by its name."""
    from tenon._tensor import tensor_types as types

    found = types.parse(t) if isinstance(t, str) else t
    if not isinstance(found, types.TensorType):
        raise TypeError(f"set_default_tensor_type: expected a type of tensors, got {t!r}")
    _C.set_default_dtype(found.dtype)
    set_default_device(found.kind)


def set_num_interop_threads(threads: int) -> None:
    """Accepted as it is: calls run on the thread that makes them."""
    if threads < 1:
        raise RuntimeError("set_num_interop_threads expects a positive integer")


def get_num_interop_threads() -> int:
    """Always 1."""
    return 1


@overridable.seen_by_modes
def scalar_tensor(
    s: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A number as a 0-d tensor of the default dtype."""
    made = _C._ops.full((), s, dtype=dtype or _C.get_default_dtype(), device=device)
    return made.requires_grad_(requires_grad)
