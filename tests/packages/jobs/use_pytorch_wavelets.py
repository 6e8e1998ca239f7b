"""Wavelets of signals and pictures, dual trees, scattering."""

import torch
from pytorch_wavelets import (
    DTCWTForward,
    DTCWTInverse,
    DWT1DForward,
    DWT1DInverse,
    DWTForward,
    DWTInverse,
    ScatLayer,
    ScatLayerj2,
)
from report import report

torch.manual_seed(0)
x = torch.randn(2, 3, 24, 20, requires_grad=True)
for mode in ("zero", "symmetric", "periodization", "reflect"):
    for wave in ("haar", "db3", "bior2.2"):
        forward, inverse = DWTForward(J=2, wave=wave, mode=mode), DWTInverse(wave=wave, mode=mode)
        low, high = forward(x)
        x.grad = None
        (low.pow(2).sum() + sum(h.abs().sum() for h in high)).backward()
        report(f"{mode} {wave}", [low, *high])
        report(f"{mode} {wave} back", [inverse((low, high)), x.grad])
s = torch.randn(2, 3, 40)
low, high = DWT1DForward(wave="db2", J=3)(s)
report("1d", [low, *high, DWT1DInverse(wave="db2")((low, high))])
y = torch.randn(1, 3, 32, 32, requires_grad=True)
low, high = DTCWTForward(J=2, biort="near_sym_b", qshift="qshift_b")(y)
back = DTCWTInverse(biort="near_sym_b", qshift="qshift_b")((low, high))
back.pow(3).sum().backward()
report("dual tree", [low, *high, back, y.grad])
for layer in (ScatLayer(), ScatLayerj2()):
    y.grad = None
    z = layer(y)
    z.pow(2).sum().backward()
    report(type(layer).__name__, [z, y.grad])
