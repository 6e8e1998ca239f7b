"""State space layers by a parallel scan, their steps, and a language model of them."""

import torch
from mambapy.mamba import Mamba, MambaConfig
from mambapy.pscan import pscan
from report import report

torch.manual_seed(0)
a = torch.rand(2, 7, 4, 3, requires_grad=True)
x = torch.randn(2, 7, 4, 3, requires_grad=True)
h = pscan(a, x)
report("scan", h)
h.pow(2).sum().backward()
report("scan gradients", [a.grad, x.grad])
for options in ({}, {"pscan": False}, {"inner_layernorms": True, "mup": True, "mup_base_width": 8}):
    torch.manual_seed(1)
    model = Mamba(MambaConfig(d_model=16, n_layers=2, d_state=8, **options))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    x = torch.randn(3, 12, 16)
    for _ in range(3):
        loss = (model(x) - x.roll(1, 1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(f"loss {sorted(options)}", loss)
    caches = [
        (None, torch.zeros(3, model.config.d_inner, model.config.d_conv - 1)) for _ in range(2)
    ]
    y = model(x)
    with torch.no_grad():
        steps = []
        for i in range(12):
            z, caches = model.step(x[:, i], caches)
            steps.append(z)
    report("steps", torch.stack(steps, 1))
    report("whole", y)
