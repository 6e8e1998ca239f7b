"""Tensors that a module owns: Parameter (trained) and Buffer (state that is not trained)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import tenon
from tenon import _C, Tensor
from tenon._tensor.called import name_of

_MARK = "_is_param"  # of a parameter that is of a class of its own


class _ParameterMeta(type(Tensor)):
    """isinstance(t, Parameter) is true of tensors of classes of their own with Parameter's mark."""

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, _MARK, False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that becomes a module's parameter when it is assigned to one of its attributes.

    It shares memory with `data` and requires a gradient unless told otherwise. Of a tensor of a
    class of its own it is one of that class, with a mark.
    """

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if type(data) is Tensor:
            return Tensor._make_subclass(cls, data, requires_grad)
        if data is None:
            data = tenon.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter data must be a tensor, not {type(data).__name__}")
        own = getattr(type(data), "_as_parameter", None)  # a class with parameters of its own
        if own is not None and cls is Parameter:
            return own(data, requires_grad)
        if issubclass(type(data), Parameter):
            return Tensor._make_subclass(cls, data, requires_grad)
        marked = data.detach().requires_grad_(requires_grad)
        if type(marked) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires "
                "that detach() returns an instance of the same type, but return type "
                f"{type(marked).__name__} was found instead. To use the type as a Parameter, "
                "please correct the detach() semantics defined by its __torch_dispatch__() "
                "implementation."
            )
        setattr(marked, _MARK, True)
        return marked

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        copied = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __repr__(self, **kwargs: Any) -> str:
        return "Parameter containing:\n" + super().__repr__(**kwargs)

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict())


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Parameter:
    """What a pickled parameter is rebuilt with; hooks are not kept."""
    return Parameter(data, requires_grad)


class _BufferMeta(type(Tensor)):
    """isinstance(t, Buffer) asks for the mark that Buffer(...) sets: the class adds no methods."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is Buffer:
            return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that becomes a module's buffer when it is assigned to one of its attributes."""

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:
        if data is None:
            data = tenon.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer


# What a tensor can tell or do before it has a shape.
_BEFORE_SHAPE = frozenset(
    "size copy_ is_complex is_floating_point half float double char short int long cuda cpu to "
    "get_device".split()
)
# Methods that are no operators, and so do not come to __torch_function__.
_OF_SHAPE = (
    "numel nelement dim ndimension stride storage_offset data_ptr is_contiguous item tolist "
    "numpy __len__ __getitem__ __setitem__ __iter__ __bool__ __float__ __int__ __array__ detach"
).split()


def _without_shape(what: object) -> ValueError:
    return ValueError(
        f"Attempted to use an uninitialized parameter in {what}. This error happens when you are "
        "using a `LazyModule` or explicitly manipulating `UninitializedParameter` objects. When "
        "using LazyModules call `forward` with a dummy batch to initialize the parameters before "
        "calling torch functions"
    )


class UninitializedTensorMixin:
    """A tensor that gets its shape later, and stays the same object when it does."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if name_of(func) not in _BEFORE_SHAPE:
            raise _without_shape(func)
        return _C._disabled_torch_function_impl(func, types, args, kwargs or {})

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Takes memory for a shape; values are left as they come."""
        # The dtype and device of now: the module may have been converted since.
        self.data = tenon.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self, **kwargs: Any) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            extra = {"requires_grad": self.requires_grad} if self.requires_grad else {}
            memo[id(self)] = type(self)(device=self.device, dtype=self.dtype, **extra)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype)


def _refuse(name: str) -> None:
    """Makes a method of the class raise: there is nothing yet that it could tell."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _without_shape(f"Tensor.{name}")

    method.__name__ = name
    setattr(UninitializedTensorMixin, name, method)


for _name in _OF_SHAPE:
    _refuse(_name)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet; see LazyLinear."""

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> UninitializedParameter:
        empty = tenon.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, empty, requires_grad)

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        """A plain tensor without elements, as which it may be filled like one of known shape."""
        return Tensor._make_subclass(Tensor, self, False)

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, **kwargs: Any
    ) -> UninitializedBuffer:
        empty = tenon.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, empty, requires_grad)


def is_lazy(param: object) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)
