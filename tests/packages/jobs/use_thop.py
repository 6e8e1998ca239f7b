"""Operations and parameters of models, counted by hooks."""

import torch
from report import report
from thop import clever_format, profile
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.ConvTranspose2d(8, 4, 2, stride=2),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(64, 10),
    nn.Softmax(dim=1),
)
macs, parameters = profile(net, inputs=(torch.randn(2, 3, 16, 16),), verbose=False)
report("net", [macs, parameters])
for rnn in (nn.LSTM(4, 5, 2, bidirectional=True), nn.GRU(4, 5), nn.RNN(4, 5)):
    report("rnn", profile(rnn, inputs=(torch.randn(3, 2, 4),), verbose=False))
report("format", [len(t) for t in clever_format([macs, parameters], "%.3f")])
