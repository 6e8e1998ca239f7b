"""`torch.FloatTensor`, `torch.cuda.LongTensor` and so on: dtype and kind of device as one type,
from the time before each was an object. There is one class of tensors; these make tensors of their
kind, and `isinstance` knows a tensor of their kind."""

from __future__ import annotations

from typing import Any

from tenon import _C
from tenon._C import Tensor

# The first part of a type's name, for every dtype that has one.
ELEMENTS = {
    "Float": _C.float32, "Double": _C.float64, "Half": _C.float16, "BFloat16": _C.bfloat16,
    "Byte": _C.uint8, "Char": _C.int8, "Short": _C.int16, "Int": _C.int32, "Long": _C.int64,
    "Bool": _C.bool, "ComplexFloat": _C.complex64, "ComplexDouble": _C.complex128,
    "UInt16": _C.uint16, "UInt32": _C.uint32, "UInt64": _C.uint64, "ComplexHalf": _C.complex32,
    "Float8_e4m3fn": _C.float8_e4m3fn, "Float8_e5m2": _C.float8_e5m2,
    "Float8_e4m3fnuz": _C.float8_e4m3fnuz, "Float8_e5m2fnuz": _C.float8_e5m2fnuz,
    "Float8_e8m0fnu": _C.float8_e8m0fnu,
}  # fmt: skip
SPARSE = "sparse"


def _package() -> str:
    """The package's name as programs see it."""
    return str(_C.float32).partition(".")[0]


def make(data: tuple[Any, ...], dtype: _C.dtype, device: Any) -> Tensor:
    """A tensor of these sizes, with any values, or one with the data of a sequence or tensor. It
    shares the memory of a storage, and of a tensor where dtype and device are the same."""
    sizes: Any = data if data else (0,)
    if len(data) == 1 and not isinstance(data[0], int):
        (sizes,) = data
        if isinstance(sizes, Tensor):
            made = sizes.to(device, dtype)
            return _C._ops._alias(sizes) if made is sizes else made
        if not isinstance(sizes, _C.Size):
            from tenon._tensor.storage import tensor_over

            over = tensor_over(sizes, dtype)
            return _C.tensor(sizes, dtype=dtype, device=device) if over is None else over
    return _C._ops.empty(sizes, dtype=dtype, device=device)


class TensorType(type):
    """The type of such a type."""

    dtype: _C.dtype
    kind: str

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        device = cls.kind if device is None else device
        if _C.device(device).type != cls.kind:
            raise RuntimeError(
                f"{cls.text()}: expected a device of the kind '{cls.kind}', got device='{device}'"
            )
        return make(data, cls.dtype, device)

    def __instancecheck__(cls, obj: object) -> bool:
        return isinstance(obj, Tensor) and obj.dtype is cls.dtype and _kind_of(obj) == cls.kind

    def text(cls) -> str:
        """What `tensor.type()` says."""
        place = "" if cls.kind == "cpu" else f".{cls.kind}"
        return f"{_package()}{place}.{cls.__name__}"

    def __repr__(cls) -> str:
        return f"<class '{cls.text()}'>"


class SparseType(TensorType):
    """The types of sparse_coo tensors on the CPU: sparse.FloatTensor(indices, values, size)."""

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        from tenon._tensor.sparse import sparse_coo_tensor

        if data and isinstance(data[0], Tensor):
            return sparse_coo_tensor(*data, device=device)
        sizes = data[0] if len(data) == 1 and not isinstance(data[0], int) else data or (0,)
        row = _C._ops.empty((len(sizes), 0), dtype=_C.int64, device=device)
        values = _C._ops.empty(0, dtype=cls.dtype, device=device)
        return sparse_coo_tensor(row, values, tuple(sizes))


def _kind_of(tensor: Tensor) -> str:
    """Where a tensor lies: the kind of device; "sparse" of a sparse one on the CPU."""
    kind = tensor.device.type
    return SPARSE if kind == "cpu" and tensor.layout is _C.sparse_coo else kind


_known: dict[tuple[str, str], TensorType] = {}


def find(name: str, kind: str) -> TensorType | None:
    """The type called `name`, "FloatTensor", on devices of a kind, if there is one."""
    dtype = ELEMENTS.get(name.removesuffix("Tensor")) if name.endswith("Tensor") else None
    if dtype is None:
        return None
    if (name, kind) not in _known:
        doc = f"Tensors of dtype {dtype} on devices of the kind '{kind}'."
        fields = {"dtype": dtype, "kind": kind, "__doc__": doc, "__module__": __name__}
        _known[name, kind] = (SparseType if kind == SPARSE else TensorType)(name, (), fields)
    return _known[name, kind]


def member(module: str, name: str, kind: str) -> TensorType:
    """`find` for a module's __getattr__."""
    found = find(name, kind)
    if found is None:
        raise AttributeError(f"module '{module}' has no attribute '{name}'", name=name)
    return found


def parse(text: str) -> TensorType | None:
    """The type that is written "torch.FloatTensor" or "torch.cuda.FloatTensor", if it is one."""
    package, _, rest = text.partition(".")
    kind, _, name = rest.rpartition(".")
    return find(name, kind or "cpu") if package in ("tenon", "torch") else None


def type_of(tensor: Tensor) -> str:
    """What `tensor.type()` says."""
    for element, dtype in ELEMENTS.items():
        if dtype is tensor.dtype:
            found = find(f"{element}Tensor", _kind_of(tensor))
            return str(dtype) if found is None else found.text()
    return str(tensor.dtype)


def convert(tensor: Tensor, dtype: Any, non_blocking: bool) -> Tensor:
    """What `tensor.type(dtype)` gives: `dtype` is one, or a type of tensors, or its name."""
    wanted = parse(dtype) if isinstance(dtype, str) else dtype
    wanted = _C.get_default_dtype() if wanted is _C.Tensor else wanted
    if isinstance(wanted, TensorType):
        here = _kind_of(tensor) == wanted.kind
        place = tensor.device if here else wanted.kind
        return tensor.to(place, wanted.dtype, non_blocking=non_blocking)
    if wanted is None:
        raise ValueError(f"invalid type: {dtype!r}")
    if not isinstance(wanted, _C.dtype):
        raise TypeError(f"dtype must be a type, str, or dtype object, not {dtype!r}")
    return tensor.to(wanted, non_blocking=non_blocking)
