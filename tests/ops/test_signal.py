"""Short Fourier transforms and windows, against SciPy, PyTorch, and sums written out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.signal
import tenon as tn
from both import both
from tenon.signal import windows

RNG = np.random.default_rng(8)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Of each test, whichever ran before it: stored answers are for these."""
    RNG.bit_generator.state = START


def by_hand(x: np.ndarray, n_fft: int, hop: int, window: np.ndarray) -> np.ndarray:
    """Of a signal that is padded already."""
    pieces = [x[..., i : i + n_fft] * window for i in range(0, x.shape[-1] - n_fft + 1, hop)]
    return np.stack([np.fft.rfft(p) for p in pieces], -1)


def test_stft_is_its_definition() -> None:
    x, w = RNG.normal(size=(3, 37)), RNG.uniform(0.1, 1, 8)
    got = tn.stft(tn.tensor(x), 8, 3, window=tn.tensor(w), return_complex=True)
    want = by_hand(np.pad(x, ((0, 0), (4, 4)), mode="reflect"), 8, 3, w)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-13)
    got = tn.tensor(x).stft(8, 3, window=tn.tensor(w), center=False, return_complex=True)
    np.testing.assert_allclose(got.numpy(), by_hand(x, 8, 3, w), atol=1e-13)


def test_stft_of_complex_numbers_has_both_sides() -> None:
    """Of one signal, of several, and of a real one under a complex window."""
    x = RNG.normal(size=(2, 25)) + 1j * RNG.normal(size=(2, 25))
    w = RNG.uniform(0.1, 1, 7) * np.exp(1j * RNG.uniform(0, 6, 7))
    for signal, window in ((x, w.real), (x[1], w), (x.real, w), (x[0].real, w.real)):
        tell = {"window": tn.tensor(window), "center": False, "onesided": False}
        got = tn.stft(tn.tensor(signal), 7, 2, return_complex=True, **tell).numpy()
        pieces = [signal[..., i : i + 7] * window for i in range(0, 19, 2)]
        want = np.stack([np.fft.fft(p) for p in pieces], -1)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, atol=1e-13)


CALLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one signal": ((30,), {"n_fft": 8}),
    "parts": ((30,), {"n_fft": 8, "return_complex": False}),
    "short window": ((2, 30), {"n_fft": 9, "win_length": 6, "hop_length": 2}),
    "short window, aligned": (
        (2, 30),
        {"n_fft": 8, "win_length": 6, "hop_length": 3, "center": False, "align_to_window": True},
    ),
    "both sides": ((2, 30), {"n_fft": 8, "onesided": False, "normalized": True}),
    "constant": ((2, 30), {"n_fft": 8, "pad_mode": "constant", "hop_length": 5}),
}


@pytest.mark.parametrize("name", CALLS)
def test_stft_as_pytorch(name: str) -> None:
    shape, kwargs = CALLS[name]
    kwargs = {"return_complex": True, **kwargs}
    w = RNG.uniform(0.1, 1, kwargs.get("win_length", kwargs["n_fft"]))

    def run(m: Any, x: Any, window: Any) -> Any:
        out = m.stft(x, window=window, **kwargs)
        return out if not kwargs["return_complex"] else m.view_as_real(out)

    both(run, RNG.normal(size=shape), w)


@pytest.mark.parametrize("kwargs", [
    {"n_fft": 8, "hop_length": 2}, {"n_fft": 9, "hop_length": 3, "win_length": 7, "length": 25},
    {"n_fft": 8, "onesided": False, "normalized": True}, {"n_fft": 8, "length": 40},
])  # fmt: skip
def test_istft_inverts(kwargs: dict[str, Any]) -> None:
    x = tn.tensor(RNG.normal(size=(2, 30)))
    w = tn.tensor(RNG.uniform(0.5, 1, kwargs.get("win_length", kwargs["n_fft"])))
    forward = {k: v for k, v in kwargs.items() if k != "length"}
    y = tn.istft(tn.stft(x, window=w, return_complex=True, **forward), window=w, **kwargs)
    n = min(y.shape[1], kwargs.get("length", 28), 28)
    assert n >= 24
    np.testing.assert_allclose(y[:, :n].numpy(), x[:, :n].numpy(), atol=1e-12)


def test_istft_as_pytorch() -> None:
    def run(m: Any, x: Any, window: Any) -> Any:
        return m.istft(m.view_as_complex(x), 8, 3, window=window, length=21)

    both(run, RNG.normal(size=(2, 5, 7, 2)), RNG.uniform(0.5, 1, 8))

    def wave(m: Any, x: Any) -> Any:
        z = m.istft(m.view_as_complex(x), 8, 3, return_complex=True, center=False, normalized=True)
        return m.view_as_real(z)

    both(wave, RNG.normal(size=(8, 7, 2)))


