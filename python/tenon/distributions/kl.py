"""How far one distribution is from another: kl_divergence, and a table of closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions.bernoulli import Bernoulli
from tenon.distributions.beta import Beta
from tenon.distributions.binomial import Binomial
from tenon.distributions.categorical import Categorical
from tenon.distributions.cauchy import Cauchy
from tenon.distributions.continuous_bernoulli import ContinuousBernoulli
from tenon.distributions.dirichlet import Dirichlet
from tenon.distributions.distribution import Distribution
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.exponential import Exponential
from tenon.distributions.gamma import Gamma
from tenon.distributions.geometric import Geometric
from tenon.distributions.gumbel import Gumbel
from tenon.distributions.half_normal import HalfNormal
from tenon.distributions.independent import Independent
from tenon.distributions.laplace import Laplace
from tenon.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from tenon.distributions.multivariate_normal import MultivariateNormal
from tenon.distributions.normal import Normal
from tenon.distributions.one_hot_categorical import OneHotCategorical
from tenon.distributions.pareto import Pareto
from tenon.distributions.poisson import Poisson
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.uniform import Uniform
from tenon.distributions.utils import LOG_2PI, _sum_rightmost, euler_constant
from tenon.nn.functional import softplus

_Formula = Callable[[Any, Any], Tensor]
__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], _Formula] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Formula], _Formula]:
    """Decorator: this function is the divergence of instances of two classes."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # classes that only behave like a distribution are welcome
            raise TypeError(f"Expected a Distribution subclass but got {kind}")

    def decorator(fn: _Formula) -> _Formula:
        _KL_REGISTRY[type_p, type_q] = fn
        return fn

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expectation under p of log p - log q."""
    found = [
        (type(p).__mro__.index(a) + type(q).__mro__.index(b), fn)
        for (a, b), fn in _KL_REGISTRY.items()
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
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    weights = (a - c) * a.digamma() + (b - d) * b.digamma() + (c + d - a - b) * (a + b).digamma()
    return q._log_beta() - p._log_beta() + weights


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    result = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return tenon.where(p.total_count > q.total_count, float("inf"), p.total_count * result)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    distance = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return distance.log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    own = p._cont_bern_log_norm() + (-p.probs).log1p()
    return p.mean * (p.logits - q.logits) + own - q._cont_bern_log_norm() - (-q.probs).log1p()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = ((1 + ratio).lgamma() - distance).exp()
    return -ratio.log() + distance + ratio * euler_constant + tail - (1 + euler_constant)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return tenon.where(p.support.lower_bound < q.support.lower_bound, float("inf"), result)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


# ---- Vectors -------------------------------------------------------------------------------------


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _vectors(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            "computed"
        )
    size = p.event_shape[0]
    batch = tenon.broadcast_shapes(p.batch_shape, q.batch_shape)
    own, other = (d.scale_tril.expand((*batch, size, size)) for d in (p, q))
    solve = tenon.linalg.solve_triangular
    spread = solve(other, own, upper=False).pow(2).sum((-2, -1))
    distance = solve(other, (q.loc - p.loc).expand((*batch, size)).unsqueeze(-1), upper=False)
    dets = [m.diagonal(dim1=-2, dim2=-1).log().sum(-1) for m in (other, own)]
    return dets[0] - dets[1] + 0.5 * (spread + distance.pow(2).sum((-2, -1)) - size)


# ---- Pairs of families ---------------------------------------------------------------------------
# The divergence is what p expects of -log q, less p's entropy.


def _to_normal(p: Any, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc).pow(2)) / q.scale.pow(2)
    return 0.5 * (LOG_2PI + spread) + q.scale.log() - p.entropy()


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _mean_log(p: Any) -> Tensor:
    """What p expects of a number's logarithm."""
    if isinstance(p, Exponential):
        return -p.rate.log() - euler_constant
    if isinstance(p, Beta):
        total = p.concentration1 + p.concentration0
        return p.concentration1.digamma() - total.digamma()
    if isinstance(p, Uniform):
        return (tenon.xlogy(p.high, p.high) - tenon.xlogy(p.low, p.low)) / (p.high - p.low) - 1
    return p.scale.log() + p.alpha.reciprocal()  # Pareto


