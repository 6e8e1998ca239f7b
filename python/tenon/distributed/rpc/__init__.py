"""Calls of functions in other processes, by PyTorch's names: not planned."""

from __future__ import annotations

from typing import Any

from tenon.distributed._absent import absent

__all__ = ["is_available"]

_NAMES = (
    "BackendType", "PyRRef", "RRef", "RemoteModule", "TensorPipeRpcBackendOptions", "WorkerInfo",
    "get_worker_info", "init_rpc", "remote", "rpc_async", "rpc_sync", "shutdown",
)  # fmt: skip


def is_available() -> bool:
    """Whether there are such calls."""
    return False


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return absent("torch.distributed.rpc", name, "tensors go by torch.distributed.send")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
