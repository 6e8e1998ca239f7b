"""Storages under PyTorch's names."""

from tenon._tensor import storage as _storage
from tenon._tensor.storage import TypedStorage, UntypedStorage, _StorageBase

_LegacyStorage = TypedStorage


def __getattr__(name: str) -> type:
    if name in _storage.KINDS:
        return getattr(_storage, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["TypedStorage", "UntypedStorage", "_StorageBase"]
