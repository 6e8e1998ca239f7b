"""How far one distribution is from another: kl_divergence, and a table of closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions._continuous import Exponential, Gamma, Laplace, Normal, Uniform
from tenon.distributions._derived import Independent, sum_last
from tenon.distributions._discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from tenon.distributions.distribution import Distribution
from tenon.nn.functional import softplus

_Formula = Callable[[Any, Any], Tensor]
_table: dict[tuple[type, type], _Formula] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Formula], _Formula]:
    """Decorator: this function is the divergence of instances of two classes."""
    for kind in (type_p, type_q):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise TypeError(f"Expected a Distribution subclass but got {kind}")

    def decorator(fn: _Formula) -> _Formula:
        _table[type_p, type_q] = fn
        return fn

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expectation under p of log p - log q."""
    found = [
        (type(p).__mro__.index(a) + type(q).__mro__.index(b), fn)
        for (a, b), fn in _table.items()
        if isinstance(p, a) and isinstance(q, b)
    ]
    if not found:
        raise NotImplementedError(
            "No KL(p || q) is implemented for p type "
            f"{type(p).__name__} and q type {type(q).__name__}"
        )
    return min(found, key=lambda pair: pair[0])[1](p, q)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    distance = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = tenon.where((q.probs == 0).expand_as(terms), float("inf"), terms)
    return tenon.where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p, q)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = tenon.where(q.probs == 0, float("inf"), one)
    one = tenon.where(p.probs == 0, 0.0, one)
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    zero = tenon.where(q.probs == 1, float("inf"), zero)
    return one + tenon.where(p.probs == 1, 0.0, zero)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - tenon.log1p(-q.probs) / p.probs - q.logits


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * tenon.exp(-distance / p.scale) - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + a * (q.rate / p.rate) - a
    return rates + tenon.lgamma(b) - tenon.lgamma(a) + (a - b) * tenon.digamma(a)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return tenon.where((q.low > p.low) | (q.high < p.high), float("inf"), result)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
