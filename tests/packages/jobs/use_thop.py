"""Counts of operations and parameters."""

import torch
from ptflops import get_model_complexity_info
from report import report
from thop import profile
from torch import nn

net = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
)
report("thop", profile(net, inputs=(torch.ones(1, 3, 8, 8),), verbose=False))
report("ptflops", get_model_complexity_info(
    net, (3, 8, 8), as_strings=False, print_per_layer_stat=False, verbose=False, backend="pytorch"
))  # fmt: skip
