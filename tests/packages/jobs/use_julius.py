"""Filters and resampling of sound."""

import julius
import torch
from report import report

x = torch.randn(2, 400, generator=torch.Generator().manual_seed(5), requires_grad=True)
for name, f in (
    ("resample", lambda v: julius.resample_frac(v, 3, 2)),
    ("down", lambda v: julius.resample_frac(v, 5, 7, zeros=12)),
    ("low", lambda v: julius.lowpass_filter(v, 0.1)),
    ("high", lambda v: julius.highpass_filter(v, 0.2, fft=True)),
    ("band", lambda v: julius.bandpass_filter(v, 0.1, 0.3)),
    ("split", lambda v: julius.split_bands(v, 16000, cutoffs=[500, 2000])),
    ("convolve", lambda v: julius.fft_conv1d(v[:, None], torch.ones(3, 1, 65) / 65, padding=10)),
):
    y = f(x)
    (g,) = torch.autograd.grad(y.pow(2).sum(), x)
    report(name, y)
    report(f"{name} slope", g)
