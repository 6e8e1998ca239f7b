"""Losses as modules."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from tenon import Tensor
from tenon.nn import _reduction as _Reduction
from tenon.nn import functional as F
from tenon.nn._linear_loss import LinearCrossEntropyOptions
from tenon.nn.modules.linear import Linear
from tenon.nn.modules.module import Module
from tenon.nn.modules.vision import PairwiseDistance


class _Loss(Module):
    reduction: str

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            self.reduction = _Reduction.legacy_get_string(size_average, reduce)
        else:
            self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.weight: Tensor | None


class L1Loss(_Loss):
    """|input - target|.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> nn.L1Loss()(tn.tensor([3.0, 1.0]), tn.tensor([0.0, 0.0]))
    tensor(2.)
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target) squared.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> nn.MSELoss()(tn.tensor([3.0, 1.0]), tn.tensor([0.0, 0.0]))
    tensor(5.)
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Quadratic below beta, linear above.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> nn.SmoothL1Loss()(tn.tensor([3.0]), tn.tensor([0.0]))
    tensor(2.5000)
    """

    __constants__ = ["reduction"]

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """delta times SmoothL1Loss with beta = delta.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> nn.HuberLoss()(tn.tensor([3.0]), tn.tensor([0.0]))
    tensor(2.5000)
    """

    __constants__ = ["reduction", "delta"]

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """Negative log likelihood of classes; the input holds log probabilities.

    Shapes: input (N, C) or (N, C, d1, ...), target (N,) or (N, d1, ...) of int64; a number, or the
        target's with reduction "none".

    >>> nn.NLLLoss()(tn.zeros(2, 4).log_softmax(1), tn.tensor([1, 3]))
    tensor(1.3863)
    """

    __constants__ = ["ignore_index", "reduction"]

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """The older name of NLLLoss for images.

    Shapes: input (N, C, H, W), target (N, H, W); a number, or the target's with reduction "none".

    >>> nn.NLLLoss2d()(tn.zeros(2, 4, 1, 1).log_softmax(1), tn.tensor([[[1]], [[3]]]))
    tensor(1.3863)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        warnings.warn(
            "NLLLoss2d is an older name of NLLLoss: use that", FutureWarning, stacklevel=2
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Negative log likelihood of classes under softmax of the input.

    Shapes: input (N, C) or (N, C, d1, ...), target classes (N,) or (N, d1, ...) of int64, or
        probabilities like the input; a number, or the target's with reduction "none".

    >>> nn.CrossEntropyLoss()(tn.zeros(2, 4), tn.tensor([1, 3]))
    tensor(1.3863)
    """

    __constants__ = ["ignore_index", "reduction", "label_smoothing"]

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """Cross entropy of probabilities against targets in [0, 1].

    Shapes: input and target alike, floating; a number, or theirs with reduction "none".

    >>> nn.BCELoss()(tn.tensor([0.5]), tn.tensor([1.0]))
    tensor(0.6931)
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of sigmoid(input), without overflow.

    Shapes: input and target alike, floating; a number, or theirs with reduction "none".

    >>> nn.BCEWithLogitsLoss()(tn.tensor([0.0]), tn.tensor([1.0]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)
        self.weight: Tensor | None
        self.pos_weight: Tensor | None

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input,
            target,
            self.weight,
            pos_weight=self.pos_weight,
            reduction=self.reduction,
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence; the input holds log probabilities.

    Shapes: input of log probabilities and target alike; a number, or theirs with reduction "none".

    >>> nn.KLDivLoss(reduction="batchmean")(tn.zeros(1, 2), tn.ones(1, 2))
    tensor(0.)
    """

    __constants__ = ["reduction"]

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of Poisson counts.

    Shapes: input and target alike; a number, or theirs with reduction "none".

    >>> nn.PoissonNLLLoss()(tn.zeros(2), tn.ones(2))
    tensor(1.)
    """

    __constants__ = ["log_input", "full", "eps", "reduction"]

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Negative log likelihood of a normal distribution.

    Shapes: input and target alike, var like them or with one size less; a number, or theirs with
        reduction "none".

    >>> nn.GaussianNLLLoss()(tn.zeros(2), tn.ones(2), tn.ones(2))
    tensor(0.5000)
    """

    __constants__ = ["full", "eps", "reduction"]

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class _MarginLoss(_Loss):
    __constants__ = ["margin", "reduction"]
    _margin = 0.0

    def __init__(
        self,
        margin: float | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = self._margin if margin is None else margin


class MarginRankingLoss(_MarginLoss):
    """max(0, -target * (input1 - input2) + margin).

    Shapes: all alike, target of 1 and -1; a number, or theirs with reduction "none".

    >>> nn.MarginRankingLoss()(tn.tensor([1.0]), tn.tensor([3.0]), tn.tensor([1.0]))
    tensor(2.)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class HingeEmbeddingLoss(_MarginLoss):
    """input where target is 1, max(0, margin - input) where it is -1.

    Shapes: input and target alike, target of 1 and -1; a number, or theirs with reduction "none".

    >>> nn.HingeEmbeddingLoss()(tn.tensor([0.5, 0.5]), tn.tensor([1.0, -1.0]))
    tensor(0.5000)
    """

    _margin = 1.0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1.

    Shapes: input1 and input2 (N, D), target (N,) of 1 and -1; a number, or (N,) with reduction
        "none".

    >>> nn.CosineEmbeddingLoss()(tn.ones(1, 2), tn.ones(1, 2), tn.tensor([-1.0]))
    tensor(1.)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)).

    Shapes: input and target alike, target of 1 and -1; a number, or theirs with reduction "none".

    >>> nn.SoftMarginLoss()(tn.zeros(2), tn.ones(2))
    tensor(0.6931)
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Mean over the classes of the logistic losses.

    Shapes: input and target (N, C); a number, or (N,) with reduction "none".

    >>> nn.MultiLabelSoftMarginLoss()(tn.zeros(1, 3), tn.ones(1, 3))
    tensor(0.6931)
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """Mean over the other classes of max(0, margin - input[target] + input) ** p.

    Shapes: input (N, C), target (N,); a number, or (N,) with reduction "none".

    >>> nn.MultiMarginLoss()(tn.zeros(1, 4), tn.tensor([2]))
    tensor(0.7500)
    """

    __constants__ = ["p", "margin", "reduction"]

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError(
                "MultiMarginLoss: expected weight to be None or 1D tensor, "
                f"got {weight.dim()}D instead"
            )
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    Shapes: three (N, D); a number, or (N,) with reduction "none".

    >>> nn.TripletMarginLoss()(tn.zeros(1, 2), tn.zeros(1, 2), tn.zeros(1, 2))
    tensor(1.)
    """

    __constants__ = ["margin", "p", "eps", "swap", "reduction"]

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of the caller's choice.

    Shapes: three (N, D); a number, or (N,) with reduction "none".

    >>> nn.TripletMarginWithDistanceLoss()(tn.zeros(1, 2), tn.zeros(1, 2), tn.ones(1, 2)).shape
    tenon.Size([])
    """

    __constants__ = ["margin", "swap", "reduction"]

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, "
                f"got {margin} instead"
            )
        self.distance_function: Any = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class MultiLabelMarginLoss(_Loss):
    """Margin of every target class over every other one.

    Shapes: input and target (N, C), targets are classes up to the first -1; a number, or (N,) with
        reduction "none".

    >>> nn.MultiLabelMarginLoss()(tn.zeros(1, 3), tn.tensor([[2, -1, 0]]))
    tensor(0.6667)
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class CTCLoss(_Loss):
    """-log of the probability of all alignments of a sequence of labels.

    Shapes: log_probs (T, N, C), targets (N, S) or all in one row, lengths (N,); a number, or (N,)
        with reduction "none".

    >>> nn.CTCLoss()(tn.zeros(4, 1, 2).log_softmax(2), tn.tensor([[1]]), (4,), (1,))
    tensor(0.4700)
    """

    __constants__ = ["blank", "reduction"]

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(None, None, reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """CrossEntropyLoss behind a Linear of its own.

    Shapes: input (N, in_features), target (N,); a number, or (N,) with reduction "none".

    >>> nn.LinearCrossEntropyLoss(8, 4)(tn.rand(2, 8), tn.tensor([1, 3])).shape
    tenon.Size([])
    """

    __constants__ = [
        "num_classes",
        "out_features",
        "reduction",
        "ignore_index",
        "label_smoothing",
    ]

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight=weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = num_classes * math.prod(out_features)
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape((*shape, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