def _to_gamma(p: Any, q: Gamma) -> Tensor:
    a, b = q.concentration, q.rate
    norm = a * b.log() - a.lgamma()
    return b * p.mean - (a - 1) * _mean_log(p) - norm - p.entropy()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    gap = (p.loc - q.loc) / p.scale
    half = (-0.5 * gap.pow(2)).exp() * (2 / tenon.pi) ** 0.5
    mean = p.scale * (half + gap * (gap * 0.5**0.5).erf())
    return mean / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    distance = (p.loc - q.loc) / q.scale
    tail = (0.5 * (p.scale / q.scale).pow(2) - distance).exp()
    return q.scale.log() + distance + tail - p.entropy()


def _falling(p: Any, speed: Tensor) -> Tensor:
    """What p expects of exp(-speed * x)."""
    if isinstance(p, Uniform):
        ends = (-speed * p.low).exp() - (-speed * p.high).exp()
        return ends / (speed * (p.high - p.low))
    power = p.concentration if isinstance(p, Gamma) else 1.0  # of Exponential
    return (p.rate / (p.rate + speed)).pow(power)


def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    speed = q.scale.reciprocal()
    tail = (q.loc * speed).exp() * _falling(p, speed)
    return q.scale.log() + (p.mean - q.loc) * speed + tail - p.entropy()


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    base = tenon.log1p(-q.probs) + q._cont_bern_log_norm()
    return _where_inside(p, 0, 1, -p.mean * q.logits - base - p.entropy())


def _where_inside(p: Any, low: Any, high: Any, result: Tensor) -> Tensor:
    """The result where all that p draws lies between these; elsewhere it is infinite."""
    mine = p.support
    outside = (mine.lower_bound < low) | (mine.upper_bound > high)
    return tenon.where(tenon.as_tensor(outside, device=result.device), float("inf"), result)


def _to_uniform(p: Any, q: Uniform) -> Tensor:
    return _where_inside(p, q.low, q.high, (q.high - q.low).log() - p.entropy())


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    turned = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    logs = (a - 1) * _mean_log(p) + (b - 1) * _mean_log(turned)
    return _where_inside(p, 0, 1, norm - logs - p.entropy())


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return _where_inside(p, 0, float("inf"), _to_exponential(p, q))


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    return _where_inside(p, 0, float("inf"), _to_gamma(p, q))


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    logs = (q.alpha + 1) * _mean_log(p) - q.alpha * q.scale.log() - q.alpha.log()
    return _where_inside(p, q.scale, float("inf"), logs - p.entropy())


@register_kl(ExponentialFamily, ExponentialFamily)
def _families(p: Any, q: Any) -> Tensor:
    """Two of one family: how far the normalizer lies above its tangent."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}: the families differ"
        )
    own = [v.detach().requires_grad_() for v in p._natural_params]
    normalizer = p._log_normalizer(*own)
    slopes = tenon.autograd.grad(normalizer.sum(), own, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for mine, other, slope in zip(own, q._natural_params, slopes, strict=True):
        result = result - _sum_rightmost((other - mine) * slope, len(q.event_shape))
    return result


def _infinite(p: Any, q: Any) -> Tensor:
    """p draws what q never does."""
    shape = tenon.broadcast_shapes(p.batch_shape, q.batch_shape)
    return tenon.full(shape, float("inf"), dtype=p.mean.dtype, device=p.mean.device)


for _p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform):
    register_kl(_p, Normal)(_to_normal)
for _p in (Beta, Gamma, ContinuousBernoulli, Pareto):
    register_kl(_p, Exponential)(_to_exponential)
for _p in (Beta, Exponential, Pareto):
    register_kl(_p, Gamma)(_to_gamma)
for _p in (Exponential, Gamma, Uniform):
    register_kl(_p, Gumbel)(_to_gumbel)
for _p in (Beta, Uniform):
    register_kl(_p, ContinuousBernoulli)(_to_continuous_bernoulli)
for _p in (Beta, ContinuousBernoulli):
    register_kl(_p, Uniform)(_to_uniform)
for _p in (Beta, ContinuousBernoulli, Exponential, Gamma):
    register_kl(_p, Pareto)(_infinite)
for _p in (Normal, Laplace, Gumbel, Exponential, Gamma, Pareto, Poisson):
    if _p is Poisson:
        _tighter: tuple[type, ...] = (Bernoulli, Binomial)
    elif _p in (Normal, Laplace, Gumbel):
        _tighter = (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
    else:
        _tighter = (Beta, ContinuousBernoulli, Uniform)
    for _q in _tighter:
        register_kl(_p, _q)(_infinite)
del _p, _q, _tighter
