"""Methods of Tensor that are written in Python."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from tenon import _C
from tenon._C import Tensor, device, dtype
from tenon._submodules import imported


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: dtype | None = None,
    device: device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A copy of `data` with this tensor's dtype and device unless others are given."""
    dtype = self.dtype if dtype is None else dtype
    device = self.device if device is None else device
    if isinstance(data, Tensor):
        copy = data.detach().to(device, dtype, copy=True)
        return copy.requires_grad_() if requires_grad else copy
    return _C.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the one whose steps in memory are the longest to the shortest.
    ambiguity_check: whether there must be one order only, or memory formats of which the tensor
    must then have one."""
    formats = [] if isinstance(ambiguity_check, bool) else ambiguity_check
    if not isinstance(formats, list) or any(not isinstance(f, _C.memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides = self.stride()
    order = tuple(sorted(range(self.dim()), key=lambda d: (-strides[d], d)))
    if ambiguity_check is False or (len(set(strides)) == self.dim() and 1 not in self.shape):
        return order
    if sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats."
        )
    return order


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What a parameter of this name becomes when `load_state_dict` finds `other` for it."""
    return other.detach() if assign else self.copy_(other).detach()


def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """See nn.functional.prelu."""
    from tenon.nn import functional

    return functional.prelu(self, weight)


def dequantize(self: Tensor) -> Tensor:
    """The values as float32."""
    return self.float()


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replaces every element by what `callable` makes of it."""
    values = [callable(v) for v in self.detach().reshape(-1).tolist()]
    for v in values:
        if isinstance(v, str):
            raise TypeError(f"apply_: callable must return numbers, not {v!r}")
    with _C.no_grad():
        return self.copy_(_C.tensor(values, dtype=self.dtype).view(self.shape))


def type_or_convert(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without arguments the name of dtype and device, "torch.cuda.FloatTensor"; else the tensor
    with another dtype, or of such a type, which may be on another device."""
    from tenon._tensor import tensor_types as types

    return types.type_of(self) if dtype is None else types.convert(self, dtype, non_blocking)


def new(self: Tensor, *data: Any, size: Any = None, device: Any = None) -> Tensor:
    """A tensor of these sizes, with any values, or with this data, with the tensor's dtype and
    device."""
    from tenon._tensor import tensor_types as types

    data = data if size is None else (*data, _C.Size(size))
    if self.layout is not _C.strided:
        from tenon._tensor.sparse import new_of

        return new_of(self, data, device)
    return types.make(data, self.dtype, self.device if device is None else device)


def __rdiv__(self: Tensor, other: Any) -> Tensor:
    """other / self, by the name that Python 2 had for it."""
    return self.reciprocal() * other


def tensor_split(self: Tensor, indices_or_sections: Any = None, dim: int = 0, **names: Any) -> Any:
    """See tenon.tensor_split."""
    from tenon._tensor import functions

    return functions.tensor_split(self, indices_or_sections, dim, **names)


def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """See tenon.nonzero_static."""
    from tenon._tensor import segments

    return segments.nonzero_static(self, size=size, fill_value=fill_value)


