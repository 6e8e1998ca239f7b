"""tenon.signal.windows: windows of M elements, symmetric or (sym=False) of one period.

Those that are operators of the table are called; the others are sums of cosines and exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import tenon
from tenon._C import Tensor, device, dtype, layout

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


def _checked(name: str, M: int, kind: dtype | None, form: layout) -> dtype:  # noqa: N803
    """The window's dtype; refuses what no window has."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if form != tenon.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {form}")
    kind = tenon.get_default_dtype() if kind is None else kind
    if kind not in (tenon.float32, tenon.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    return kind


def _line(start: float, step: float, M: int, where: Any) -> Tensor:  # noqa: N803
    """M numbers from start on, in double precision: windows are rounded once."""
    return start + step * tenon.arange(M, dtype=tenon.float64, device=where)


def _done(window: Tensor, kind: dtype, requires_grad: bool) -> Tensor:
    return window.to(kind).requires_grad_(requires_grad)


def _named(
    name: str, M: int, sym: bool, kind: dtype | None, form: layout, where: Any,  # noqa: N803
    requires_grad: bool, **shape: float,
) -> Tensor:  # fmt: skip
    """A window of the op table."""
    kind = _checked(name, M, kind, form)
    made = getattr(tenon, f"{name}_window")
    return made(M, not sym, dtype=kind, device=where, **shape).requires_grad_(requires_grad)


def _cosines(
    name: str, M: int, weights: list[float], sym: bool, kind: dtype | None,  # noqa: N803
    form: layout, where: Any, requires_grad: bool,
) -> Tensor:  # fmt: skip
    kind = _checked(name, M, kind, form)
    if M < 2:
        return _done(tenon.ones(M, device=where), kind, requires_grad)
    angle = _line(0, 2 * math.pi / (M - 1 if sym else M), M, where)
    terms = [(-1) ** i * w * tenon.cos(i * angle) for i, w in enumerate(weights)]
    return _done(sum(terms[1:], terms[0]), kind, requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A triangle that is 0 at its ends."""
    return _named("bartlett", M, sym, dtype, layout, device, requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """0.42 - 0.5 cos + 0.08 cos of twice the angle."""
    return _named("blackman", M, sym, dtype, layout, device, requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A cosine raised to be 0 at the ends."""
    return _named("hann", M, sym, dtype, layout, device, requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """0.54 - 0.46 cos."""
    return _named("hamming", M, sym, dtype, layout, device, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """I0 of beta times a half circle, over I0 of beta."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _named("kaiser", M, sym, dtype, layout, device, requires_grad, beta=beta)


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The sum over i of (-1)^i a[i] cos(i * angle)."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    return _cosines("general_cosine", M, weights, sym, dtype, layout, device, requires_grad)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) cos."""
    return _cosines(
        "general_hamming", M, [alpha, 1 - alpha], sym, dtype, layout, device, requires_grad
    )


def nuttall(
    M: int, *, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Four terms that leave the least in the side lobes, after Nuttall."""
    weights = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return _cosines("nuttall", M, weights, sym, dtype, layout, device, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Half a period of a sine."""
    kind = _checked("cosine", M, dtype, layout)
    step = math.pi / (M + (not sym and M > 1)) if M else 0
    return _done(tenon.sin(_line(step / 2, step, M, device)), kind, requires_grad)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True,  # noqa: N803
    dtype: dtype | None = None, layout: layout = tenon.strided, device: device | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau); a symmetric window has its center in the middle."""
    kind = _checked("exponential", M, dtype, layout)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    away = _line(-center, 1, M, device).abs()
    return _done(tenon.exp(-away / tau), kind, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: dtype | None = None,  # noqa: N803
    layout: layout = tenon.strided, device: device | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-(n - middle)^2 / (2 std^2))."""
    kind = _checked("gaussian", M, dtype, layout)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    middle = (M if not sym and M > 1 else M - 1) / 2.0
    away = _line(-middle, 1, M, device) / (std * math.sqrt(2))
    return _done(tenon.exp(-(away * away)), kind, requires_grad)
