"""Multiplications counted."""

import torch
from ptflops import get_model_complexity_info
from report import report

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(128, 5),
)  # fmt: skip
for backend in ("pytorch", "aten"):
    counts = get_model_complexity_info(
        net, (3, 16, 16), as_strings=False, print_per_layer_stat=False, backend=backend
    )
    report(backend, counts, 0)
