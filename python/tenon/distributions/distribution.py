"""The base of all distributions: shapes, validation, and what follows from log_prob and sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Size, Tensor
from tenon._tensor.print import package_name
from tenon.distributions import constraints
from tenon.distributions.utils import lazy_property


class Distribution:
    """A batch of distributions; `event_shape` is the shape of one draw from one of them."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: dict[str, Any] = {}
    _derived: Sequence[str] = ()  # parameters that the text leaves out
    support: Any = constraints.dependent

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked where nothing else is said."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()  # of a class beside it, as nn.Module

    def _check_parameters(self) -> None:
        try:
            sets = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`: say `arg_constraints = {{}}`, or "
                "`validate_args=False` where one is made",
                stacklevel=4,
            )
            return
        for name, constraint in sets.items():
            # What is computed from another parameter on demand is right if that one is.
            on_demand = isinstance(getattr(type(self), name, None), lazy_property)
            lazy = name not in self.__dict__ and on_demand
            if lazy or constraints.is_dependent(constraint):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} "
                    f"({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to satisfy the constraint {constraint!r}, "
                    f"but found invalid values:\n{value}"
                )

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An instance to fill in `expand` of cls; a subclass with an __init__ of its own must bring
        one."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions with their parameters expanded to another batch shape."""
        # The class whose parameters these are: the nearest one that is no user's.
        rooms = [(c, getattr(c, "__module__", "")) for c in type(self).__mro__]
        ours = tuple(f"{name}." for name in ("tenon", package_name()))
        cls = next(c for c, room in rooms if room.startswith(ours))
        if cls.__init__ is Distribution.__init__:  # of no distribution in particular
            raise NotImplementedError(f"{type(self)} does not implement expand")
        new = self._get_checked_instance(cls, _instance)
        named = cls.arg_constraints  # a class derived from it may name others of its own
        for name in self.arg_constraints if isinstance(named, property) else named:
            if name in self.__dict__:
                value = self.__dict__[name]
                event = value.shape[len(self._batch_shape) :]
                new.__dict__[name] = value.expand((*batch_shape, *event))
        self._expand_rest(new)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expand_anew(self, cls: type, _instance: Any, *parameters: Any) -> Any:
        """`expand` of a class whose __init__ takes these parameters."""
        new = self._get_checked_instance(cls, _instance)
        cls.__init__(new, *parameters, validate_args=False)  # type: ignore[misc]
        new._validate_args = self._validate_args
        return new

    def _expand_rest(self, new: Any) -> None:
        """What `expand` has to hand on beside the parameters."""

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws without a gradient."""
        with tenon.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws that are differentiable functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """n draws."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability, or of its density, at a value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value that this share of draws does not exceed."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The expectation of -log_prob."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return tenon.exp(self.entropy())

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = value.dim() - len(self._event_shape)
        if value.size()[start:] != self._event_shape:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.size()} vs {self._event_shape}."
            )
        actual, expected = value.size(), (*self._batch_shape, *self._event_shape)
        for i, j in zip(reversed(actual), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {actual} vs "
                    f"{Size(expected)}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to check samples with: say "
                "`validate_args=False` where one is made",
                stacklevel=4,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                "Expected value argument "
                f"({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) "
                f"of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            if name in self.__dict__ and name not in self._derived:
                value = self.__dict__[name]
                parts.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{type(self).__name__}({', '.join(parts)})"
