"""Fourier transforms, by the names of the array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import Tensor
from tenon import fft as _fft


def _one(name: str) -> Callable[..., Tensor]:
    op = getattr(_fft, name)

    def function(x: Tensor, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return op(x, n, axis, norm)

    return _named(function, name)


def _several(name: str) -> Callable[..., Tensor]:
    op = getattr(_fft, name)

    def function(
        x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        return op(x, s, axes, norm)

    return _named(function, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The standard's `{name}`, by `tenon.fft.{name}`."
    return function


ONE = ("fft", "hfft", "ifft", "ihfft", "irfft", "rfft")
SEVERAL = ("fftn", "ifftn", "irfftn", "rfftn")
globals().update({name: _one(name) for name in ONE})
globals().update({name: _several(name) for name in SEVERAL})


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the results of `fft`."""
    return _fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the results of `rfft`."""
    return _fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Frequency zero in the middle."""
    return _fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Undoes `fftshift`."""
    return _fft.ifftshift(x, axes)


__all__ = [*ONE, *SEVERAL, "fftfreq", "fftshift", "ifftshift", "rfftfreq"]
