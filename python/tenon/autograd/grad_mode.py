"""The modes of recording under PyTorch's module."""

from __future__ import annotations

from tenon import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


class set_multithreading_enabled:  # noqa: N801 - PyTorch's name
    """Whether a backward pass may take several threads: it runs on the thread that asks for it,
    either way."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        """Nothing changes."""

    def __exit__(self, *exc: object) -> None:
        """Nothing has changed."""
