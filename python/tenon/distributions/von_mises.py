"""Angles around one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]

# Polynomials for the modified Bessel functions of orders 0 and 1, in (x / 3.75)^2 up to 3.75 and in
# 3.75 / x beyond: Abramowitz and Stegun, 9.8.1 to 9.8.4.
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3),
)
_LARGE = (
    (0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1,
     0.2635537e-1, -0.1647633e-1, 0.392377e-2),
    (0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1,
     -0.2895312e-1, 0.1787654e-1, -0.420059e-2),
)  # fmt: skip


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    result: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        result = c + x * result
    return result


def _log_bessel(x: Tensor, order: int) -> Tensor:
    """The logarithm of the modified Bessel function of order 0 or 1, of positive numbers."""
    small = _polynomial((x / 3.75) ** 2, _SMALL[order])
    if order:
        small = x.abs() * small
    large = x - 0.5 * x.log() + _polynomial(3.75 / x, _LARGE[order]).log()
    return tenon.where(x < 3.75, small.log(), large)


class VonMises(Distribution):
    """Angles between -pi and pi, the closer to loc the larger the concentration."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.size(), (), validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        height = self.concentration * (value - self.loc).cos()
        return height - math.log(2 * math.pi) - _log_bessel(self.concentration, 0)

    @lazy_property
    def _proposal_r(self) -> Tensor:
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        found = (1 + rho**2) / (2 * rho)
        return tenon.where(k < 1e-5, 1 / k + k, found)  # the series, where digits would be lost

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            r = self._proposal_r.expand(shape)
            k = self.concentration.double().expand(shape)
            x = tenon.zeros(shape, dtype=tenon.float64, device=self.loc.device)
            done = ~(k <= 1e8)  # there, as near as digits go, a normal distribution; or no number
            if done.any():
                x = tenon.where(done, tenon.randn_like(x) * k.rsqrt(), x)
            while not done.all():
                u1, u2, u3 = tenon.rand((3, *shape), dtype=x.dtype, device=x.device).unbind()
                f = (math.pi * u1).cos()
                f = (1 + r * f) / (r + f)
                c = k * (r - f)
                good = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                x = tenon.where(good & ~done, (u3 - 0.5).sign() * f.acos(), x)
                done = done | good
            angle = x + math.pi + self.loc.double()
            return (angle % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """1 less the length of the mean direction."""
        k = self.concentration
        return 1 - (_log_bessel(k, 1) - _log_bessel(k, 0)).exp()
