"""Attention with functions of scores and masks, against the sums written out in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tenon
from tenon.nn.attention import flex_attention as flex


def causal(b, h, q, k):
    return (q >= k) & (k != 3) & (q != 2)


def slanted(score, b, h, q, k):
    return score + (q - k) * (h + 1) * 0.25 + b


def inputs(requires_grad: bool = False):
    rng = np.random.default_rng(5)
    shapes = ((2, 4, 7, 8), (2, 2, 9, 8), (2, 2, 9, 5))
    return [
        tenon.tensor(rng.normal(size=s).astype(np.float32), requires_grad=requires_grad)
        for s in shapes
    ]


def written_out(q, k, v, scale, scored, masked):
    """The result and the logarithms of sums, one query at a time, in float64."""
    q, k, v = (np.asarray(t.detach().numpy(), np.float64) for t in (q, k, v))
    out, lse = np.zeros((*q.shape[:3], v.shape[-1])), np.full(q.shape[:3], -np.inf)
    for b, h, i in np.ndindex(*q.shape[:3]):
        g = h * k.shape[1] // q.shape[1]
        s = k[b, g] @ q[b, h, i] * scale
        if scored:
            s = np.array([s[j] + (i - j) * (h + 1) * 0.25 + b for j in range(len(s))])
        if masked:
            seen = [i >= j and j != 3 and i != 2 for j in range(len(s))]
            s = np.where(seen, s, -np.inf)
        if np.isfinite(s).any():
            lse[b, h, i] = s.max() + np.log(np.exp(s - s.max()).sum())
            out[b, h, i] = np.exp(s - lse[b, h, i]) @ v[b, g]
    return out, lse


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_values(scored, masked, scale):
    q, k, v = inputs()
    mask = flex.create_block_mask(causal, 2, 4, 7, 9, device="cpu") if masked else None
    out, lse = flex.flex_attention(
        q, k, v, slanted if scored else None, mask, scale, enable_gqa=True, return_lse=True
    )
    want, sums = written_out(q, k, v, scale or 8**-0.5, scored, masked)
    np.testing.assert_allclose(out.numpy(), want, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(lse.numpy(), sums, rtol=2e-5, atol=2e-6)


def test_gradients_are_those_of_attention_with_a_mask_added():
    mask = flex.create_block_mask(causal, None, None, 7, 9, device="cpu")
    added = flex.create_mask(causal, None, None, 7, 9, device="cpu")
    added = added.index_fill(-2, tenon.tensor([2]), True)
    grads = []
    for flexible in (True, False):
        q, k, v = inputs(requires_grad=True)
        if flexible:
            out = flex.flex_attention(q, k, v, None, mask, enable_gqa=True)
        else:
            out = tenon.nn.functional.scaled_dot_product_attention(
                q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), added
            )
        kept = out[:, :, [0, 1, 3, 4, 5, 6]]
        kept.square().sum().backward()
        grads.append([t.grad.numpy() for t in (q, k, v)])
    for got, want in zip(*grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_is_given_beside_the_result():
    q, k, v = inputs()
    _, aux = flex.flex_attention(
        q, k, v, enable_gqa=True, return_aux=flex.AuxRequest(max_scores=True)
    )
    scores = q @ k.repeat_interleave(2, 1).mT / math.sqrt(8)
    assert aux.lse is None
    np.testing.assert_allclose(aux.max_scores.numpy(), scores.numpy().max(-1), rtol=1e-6)
    with pytest.raises(ValueError, match="Cannot specify both"):
        flex.flex_attention(q, k, v, enable_gqa=True, return_lse=True, return_aux=flex.AuxRequest())


def test_blocks():
    mask = flex.create_block_mask(causal, 2, 4, 7, 9, device="cpu", BLOCK_SIZE=(2, 3))
    whole = np.array([[i >= j and j != 3 and i != 2 for j in range(9)] for i in range(7)])
    padded = np.pad(whole, ((0, 1), (0, 0)))
    sums = padded.reshape(4, 2, 3, 3).sum(axis=(1, 3))
    assert mask.shape == (2, 4, 7, 9) and mask.numel() == 504
    assert mask.to_dense()[1, 2].tolist() == (sums > 0).astype(int).tolist()
    assert mask.full_kv_num_blocks[0, 0].tolist() == (sums == 6).sum(-1).tolist()
    assert mask.kv_num_blocks[0, 0].tolist() == ((sums > 0) & (sums < 6)).sum(-1).tolist()
    assert mask.q_num_blocks[0, 0].tolist() == ((sums > 0) & (sums < 6)).sum(0).tolist()
    assert mask.sparsity() == pytest.approx(100 * (1 - (sums > 0).sum() * 6 / 63))
    part = mask[0:1, 1]
    assert part.shape == (1, 1, 7, 9)
    assert part.kv_num_blocks[0, 0].tolist() == mask.kv_num_blocks[0, 1].tolist()
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        flex.flex_attention(*inputs(), None, part, enable_gqa=True)
    assert len(mask.as_tuple()) == 13


def test_masks_join():
    def first(b, h, q, k):
        return q == k

    def second(b, h, q, k):
        return q + 1 == k

    either = flex.create_mask(flex.or_masks(first, second), None, None, 3, 4, device="cpu")
    both = flex.create_mask(flex.and_masks(first, flex.noop_mask), 1, 2, 3, 4, device="cpu")
    scores = flex.create_mask(
        lambda s, b, h, q, k: tenon.where(q > k, s, -math.inf), None, None, 3, 4, device="cpu"
    )
    assert either[0, 0].int().tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert both.shape == (1, 2, 3, 4) and both[0, 1].equal(tenon.eye(3, 4).bool())
    assert scores[0, 0].int().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    with pytest.raises(AssertionError, match="4 or 5"):
        flex.create_mask(lambda q, k: q > k, None, None, 3, 4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda q, k, v: (q[0], k, v), "4D"),
        (lambda q, k, v: (q.double(), k, v), "same dtype"),
        (lambda q, k, v: (q[..., :3], k, v), "embedding dimension"),
        (lambda q, k, v: (q[:, :3], k, v), "multiple of kv heads"),
    ],
)
def test_refusals(change, text):
    with pytest.raises(ValueError, match=text):
        flex.flex_attention(*change(*inputs()), enable_gqa=True)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        flex.flex_attention(*inputs())


def test_lengths_of_a_mask_from_its_blocks():
    counts, places = tenon.ones(1, 1, 3, dtype=tenon.int32), tenon.zeros(1, 1, 3, 2).int()
    mask = flex.BlockMask.from_kv_blocks(counts, places, BLOCK_SIZE=(16, 8))
    assert mask.seq_lengths == (48, 16) and mask.shape == (1, 1, 48, 16)
    given = flex.BlockMask.from_kv_blocks(counts, places, seq_lengths=(300, 200))
    assert given.seq_lengths == (300, 200)
