"""The table of a network's layers."""

import torch
from report import report
from torch import nn
from torchinfo import summary

net = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LSTM(144, 5), nn.Identity()
)
table = summary(net[:4], input_size=(2, 3, 8, 8), verbose=0)
report("counts", [table.total_params, table.trainable_params, table.total_mult_adds])
report("bytes", [table.total_input, table.total_output_bytes, table.total_param_bytes])
report("text", [len(line) for line in str(table).splitlines()])
both = summary(net[4], input_data=torch.ones(2, 144), verbose=0)
report("lstm", [both.total_params, both.total_mult_adds])
