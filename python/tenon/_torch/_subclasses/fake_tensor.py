"""Tensors without values that say which device they stand for: sizes and dtypes of a program's
results, without its memory. A mode makes all of them; each holds a tensor of the device meta."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tenon
from tenon import Tensor
from tenon._tensor.print import marked
from tenon.utils._python_dispatch import TorchDispatchMode
from tenon.utils._pytree import tree_flatten, tree_map
from tenon.utils.weak import WeakTensorKeyDictionary

_VALUES = ("item", "_local_scalar_dense", "nonzero", "equal", "is_nonzero", "unique", "tolist")


class UnsupportedFakeTensorException(RuntimeError):
    """What cannot be told of tensors without values."""


class DynamicOutputShapeException(RuntimeError):
    """The sizes of a result hang on values."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class DataDependentOutputException(RuntimeError):
    """The result is a value."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


def is_fake(x: object) -> bool:
    """Whether a tensor stands for another one."""
    return isinstance(x, FakeTensor)


def unset_fake_temporarily() -> AbstractContextManager[None]:
    """A block in which tensors have values: those that are made outside of a mode have."""
    return nullcontext()


class FakeTensor(Tensor):
    """A tensor that has all but values; made by FakeTensorMode."""

    elem: Tensor
    fake_mode: FakeTensorMode
    fake_device: Any

    @staticmethod
    def __new__(cls: type, fake_mode: FakeTensorMode, elem: Tensor, device: Any) -> Any:
        made = Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype,
            device=tenon.device(device), requires_grad=elem.requires_grad,
        )  # fmt: skip
        made.elem, made.fake_mode, made.fake_device = elem.detach(), fake_mode, made.device
        return made

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        return fake_mode.from_tensor(t)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        flat = tree_flatten((args, kwargs or {}))[0]
        mode = next(x.fake_mode for x in flat if isinstance(x, FakeTensor))
        return mode.dispatch(func, args, kwargs or {})

    def item(self) -> Any:
        raise DataDependentOutputException(tenon.ops.aten._local_scalar_dense.default)

    __int__ = __float__ = __bool__ = item

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        more = [f"size={tuple(self.shape)}"]
        if self.device.type != "cpu":
            more.insert(0, f"device='{self.device}'")
        if self.dtype is not tenon.get_default_dtype():
            more.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            more.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            more.append("requires_grad=True")
        return marked(self, f"FakeTensor(..., {', '.join(more)})")


class FakeTensorMode(TorchDispatchMode):
    """A block in which all tensors that are made are FakeTensors, and what they meet."""

    def __init__(
        self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False,
        shape_env: Any = None, static_shapes: bool | None = None, export: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.allow_non_fake_inputs, self.shape_env = allow_non_fake_inputs, shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes

    def from_tensor(self, tensor: Tensor, **options: Any) -> Any:
        """A stand-in for a tensor, with its sizes, strides, dtype and device."""
        if isinstance(tensor, FakeTensor):
            if tensor.fake_mode is not self:
                raise AssertionError("Mixing fake modes NYI")
            return tensor
        with tenon.no_grad():
            elem = tenon.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
            )
        fake = FakeTensor(self, elem.requires_grad_(tensor.requires_grad), tensor.device)
        return tenon.nn.Parameter(fake) if isinstance(tensor, tenon.nn.Parameter) else fake

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        kwargs = kwargs or {}
        if not any(isinstance(x, FakeTensor) for x in tree_flatten((args, kwargs))[0]):
            return self.dispatch(func, args, kwargs)
        return func(*args, **kwargs)  # recorded, and then FakeTensor's

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The call on tensors of the device meta, with results that say where they would lie."""
        flat = tree_flatten((args, kwargs))[0]
        fakes = [x for x in flat if isinstance(x, FakeTensor)]
        for x in flat:
            real = isinstance(x, Tensor) and not isinstance(x, FakeTensor)
            if real and not self.allow_non_fake_inputs and not _is_new(func, x):
                named = (f"{k}={_text(v)}" for k, v in kwargs.items())
                shown = ", ".join([*map(_text, args), *named])
                raise AssertionError(
                    "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode "
                    f"with 'allow_non_fake_inputs'. Found in {func}({shown})"
                )
        name = func.overloadpacket.__name__
        if fakes and name in _VALUES:
            kind = DynamicOutputShapeException if name in ("nonzero", "unique") else None
            raise (kind or DataDependentOutputException)(func)
        device = kwargs.get("device")
        if device is None:
            placed = [x.device for x in fakes if x.dim()] or [x.device for x in fakes]
            device = placed[0] if placed else None
        if device is None:
            device = next((x.device for x in flat if isinstance(x, Tensor)), "cpu")
        if not fakes or kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": "meta"} if _takes_device(func, kwargs) else kwargs
        inner: dict[int, Any] = {}

        def bare(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            elem = x.elem if isinstance(x, FakeTensor) else x.detach().to("meta")
            if isinstance(x, FakeTensor):
                inner[id(elem)] = x
            return elem

        result = func(*tree_map(bare, args), **tree_map(bare, kwargs))

        def fake(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            known = inner.get(id(x))
            return FakeTensor(self, x.to("meta"), device) if known is None else known

        return tree_map(fake, result)


class FakeTensorConverter:
    """Stand-ins of tensors, one for each while both live."""

    def __init__(self) -> None:
        self._made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Tensor, **options: Any) -> Any:
        """The stand-in for a tensor, which a mode makes the first time."""
        known = self._made.get(t)
        fake = None if known is None else known()
        if fake is None or fake.fake_mode is not fake_mode:
            fake = fake_mode.from_tensor(t, **options)
            self._made[t] = weakref.ref(fake)
        return fake


def _is_new(func: Any, x: Tensor) -> bool:
    """Whether a tensor with values may meet stand-ins: numbers, and what an operator takes in."""
    return x.dim() == 0 or func.overloadpacket.__name__ in ("lift_fresh", "detach", "_to_copy")


def _takes_device(func: Any, kwargs: Any) -> bool:
    if kwargs.get("device") is not None:
        return True
    schema = getattr(func, "_schema", None)
    return any(a.name == "device" for a in getattr(schema, "arguments", ()))


def _text(x: Any) -> str:
    """An argument in a message: of a tensor with values its sizes alone."""
    plain = isinstance(x, Tensor) and not isinstance(x, FakeTensor)
    return f"tensor([...], size={tuple(x.shape)})" if plain else repr(x)
