"""Jacobians of several losses, made one direction by rules."""

import torch
from report import report
from torch import nn
from torchjd import aggregation as A
from torchjd import autojac

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
x, y = torch.randn(10, 5), torch.randn(10, 3)
rules = [A.Mean(), A.Sum(), A.UPGrad(), A.MGDA(), A.DualProj(), A.PCGrad(), A.IMTLG()]
rules += [A.AlignedMTL(), A.ConFIG(), A.Krum(1, 1), A.TrimmedMean(1), A.Random(), A.GradDrop()]
jacobian = torch.randn(4, 7)
for rule in rules:
    torch.manual_seed(1)
    report(type(rule).__name__, rule(jacobian), 1e-3)
for kind in (A.UPGrad, A.MGDA):
    torch.manual_seed(2)
    for p in net.parameters():
        p.grad = None
    losses = (net(x) - y).pow(2).mean(0)
    autojac.backward(losses)
    if hasattr(autojac, "jac_to_grad"):
        autojac.jac_to_grad(net.parameters(), kind())
    report(kind.__name__, [p.grad for p in net.parameters()], 1e-3)
