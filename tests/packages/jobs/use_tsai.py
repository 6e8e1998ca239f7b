"""Nets for time series: forward and backward passes of many, and a learner that fits."""

import torch
from report import report
from tsai.models.all import (
    FCN,
    GRU,
    GRU_FCN,
    LSTM,
    LSTM_FCN,
    MLP,
    TCN,
    TST,
    XCM,
    InceptionTime,
    InceptionTimePlus,
    OmniScaleCNN,
    PatchTST,
    ResCNN,
    ResNet,
    TSiTPlus,
    TSPerceiver,
    TSSequencerPlus,
    TSTPlus,
    XceptionTime,
    gMLP,
)

numbers = torch.Generator().manual_seed(3)
x = torch.randn(4, 3, 24, generator=numbers)
for make in (FCN, ResNet, ResCNN, InceptionTime, XceptionTime, LSTM, GRU, TCN, InceptionTimePlus):
    torch.manual_seed(1)
    net = make(3, 2)
    torch.manual_seed(2)
    out = net(x)
    out.pow(2).sum().backward()
    report(make.__name__, out, 1e-3)
    report("slopes", [p.grad.norm() for p in net.parameters() if p.grad is not None], 1e-2)
for make in (
    MLP,
    LSTM_FCN,
    GRU_FCN,
    TST,
    TSTPlus,
    OmniScaleCNN,
    XCM,
    gMLP,
    TSiTPlus,
    TSSequencerPlus,
    TSPerceiver,
):
    torch.manual_seed(1)
    net = make(3, 2, 24)
    torch.manual_seed(2)
    out = net(x)
    out.pow(2).sum().backward()
    report(make.__name__, out, 1e-3)
    report("slopes", [p.grad.norm() for p in net.parameters() if p.grad is not None], 1e-2)
torch.manual_seed(1)
report(
    "PatchTST",
    PatchTST(3, 2, 24, pred_dim=6, d_model=16, n_heads=2, d_ff=16, patch_len=8, stride=4).eval()(x),
    1e-3,
)
