"""The memory behind tensors, as objects: UntypedStorage counts bytes, TypedStorage elements.

Both look at the memory through a row of bytes, a tensor like any other, which keeps it alive.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable
from typing import Any

import tenon
from tenon._C import Tensor, device, dtype
from tenon._tensor.print import package_name

_KINDS = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexDouble": "complex128", "ComplexFloat": "complex64",
}  # fmt: skip


def _bytes_behind(t: Tensor) -> Tensor:
    """All bytes of the memory that a tensor lies in, as a row."""
    row = tenon.empty(0, dtype=tenon.uint8, device=t.device)
    return row.set_(t.detach(), 0, (t._storage_bytes(),), (1,))


def _mapped(filename: Any, shared: bool, nbytes: int) -> Tensor:
    """The first bytes of a file as a row; `shared` ones are written to the file."""
    if nbytes < 0:
        raise ValueError(f"from_file(): a size of {nbytes} is negative")
    how = (os.O_RDWR | os.O_CREAT) if shared else os.O_RDONLY
    fd = os.open(filename, how | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise RuntimeError(f"from_file(): {os.fspath(filename)!r} is no regular file")
        held = found.st_size
        if held < nbytes:
            if not shared:
                raise RuntimeError(
                    f"from_file(): {os.fspath(filename)!r} holds {held} bytes, not {nbytes}"
                )
            os.posix_fallocate(fd, 0, nbytes)
        if not nbytes:
            return tenon.empty(0, dtype=tenon.uint8, device="cpu")
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        return tenon.frombuffer(mmap.mmap(fd, nbytes, access=access), dtype=tenon.uint8)
    finally:
        os.close(fd)


class _Memory:
    """What both kinds of storage have in common; `_row` are the bytes."""

    _row: Tensor
    _read: Callable[[], Tensor]

    def __getattr__(self, name: str) -> Any:
        """The bytes of a storage that `later` made, at the first look at them."""
        if name != "_row" or "_read" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._row = self._read()
        return self._row

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.nbytes()

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._row._storage_ptr()

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._row.numel()

    @property
    def _cdata(self) -> int:
        return self._row._storage_id()

    @property
    def is_meta(self) -> bool:
        """Whether there is no memory behind it, on the device meta."""
        return self._row.is_meta

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._row.device

    @property
    def is_cuda(self) -> bool:
        """Whether it is a CUDA device's."""
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """The index of the device, -1 for the CPU."""
        return self._row.get_device()

    def is_pinned(self, device: Any = "cuda") -> bool:
        """Whether the memory is page-locked."""
        del device
        return self._row.is_pinned()

    def is_shared(self) -> bool:
        """Whether other processes may map the memory."""
        return self._row.is_shared()

    def share_memory_(self) -> Any:
        """Moves the memory where other processes can map it."""
        self._row.share_memory_()
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Memory) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def _with(self, row: Tensor) -> Any:
        """A storage of the same class around other bytes."""
        raise NotImplementedError

    def _elements(self) -> Tensor:
        """The memory as a row of what the storage counts."""
        raise NotImplementedError

    def size(self) -> int:
        """How many elements there are; bytes, where there is no dtype."""
        return self._elements().numel()

    def tolist(self) -> list[Any]:
        """The elements as numbers."""
        return self._elements().tolist()

    def __getitem__(self, index: Any) -> Any:
        found = self._elements()[index]
        return self._with(_bytes_behind(found.clone())) if found.dim() else found.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[index] = value

    def fill_(self, value: Any) -> Any:
        """Sets every element."""
        self._elements().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Takes the elements of another storage of the same size."""
        self._elements().copy_(source._elements(), non_blocking=non_blocking)
        return self

    def clone(self) -> Any:
        """A storage with the same values in memory of its own."""
        return self._with(self._row.clone())

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """The storage on a device: itself, if it is there."""
        row = self._row.to(device, non_blocking=non_blocking)
        return self if row is self._row else self._with(row)

    def cpu(self) -> Any:
        """The storage in the memory of the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """The storage on a CUDA device."""
        where = "cuda" if device is None else tenon.device("cuda", device)
        return self.to(device=where, non_blocking=non_blocking)

    def _to(self, kind: dtype) -> TypedStorage:
        """A copy whose elements are of a dtype."""
        return typed_of(self._elements().to(kind, copy=True))

    @property
    def is_sparse(self) -> bool:
        """False: what sparse tensors hold are several storages."""
        return False

    def resizable(self) -> bool:
        """Whether the memory could grow: it is this process's own."""
        return not self.is_shared()

    def __copy__(self) -> Any:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copies = memo.setdefault("tenon", {})  # by memory, as tensors do it
        key = self._row._storage_id()
        if key not in copies:
            copies[key] = self._row.clone()
        return self._with(copies[key])


