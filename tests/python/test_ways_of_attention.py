"""Which operators scaled_dot_product_attention is made of: one kernel where it can be, and products
where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F
from tenon.profiler import profile

WHOLE, PRODUCTS = "aten::_flash_attention", "aten::bmm"


def heads(*shape: int) -> tn.Tensor:
    count = int(np.prod(shape))
    return ((tn.arange(count) * 37 % 101).float() / 50 - 1).reshape(shape)


Q = heads(2, 4, 3, 8)
CASES: dict[str, tuple[str, tuple[tn.Tensor, ...], dict[str, Any]]] = {
    "four dimensions": (WHOLE, (Q, Q, Q), {}),
    "values of another width": (WHOLE, (Q, Q, Q[..., :5]), {}),
    "shared heads": (WHOLE, (Q, Q[:, :2], Q[:, :2]), {"enable_gqa": True}),
    "a mask": (WHOLE, (Q, Q, Q), {"attn_mask": heads(3, 3)}),
    "three dimensions": (PRODUCTS, (Q[0], Q[0], Q[0]), {}),
    "a query of three": (PRODUCTS, (Q[0], Q[:1], Q[:1]), {}),
    "keys of three": (PRODUCTS, (Q[:1], Q[0], Q[:1]), {}),
    "values of three": (PRODUCTS, (Q[:1], Q[:1], Q[0]), {}),
    "keys of one sample": (PRODUCTS, (Q, Q[:1], Q), {}),
    "values of one sample": (PRODUCTS, (Q, Q, Q[:1]), {}),
    "values of one head": (PRODUCTS, (Q, Q, Q[:, :1]), {}),
    "a mask that learns": (PRODUCTS, (Q, Q, Q), {"attn_mask": heads(3, 3).requires_grad_()}),
}


def by_numpy(q: Any, k: Any, v: Any, mask: Any) -> Any:
    q, k, v = (t.numpy().astype(np.float64) for t in (q, k, v))
    if k.ndim == 4 and q.ndim == 4 and q.shape[1] % k.shape[1] == 0 and k.shape[1] > 1:
        k, v = (np.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
    score = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        score = score + mask.detach().numpy()
    weight = np.exp(score - score.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("case", CASES)
def test_operators_of(case: str) -> None:
    way, (q, k, v), given = CASES[case]
    with profile() as recorded:
        got = F.scaled_dot_product_attention(q, k, v, **given)
    names = {event.name for event in recorded.events()}
    assert names & {WHOLE, PRODUCTS} == {way}
    want = by_numpy(q, k, v, given.get("attn_mask"))
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-5, atol=1e-6)


def test_dropout_is_of_products() -> None:
    with profile() as recorded:
        F.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.5)
    assert WHOLE not in {event.name for event in recorded.events()}
