"""Initial values of parameters. All functions write their tensor in place and return it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor

_LINEAR = frozenset(
    ("linear", "conv1d", "conv2d", "conv3d")
    + ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid")
)


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


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform on [a, b)."""
    with tenon.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with the given mean and standard deviation."""
    with tenon.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal, cut to [a, b]: values are drawn until all of them are accepted."""

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if (mean < a - 2 * std) or (mean > b + 2 * std):
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )
    share = below((b - mean) / std) - below((a - mean) / std)
    draw = _draw_from_normal if share > 0.3 else _draw_from_uniform
    with tenon.no_grad():
        draw(tensor, mean, std, a, b, generator)
    return tensor


def _draw_from_normal(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any
) -> None:
    """Normal numbers, those outside of [a, b] drawn again."""
    # The bounds as the tensor's dtype has them, so that they compare like its values.
    low, high = (tenon.tensor(x, dtype=tensor.dtype).item() for x in (a, b))
    tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (tensor < low) | (tensor > high)
        if not outside.any():
            return
        fresh = tenon.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(tenon.where(outside, fresh, tensor))


def _draw_from_uniform(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any
) -> None:
    """Uniform numbers, accepted by the height of the density: good where [a, b] is improbable."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    candidates = tenon.empty_like(tensor)
    chance = tenon.empty_like(tensor)
    pending = None
    while pending is None or pending.any():
        candidates.uniform_(a, b, generator=generator)
        fresh = candidates.clone()
        height = candidates.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        refused = chance.uniform_(generator=generator).log_().gt(height)
        if pending is None:
            tensor.copy_(fresh)
            pending = refused
        else:
            tensor.copy_(tenon.where(pending, fresh, tensor))
            pending = pending & refused


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element is val."""
    with tenon.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Every element is 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Every element is 0."""
    with tenon.no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with tenon.no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution that returns its input: as many channels as possible."""
    sizes = tensor.size()
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    middle = tuple(n // 2 for n in sizes[2:])
    with tenon.no_grad():
        tensor.zero_()
        for group in range(groups):
            for d in range(min(per_group, sizes[1])):
                tensor[(group * per_group + d, d, *middle)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform, with the variance 2 gain^2 / (fan_in + fan_out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / float(fan_in + fan_out)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal, with the variance 2 gain^2 / (fan_in + fan_out)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform, with the variance gain^2 / fan."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal, with the variance gain^2 / fan."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _orthonormal(a: Tensor) -> Tensor:
    """The Q of a = QR with a positive diagonal of R, by columns, in float64.

    Subtracting the projections twice keeps the columns orthogonal to the last place.
    """
    rows = a.t().to(tenon.float64).contiguous()
    for i in range(rows.size(0)):
        row = rows[i]
        for _ in range(2 if i else 0):
            done = rows[:i]
            row = row - done.t() @ (done @ row)
        rows[i] = row / row.norm()
    return rows.t()


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Rows (or columns, where there are fewer) that are orthonormal, times gain."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    cols = tensor.numel() // rows
    with tenon.no_grad():
        flat = tensor.new_empty((rows, cols)).normal_(0, 1, generator=generator)
        if rows < cols:
            flat = flat.t()
        q = _orthonormal(flat).to(tensor.dtype)
        if rows < cols:
            q = q.t()
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with the given share of zeros in every column."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with tenon.no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(cols):
            tensor[tenon.randperm(rows)[:zeros], col] = 0
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
