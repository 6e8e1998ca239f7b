"""Attention to fewer places."""

import torch
from linformer import LinformerLM
from report import report

torch.manual_seed(0)
m = LinformerLM(
    num_tokens=50,
    dim=32,
    seq_len=64,
    depth=2,
    heads=4,
    dim_head=16,
    k=16,
    one_kv_head=True,
    share_kv=False,
    reversible=False,
).eval()
x = torch.randint(0, 50, (2, 64))
out = m(x)
report("lm", out)
out.square().sum().backward()
report("g", m.token_emb.weight.grad)
