"""Bootstrapped representations: a net learns from its slow copy."""

import torch
from byol_pytorch import BYOL
from report import report
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 6),
)
for momentum in (True, False):
    learner = BYOL(
        net,
        image_size=16,
        hidden_layer=-2,
        projection_size=8,
        projection_hidden_size=12,
        use_momentum=momentum,
        augment_fn=nn.Identity(),
        augment_fn2=nn.Hardtanh(),
    )
    optimizer = torch.optim.SGD(learner.parameters(), 1e-3)
    for _ in range(4):
        loss = learner(torch.randn(16, 3, 16, 16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if momentum:
            learner.update_moving_average()
        report("loss", loss, 1e-3)
    report("embedding", learner(torch.randn(16, 3, 16, 16), return_embedding=True)[1], 1e-3)
