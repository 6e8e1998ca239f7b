"""Causal convolutions in time."""

import torch
from pytorch_tcn import TCN, TemporalConv1d, TemporalConvTranspose1d
from report import report

torch.manual_seed(0)
x = torch.randn(2, 3, 30)
for options in (
    {},
    {"causal": False, "use_norm": "batch_norm", "activation": "gelu"},
    {"use_skip_connections": True, "use_norm": "layer_norm", "dropout": 0.2},
    {"use_gate": True, "use_norm": "weight_norm", "kernel_size": 3},
):
    net = TCN(3, [6, 6, 4], **options)
    y = net(x)
    y.pow(2).mean().backward()
    report("y", y)
    report("slopes", [p.grad.norm() for p in net.parameters() if p.grad is not None], 1e-3)
net = TCN(3, [4, 4], causal=True).eval()
net.reset_buffers()
report("streamed", torch.cat([net(part, inference=True) for part in x[:1].split(10, 2)], 2))
report("conv", TemporalConv1d(3, 4, 3, dilation=2)(x))
report("transposed", TemporalConvTranspose1d(3, 4, 4, stride=2)(x))
