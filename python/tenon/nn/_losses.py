"""Losses: the arguments of PyTorch's functions, old flags included, over the loss operators."""

from __future__ import annotations

import math
import warnings

import tenon
from tenon import Tensor
from tenon._C import _nn
from tenon.nn._reduction import legacy_get_string, warn_sizes


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    if size_average is not None or reduce is not None:
        return legacy_get_string(size_average, reduce)
    return reduction


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ValueError(f"{reduction} is not a valid value for reduction")


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Quadratic below beta, linear above."""
    warn_sizes(input, target)
    reduction = _reduction(size_average, reduce, reduction)
    return _nn.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """delta times smooth_l1_loss with beta = delta."""
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
    """Cross entropy of probabilities against targets in [0, 1]."""
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
    """Cross entropy of sigmoid(input) against targets in [0, 1], without overflow."""
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
    """Kullback-Leibler divergence; input holds log probabilities."""
    reduction = _reduction(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size. 'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition. 'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release.",
            stacklevel=2,
        )
    return _nn.kl_div(input, target, reduction=reduction, log_target=log_target)


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
    """Negative log likelihood of a normal distribution with mean `input` and variance `var`."""
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
    return _nn.gaussian_nll_loss(input, target, var, full, eps, reduction)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""
    reduction = _reduction(size_average, reduce, reduction)
    eps = 1e-12
    product = (input1 * input2).sum(-1)
    sizes = ((input1 * input1).sum(-1) + eps) * ((input2 * input2).sum(-1) + eps)
    cos = product / sizes.sqrt()
    zeros = tenon.zeros_like(cos)
    near = tenon.where(target == 1, 1 - cos, zeros)
    far = tenon.where(target == -1, (cos - margin).clamp(min=0), zeros)
    return _reduced(near + far, reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over the classes of the logistic losses."""
    reduction = _reduction(size_average, reduce, reduction)
    loss = _nn.binary_cross_entropy_with_logits(input, target, reduction="none")
    if weight is not None:
        loss = loss * weight
    return _reduced(loss.sum(-1) / input.size(-1), reduction)


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
    """Mean over the other classes of max(0, margin - input[target] + input) ** p."""
    reduction = _reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    chosen = target.reshape(-1, 1)
    loss = (margin - rows.gather(1, chosen) + rows).clamp(min=0) ** p
    if weight is not None:
        loss = loss * weight[chosen]
    others = tenon.ones_like(rows).scatter_(1, chosen, 0.0)
    loss = (loss * others).sum(1) / rows.size(1)
    return _reduced(loss if input.dim() == 2 else loss[0], reduction)


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
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    reduction = _reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near = (anchor - positive + eps).norm(p, -1)
    far = (anchor - negative + eps).norm(p, -1)
    if swap:
        far = tenon.minimum(far, (positive - negative + eps).norm(p, -1))
    return _reduced((near - far + margin).clamp(min=0), reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Margin of every target class over every other one; targets end at the first -1."""
    if input.shape != target.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.size())} for input of size: "
            f"{list(input.size())}"
        )
    x, y = (t.unsqueeze(0) if t.dim() == 1 else t for t in (input, target))
    counted = (y < 0).cumsum(1) == 0
    place = tenon.where(counted, y, 0)
    hits = tenon.zeros_like(x).scatter_add_(1, place, counted.to(x.dtype)) > 0
    # (n, targets, classes): 1 - (score of the target - score of the class)
    gaps = (1 - (x.gather(1, place).unsqueeze(2) - x.unsqueeze(1))).clamp(min=0)
    wanted = counted.unsqueeze(2) & ~hits.unsqueeze(1)
    loss = tenon.where(wanted, gaps, 0.0).sum((1, 2)) / x.size(1)
    loss = loss[0] if input.dim() == 1 else loss
    return _reduced(loss, _reduction(size_average, reduce, reduction))


# Stands for the logarithm of 0 where sums of such must stay finite for their gradient.
_NEVER = -1e30


def _padded_targets(targets: Tensor, lengths: Tensor, batch: int) -> Tensor:
    """(n, longest) out of that or of all targets one after the other."""
    if targets.dim() == 2:
        return targets
    rows = tenon.zeros(batch, max([1, *lengths.tolist()]), dtype=targets.dtype)
    start = 0
    for i, n in enumerate(lengths.tolist()):
        rows[i, :n] = targets[start : start + n]
        start += n
    return rows


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of all alignments of the targets; log_probs is (T, N, C)."""
    single = log_probs.dim() == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1)
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    place = log_probs.device
    lengths = tenon.as_tensor(target_lengths, device=place).reshape(-1).long()
    times = tenon.as_tensor(input_lengths, device=place).reshape(-1).long()
    if len(times) != batch or len(lengths) != batch:
        raise RuntimeError("input_lengths and target_lengths must be of size batch_size")
    if int(times.max()) > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, "
            f"but got value {int(times.max())}"
        )
    rows = _padded_targets(targets, lengths, batch).long()
    longest = rows.size(1)
    inside = tenon.arange(longest, device=place) < lengths.unsqueeze(1)
    labels = tenon.full((batch, 2 * longest + 1), blank, device=place)
    labels[:, 1::2] = tenon.where(inside, rows, blank)
    # A label may follow the one before it without a blank in between if they differ.
    skip = tenon.zeros_like(labels, dtype=tenon.bool)
    skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    emit = log_probs.clamp(min=_NEVER).gather(2, labels.expand(steps, -1, -1))
    width = labels.size(1)
    start = (tenon.arange(width, device=place) < 2) & (
        tenon.arange(width, device=place) < 2 * lengths.unsqueeze(1) + 1
    )
    alpha = tenon.where(start, emit[0], _NEVER)
    for t in range(1, steps):
        one = tenon.nn.functional.pad(alpha[:, :-1], (1, 0), value=_NEVER)
        two = tenon.nn.functional.pad(alpha[:, :-2], (2, 0), value=_NEVER)
        two = tenon.where(skip, two, _NEVER)
        ways = tenon.stack([alpha, one, two]).logsumexp(0)
        alpha = tenon.where((t < times).unsqueeze(1), (ways + emit[t]).clamp(min=_NEVER), alpha)
    last = alpha.gather(1, 2 * lengths.unsqueeze(1))
    before = alpha.gather(1, (2 * lengths - 1).clamp(min=0).unsqueeze(1))
    before = tenon.where(lengths.unsqueeze(1) > 0, before, _NEVER)
    loss = -tenon.cat([last, before], 1).logsumexp(1)
    # PyTorch's gradient takes log_probs for normalised: it is exp(log_probs) less what is expected.
    valid = (tenon.arange(steps, device=place).unsqueeze(1) < times).unsqueeze(2)
    total = tenon.where(valid, log_probs, -math.inf).exp().sum((0, 2))
    loss = loss + (total - total.detach())
    lost = loss > -_NEVER / 10
    loss = tenon.where(lost, 0.0 if zero_infinity else math.inf, loss)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1)).mean()
    loss = loss[0] if single and reduction == "none" else loss
    return _reduced(loss, reduction)
