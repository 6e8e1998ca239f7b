"""Errors of process groups and stores, by PyTorch's names."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Something that concerns several processes went wrong."""


class DistBackendError(DistError):
    """An engine has failed."""


class DistNetworkError(DistError):
    """Another process was not reached."""


class DistStoreError(DistError):
    """A store has failed, or a key has not come in time."""


class QueueEmptyError(DistStoreError):
    """Nothing is in a queue that was not waited for."""
