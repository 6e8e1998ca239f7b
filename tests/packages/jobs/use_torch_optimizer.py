"""Optimizers."""

import torch
import torch_optimizer
from report import report

for name in (
    "DiffGrad", "AdaBound", "AdaMod", "Lamb", "NovoGrad", "PID", "QHAdam", "QHM", "RAdam",
    "SGDW", "Yogi", "AdaBelief", "Adahessian", "Apollo", "SWATS", "Shampoo", "AdamP", "SGDP",
):  # fmt: skip
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = getattr(torch_optimizer, name)(net.parameters(), lr=1e-2)
    x = torch.randn(8, 4)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward(create_graph=name == "Adahessian")
        optimizer.step()
    report(name, net.weight, 1e-3)