def histogram(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """See tenon.histogram."""
    from tenon._tensor import functions

    return functions.histogram(self, *args, **kwargs)


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Gives self other sizes over its memory, which moves where it is too small; what is new in it
    is not set. Its own sizes leave it as it lies, unless a memory format is given."""
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    chosen = _C.contiguous_format if memory_format is None else memory_format
    if shape == tuple(self.shape):
        if memory_format is None or self.is_contiguous(memory_format=chosen):
            return self
    shown = _C._ops.empty(shape, dtype=self.dtype, device=self.device, memory_format=chosen)
    start = self.storage_offset()
    held = self.untyped_storage().nbytes() // self.element_size()
    if start + shown.numel() <= held:
        return self.set_(self, start, shape, shown.stride())
    memory = self.new_empty(start + shown.numel())
    memory[:held].copy_(self.as_strided((held,), (1,), 0))
    return self.set_(memory, start, shape, shown.stride())


_FORMATS = (_C.channels_last, _C.channels_last_3d, _C.contiguous_format)


def _lies(t: Tensor, memory_format: Any) -> bool:
    """Whether a tensor of as many dimensions as the format has lies that way."""
    dims = {_C.channels_last: 4, _C.channels_last_3d: 5}.get(memory_format, t.dim())
    return t.dim() == dims and t.is_contiguous(memory_format=memory_format)


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """resize_ to the sizes of another tensor."""
    if not isinstance(the_template, Tensor):
        kind = type(the_template).__name__
        raise TypeError(
            f"resize_as_(): argument 'the_template' (position 2) must be Tensor, not {kind}"
        )
    if memory_format is _C.preserve_format:
        memory_format = next((f for f in _FORMATS if _lies(the_template, f)), None)
    return self.resize_(tuple(the_template.shape), memory_format=memory_format)


def __reversed__(self: Tensor) -> Tensor:
    """The elements along the first dimension from the last to the first."""
    return self.flip(0) if self.ndim else self


def record_stream(self: Tensor, stream: Any) -> None:
    """Says that work on `stream` uses the tensor's memory: it is not given to others before that is
    done. Tenon's own operators and copies need no such note."""
    from tenon._device.streams import Stream  # few programs have one, and it costs time to import

    if not isinstance(stream, Stream):
        raise TypeError(f"record_stream() takes a Stream, not {type(stream).__name__}")
    _C._record_stream(self, stream._stream.value)


class DisableTorchFunctionSubclass(_C._Region):
    """Inside it, subclasses of Tensor are treated as Tensor."""

    def _region(self) -> tuple[Any, ...]:
        return _C._disable_overrides, (1,), _C._disable_overrides, (-1,)


_C.DisableTorchFunctionSubclass = DisableTorchFunctionSubclass


def __init_subclass__(cls: type, **kwargs: Any) -> None:
    object.__init_subclass__(**kwargs)
    if cls.__torch_function__ is not _C._disabled_torch_function_impl:
        _C._watch_overrides()
        _give_asking_members(cls)


def _give_asking_members(cls: type) -> None:
    """A protocol of the program's own hears of attributes, too."""
    if not str(getattr(cls.__torch_function__, "__module__", "")).startswith("tenon."):
        from tenon._tape import asking_members  # few programs have such a class

        asking_members.give(cls)


def _make_wrapper_subclass(cls: type, size: Any, *args: Any, **kwargs: Any) -> Tensor:
    """A tensor of a class with `__torch_dispatch__`, without memory of its own."""
    from tenon._tape.wrapped import make_wrapper_subclass  # few programs have one

    return make_wrapper_subclass(cls, size, *args, **kwargs)


def __torch_function__(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Runs func; tensors among the results become instances of the class."""
    return _overrides()._default(cls, func, types, args, kwargs)


@cache
def _overrides() -> Any:
    from tenon import overrides  # few programs have classes of tensors, and it costs time to import

    return overrides


def __array_wrap__(
    self: Tensor, array: Any, context: Any = None, return_scalar: bool = False
) -> Tensor:
    """What NumPy makes of its results where a tensor took part: a tensor again."""
    import numpy as np

    return _C.from_numpy(np.asarray(array))


def from_array(o: Any) -> Any:
    """The tensor over a NumPy array, None for anything else."""
    numpy = sys.modules.get("numpy")
    return _C.from_numpy(o) if numpy is not None and isinstance(o, numpy.ndarray) else None


def __array_namespace__(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """`tenon.array_api`, whose functions follow the array API standard."""
    namespace = imported("tenon.array_api")
    if api_version not in (None, *namespace.VERSIONS):
        raise ValueError(
            f"__array_namespace__: api_version is one of {', '.join(namespace.VERSIONS)}, "
            f"not {api_version!r}"
        )
    return namespace


def to_device(self: Tensor, device: device | str, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device, by the name that the array API standard has for it."""
    if stream is not None:
        raise ValueError("to_device: copies are ordered by the current stream; stream is None")
    return self.to(device)


def __dir__(self: Tensor) -> list[str]:
    return sorted({*dir(type(self)), *self.__dict__})


def _later(module: str, name: str) -> Any:
    """A method that is a function of a module that is imported when it is first called."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(imported(f"tenon._tensor.{module}"), name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See tenon.{name}."
    return method


for _name in ("cholesky_inverse", "cholesky_solve", "lu", "lu_solve", "matrix_power", "pinverse",
              "qr", "svd", "triangular_solve"):  # fmt: skip
    setattr(Tensor, _name, _later("matrix", _name))
for _name in ("is_conj", "is_neg", "is_same_size", "map_", "map2_", "orgqr"):
    setattr(Tensor, _name, _later("names", _name))
Tensor._repr_html_ = _later("html", "_repr_html_")
for _name in ("stft", "istft"):
    setattr(Tensor, _name, _later("signal", _name))
for _name in ("to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr",
              "to_sparse_bsc"):  # fmt: skip
    setattr(Tensor, _name, _later("sparse", _name))
del _name
for _method in (__array_namespace__, __array_wrap__, __rdiv__, __reversed__, new_tensor, new,
                apply_, dequantize, dim_order, histogram, module_load, nonzero_static, prelu,
                record_stream, resize_, resize_as_, tensor_split, to_device, __dir__):  # fmt: skip
    setattr(Tensor, _method.__name__, _method)
type_or_convert.__name__ = "type"  # a name that this file needs itself
Tensor.type = type_or_convert
for _method in (__init_subclass__, __torch_function__):
    setattr(Tensor, _method.__name__, classmethod(_method))
Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
del _method
