"""One class of several, as a vector with a single one."""

from __future__ import annotations

from collections.abc import Sequence

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions._parameters import _Classes

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(_Classes):
    """One class, as a vector with a single one."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        shape = self._take(probs, logits)
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def mode(self) -> Tensor:
        best = self.probs.argmax(dim=-1)
        return tenon.nn.functional.one_hot(best, self.probs.size(-1)).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            drawn = self._draw(Size(sample_shape).numel())
            drawn = drawn.reshape((*sample_shape, *self._batch_shape))
            return tenon.nn.functional.one_hot(drawn, self.probs.size(-1)).to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index = value.max(-1)[1].unsqueeze(-1)
        index, logits = tenon.broadcast_tensors(index, self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = tenon.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot draws whose gradient is that of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
