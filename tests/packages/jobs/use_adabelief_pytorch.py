"""AdaBelief, with its options."""

import contextlib
import io

import torch
from adabelief_pytorch import AdaBelief
from report import report

for options in ({}, {"amsgrad": True}, {"rectify": False, "weight_decouple": False,
                "weight_decay": 0.1}, {"fixed_decay": True, "weight_decay": 0.01}):  # fmt: skip
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer = AdaBelief(
            net.parameters(), lr=1e-2, eps=1e-8, print_change_log=False, **options
        )
    for _ in range(8):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(f"loss {sorted(options)}", loss, 1e-3)
