"""Whether Triton compiles kernels for tensors: it does not for those of this package."""

from __future__ import annotations


def has_triton_package() -> bool:
    return False


def has_triton() -> bool:
    return False


def has_triton_tma() -> bool:
    return False


def has_triton_tma_device() -> bool:
    return False


def get_triton_version(fallback: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The version; the fallback where it takes no part."""
    return fallback
