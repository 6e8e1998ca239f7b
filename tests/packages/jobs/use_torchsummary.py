"""The table of a model's layers."""

import contextlib
import io

import torch
from report import report
from torchsummary import summary

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(8 * 49, 10),
)
for device in ("cpu",):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        summary(net, (3, 16, 16), batch_size=2, device=device)
    report("text", [ord(c) for c in text.getvalue()])
