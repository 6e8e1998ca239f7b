"""Initial values of parameters. All functions write their tensor in place and return it.

The numbers come from nn/init.c, which C programs call too (tenon/nn.h).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, overrides
from tenon._C import _ops
from tenon._tape import overridable

_LINEAR = frozenset(
    ("linear", "conv1d", "conv2d", "conv3d")
    + ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid")
)


def _seen(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, which modes and subclasses see as one call."""

    @functools.wraps(fn)
    def seen(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if overrides.has_torch_function_unary(tensor):
            return overrides.handle_torch_function(seen, (tensor,), tensor, *args, **kwargs)
        return fn(tensor, *args, **kwargs)

    return seen


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a layer's weights grow to make up for the function behind it."""
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


@_seen
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform on [a, b)."""
    with tenon.no_grad():
        return tensor.uniform_(a, b, generator=generator)


@_seen
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with the given mean and standard deviation."""
    with tenon.no_grad():
        return tensor.normal_(mean, std, generator=generator)


@_seen
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal, cut to [a, b]: values are drawn until all of them are accepted."""
    if (mean < a - 2 * std) or (mean > b + 2 * std):
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=overridable.users_level(),
        )
    with tenon.no_grad():
        _ops._init_trunc_normal_(tensor, mean, std, a, b, generator=generator)
    return tensor


@_seen
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element is val."""
    with tenon.no_grad():
        return tensor.fill_(val)


@_seen
def ones_(tensor: Tensor) -> Tensor:
    """Every element is 1."""
    return constant_(tensor, 1.0)


@_seen
def zeros_(tensor: Tensor) -> Tensor:
    """Every element is 0."""
    with tenon.no_grad():
        return tensor.zero_()


@_seen
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    with tenon.no_grad():
        _ops._init_eye_(tensor)
    return tensor


@_seen
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution that returns its input: as many channels as possible."""
    with tenon.no_grad():
        _ops._init_dirac_(tensor, groups)
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """One of the two, by its name."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(
            f"Mode {mode.lower()} not supported, please use one of ['fan_in', 'fan_out']"
        )
    return _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]


@_seen
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform, with the variance 2 gain^2 / (fan_in + fan_out)."""
    with tenon.no_grad():
        _ops._init_xavier_uniform_(tensor, gain, generator=generator)
    return tensor


@_seen
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal, with the variance 2 gain^2 / (fan_in + fan_out)."""
    with tenon.no_grad():
        _ops._init_xavier_normal_(tensor, gain, generator=generator)
    return tensor


def _kaiming(
    fill: Callable[..., None],
    tensor: Tensor,
    a: float,
    mode: str,
    nonlinearity: str,
    generator: Any,
) -> Tensor:
    if 0 in tensor.shape:
        warnings.warn(
            "Initializing zero-element tensors is a no-op", stacklevel=overridable.users_level()
        )
        return tensor
    with tenon.no_grad():
        fill(tensor, calculate_gain(nonlinearity, a), mode.lower(), generator=generator)
    return tensor


@_seen
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform, with the variance gain^2 / fan."""
    return _kaiming(_ops._init_kaiming_uniform_, tensor, a, mode, nonlinearity, generator)


@_seen
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal, with the variance gain^2 / fan."""
    return _kaiming(_ops._init_kaiming_normal_, tensor, a, mode, nonlinearity, generator)


@_seen
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Rows (or columns, where there are fewer) that are orthonormal, times gain."""
    with tenon.no_grad():
        _ops._init_orthogonal_(tensor, gain, generator=generator)
    return tensor


@_seen
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with the given share of zeros in every column."""
    with tenon.no_grad():
        _ops._init_sparse_(tensor, sparsity, std, generator=generator)
    return tensor


def _old_name(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    name = fn.__name__[:-1]

    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return fn(*args, **kwargs)

    old.__name__ = name
    old.__doc__ = f"The older name of {name}_, which warns."
    return old


uniform = _old_name(uniform_)
normal = _old_name(normal_)
constant = _old_name(constant_)
eye = _old_name(eye_)
dirac = _old_name(dirac_)
xavier_uniform = _old_name(xavier_uniform_)
xavier_normal = _old_name(xavier_normal_)
kaiming_uniform = _old_name(kaiming_uniform_)
kaiming_normal = _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)
sparse = _old_name(sparse_)


# Names that packages import: these draw without recording, as all of this module does.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
