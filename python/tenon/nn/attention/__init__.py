"""Which kernels `scaled_dot_product_attention` may choose from on a GPU."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tenon.backends import cuda

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.Enum):
    """Kernels of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_SWITCHES = {
    SDPBackend.MATH: (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    SDPBackend.FLASH_ATTENTION: (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    SDPBackend.EFFICIENT_ATTENTION: (
        cuda.mem_efficient_sdp_enabled,
        cuda.enable_mem_efficient_sdp,
    ),
    SDPBackend.CUDNN_ATTENTION: (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
}


@contextmanager
def sdpa_kernel(
    backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False
) -> Iterator[None]:
    """A with statement that turns on the switches of `tenon.backends.cuda` for these kernels and
    the others off. Of these, cuDNN's are used or not as its switch says; the rest are names of one
    kernel here. Their order is Tenon's own, whatever `set_priority` says."""
    del set_priority
    chosen = list(backends) if isinstance(backends, (list, tuple)) else [backends]
    for backend in chosen:
        if not isinstance(backend, SDPBackend):
            raise AssertionError(f"sdpa_kernel: expected SDPBackend, got {backend!r}")
    before = {backend: is_on() for backend, (is_on, _) in _SWITCHES.items()}
    try:
        for backend, (_, enable) in _SWITCHES.items():
            enable(backend in chosen)
        yield
    finally:
        for backend, (_, enable) in _SWITCHES.items():
            enable(before[backend])
