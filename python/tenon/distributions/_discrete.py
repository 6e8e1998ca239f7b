"""Distributions of classes and counts. All know their parameters as probs or as logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Size, Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import (
    Distribution,
    ExponentialFamily,
    broadcast,
    shape_of,
)
from tenon.nn.functional import binary_cross_entropy_with_logits


def _inside(probs: Tensor) -> Tensor:
    """Probabilities far enough from 0 and 1 to have a finite logarithm."""
    eps = tenon.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


class _Once:
    """A property that is computed when it is first asked for and then kept in the instance."""

    def __init__(self, compute: Callable[[Any], Tensor]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with tenon.enable_grad():
            value = self.compute(instance)
        instance.__dict__[self.name] = value
        return value


def _one_of(probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class _Binary(ExponentialFamily):
    """What distributions over a probability share."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        _one_of(probs, logits)
        given = logits if probs is None else probs
        (value,) = broadcast(given)
        if probs is None:
            self.logits = value
        else:
            self.probs = value
        super().__init__(shape_of(given), (), validate_args)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @_Once
    def logits(self) -> Tensor:
        """log(probs / (1 - probs))."""
        probs = _inside(self.probs)
        return probs.log() - (-probs).log1p()

    @_Once
    def probs(self) -> Tensor:
        """sigmoid(logits)."""
        return self.logits.sigmoid()


class Bernoulli(_Binary):
    """1 with a probability, else 0."""

    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        half = tenon.full_like(self.probs, float("nan"))
        return tenon.where(self.probs == 0.5, half, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            return tenon.bernoulli(self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = tenon.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class Geometric(_Binary):
    """Failures before the first success."""

    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs of distribution {self!r} to be positive, "
                f"but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            tiny = tenon.finfo(self.probs.dtype).tiny
            u = self.probs.new_empty(shape).uniform_(tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = tenon.broadcast_tensors(value, self.probs)
        sure = (probs == 1) & (value == 0)
        return value * tenon.where(sure, 0.0, -probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        logits, probs = self.logits, self.probs
        return binary_cross_entropy_with_logits(logits, probs, reduction="none") / probs


class _Classes(Distribution):
    """What distributions over classes share: the last dimension holds the classes."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def _take(self, probs: Tensor | None, logits: Tensor | None) -> Size:
        """Keeps the normalised parameter; returns its shape."""
        _one_of(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        return given.size()

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    @_Once
    def logits(self) -> Tensor:
        """log(probs)."""
        return _inside(self.probs).log()

    @_Once
    def probs(self) -> Tensor:
        """softmax(logits)."""
        return self.logits.softmax(-1)

    def _draw(self, count: int) -> Tensor:
        """(count, batch elements) classes."""
        probs = self.probs.reshape(-1, self.probs.size(-1))
        return tenon.multinomial(probs, count, True).t()

    def _entropy(self) -> Tensor:
        logits = self.logits.clamp(min=tenon.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)


class Categorical(_Classes):
    """The index of one class."""

    has_enumerate_support = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        shape = self._take(probs, logits)
        self._num_events = shape[-1]
        super().__init__(shape[:-1], (), validate_args)

    def _expand_rest(self, new: Any) -> None:
        new._num_events = self._num_events

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter, classes included."""
        return self._param.size()

    @property
    def mean(self) -> Tensor:
        return tenon.full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return tenon.full(self._batch_shape, float("nan"), dtype=self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            drawn = self._draw(Size(sample_shape).numel())
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index, logits = tenon.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = tenon.arange(self._num_events, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class OneHotCategorical(_Classes):
    """One class, as a vector with a single one."""

    support = constraints.one_hot

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


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot draws whose gradient is that of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_Classes):
    """How often each class comes up in a number of draws."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        shape = self._take(probs, logits)
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def _expand_rest(self, new: Any) -> None:
        new.total_count = self.total_count

    @property
    def support(self) -> constraints.Constraint:
        counts = constraints.integer_interval(0, self.total_count)
        return constraints.independent(counts, 1)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            drawn = self._draw(self.total_count * Size(sample_shape).numel())
            drawn = drawn.reshape((self.total_count, *sample_shape, *self._batch_shape))
            index = drawn.movedim(0, -1)
            counts = self._param.new_zeros(self._extended_shape(sample_shape))
            ones = tenon.ones_like(index, dtype=counts.dtype)
            return counts.scatter_add_(-1, index, ones)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        logits = tenon.where((value == 0) & (logits == -float("inf")), 0.0, logits)
        ways = tenon.lgamma(value.sum(-1) + 1) - tenon.lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)
