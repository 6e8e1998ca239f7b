"""What programs ask about a trace of PyTorch's compiler; here no code runs inside of one."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["TracingContext", "active_fake_mode", "detect_fake_mode"]


class TracingContext:
    """A trace that is under way: there is none."""

    def __init__(self, fake_mode: Any = None) -> None:
        raise NotImplementedError("TracingContext: Tenon records programs without it")

    @staticmethod
    def try_get() -> None:
        """The trace that the caller is part of, None where there is none."""

    @staticmethod
    def get() -> NoReturn:
        """The trace that the caller is part of."""
        raise RuntimeError("TracingContext.get() must be called within an ongoing trace.")


def active_fake_mode() -> None:
    """The mode in which tensors have no values, None where they have."""


def detect_fake_mode(inputs: Any = None) -> None:
    """The mode that the inputs, or the trace, belong to: None, for tensors have values."""
    del inputs
