"""Filterbanks that may be learnt, and what is made of their outputs."""

import torch
from asteroid_filterbanks import (
    STFTFB,
    AnalyticFreeFB,
    Decoder,
    Encoder,
    FreeFB,
    MelGramFB,
    ParamSincFB,
    make_enc_dec,
    transforms,
)
from report import report

torch.manual_seed(0)
x = torch.randn(2, 1, 400, requires_grad=True)
banks = {
    "free": FreeFB(16, 20, 10), "analytic": AnalyticFreeFB(16, 20, 10),
    "stft": STFTFB(32, 32, 16), "sinc": ParamSincFB(16, 31, 10),
    "mel": MelGramFB(32, 32, 16, n_mels=8, sample_rate=8000),
}  # fmt: skip
for name, bank in banks.items():
    x.grad = None
    z = Encoder(bank)(x)
    z.pow(2).sum().backward()
    report(name, [z, x.grad, *(p.grad for p in bank.parameters() if p.grad is not None)], 1e-3)
encoder, decoder = make_enc_dec("stft", n_filters=32, kernel_size=32, stride=16)
z = encoder(x)
report("magnitudes", [transforms.mag(z), transforms.angle(z), transforms.magreim(z)], 1e-3)
report("masked", transforms.apply_mag_mask(z, torch.rand(2, 17, z.shape[-1])), 1e-3)
report("back", decoder(z), 1e-3)
report("decoded", Decoder(banks["free"])(Encoder(banks["free"])(x)), 1e-3)
