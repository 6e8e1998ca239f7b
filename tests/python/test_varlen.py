"""Attention over sequences that lie one after the other, against NumPy sequence by sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

DRAW = np.random.default_rng(8)


def plain(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, window: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """One sequence, (length, heads, width)."""
    repeat = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    at = np.arange(len(q))[:, None] + len(k) - len(q)
    for bound, behind in ((window[0], at - np.arange(len(k))), (window[1], np.arange(len(k)) - at)):
        if bound >= 0:
            scores = np.where(behind <= bound, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - top)
    out = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v)
    return out, (np.log(e.sum(-1)) + top[..., 0]).T


def drawn(lengths: list[int], heads: int, width: int = 4) -> Any:
    return DRAW.standard_normal((sum(lengths), heads, width))


def ends(lengths: list[int]) -> Any:
    return np.cumsum([0, *lengths])


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (1, 0), (0, 1), (2, -1)])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (3, 1)])
def test_sequences(heads: tuple[int, int], window: tuple[int, int]) -> None:
    lq, lk = [3, 1, 5], [4, 3, 5]
    q, k, v = drawn(lq, heads[0]), drawn(lk, heads[1]), drawn(lk, heads[1])
    a, b = ends(lq), ends(lk)
    want = [plain(q[a[i]:a[i + 1]], k[b[i]:b[i + 1]], v[b[i]:b[i + 1]], 0.7, window)
            for i in range(3)]  # fmt: skip
    given = [tn.tensor(x, requires_grad=True) for x in (q, k, v)]
    rest = (tn.tensor(a, dtype=tn.int32), tn.tensor(b, dtype=tn.int32), 5, 5)
    options: dict[str, Any] = {"scale": 0.7, "window_size": window, "enable_gqa": True}
    sums = np.concatenate([w[1] for w in want])
    out, lse = varlen_attn(*given, *rest, return_aux=AuxRequest(lse=True), **options)
    np.testing.assert_allclose(out.detach(), np.concatenate([w[0] for w in want]), rtol=1e-10)
    np.testing.assert_allclose(lse.detach(), sums, rtol=1e-5, atol=1e-6)
    assert tn.equal(varlen_attn(*given, *rest, **options), out)
    into = tn.empty_like(out)
    assert varlen_attn_out(into, *given, *rest, **options) is into and tn.equal(into, out)
    assert tn.autograd.gradcheck(lambda *t: varlen_attn(*t, *rest, **options), given)


def test_scale_is_that_of_attention() -> None:
    q = tn.tensor(drawn([3], 1))
    got = varlen_attn(q, q, q, tn.tensor([0, 3]), tn.tensor([0, 3]), 3, 3)
    x = q.numpy()
    np.testing.assert_allclose(got, plain(x, x, x, 0.5, (-1, -1))[0], rtol=1e-10)


def test_keys_in_pages_and_those_that_count() -> None:
    used, page = [5, 2], 2
    q, pool = drawn([1, 2], 2), DRAW.standard_normal((6, page, 2, 4))
    values = DRAW.standard_normal(pool.shape)
    table = np.array([[4, 0, 2], [5, 1, 1]])
    k = [pool[table[i]].reshape(-1, 2, 4)[: used[i]] for i in range(2)]
    v = [values[table[i]].reshape(-1, 2, 4)[: used[i]] for i in range(2)]
    parts = [q[:1], q[1:]]
    want = np.concatenate([plain(*p, 0.5, (-1, 0))[0] for p in zip(parts, k, v, strict=True)])
    counts = tn.tensor(used, dtype=tn.int32)
    got = varlen_attn(
        tn.tensor(q), tn.tensor(pool), tn.tensor(values), tn.tensor([0, 1, 3]), None, 2, 6,
        window_size=(-1, 0), seqused_k=counts, block_table=tn.tensor(table, dtype=tn.int32),
    )  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-10)
    wide = [np.concatenate([x, np.full((3, 2, 4), np.nan)]) for x in (*k, *v)]
    got = varlen_attn(
        tn.tensor(q), tn.tensor(np.concatenate(wide[:2])), tn.tensor(np.concatenate(wide[2:])),
        tn.tensor([0, 1, 3]), tn.tensor(ends([8, 5])), 2, 8, window_size=(-1, 0), seqused_k=counts,
    )  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-10)


T, U = tn.tensor([0, 3]), tn.ones(3, 2, 4)
REFUSED = {
    "same number of heads": lambda: varlen_attn(U, U[:, :1], U[:, :1], T, T, 3, 3),
    "multiple of kv heads": lambda: varlen_attn(U[:, :1], U, U, T, T, 3, 3, enable_gqa=True),
    "cu_seq_q must be a vector of integers": lambda: varlen_attn(U, U, U, T.float(), T, 3, 3),
    "cu_seq_k must rise from 0 to at most 3": lambda: varlen_attn(U, U, U, T, T + 1, 3, 3),
    "cu_seq_q ends at 2 of 3": lambda: varlen_attn(U, U, U, tn.tensor([0, 2]), T, 3, 3),
    "cu_seq_k has 2 sequences": lambda: varlen_attn(U, U, U, T, tn.tensor([0, 1, 3]), 3, 3),
    "cu_seq_k may be None only": lambda: varlen_attn(U, U, U, T, None, 3, 3),
    "block_table needs seqused_k": lambda: varlen_attn(
        U, U[None], U[None], T, None, 3, 3, block_table=tn.tensor([[0]])),
    "longer than the pages": lambda: varlen_attn(
        U, U[None], U[None], T, None, 3, 3, block_table=tn.tensor([[0]]), seqused_k=T[1:] + 1),
    "a length for each of 1": lambda: varlen_attn(U, U, U, T, T, 3, 3, seqused_k=T),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_refused(words: str) -> None:
    with pytest.raises(ValueError, match=words):
        REFUSED[words]()
