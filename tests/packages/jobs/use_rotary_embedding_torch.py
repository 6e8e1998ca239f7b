"""Rotary embeddings."""

import torch
from report import report
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

torch.manual_seed(0)
q, k = torch.randn(2, 4, 12, 32), torch.randn(2, 4, 12, 32)
r = RotaryEmbedding(dim=16)
report("queries", r.rotate_queries_or_keys(q))
x = RotaryEmbedding(dim=16, use_xpos=True)
for t in x.rotate_queries_and_keys(q, k):
    report("xpos", t)
p = RotaryEmbedding(dim=8, freqs_for="pixel", max_freq=10)
f = p.get_axial_freqs(4, 3, 2)
report("axial", apply_rotary_emb(f, torch.randn(1, 4, 3, 2, 48)))
learned = RotaryEmbedding(dim=16, learned_freq=True)
learned.rotate_queries_or_keys(q).pow(3).sum().backward()
report("gradient", learned.freqs.grad)
for t in r.rotate_queries_with_cached_keys(q[:, :, -1:], k):
    report("cached", t)
