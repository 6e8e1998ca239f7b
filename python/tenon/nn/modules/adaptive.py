"""Softmax over many classes of unequal frequency."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.modules.container import ModuleList, Sequential
from tenon.nn.modules.linear import Linear
from tenon.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: float | Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Frequent classes, those below the first cutoff, have outputs of their own in the `head`. The
    others stand in clusters, each with one output in the head and a small network in the `tail`.

    Calling it gives the log-probability of each target, and their mean, negative.

    Shapes: input (N, in_features), target (N,); gives log probabilities of the targets (N,) and
        their mean loss.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
    >>> layer(tn.rand(4, 8), tn.tensor([0, 4, 7, 19])).output.shape
    tenon.Size([4])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        if not cuts:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rising = all(a < b for a, b in pairwise(cuts)) and all(int(c) == c for c in cuts)
        if not rising or cuts[0] <= 0 or cuts[-1] > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cuts, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = cuts[0]
        self.n_clusters = len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        place = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs), 1):
            width = int(in_features // div_value**i)
            narrow = Linear(in_features, width, bias=False, **place)
            self.tail.append(Sequential(narrow, Linear(width, high - low, bias=False, **place)))

    def reset_parameters(self) -> None:
        """New initial values."""
        self.head.reset_parameters()
        for narrow, wide in self.tail:
            narrow.reset_parameters()
            wide.reset_parameters()

    def _check(self, input: Tensor, target: Tensor) -> None:
        if target.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input.dim() != target.dim() + 1:
            raise RuntimeError(
                f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but "
                f"found inputs with size {input.size()}"
            )
        if target.dim() == 1 and input.size(0) != target.size(0):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if target.numel() and (int(target.min()) < 0 or int(target.max()) >= self.n_classes):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        self._check(input_, target_)
        single = target_.dim() == 0
        input, target = (t.unsqueeze(0) if single else t for t in (input_, target_))
        output = input.new_zeros(target.size(0))
        places = target.clone()  # in the head: the class itself, or its cluster
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if not rows.numel():
                continue
            places = places.index_fill(0, rows, self.shortlist_size + i)
            logs = F.log_softmax(self.tail[i](input[rows]), dim=1)
            within = logs.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
            output = output.index_copy(0, rows, within)
        head = F.log_softmax(self.head(input), dim=1)
        output = output + head.gather(1, places.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """The log-probability of every class."""
        logs = F.log_softmax(head_output, dim=1)
        out = input.new_empty((head_output.size(0), self.n_classes))
        out[:, : self.shortlist_size] = logs[:, : self.shortlist_size]
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            cluster = logs[:, self.shortlist_size + i].unsqueeze(1)
            out[:, low:high] = F.log_softmax(self.tail[i](input), dim=1) + cluster
        return out

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probability of every class, for each row."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row; the tail is looked at only where a cluster leads."""
        head = self.head(input)
        best = head.argmax(dim=1)
        rows = best >= self.shortlist_size
        if rows.any():
            best[rows] = self._get_full_log_prob(input[rows], head[rows]).argmax(dim=1)
        return best
