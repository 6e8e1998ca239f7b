"""tenon.special: functions of statistics, physics and number theory, as operators of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon import _C
from tenon._C import Tensor
from tenon._tape.overridable import named_as_numpy

if TYPE_CHECKING:
    from tenon._special import *  # noqa: F403

_ops = _C._ops

# What the table has under the name special_<name>.
globals().update({
    name.removeprefix("special_"): getattr(_ops, name)
    for name in dir(_ops)
    if name.startswith("special_")
})  # fmt: skip

digamma = psi = _ops.digamma
erf, erfc, erfinv = _ops.erf, _ops.erfc, _ops.erfinv
exp2, expm1, log1p = _ops.exp2, _ops.expm1, _ops.log1p
expit = _ops.sigmoid
gammaln = _ops.lgamma
i0 = _ops.i0
logit = _ops.logit
logsumexp = _ops.logsumexp
round = _ops.round
sinc = _ops.sinc
xlogy = _ops.xlogy


@named_as_numpy
def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """exp(input), normalised along dim."""
    return _ops.softmax(input, dim, dtype=dtype)


@named_as_numpy
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax."""
    return _ops.log_softmax(input, dim, dtype=dtype)
