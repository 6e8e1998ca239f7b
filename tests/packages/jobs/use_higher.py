"""Gradients through the steps of optimizers."""

import higher
import torch
from report import report

torch.manual_seed(0)
m = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
for mk in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 0.01)):
    opt = mk(m.parameters())
    x = torch.randn(8, 3)
    with higher.innerloop_ctx(m, opt) as (f, d):
        for _ in range(2):
            d.step(f(x).square().mean())
        loss = f(x).square().mean()
        report("l", loss)
        for g in torch.autograd.grad(loss, list(f.parameters(time=0))):
            report("g", g, 1e-3)
