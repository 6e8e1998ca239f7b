"""Methods of Tensor that are written in Python."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tenon import _C
from tenon._C import Tensor, device, dtype
from tenon._device import streams


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: dtype | None = None,
    device: device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A copy of `data` with this tensor's dtype and device unless others are given."""
    if isinstance(data, Tensor):
        data = data.detach().cpu().tolist()
    return _C.tensor(
        data,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
    )


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replaces every element by what `callable` makes of it."""
    values = [callable(v) for v in self.detach().reshape(-1).tolist()]
    with _C.no_grad():
        return self.copy_(_C.tensor(values, dtype=self.dtype).view(self.shape))


def type_or_convert(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without arguments the name of dtype and device, "torch.cuda.FloatTensor"; else the tensor
    with another dtype, or of such a type, which may be on another device."""
    from tenon._tensor import tensor_types as types

    return types.type_of(self) if dtype is None else types.convert(self, dtype, non_blocking)


def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A tensor of these sizes, with any values, or with this data, with the tensor's dtype and
    device."""
    from tenon._tensor import tensor_types as types

    return types.make(data, self.dtype, self.device if device is None else device)


def record_stream(self: Tensor, stream: Any) -> None:
    """Says that work on `stream` uses the tensor's memory: it is not given to others before that is
    done. Tenon's own operators and copies need no such note."""
    if not isinstance(stream, streams.Stream):
        raise TypeError(f"record_stream() takes a Stream, not {type(stream).__name__}")
    _C._record_stream(self, stream._stream.value)


class DisableTorchFunctionSubclass:
    """Inside it, subclasses of Tensor are treated as Tensor."""

    def __enter__(self) -> None:
        _C._disable_overrides(1)

    def __exit__(self, *exc: object) -> None:
        _C._disable_overrides(-1)


_C.DisableTorchFunctionSubclass = DisableTorchFunctionSubclass


def __init_subclass__(cls: type, **kwargs: Any) -> None:
    object.__init_subclass__(**kwargs)
    if cls.__torch_function__ is not _C._disabled_torch_function_impl:
        _C._watch_overrides()


def __torch_function__(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Runs func; tensors among the results become instances of the class."""
    from tenon import overrides

    return overrides._default(cls, func, types, args, kwargs)


def __dir__(self: Tensor) -> list[str]:
    return sorted({*dir(type(self)), *self.__dict__})


def _matrix_method(name: str) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module("tenon._tensor.matrix"), name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See tenon.{name}."
    return method


for _name in ("cholesky_inverse", "cholesky_solve", "matrix_power", "pinverse", "qr", "svd",
              "triangular_solve"):  # fmt: skip
    setattr(Tensor, _name, _matrix_method(_name))
del _name
for _method in (new_tensor, new, apply_, record_stream, __dir__):
    setattr(Tensor, _method.__name__, _method)
type_or_convert.__name__ = "type"  # a name that this file needs itself
Tensor.type = type_or_convert
for _method in (__init_subclass__, __torch_function__):
    setattr(Tensor, _method.__name__, classmethod(_method))
del _method
