"""Functions of the package whose twins in nn.functional have other arguments, as in PyTorch.

Here a loss takes its reduction as a number, 0 for none where it is not given, a normalisation its
statistics behind its weights, and pooling always answers with its indices.
"""

from __future__ import annotations

from typing import Any

from tenon._C import Tensor
from tenon._tape import overridable
from tenon.nn import functional as F

# The same arguments in both places.
celu_, relu_, selu_, threshold_ = F.celu_, F.relu_, F.selu_, F.threshold_


def detach_(input: Tensor) -> Tensor:
    """See Tensor.detach_."""
    return input.detach_()


def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """See Tensor.resize_as_."""
    return input.resize_as_(the_template, memory_format=memory_format)


pairwise_distance, prelu, max_pool3d = F.pairwise_distance, F.prelu, F.max_pool3d


def sigmoid_(input: Tensor) -> Tensor:
    """See Tensor.sigmoid_."""
    return input.sigmoid_()


def tanh_(input: Tensor) -> Tensor:
    """See Tensor.tanh_."""
    return input.tanh_()


_REDUCTIONS = ("none", "mean", "sum")


def _reduction(number: int) -> str:
    if not isinstance(number, int):
        got = type(number).__name__
        raise TypeError(f"argument 'reduction' must be int (0: none, 1: mean, 2: sum), not {got}")
    if not 0 <= number < len(_REDUCTIONS):
        raise RuntimeError(f"reduction is 0 (none), 1 (mean) or 2 (sum), not {number!r}")
    return _REDUCTIONS[number]


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """See nn.functional.binary_cross_entropy_with_logits."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_reduction(reduction), pos_weight=pos_weight
    )


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """See nn.functional.hinge_embedding_loss."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """See nn.functional.margin_ranking_loss."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """See nn.functional.cosine_embedding_loss."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """See nn.functional.ctc_loss."""
    how = _reduction(reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, how, zero_infinity)


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """See nn.functional.kl_div."""
    return F.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """See nn.functional.poisson_nll_loss."""
    return F.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction(reduction)
    )


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """See nn.functional.triplet_margin_loss."""
    how = _reduction(reduction)
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=how)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """See nn.functional.batch_norm."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """See nn.functional.instance_norm."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """See nn.functional.alpha_dropout."""
    return F.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """See nn.functional.alpha_dropout."""
    return F.alpha_dropout(input, p, train, True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """See nn.functional.feature_alpha_dropout."""
    return F.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """See nn.functional.feature_alpha_dropout."""
    return F.feature_alpha_dropout(input, p, train, True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """See nn.functional.dropout2d."""
    return F.dropout2d(input, p, train)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """See nn.functional.dropout2d."""
    return F.dropout2d(input, p, train, True)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Tensor:
    """See nn.functional.rrelu."""
    return F.rrelu(input, lower, upper, training)


def rrelu_(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Tensor:
    """See nn.functional.rrelu."""
    return F.rrelu(input, lower, upper, training, True)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """See nn.functional.adaptive_max_pool1d; with indices."""
    return F.adaptive_max_pool1d(input, output_size, True)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """See nn.functional.max_pool1d; with indices."""
    return F.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


# Operators are called with the arguments of nn.functional, and so are they shown to classes and
# modes that see calls: what has others here is not what an operator goes by.
for _value in list(globals().values()):
    if getattr(_value, "__module__", None) == __name__:
        _value._folds = {}


overridable.make_overridable(
    globals(), flags=("training", "train", "swap", "log_target", "use_input_stats")
)
