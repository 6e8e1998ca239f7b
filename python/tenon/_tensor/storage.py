"""The memory behind tensors, as an object."""

from __future__ import annotations

from tenon._C import Tensor, device


class UntypedStorage:
    """Bytes that one or more tensors look at."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def data_ptr(self) -> int:
        return self._tensor._storage_ptr()

    def nbytes(self) -> int:
        return self._tensor._storage_bytes()

    def size(self) -> int:
        return self.nbytes()

    def __len__(self) -> int:
        return self.nbytes()

    @property
    def device(self) -> device:
        return self._tensor.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __repr__(self) -> str:
        return f"UntypedStorage(device={self.device}, size={self.nbytes()})"


Storage = UntypedStorage
