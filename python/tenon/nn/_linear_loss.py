"""cross_entropy of a linear map."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tenon import Tensor, _forms, dtype
from tenon._C import _nn
from tenon._tape import overridable

__all__ = ["linear_cross_entropy"]


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch divides the batch to save memory. Here the whole batch is computed at once: these
    change no result, and a graph may be walked again."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: dtype | None = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if method not in (None, "auto") and not re.fullmatch(r"aspect_ratio(:0*[1-9]\d*)?", method):
            raise ValueError(f"invalid chunking_method: {method!r}")
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype is not None and not self.acc_dtype.is_floating_point:
            raise ValueError(f"acc_dtype must be a floating dtype or None, got {self.acc_dtype!r}")


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target). Dimensions of the weight
    between classes and features are positions, each with a loss of its own.

    Shapes: input (N, in_features), linear_weight (classes, in_features), target (N,).

    >>> F.linear_cross_entropy(tn.zeros(2, 8), tn.zeros(4, 8), tn.tensor([1, 3]))
    tensor(1.3863)
    """
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(
            "expected linear_weight with dimensionality at least 2, got " + str(linear_weight.dim())
        )
    batch, features = tuple(input.shape[:-1]), input.shape[-1]
    classes, positions = linear_weight.shape[0], tuple(linear_weight.shape[1:-1])
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {features} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != (classes, *positions):
        raise RuntimeError(
            f"expected linear_bias shape {(classes, *positions)}, got {tuple(linear_bias.shape)}"
        )
    if positions and not batch:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {features}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    shape = (*batch, classes, *positions)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    rows = linear_weight.reshape(classes * math.prod(positions), features)
    logits = _nn.linear(input, rows, bias)
    return _forms.cross_entropy(
        logits.reshape(shape),
        target,
        weight=weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


overridable.make_overridable(globals())
