"""Attention by random features."""

import torch
from performer_pytorch import FastAttention, Performer
from report import report

torch.manual_seed(0)
m = Performer(dim=32, depth=2, heads=4, dim_head=8, causal=False, nb_features=16)
x = torch.randn(2, 24, 32, requires_grad=True)
out = m(x)
report("p", out, 1e-3)
out.square().sum().backward()
report("g", x.grad, 1e-3)
a = FastAttention(dim_heads=8, nb_features=16, causal=False, generalized_attention=True)
q, k, v = torch.randn(3, 1, 2, 12, 8).unbind(0)
report("fast", a(q, k, v))
m = Performer(dim=32, depth=2, heads=4, dim_head=8, reversible=True, nb_features=16, ff_glu=True)
report("rev", m(torch.randn(1, 16, 32)), 1e-3)
