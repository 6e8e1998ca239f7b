"""Spectrograms."""

import torch
from nnAudio import features
from report import report

x = torch.randn(1, 8000, generator=torch.Generator().manual_seed(0))
for n, m in (
    ("stft", features.STFT(n_fft=256, sr=8000, verbose=False)),
    ("mel", features.MelSpectrogram(n_fft=256, sr=8000, n_mels=20, verbose=False)),
    ("mfcc", features.MFCC(sr=8000, n_mfcc=10, n_fft=256, n_mels=20, verbose=False)),
    ("cqt", features.CQT(sr=8000, n_bins=36, fmin=110, verbose=False)),
    ("cqt2", features.CQT2010v2(sr=8000, n_bins=36, fmin=110, verbose=False)),
    (
        "gamma",
        features.Gammatonegram(sr=8000, n_fft=256, n_bins=20, verbose=False)
        if hasattr(features, "Gammatonegram")
        else features.STFT(n_fft=128, verbose=False),
    ),
):
    report(n, m(x), 2e-3)
