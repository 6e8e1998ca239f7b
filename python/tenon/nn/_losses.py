"""Losses: the arguments of PyTorch's functions, old flags included, over the loss operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import tenon
from tenon import Tensor
from tenon._C import _nn
from tenon._tape import overridable
from tenon.nn import _results
from tenon.nn._reduction import legacy_get_string, warn_sizes


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    if size_average is not None or reduce is not None:
        return legacy_get_string(size_average, reduce)
    if reduction not in ("none", "mean", "sum", "batchmean"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Quadratic below beta, linear above.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> F.smooth_l1_loss(tn.tensor([3.0]), tn.tensor([0.0]))
    tensor(2.5000)
    """
    warn_sizes(input, target)
    reduction = _reduction(size_average, reduce, reduction)
    return _nn.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss with a distance of the caller's choice.

    Shapes: three (N, D); a number, or (N,) with reduction "none".

    >>> F.triplet_margin_with_distance_loss(tn.zeros(1, 2), tn.zeros(1, 2), tn.ones(1, 2)).shape
    tenon.Size([])
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    if distance_function is None:
        from tenon.nn.functional import pairwise_distance as distance_function
    near, far = distance_function(anchor, positive), distance_function(anchor, negative)
    if swap:
        far = far.minimum(distance_function(positive, negative))
    loss = (near - far + margin).clamp(min=0)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """delta times smooth_l1_loss with beta = delta.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> F.huber_loss(tn.tensor([3.0]), tn.tensor([0.0]))
    tensor(2.5000)
    """
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    warn_sizes(input, target)
    return _nn.huber_loss(input, target, reduction, delta, weight)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of probabilities against targets in [0, 1].

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> F.binary_cross_entropy(tn.tensor([0.5]), tn.tensor([1.0]))
    tensor(0.6931)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}) is deprecated. Please ensure they have the same size."
        )
    return _nn.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross entropy of sigmoid(input) against targets in [0, 1], without overflow.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> F.binary_cross_entropy_with_logits(tn.tensor([0.0]), tn.tensor([1.0]))
    tensor(0.6931)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Target size ({target.size()}) must be the same as input size ({input.size()})"
        )
    return _nn.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight=pos_weight, reduction=reduction
    )


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence; input holds log probabilities.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> F.kl_div(tn.zeros(1, 2), tn.ones(1, 2), reduction="batchmean")
    tensor(0.)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size. 'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition. 'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release.",
            stacklevel=overridable.users_level(),
        )
    result = _nn.kl_div(input, target, reduction=reduction, log_target=log_target)
    return _results.known_as(result, "DivBackward0") if reduction == "batchmean" else result


def _spreads_over(var: Tensor, input: Tensor) -> bool:
    """The sizes are the same but for one, which is 1 in var."""
    if var.dim() != input.dim():
        return False
    return [v for v, n in zip(var.size(), input.size(), strict=True) if v != n] == [1]


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of a normal distribution with mean `input` and variance `var`.

    Shapes: input and target alike, var like them or with one size less.

    >>> F.gaussian_nll_loss(tn.zeros(2), tn.ones(2), tn.ones(2))
    tensor(0.5000)
    """
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * tenon.ones_like(input)
    elif var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
        elif not _spreads_over(var, input):
            raise ValueError("var is of incorrect size")
    if (var < 0).any():
        raise ValueError("var has negative entry/entries")
    return _nn.gaussian_nll_loss(input, target, var, bool(full), eps, reduction)


def _classes_needed(input: Tensor) -> None:
    """Margins are between classes of a vector or of the rows of a matrix; a number is one class."""
    if input.dim() > 2 or (input.dim() and input.size(-1) == 0):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.size())}"
        )


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over the other classes of max(0, margin - input[target] + input) ** p.

    Shapes: input (N, C), target (N,); a number, or (N,) with reduction "none".

    >>> F.multi_margin_loss(tn.zeros(1, 4), tn.tensor([2]))
    tensor(0.7500)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    _classes_needed(input)
    rows = input.size(0) if input.dim() == 2 else 1
    if target.dim() > 1 or target.numel() != rows:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{rows}], but got {list(target.size())}. "
            f"Input has shape {list(input.size())}."
        )
    classes = input if input.dim() else input.unsqueeze(0)
    return _nn.multi_margin_loss(classes, target, p, margin, weight, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    Shapes: three (N, D); a number, or (N,) with reduction "none".

    >>> F.triplet_margin_loss(tn.zeros(1, 2), tn.zeros(1, 2), tn.zeros(1, 2))
    tensor(1.)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _nn.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Margin of every target class over every other one; targets end at the first -1.

    Shapes: input and target (N, C); a number, or (N,) with reduction "none".

    >>> F.multilabel_margin_loss(tn.zeros(1, 3), tn.tensor([[2, -1, 0]]))
    tensor(0.6667)
    """
    if input.shape != target.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.size())} for input of size: "
            f"{list(input.size())}"
        )
    _classes_needed(input)
    reduction = _reduction(size_average, reduce, reduction)
    return _nn.multilabel_margin_loss(input, target, reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of all alignments of the targets; log_probs is (T, N, C).

    Shapes: log_probs (T, N, C), targets (N, S) or all in one row, lengths (N,).

    >>> F.ctc_loss(tn.zeros(4, 1, 2).log_softmax(2), tn.tensor([[1]]), (4,), (1,))
    tensor(0.4700)
    """
    for name, given in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if isinstance(given, Tensor) and (given.is_floating_point() or given.is_complex()):
            raise RuntimeError(f"ctc_loss: {name} must be integral, but got {given.dtype}")
    place = log_probs.device
    times = tenon.as_tensor(input_lengths, dtype=tenon.int64, device=place)
    lengths = tenon.as_tensor(target_lengths, dtype=tenon.int64, device=place)
    return _nn.ctc_loss(log_probs, targets, times, lengths, blank, reduction, zero_infinity)


overridable.make_overridable(globals())
