"""stft and istft: what their optional arguments stand for. Operators of the table compute."""

from __future__ import annotations

import warnings

from tenon import _C
from tenon._C import Tensor
from tenon._tape import overridable

_ops = _C._ops


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Fourier transforms of pieces of n_fft elements that are hop_length apart, each times window:
    (frequencies, pieces), of a batch (batch, frequencies, pieces).

    Shapes: (..., L) to (..., n_fft // 2 + 1, frames), complex.

    >>> tn.stft(tn.rand(400), 64, return_complex=True).shape
    tenon.Size([33, 26])
    """
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied, which is known to "
            "cause spectral leakage. Other windows such as tenon.hann_window cause less of it.",
            stacklevel=overridable.users_level(),
        )
    wave = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None and not wave:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs")
    out = _ops._stft(
        input,
        n_fft,
        n_fft // 4 if hop_length is None else hop_length,
        n_fft if win_length is None else win_length,
        window,
        bool(center),
        pad_mode,
        normalized,
        not wave if onesided is None else onesided,
        bool(align_to_window),
    )
    return out if return_complex or return_complex is None else _C._ops.view_as_real(out)


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The inverse of stft: pieces are laid over each other and divided by the sum of the squared
    windows."""
    if onesided is None:
        onesided = input.dim() > 1 and input.shape[-2] != n_fft
    return _ops._istft(
        input,
        n_fft,
        n_fft // 4 if hop_length is None else hop_length,
        n_fft if win_length is None else win_length,
        window,
        center,
        normalized,
        onesided,
        length,
        return_complex,
    )


_FLAGS = ("normalized", "onesided", "return_complex", "align_to_window")
overridable.make_overridable(globals(), flags=_FLAGS)
