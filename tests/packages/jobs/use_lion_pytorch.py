"""Lion, an average of weights, optimizers without schedules."""

import torch
from lion_pytorch import Lion
from report import report
from rotary_embedding_torch import RotaryEmbedding
from schedulefree import AdamWScheduleFree
from torch_ema import ExponentialMovingAverage

for kind in (Lion, AdamWScheduleFree):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = kind(net.parameters(), lr=1e-2, weight_decay=1e-2)
    average = ExponentialMovingAverage(net.parameters(), decay=0.9)
    getattr(optimizer, "train", lambda: None)()
    x = torch.randn(8, 4)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()
        average.update()
    report(kind.__name__, net.weight)
    with average.average_parameters():
        report("average", net.weight)
rotary = RotaryEmbedding(dim=8)
report("rotary", rotary.rotate_queries_or_keys(torch.randn(1, 2, 5, 8)))
