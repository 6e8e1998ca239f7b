"""Music taken apart, in time and in frequencies."""

import torch
from demucs.apply import apply_model
from demucs.demucs import Demucs
from demucs.htdemucs import HTDemucs
from report import report

torch.manual_seed(0)
x = torch.randn(1, 2, 8000)
for net in (
    Demucs(["a", "b"], channels=8, depth=3, lstm_layers=1, segment=1, samplerate=8000),
    HTDemucs(["a", "b"], channels=8, nfft=512, depth=3, t_layers=2, t_heads=2, bottom_channels=16,
             samplerate=8000, segment=1),
):  # fmt: skip
    torch.manual_seed(1)
    net.train()
    out = net(x)
    loss = out.pow(2).mean()
    loss.backward()
    report(type(net).__name__, [loss, out[..., ::50]], 2e-3)
    report("gradients", [p.grad.norm() for p in net.parameters() if p.grad is not None], 5e-3)
    net.eval()
    with torch.no_grad():
        report("applied", apply_model(net, x, shifts=0, overlap=0.25)[..., ::50], 2e-3)
