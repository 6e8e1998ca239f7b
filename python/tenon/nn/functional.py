"""Functions of neural networks that keep no state.

Operators of the table that say `nn.functional` are here by their own names. Python functions stand
only where there is argument logic to do: modes, old flags, arguments that may be left out. They
live in _losses.py, _vision.py, _grid.py and _attention.py beside this file, and below.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _nn, _ops
from tenon._submodules import imported as _imported
from tenon._tape import overridable
from tenon._tape.call_modes import entered
from tenon._tensor.names import conv_tbc as conv_tbc
from tenon.nn import _bags, _results
from tenon.nn._scaled import ScalingType as ScalingType
from tenon.nn._scaled import SwizzleType as SwizzleType
from tenon.nn._scaled import grouped_mm as grouped_mm
from tenon.nn._scaled import scaled_grouped_mm as scaled_grouped_mm
from tenon.nn._scaled import scaled_mm as scaled_mm
from tenon.nn.parameter import Parameter

# What is plain comes first, so that everything below may replace an operator of the same name.
globals().update({name: getattr(_nn, name) for name in dir(_nn) if not name.startswith("__")})

# Functions that are the package's own too are the same objects.
_SHARED = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "hardshrink", "pdist",
)  # fmt: skip
globals().update({name: getattr(tenon, name) for name in _SHARED})

from tenon._forms import *  # noqa: E402, F403
from tenon.nn._attention import *  # noqa: E402, F403
from tenon.nn._grid import *  # noqa: E402, F403
from tenon.nn._linear_loss import *  # noqa: E402, F403
from tenon.nn._losses import *  # noqa: E402, F403
from tenon.nn._pooling import *  # noqa: E402, F403
from tenon.nn._vision import *  # noqa: E402, F403

# ---- Activations that may work in place ----------------------------------------------------------


def _source(input: Tensor, inplace: bool) -> Tensor:
    """What to compute from. In place, backward needs the values that are about to go."""
    if inplace and input.requires_grad and tenon.is_grad_enabled():
        return input.clone()
    return input


def _give(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """The result, written over the input when that is asked for."""
    return input.copy_(result) if inplace else result


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """input cut to [min_val, max_val].

    Shapes: any.

    >>> F.hardtanh(tn.tensor([-4.0, 0.5, 4.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    function = _nn.hardtanh_ if inplace else _nn.hardtanh
    return function(input, min_val, max_val)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, else weight * input, one weight for all or one per channel.

    Shapes: input (N, C, *), weight (1,) or (C,).

    >>> F.prelu(tn.tensor([-2.0, 3.0]), tn.tensor([0.5]))
    tensor([-1.,  3.])
    """
    if weight.dim() > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}"
        )
    if weight.numel() != 1:
        channels = input.size(1) if input.dim() > 1 else 1
        if weight.numel() != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}."
            )
        weight = weight.view([-1 if d == 1 else 1 for d in range(input.dim())])
    elif input.dim() == 0:
        weight = weight.reshape(())
    return _ops._prelu(input, weight)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of input times the sigmoid of the second half.

    Shapes: an even size along dim, half of which is left.

    >>> F.glu(tn.zeros(2, 6)).shape
    tenon.Size([2, 3])
    """
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    _results.floats_alone("glu", input)
    if input.size(dim) % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim % input.dim()} "
            f"is size {input.size(dim)}"
        )
    first, second = input.chunk(2, dim)
    return _results.known_as(first * tenon.sigmoid(second), "GluBackward0")


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """input moved towards zero by lambd.

    Shapes: any.

    >>> F.softshrink(tn.tensor([0.25, 1.0]))
    tensor([0.0000, 0.5000])
    """
    most = tenon.finfo(input.dtype).max if input.is_floating_point() else math.inf
    if not 0 <= lambd <= most:
        raise RuntimeError(
            f"lambda must be in range [0, {most:g}] for input dtype {input.dtype}, but found "
            f"{lambd:g}"
        )
    return _nn.softshrink(input, lambd, out=out)


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dimension that programs without `dim` have always got."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=overridable.users_level() + stacklevel - 3,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """exp(input), normalised along dim.

    Shapes: any.

    >>> F.softmax(tn.zeros(1, 2), dim=1)
    tensor([[0.5000, 0.5000]])
    """
    if type(input) is not Tensor or entered[0]:
        how = {"dim": dim, "_stacklevel": _stacklevel, "dtype": dtype}
        made = overridable.asked(softmax, (input,), input, **how)
        if made is not NotImplemented:
            return made
    if dim is None:
        dim = _get_softmax_dim("softmax", input.dim(), _stacklevel)
    return tenon.softmax(input, dim, dtype=dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """softmax of -input.

    Shapes: any.

    >>> F.softmin(tn.zeros(1, 2), dim=1)
    tensor([[0.5000, 0.5000]])
    """
    if dim is None:
        dim = _get_softmax_dim("softmin", input.dim(), _stacklevel)
    return _nn.softmin(input, dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The logarithm of softmax.

    Shapes: any.

    >>> F.log_softmax(tn.zeros(1, 2), dim=1)
    tensor([[-0.6931, -0.6931]])
    """
    if type(input) is not Tensor or entered[0]:
        how = {"dim": dim, "_stacklevel": _stacklevel, "dtype": dtype}
        made = overridable.asked(log_softmax, (input,), input, **how)
        if made is not NotImplemented:
            return made
    if dim is None:
        dim = _get_softmax_dim("log_softmax", input.dim(), _stacklevel)
    return tenon.log_softmax(input, dim, dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution; hard: one-hot with the soft gradient.

    Shapes: any.

    >>> F.gumbel_softmax(tn.zeros(2, 3), hard=True).sum(1)
    tensor([1., 1.])
    """
    order = tenon.contiguous_format  # the draws follow it
    gumbels = -tenon.empty_like(logits, memory_format=order).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    chosen = tenon.zeros_like(logits).scatter_(dim, index, 1.0)
    return chosen - soft.detach() + soft


# ---- Dropout -------------------------------------------------------------------------------------


def _check_probability(p: float, input: Any, name: str) -> None:
    if not isinstance(input, Tensor):
        kind = type(input).__name__
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {kind}")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability p and scales the rest by 1 / (1 - p).

    Shapes: any.

    >>> F.dropout(tn.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    if type(input) is not Tensor or entered[0]:
        how = {"p": p, "training": training, "inplace": inplace}
        made = overridable.asked(dropout, (input,), input, **how)
        if made is not NotImplemented:
            return made
    _check_probability(p, input, "dropout")
    if not training or p == 0.0:
        return input
    return _give(input, tenon.dropout(_source(input, inplace), p, True), inplace)


def _channel_dropout(
    input: Tensor, p: float, training: bool, inplace: bool, channel_dims: int
) -> Tensor:
    """dropout that zeroes whole channels, the first `channel_dims` dimensions."""
    _check_probability(p, input, "feature_dropout")
    if not training or p == 0.0:
        return input
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    ones = [1] * (input.dim() - channel_dims)
    if p == 1.0:
        noise = input.new_zeros(())
    else:
        noise = input.new_empty([*input.shape[:channel_dims], *ones]).bernoulli_(1 - p).div_(1 - p)
    return _give(input, _source(input, inplace) * noise, inplace)


def _say_unusual(name: str, sizes: int, ndim: int) -> None:
    """Channels of an input without the usual dimensions are dropped as they have always been."""
    if ndim not in (sizes + 1, sizes + 2):
        warnings.warn(
            f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in "
            "an error in a future release. To retain the behavior and silence this warning, please "
            f"use dropout instead. Note that {name} exists to provide channel-wise dropout on "
            f"inputs with {sizes} spatial dimensions, a channel dimension, and an optional batch "
            f"dimension (i.e. {sizes + 1}D or {sizes + 2}D inputs).",
            stacklevel=overridable.users_level(),
        )


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole rows of (N, C, L) or (C, L).

    >>> F.dropout1d(tn.ones(2, 3, 4)).shape
    tenon.Size([2, 3, 4])
    """
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. It drops "
            "rows of (N, C, L) or (C, L): other inputs are for dropout, dropout2d and dropout3d."
        )
    return _channel_dropout(input, p, training, inplace, input.dim() - 1)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of (N, C, H, W).

    >>> F.dropout2d(tn.ones(2, 3, 4, 4)).shape
    tenon.Size([2, 3, 4, 4])
    """
    _say_unusual("dropout2d", 2, input.dim())
    if input.dim() == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. This behavior will change in a future release to interpret the input as one "
            "without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise "
            "dropout behavior, please switch to using dropout1d instead.",
            stacklevel=overridable.users_level(),
        )
    return _channel_dropout(input, p, training, inplace, 2)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of (N, C, D, H, W).

    >>> F.dropout3d(tn.ones(2, 3, 2, 4, 4)).shape
    tenon.Size([2, 3, 2, 4, 4])
    """
    _say_unusual("dropout3d", 3, input.dim())
    return _channel_dropout(input, p, training, inplace, 1 if input.dim() == 4 else 2)


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """dropout that keeps mean and variance after selu.

    Shapes: any.

    >>> F.alpha_dropout(tn.ones(2), training=False)
    tensor([1., 1.])
    """
    _check_probability(p, input, "alpha_dropout")
    if not training or p == 0.0:
        return input
    low = -_SELU_SCALE * _SELU_ALPHA
    scale = ((low * low * p + 1) * (1 - p)) ** -0.5 if p < 1.0 else 0.0
    kept = tenon.empty_like(input).bernoulli_(1 - p)
    result = _source(input, inplace) * kept * scale + (
        (1 - kept) * low * scale + low * p * scale * -1.0
    )
    return _give(input, result, inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels.

    Shapes: (N, C, *).

    >>> F.feature_alpha_dropout(tn.ones(2, 3), training=False).shape
    tenon.Size([2, 3])
    """
    _check_probability(p, input, "feature_alpha_dropout")
    if not training or p == 0.0:
        return input
    low = _SELU_SCALE * _SELU_ALPHA
    scale = ((low * low * p + 1) * (1 - p)) ** -0.5 if p < 1.0 else 0.0
    shape = (*input.shape[:2], *[1] * (input.dim() - 2))
    kept = input.new_empty(shape).bernoulli_(1 - p)
    shift = (kept - 1) * (low * scale) + low * scale * p
    return _give(input, _source(input, inplace) * (kept * scale) + shift, inplace)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper) in training, their mean otherwise.

    Shapes: any.

    >>> F.rrelu(tn.tensor([3.0]))
    tensor([3.])
    """
    for side, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {side} bound must be finite, got {bound}")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    _results.floats_alone("rrelu", input)
    x = _source(input, inplace)
    if not training:
        return _give(input, _nn.leaky_relu(x, (lower + upper) / 2), inplace)
    values = x.detach()
    below = values <= 0
    # One for each value below zero; nobody looks how many, so that programs draw what is needed.
    slopes = values[below].to(tenon.float64).uniform_(lower, upper)
    factors = tenon.ones_like(x, requires_grad=False).masked_scatter(below, slopes.to(x.dtype))
    return _give(input, _results.known_as(x * factors, "RreluWithNoiseBackward0"), inplace)


# ---- Embedding, normalisation, distances ---------------------------------------------------------


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight, picked by input. max_norm: those rows are first cut to that norm.

    Shapes: integers (*) and weight (rows, width) to (*, width).

    >>> F.embedding(tn.tensor([1, 0]), tn.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    if type(input) is not Tensor or type(weight) not in (Tensor, Parameter) or entered[0]:
        how = {"padding_idx": padding_idx, "max_norm": max_norm, "norm_type": norm_type}
        how |= {"scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
        made = overridable.asked(embedding, (input, weight), input, weight, **how)
        if made is not NotImplemented:
            return made
    if padding_idx is None:
        padding_idx = -1
    else:
        rows = weight.size(0)
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        with tenon.no_grad():
            used = input.detach().reshape(-1).unique()
            picked = weight.detach().index_select(0, used)
            norms = picked.norm(norm_type, 1, True)
            scaled = tenon.where(norms > max_norm, picked * (max_norm / (norms + 1e-7)), picked)
            weight.detach().index_copy_(0, used.long(), scaled)
    return tenon.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or maximum of the rows of weight that each bag of indices names.

    Shapes: integers (N, L), or (L,) with offsets (N,), and weight (rows, width) to (N, width).

    >>> F.embedding_bag(tn.tensor([[0, 1]]), tn.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[2., 3.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )
    if weight.dim() != 2:
        raise ValueError(
            f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}"
        )
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    _bags.check(weight, mode, scale_grad_by_freq, sparse, per_sample_weights, padding_idx)
    try:
        return _of_bags(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
            per_sample_weights, include_last_offset, padding_idx,
        )  # fmt: skip
    except IndexError:
        _bags.name_outside(input, weight)
        raise


def _of_bags(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    mode: str,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Tensor:
    length = 0  # of bags that are all alike
    lengths = None  # of each bag, where they are known
    at_once = mode != "max" and padding_idx is None and max_norm is None
    at_once = at_once and _bags.can_sum(input, weight)
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None")
        size, length = input.shape
        if padding_idx is not None or length == 0:
            bags = tenon.arange(size, device=input.device).repeat_interleave(length)
            length = 0
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
        if at_once and length:
            starts = tenon.arange(0, size * length + 1, length)
            result = _bags.summed(input, weight, starts, per_sample_weights)
            result = result / length if mode == "mean" else result
            return _results.known_as(result, "EmbeddingBagBackward0")
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        starts, lengths = _bags.lengths(input, offsets, include_last_offset)
        size = len(lengths)
        if at_once and size and offsets.dtype == tenon.int64:
            result = _bags.summed(input, weight, starts, per_sample_weights)
            if mode == "mean":
                result = _bags.divided(result, lengths)
            return _results.known_as(result, "EmbeddingBagBackward0")
        bags = tenon.arange(size, device=input.device).repeat_interleave(lengths)
        if len(bags) < len(input):  # those behind the last bag count for nothing
            input = input[: len(bags)]
            if per_sample_weights is not None:
                per_sample_weights = per_sample_weights[: len(bags)]
    else:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}"
        )
    if padding_idx is not None:
        counted = input != padding_idx % weight.size(0)
        input, bags, lengths = input[counted], bags[counted], None
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights[counted]
    rows = embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    if mode != "max" and weight.dtype in (tenon.float16, tenon.bfloat16):
        rows = rows.float()  # sums of half precision stand still once they are large
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if length:
        each = rows.reshape(size, length, weight.size(1))
        of_bags = {"sum": each.sum, "mean": each.mean, "max": lambda dim: each.max(dim)[0]}
        result = of_bags[mode](1)
        return _results.known_as(result.to(weight.dtype), "EmbeddingBagBackward0")
    if mode == "max":
        result = _bags.largest(rows, bags, size)
    else:
        result = rows.new_zeros(size, weight.size(1)).index_add(0, bags, rows)
    if mode == "mean":
        if lengths is None:
            lengths = rows.new_zeros(size).index_add_(0, bags, rows.new_ones(len(bags)))
        result = _bags.divided(result, lengths)
    return _results.known_as(result.to(weight.dtype), "EmbeddingBagBackward0")


def _checked_batch(shape: Any) -> None:
    values = shape[0]
    for size in shape[2:]:
        values *= size
    if values == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {shape}"
        )


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Normalises each channel, by the batch (training) or by the running statistics.

    Shapes: input (N, C, *), the others (C,) or None.

    >>> F.batch_norm(tn.rand(8, 3), None, None, training=True).shape
    tenon.Size([8, 3])
    """
    if training:
        _checked_batch(input.size())
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    elif eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return _nn.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Normalises each channel of each sample by itself.

    Shapes: (N, C, *); the result has the same.

    >>> F.instance_norm(tn.rand(2, 3, 5)).shape
    tenon.Size([2, 3, 5])
    """
    args = (input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    if not use_input_stats and (running_mean is None or running_mean.dtype is input.dtype):
        return batch_norm(*args)  # without a copy of the statistics for each sample
    if use_input_stats and input.shape[2:].numel() == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.size()}"
        )
    return _nn.instance_norm(*args)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divides by a power of the mean square of the neighbouring channels.

    Shapes: (N, C, *); the result has the same.

    >>> F.local_response_norm(tn.rand(1, 4, 3), 2).shape
    tenon.Size([1, 4, 3])
    """
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)"
        )
    squares = _nn.pad(input.mul(input).unsqueeze(1).flatten(3), (0, 0, size // 2, (size - 1) // 2))
    mean = _nn.avg_pool2d(squares, (size, 1), stride=1).view(input.shape)
    return input / mean.mul(alpha).add(k).pow(beta)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """input divided by its p-norm along dim, which counts as eps at least.

    Shapes: any.

    >>> F.normalize(tn.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    denominator = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    if out is None:
        return input / denominator
    return tenon.div(input, denominator, out=out)


@overridable.named_as_numpy
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along dim.

    Shapes: two that broadcast, to theirs without dim.

    >>> F.cosine_similarity(tn.tensor([1.0, 0.0]), tn.tensor([0.0, 2.0]), dim=0)
    tensor(0.)
    """
    if x1.is_complex() or x2.is_complex():
        raise RuntimeError("cosine_similarity() is of real numbers, but an input is complex")
    x1, x2 = tenon.broadcast_tensors(x1, x2)
    return _nn.cosine_similarity(x1, x2, dim, eps)


def __getattr__(name: str) -> Any:
    """Names of other modules that PyTorch's has inside."""
    if name == "grad":
        return _imported("tenon.nn.grad")
    if name == "_Reduction":
        return _imported("tenon.nn._reduction")
    if name in ("_single", "_pair", "_triple", "_list_with_default"):
        return getattr(_imported("tenon.nn.modules.utils"), name)
    if name.removesuffix("_unary").removesuffix("_variadic") == "has_torch_function" or (
        name == "handle_torch_function"
    ):
        return getattr(_imported("tenon.overrides"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_UNASKED = ("relu", "dropout", "softmax", "log_softmax", "embedding", "mse_loss")
_FLAGS = ("training", "use_input_stats", "scale_grad_by_freq", "sparse", "include_last_offset")
overridable.make_overridable(globals(), _UNASKED, flags=_FLAGS)
