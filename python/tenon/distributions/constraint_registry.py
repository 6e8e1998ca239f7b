"""From a set to a function onto it: a parameter that must lie in a set is made of free numbers.

`biject_to` gives functions that can be undone with a density, `transform_to` any that reach the
set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Functions by the class of a constraint."""

    def __init__(self) -> None:
        self._makers: dict[type, Callable[[Any], transforms.Transform]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """factory(constraint) makes the transform for constraints of a class; also a decorator."""
        if factory is None:
            return lambda f: self.register(constraint, f)
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(kind, constraints.Constraint):
            raise TypeError(
                f"Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._makers[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> transforms.Transform:
        try:
            maker = self._makers[type(constraint)]
        except KeyError:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            ) from None
        return maker(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(kind: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def register(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        biject_to.register(kind, factory)
        transform_to.register(kind, factory)
        return factory

    return register


@_both(constraints.real)
def _to_real(constraint: Any) -> transforms.Transform:
    return transforms.identity_transform


@biject_to.register(constraints.independent)
def _biject_to_several(constraint: Any) -> transforms.Transform:
    base = biject_to(constraint.base_constraint)
    return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


@transform_to.register(constraints.independent)
def _transform_to_several(constraint: Any) -> transforms.Transform:
    base = transform_to(constraint.base_constraint)
    return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


@_both(constraints.nonnegative)
@_both(constraints.positive)
def _above(constraint: Any) -> transforms.Transform:
    parts = [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    return transforms.ComposeTransform(parts)


@_both(constraints.less_than)
def _below(constraint: Any) -> transforms.Transform:
    parts = [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    return transforms.ComposeTransform(parts)


@_both(constraints.half_open_interval)
@_both(constraints.interval)
def _between(constraint: Any) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    parts = [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    return transforms.ComposeTransform(parts)


@biject_to.register(constraints.simplex)
def _sticks(constraint: Any) -> transforms.Transform:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _softmax(constraint: Any) -> transforms.Transform:
    return transforms.SoftmaxTransform()


@_both(constraints.lower_cholesky)
def _cholesky(constraint: Any) -> transforms.Transform:
    return transforms.LowerCholeskyTransform()


@_both(constraints.positive_semidefinite)
@_both(constraints.positive_definite)
def _definite(constraint: Any) -> transforms.Transform:
    return transforms.PositiveDefiniteTransform()


@_both(constraints.corr_cholesky)
def _correlations(constraint: Any) -> transforms.Transform:
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints.cat)
def _biject_parts(constraint: Any) -> transforms.Transform:
    parts = [biject_to(c) for c in constraint.cseq]
    return transforms.CatTransform(parts, constraint.dim, constraint.lengths)


@transform_to.register(constraints.cat)
def _transform_parts(constraint: Any) -> transforms.Transform:
    parts = [transform_to(c) for c in constraint.cseq]
    return transforms.CatTransform(parts, constraint.dim, constraint.lengths)


@biject_to.register(constraints.stack)
def _biject_slices(constraint: Any) -> transforms.Transform:
    return transforms.StackTransform([biject_to(c) for c in constraint.cseq], constraint.dim)


@transform_to.register(constraints.stack)
def _transform_slices(constraint: Any) -> transforms.Transform:
    return transforms.StackTransform([transform_to(c) for c in constraint.cseq], constraint.dim)