def test_errors() -> None:
    x = tn.ones(20)
    w = tn.ones(8)
    for match, call in {
        "n_fft=0": lambda: tn.stft(x, 0, 1, 1, window=w, return_complex=True),
        "0 < n_fft <= 20, but got n_fft=0": lambda: tn.stft(
            x, 0, 1, 1, window=tn.ones(1), return_complex=True),
        "n_fft=-5": lambda: tn.stft(x, -5, 1, 1, window=tn.ones(1), return_complex=True),
        "hop_length=-1": lambda: tn.stft(x, 8, -1, window=w, return_complex=True),
        "win_length=0": lambda: tn.stft(x, 8, win_length=0, window=w, return_complex=True),
        "n_fft=30": lambda: tn.stft(x, 30, window=w, center=False, return_complex=True),
        "hop_length=0": lambda: tn.stft(x, 8, 0, window=w, return_complex=True),
        "win_length=9": lambda: tn.stft(x, 8, win_length=9, window=w, return_complex=True),
        "1D window": lambda: tn.stft(x, 8, window=tn.ones(7), return_complex=True),
        "floating point or complex": lambda: tn.stft(x.int(), 8, window=w, return_complex=True),
        "1D or 2D": lambda: tn.stft(tn.ones(2, 2, 9), 4, window=tn.ones(4), return_complex=True),
        "return_complex": lambda: tn.stft(x, 8, window=w),
        "align_to_window": lambda: tn.stft(x, 8, window=w, align_to_window=True),
        "complex-valued": lambda: tn.istft(tn.ones(5, 4), 8),
        "cannot be empty": lambda: tn.istft(tn.ones(5, 0, dtype=tn.complex64), 8),
        "2 or 3 dim": lambda: tn.istft(tn.ones(5, dtype=tn.complex64), 8),
        "match n_fft": lambda: tn.istft(tn.ones(6, 4, dtype=tn.complex64), 8, onesided=True),
        "overlap add": lambda: tn.istft(tn.ones(5, 4, dtype=tn.complex64), 8, window=tn.zeros(8)),
        "non-negative": lambda: tn.hann_window(-1),
        "floating point dtypes": lambda: tn.hann_window(3, dtype=tn.int32),
    }.items():  # fmt: skip
        with pytest.raises(RuntimeError, match=match), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    with pytest.warns(UserWarning, match="window was not provided"):
        tn.stft(x, 8, return_complex=True)


@pytest.mark.parametrize(
    "own",
    [tn.hann_window, tn.hamming_window, tn.blackman_window, tn.bartlett_window, tn.kaiser_window],
)
def test_windows(own: Any) -> None:
    name = own.__name__.removesuffix("_window")
    kind: Any = ("kaiser", 12.0) if name == "kaiser" else name
    for n in (1, 2, 7, 12):
        for periodic in (True, False):
            want = scipy.signal.get_window(kind, n, fftbins=periodic)
            got = own(n, periodic, dtype=tn.float64)
            np.testing.assert_allclose(got.numpy(), want, atol=2e-15, rtol=1e-13)
            got = getattr(windows, name)(n, sym=not periodic)
            assert got.dtype == tn.float32
            np.testing.assert_allclose(got.numpy(), want, atol=1e-7)
    assert own(0).shape == (0,)
    assert own(3, requires_grad=True).requires_grad


def test_windows_with_arguments() -> None:
    np.testing.assert_allclose(
        tn.hamming_window(6, False, 0.6, 0.3).numpy(),
        0.6 - 0.3 * np.cos(2 * np.pi * np.arange(6) / 5), atol=1e-6,
    )  # fmt: skip
    np.testing.assert_allclose(
        tn.kaiser_window(9, False, 4.5, dtype=tn.float64).numpy(), np.kaiser(9, 4.5), rtol=1e-13
    )
    sw = scipy.signal.windows
    for n in (1, 2, 7, 10):
        for sym in (True, False):
            pairs = {
                "general_hamming": (
                    windows.general_hamming(n, alpha=0.7, sym=sym), sw.general_hamming(n, 0.7, sym)
                ),
                "general_cosine": (
                    windows.general_cosine(n, a=[0.5, 0.3, 0.2], sym=sym),
                    sw.general_cosine(n, [0.5, 0.3, 0.2], sym),
                ),
                "nuttall": (windows.nuttall(n, sym=sym), sw.nuttall(n, sym)),
                "cosine": (windows.cosine(n, sym=sym), sw.cosine(n, sym)),
                "gaussian": (windows.gaussian(n, std=1.7, sym=sym), sw.gaussian(n, 1.7, sym)),
                "exponential": (
                    windows.exponential(n, tau=1.3, sym=sym), sw.exponential(n, None, 1.3, sym)
                ),
            }  # fmt: skip
            for name, (got, want) in pairs.items():
                np.testing.assert_allclose(got.numpy(), want, atol=2e-7, err_msg=f"{name} {n}")
    assert windows.exponential(4, center=0, tau=1.0, sym=False)[0].item() == 1
    for call in (
        lambda: windows.hann(-1), lambda: windows.hann(3, dtype=tn.float16),
        lambda: windows.general_cosine(3, a=[]), lambda: windows.gaussian(3, std=0),
        lambda: windows.exponential(3, tau=0), lambda: windows.exponential(3, center=1),
        lambda: windows.kaiser(3, beta=-1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r".+"):
            call()
