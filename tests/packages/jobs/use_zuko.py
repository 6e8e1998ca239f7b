"""Flows of several families."""

import torch
import zuko
from report import report

x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
c = torch.randn(8, 2, generator=torch.Generator().manual_seed(2))
for name in ("MAF", "NSF", "NICE", "NAF", "SOSPF", "UNAF", "NCSF", "BPF", "RealNVP", "GF", "CNF"):
    torch.manual_seed(0)
    F = getattr(zuko.flows, name)
    kw = {"hidden_features": (16, 16)}
    if name == "GF":
        kw = {}
    if name == "NCSF":
        xx = x.sigmoid() * 3
    else:
        xx = x
    try:
        flow = F(3, 2, transforms=2, **kw)
    except TypeError:
        flow = F(3, 2, **kw)
    if name == "BPF":
        xx = x.tanh()
    lp = flow(c).log_prob(xx)
    report(name, lp, 1e-3)
    loss = -lp.mean()
    loss.backward()
    report("g", sum(p.grad.abs().sum() for p in flow.parameters() if p.grad is not None), 2e-3)
    if name not in ("NAF", "UNAF", "CNF", "SOSPF", "BPF", "GF"):
        torch.manual_seed(3)
        report("s", flow(c[:2]).sample((2,)), 1e-3)
