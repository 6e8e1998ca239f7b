"""Rates that start small."""

import pytorch_warmup as warmup
import torch
from report import report

RISES = {
    "linear": lambda o: warmup.LinearWarmup(o, 5),
    "exponential": lambda o: warmup.ExponentialWarmup(o, 5),
    "untuned linear": warmup.UntunedLinearWarmup,
    "untuned exponential": warmup.UntunedExponentialWarmup,
    "radam": warmup.RAdamWarmup,
}

for kind in RISES:
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    rise = RISES[kind](optimizer)
    for _ in range(8):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(kind, [loss, optimizer.param_groups[0]["lr"]])
        with rise.dampening():
            schedule.step()
