"""Lion, as it is, with decay and groups."""

import torch
from lion_pytorch import Lion
from report import report

for options in ({}, {"weight_decay": 0.1}, {"betas": (0.5, 0.9), "decoupled_weight_decay": True}):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    optimizer = Lion(model.parameters(), lr=1e-2, **options)
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        report("loss", loss)
    report("weights", torch.cat([p.detach().flatten() for p in model.parameters()]))
