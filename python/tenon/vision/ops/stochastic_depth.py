"""Branches of a network that are left out now and then."""

from __future__ import annotations

from tenon import Tensor, nn


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """The input with probability 1 - p, scaled up, else 0: for a whole batch, or row by row."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    rows = input.shape[0] if mode == "row" else 1
    noise = input.new_empty([rows] + [1] * (input.ndim - 1)).bernoulli_(1.0 - p)
    if p < 1.0:
        noise.div_(1.0 - p)
    return input * noise


class StochasticDepth(nn.Module):
    """stochastic_depth while training."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p = p
        self.mode = mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, mode={self.mode})"