class _StorageBase(_Memory):
    """What a storage of bytes is an instance of."""


class UntypedStorage(_StorageBase):
    """Bytes that one or more tensors look at.

    UntypedStorage(n, device='cpu') makes n bytes with any values, UntypedStorage([1, 2]) these.
    """

    def __init__(self, source: Any = 0, *, device: Any = None) -> None:
        if isinstance(source, Tensor):
            self._row = _bytes_behind(source)
        elif isinstance(source, int):
            self._row = tenon.empty(source, dtype=tenon.uint8, device=device)
        else:
            self._row = tenon.tensor(list(source), dtype=tenon.uint8, device=device)

    @staticmethod
    def from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, mapped; what is written goes to the file if it is `shared`,
        which is then made or enlarged where it must be."""
        return UntypedStorage(_mapped(filename, shared, nbytes))

    def _with(self, row: Tensor) -> UntypedStorage:
        return UntypedStorage(row)

    def _elements(self) -> Tensor:
        return self._row

    def element_size(self) -> int:
        """1."""
        return 1

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def __reduce__(self) -> Any:
        return _rebuild_untyped, (self._row.cpu()._to_bytes(), str(self.device))

    def __repr__(self) -> str:
        lines = "".join(f" {v}\n" for v in self.tolist())
        name = f"{package_name()}.storage.{type(self).__name__}"
        return f"{lines}[{name}(device={self.device}) of size {self.nbytes()}]"


def _rebuild_untyped(data: bytes, where: str) -> UntypedStorage:
    row = tenon.empty(len(data), dtype=tenon.uint8, device="cpu")
    row._from_bytes(data)
    return UntypedStorage(row if where == "cpu" else row.to(where))


class _ByKind(type):
    """`isinstance(s, FloatStorage)` asks for the dtype: all typed storages are of one class."""

    def __instancecheck__(cls, instance: object) -> bool:
        if not super().__instancecheck__(instance):
            return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype
        return True


class TypedStorage(_Memory):
    """Elements of one dtype that one or more tensors look at."""

    def __init__(
        self,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: dtype | None = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        del _internal
        self.dtype = dtype or getattr(type(self), "dtype", None) or tenon.get_default_dtype()
        if wrap_storage is not None:
            self._row = wrap_storage._row
        elif len(args) == 1 and not isinstance(args[0], int):
            self._row = _bytes_behind(tenon.tensor(args[0], dtype=self.dtype, device=device))
        else:
            self._row = _bytes_behind(tenon.empty(*(args or (0,)), dtype=self.dtype, device=device))

    def _with(self, row: Tensor) -> TypedStorage:
        return TypedStorage(wrap_storage=UntypedStorage(row), dtype=self.dtype)

    def _elements(self) -> Tensor:
        whole = tenon.empty(0, dtype=self.dtype, device=self.device)
        return whole.set_(self._row, 0, (self.nbytes() // self.dtype.itemsize,), (1,))

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def untyped(self) -> UntypedStorage:
        """The same memory, counted in bytes."""
        return UntypedStorage(self._row)

    _untyped_storage = property(untyped)

    def pickle_storage_type(self) -> str:
        """'FloatStorage' for float32."""
        return _NAMES[self.dtype]

    def type(self) -> str:
        """The name of the class of such storages."""
        return f"{str(self.dtype).split('.')[0]}.{self.pickle_storage_type()}"

    def __reduce__(self) -> Any:
        return _rebuild_typed, (self.untyped(), self.dtype)

    def __repr__(self) -> str:
        lines = "".join(f" {v}\n" for v in self.tolist())
        name = f"{package_name()}.storage.TypedStorage"
        return f"{lines}[{name}(dtype={self.dtype}, device={self.device}) of size {self.size()}]"


def _conversion(kind: dtype) -> Callable[[_Memory], TypedStorage]:
    def convert(self: _Memory) -> TypedStorage:
        return self._to(kind)

    convert.__doc__ = f"A copy whose elements are {str(kind).partition('.')[2]}."
    return convert


for _method, _kind in (
    ("double", tenon.float64), ("float", tenon.float32), ("half", tenon.float16),
    ("bfloat16", tenon.bfloat16), ("long", tenon.int64), ("int", tenon.int32),
    ("short", tenon.int16), ("char", tenon.int8), ("byte", tenon.uint8), ("bool", tenon.bool),
    ("complex_double", tenon.complex128), ("complex_float", tenon.complex64),
    ("float8_e4m3fn", tenon.float8_e4m3fn), ("float8_e5m2", tenon.float8_e5m2),
):  # fmt: skip
    setattr(_Memory, _method, _conversion(_kind))


def later(read: Callable[[], Tensor], kind: dtype | None) -> TypedStorage | UntypedStorage:
    """A storage over the memory of what `read` returns, once that is looked at; None: of bytes."""
    cls = UntypedStorage if kind is None else TypedStorage
    storage = cls.__new__(cls)
    if kind is not None:
        storage.dtype = kind
    storage._read = read
    return storage


def typed_of(t: Tensor) -> TypedStorage:
    """`Tensor.storage`."""
    return TypedStorage(wrap_storage=UntypedStorage(t), dtype=t.dtype)


def tensor_over(data: Any, kind: dtype | None) -> Tensor | None:
    """What `tensor(storage, dtype=kind)` looks at: its bytes as elements of that dtype, int64 by
    default; a storage that has a dtype keeps it. None: data is no storage."""
    if not isinstance(data, _Memory):
        return None
    if isinstance(data, TypedStorage):
        wants = kind or tenon.get_default_dtype()
        if data.dtype != wants:
            name, held = (_NAMES[k].removesuffix("Storage") for k in (wants, data.dtype))
            raise RuntimeError(
                f"Expected a Storage of type {name} or an UntypedStorage, but got {held}"
            )
        return data._elements()
    return TypedStorage(wrap_storage=data, dtype=kind or tenon.int64)._elements()


def _rebuild_typed(storage: UntypedStorage, kind: dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=kind)


DoubleStorage: type[TypedStorage]
FloatStorage: type[TypedStorage]
HalfStorage: type[TypedStorage]
BFloat16Storage: type[TypedStorage]
LongStorage: type[TypedStorage]
IntStorage: type[TypedStorage]
ShortStorage: type[TypedStorage]
CharStorage: type[TypedStorage]
ByteStorage: type[TypedStorage]
BoolStorage: type[TypedStorage]
ComplexDoubleStorage: type[TypedStorage]
ComplexFloatStorage: type[TypedStorage]
_NAMES = {getattr(tenon, kind): f"{name}Storage" for name, kind in _KINDS.items()}
for _kind, _name in _NAMES.items():
    globals()[_name] = _ByKind(_name, (TypedStorage,), {"dtype": _kind, "__module__": __name__})
KINDS = tuple(_NAMES.values())
Storage = TypedStorage


def from_file(
    filename: Any,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: dtype | None = None,
    **kwargs: Any,
) -> Tensor:
    """A tensor of `size` elements over the start of a file."""
    kind = dtype or tenon.get_default_dtype()
    row = _mapped(filename, bool(shared), (size or 0) * kind.itemsize)
    t = tenon.empty(0, dtype=kind, device="cpu").set_(row, 0, (size or 0,), (1,))
    return t.requires_grad_() if kwargs.get("requires_grad") else t
