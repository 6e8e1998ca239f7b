"""Sparse alternatives of softmax."""

import torch
from entmax import (
    budget_bisect,
    entmax15,
    entmax15_loss,
    entmax_bisect,
    normmax_bisect,
    sparsemax,
    sparsemax_loss,
)
from report import report

torch.manual_seed(0)
x = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
for f in (
    sparsemax,
    entmax15,
    lambda v: sparsemax(v, dim=0, k=3),
    lambda v: entmax_bisect(v, 1.3),
    lambda v: normmax_bisect(v, 2.0),
    lambda v: budget_bisect(v, 2),
):
    y = f(x)
    (g,) = torch.autograd.grad(y.pow(2).sum(), x)
    report("y", y)
    report("g", g)
a = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
report("alpha", torch.autograd.grad(entmax_bisect(x, a).pow(2).sum(), a)[0])
for f in (sparsemax_loss, entmax15_loss):
    loss = f(x, torch.tensor([1, 3, 0, 6])).sum()
    report("loss", loss)
    report("g", torch.autograd.grad(loss, x)[0])
