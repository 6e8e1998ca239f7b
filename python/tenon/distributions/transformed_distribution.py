"""Functions of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.independent import Independent
from tenon.distributions.transforms import ComposeTransform, Transform
from tenon.distributions.utils import _sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """Draws of a base distribution, sent through invertible functions."""

    arg_constraints: dict[str, Any] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        found = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(found, list) or not all(isinstance(t, Transform) for t in found):
            raise ValueError(
                f"transforms must be a Transform or list of Transforms, but was {transforms}"
            )
        self.transforms = found
        # What a function makes of one event may need more of the base's dimensions.
        whole = ComposeTransform(self.transforms)
        base = base_distribution
        shape = base.batch_shape + base.event_shape
        if len(shape) < whole.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {shape}."
            )
        result = tuple(whole.forward_shape(shape))
        wide = tuple(whole.inverse_shape(result))
        if tuple(shape) != wide:
            base = base.expand(wide[: len(wide) - len(base.event_shape)])
        more = whole.domain.event_dim - len(base.event_shape)
        self.base_dist = Independent(base, more) if more > 0 else base
        events = whole.codomain.event_dim + max(-more, 0)
        cut = len(result) - events
        super().__init__(result[:cut], result[cut:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base's draws are differentiable."""
        return self.base_dist.has_rsample

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self.event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(TransformedDistribution, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        events = len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(tuple(shape)[: len(shape) - events])
        new.transforms = self.transforms
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            return self._sent(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._sent(self.base_dist.rsample(sample_shape))

    def _sent(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        total: Any = 0.0
        events = len(self.event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(value)
            events += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, value)
            total = total - _sum_rightmost(slope, events - transform.domain.event_dim)
            value = x
        base = self.base_dist.log_prob(value)
        return total + _sum_rightmost(base, events - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: Tensor) -> Any:
        """Shares of a falling function are counted from the other end."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._sent(self.base_dist.icdf(self._monotonize_cdf(value)))
