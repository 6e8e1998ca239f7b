"""Attention within windows."""

import torch
from local_attention import LocalAttention, LocalTransformer
from report import report

torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 2, 40, 16).unbind(0)
q.requires_grad_()
for o in (
    {},
    {"causal": True},
    {"causal": True, "exact_windowsize": True},
    {"look_forward": 1},
    {"use_xpos": True, "causal": True},
    {"shared_qk": True},
):
    a = LocalAttention(dim=16, window_size=8, autopad=True, **o)
    m = torch.ones(2, 40, dtype=torch.bool)
    m[0, 30:] = False
    out = a(q, k, v, mask=m)
    report(f"{o}", out)
    report("g", torch.autograd.grad(out.square().sum(), q)[0])
t = LocalTransformer(
    num_tokens=32,
    dim=32,
    depth=2,
    max_seq_len=64,
    causal=True,
    local_attn_window_size=8,
    heads=2,
    dim_head=16,
)
x = torch.randint(0, 32, (2, 64))
loss = t(x, return_loss=True)
loss.backward()
report("loss", loss)
report("lg", t.token_emb.weight.grad)
