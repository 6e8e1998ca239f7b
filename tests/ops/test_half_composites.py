"""Composites whose entry says `wide` compute float16 and bfloat16 in float32: what comes out is
what float32 gives, rounded once. In steps of half precision most of these would differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tenon as tn
import tenon.nn.functional as F

Call = Callable[..., tn.Tensor]
WIDE: dict[str, Call] = {
    "softsign": lambda x, y, s: F.softsign(x),
    "tanhshrink": lambda x, y, s: F.tanhshrink(x),
    "selu": lambda x, y, s: F.selu(x),
    "soft margins": lambda x, y, s: F.soft_margin_loss(x, s, reduction="none"),
    "hinges": lambda x, y, s: F.hinge_embedding_loss(x, s),
    "margin ranking": lambda x, y, s: F.margin_ranking_loss(x, y, s, margin=0.3),
    "cosine similarity": lambda x, y, s: F.cosine_similarity(x, y),
    "poisson": lambda x, y, s: F.poisson_nll_loss(x, y.abs()),
    "gaussian": lambda x, y, s: F.gaussian_nll_loss(x, y, y.abs()),
    "triplets": lambda x, y, s: F.triplet_margin_loss(x, y, s),
    "pairwise distance": lambda x, y, s: F.pairwise_distance(x, y),
    "cross entropy": lambda x, y, s: F.binary_cross_entropy(x.sigmoid(), (s + 1) / 2),
    "sinc": lambda x, y, s: tn.sinc(x),
    "logit": lambda x, y, s: tn.logit(x.sigmoid(), eps=0.25),
    "trapezoid": lambda x, y, s: tn.trapezoid(x, dx=0.3),
    "cumulative trapezoid": lambda x, y, s: tn.cumulative_trapezoid(x, dx=0.3),
    "cov": lambda x, y, s: tn.cov(x),
    "corrcoef": lambda x, y, s: tn.corrcoef(x),
    "nansum": lambda x, y, s: tn.nansum(x, 1),
    "nanmean": lambda x, y, s: tn.nanmean(x, 1),
    "dist": lambda x, y, s: tn.dist(x, y, 3),
}


def given(dtype: tn.dtype) -> list[tn.Tensor]:
    draws = tn.Generator().manual_seed(5)
    x, y = (tn.randn(4, 32, generator=draws).to(dtype) for _ in range(2))
    return [x, y, (y > 0).to(dtype) * 2 - 1]


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
@pytest.mark.parametrize("name", WIDE)
def test_rounded_once(name: str, dtype: tn.dtype) -> None:
    halves = given(dtype)
    got = WIDE[name](*halves)
    want = WIDE[name](*(t.float() for t in halves))
    if name in ("logit", "cross entropy"):  # sigmoid is rounded, too
        p = halves[0].sigmoid()
        logit = tn.logit(p.float(), eps=0.25)
        want = logit if name == "logit" else F.binary_cross_entropy(
            p.float(), (halves[2].float() + 1) / 2)  # fmt: skip
    assert got.dtype == dtype and want.dtype == tn.float32
    assert tn.equal(got, want.to(dtype))


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
def test_a_half_that_is_asked_for(dtype: tn.dtype) -> None:
    x = given(tn.float32)[0]
    got = tn.nansum(x, 1, dtype=dtype)
    assert got.dtype == dtype
    assert tn.allclose(got.float(), tn.nansum(x, 1), rtol=1e-2, atol=1e-1)
