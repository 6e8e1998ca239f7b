"""tenon.fft: Fourier transforms, operators of the table under the names that programs know."""

from __future__ import annotations

from tenon import _C

_ops = _C._ops

fft, ifft = _ops.fft_fft, _ops.fft_ifft
fft2, ifft2 = _ops.fft_fft2, _ops.fft_ifft2
fftn, ifftn = _ops.fft_fftn, _ops.fft_ifftn
rfft, irfft = _ops.fft_rfft, _ops.fft_irfft
rfft2, irfft2 = _ops.fft_rfft2, _ops.fft_irfft2
rfftn, irfftn = _ops.fft_rfftn, _ops.fft_irfftn
hfft, ihfft = _ops.fft_hfft, _ops.fft_ihfft
hfft2, ihfft2 = _ops.fft_hfft2, _ops.fft_ihfft2
hfftn, ihfftn = _ops.fft_hfftn, _ops.fft_ihfftn
fftfreq, rfftfreq = _ops.fft_fftfreq, _ops.fft_rfftfreq
fftshift, ifftshift = _ops.fft_fftshift, _ops.fft_ifftshift

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftfreq", "rfftn",
]  # fmt: skip
