"""Averages of parameters, which stand in for them and go again."""

import torch
from report import report
from torch_ema import ExponentialMovingAverage

torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
ema = ExponentialMovingAverage(net.parameters(), decay=0.95)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
x = torch.randn(8, 4)
for _ in range(6):
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    ema.update()
report("own", net(x))
with ema.average_parameters():
    report("average", net(x))
report("restored", net(x))
ema.copy_to()
report("copied", net(x))
report("state", ema.state_dict()["shadow_params"])
