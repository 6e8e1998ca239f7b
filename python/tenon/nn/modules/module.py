"""Module: the base class of everything that has parameters.

Attributes that are parameters, buffers or modules are registered when they are assigned. See
_slots.py for how they are found again, _state.py for state_dict and _calls.py for hooks.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

import tenon
from tenon import Tensor
from tenon import __future__ as conversion
from tenon._tensor.functions import dtype_named
from tenon.nn.modules import _calls, _registration
from tenon.nn.modules._calls import (  # noqa: F401 - PyTorch's names are found here
    CallMixin,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from tenon.nn.modules._registration import (  # noqa: F401 - PyTorch's names are found here
    _global_buffer_registration_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered_buffer,
    registered_module,
    registered_parameter,
)
from tenon.nn.modules._slots import SLOT_NAMES, Slots, SlotsMixin
from tenon.nn.modules._state import EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX
from tenon.nn.modules._state import StateMixin, _IncompatibleKeys
from tenon.nn.parameter import Buffer, Parameter

__all__ = [
    "Module",
    "_EXTRA_STATE_KEY_SUFFIX",
    "_IncompatibleKeys",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_HOOK_DICTS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _kind(cls: type) -> str:
    """By which name users write a class of the library."""
    return f"{_typename(cls).partition('.')[0]}.nn.{cls.__name__}"


def _typename(value: object) -> str:
    if isinstance(value, Tensor):
        return value.type()
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__ in ("builtins", "", None):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Reads the forms to(device, dtype), to(dtype), to(tensor): device, dtype, flag, format."""
    known = {"device", "dtype", "tensor", "other", "non_blocking", "copy", "memory_format"}
    unknown = set(kwargs) - known
    if unknown:
        raise TypeError(f"to() received an invalid keyword argument {sorted(unknown)[0]!r}")
    other = kwargs.get("tensor", kwargs.get("other"))
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    non_blocking = kwargs.get("non_blocking", False)
    rest, dtype = [dtype_named(a) for a in args], dtype_named(dtype)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], tenon.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], tenon.dtype)):
            dtype = rest.pop(0)
    if rest:
        non_blocking = rest.pop(0)
    if len(rest) > 1 or not isinstance(non_blocking, bool):
        raise TypeError(f"to() received an invalid combination of arguments: {args}")
    if rest or "copy" in kwargs:
        raise RuntimeError(".to() does not accept copy argument")
    if other is not None:
        device, dtype = other.device, other.dtype
    if device is not None:
        device = tenon.device(device)
    return device, dtype, non_blocking, kwargs.get("memory_format")


_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)


class _Forward(Protocol[_P, _R_co]):
    """What has a forward: a call takes its arguments and gives its result."""

    def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...


class Module(StateMixin, CallMixin, SlotsMixin):
    """A piece of a network: parameters, buffers, child modules, and `forward`.

    Subclasses call super().__init__() first, assign parameters and modules to attributes, and
    define forward(); calling the module runs its hooks and forward().
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]

    # A class that sets it gets the constructor's arguments passed along (several base classes).
    call_super_init: bool = False

    if TYPE_CHECKING:
        # Any function will do in a subclass.
        forward: Callable[..., Any]

        def __call__(self: _Forward[_P, _R_co], *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            name = f"{type(self).__name__}.__init__()"
            if kwargs:
                word = next(iter(kwargs))
                raise TypeError(f"{name} got an unexpected keyword argument '{word}'")
            if args:
                raise TypeError(
                    f"{name} takes 1 positional argument but {len(args) + 1} were given"
                )
        own = self.__dict__
        own["training"] = True
        self._replace_slots("_parameters", ())
        self._replace_slots("_buffers", ())
        own["_non_persistent_buffers_set"] = set()
        own["_is_full_backward_hook"] = None
        for hooks in _HOOK_DICTS:
            own[hooks] = OrderedDict()
        self._replace_slots("_modules", ())
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ---- Attributes ------------------------------------------------------------------------------

    def _check_name(self, kind: str, name: Any, known: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if hasattr(self, name) and name not in known:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            got = f", got: {name}" if kind == "module" else ""
            raise KeyError(f'{kind} name can\'t contain "."{got}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is part of the state but not trained.

        A buffer that is not persistent is left out of the state_dict.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                f"({_typename(Tensor)} or None required)"
            )
        self._buffers[name] = registered_buffer(self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter; None keeps the name without a tensor."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                    f"({_kind(Parameter)} or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model "
                    f"parameters must be created explicitly. To express '{name}' "
                    "as a function of another Tensor, compute the value in "
                    "the forward() method."
                )
            param = registered_parameter(self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = registered_module(self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as add_module."""
        self.add_module(name, module)

    def _forget(self, name: str, *but: str) -> None:
        """Makes room for an attribute of another kind."""
        own = self.__dict__
        for slot in SLOT_NAMES.difference(but):
            if name in own.get(slot, ()):
                del own[slot][name]
        if "_buffers" not in but:
            own.get("_non_persistent_buffers_set", set()).discard(name)
        own.pop(name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        params = own.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            if name not in params:
                self._forget(name)
            self.register_parameter(name, value)
            return
        if params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' "
                    f"({_kind(Parameter)} or None expected)"
                )
            self.register_parameter(name, value)
            return
        modules = own.get("_modules")
        if isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            if name not in modules:
                self._forget(name)
            modules[name] = registered_module(self, name, value)
            return
        if modules is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' "
                    f"({_kind(Module)} or None expected)"
                )
            modules[name] = registered_module(self, name, value)
            return
        buffers = own.get("_buffers")
        if isinstance(value, Tensor) or value is None or (buffers and name in buffers):
            marked = isinstance(value, Buffer)
            if buffers is not None and (marked or name in buffers):
                self._set_buffer(name, value, marked)
                return
            if marked:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
        if name in SLOT_NAMES:
            self._replace_slots(name, value)
            return
        object.__setattr__(self, name, value)
        if name == "__dict__":
            Module.__setstate__(self, {})
        elif name == "__class__":  # which may read attributes in another way
            for slot in SLOT_NAMES.intersection(own):
                self._replace_slots(slot, own[slot])

    def _set_buffer(self, name: str, value: Any, marked: bool) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(value)}' as buffer '{name}' "
                f"({_typename(Buffer)}, {_typename(Tensor)} or None expected)"
            )
        if marked:
            # A class may have a register_buffer of its own that knows nothing of `persistent`.
            self.register_buffer(name, value, **({} if value.persistent else {"persistent": False}))
            return
        self._buffers[name] = registered_buffer(self, name, value)

    def _replace_slots(self, name: str, entries: Any) -> None:
        old = self.__dict__.get(name)
        if isinstance(old, Slots):
            for key in old:
                self.__dict__.pop(key, None)
        self.__dict__[name] = Slots(self, entries)

    def __delattr__(self, name: str) -> None:
        for slot in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(slot, ()):
                del self.__dict__[slot][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        own = self.__dict__
        for hooks in _HOOK_DICTS:
            own.setdefault(hooks, OrderedDict())
        own.setdefault("_non_persistent_buffers_set", set())
        own.setdefault("_is_full_backward_hook", None)
        for slot in ("_parameters", "_buffers", "_modules"):
            own[slot] = Slots(self, own.get(slot, ()))

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        names.update(self._parameters, self._buffers, self._modules)
        return sorted(n for n in names if not n[:1].isdigit())

    def summary(self, *args: Any, **kwargs: Any) -> str:
        """A table of the modules and their parameters; with arguments for forward also of the
        shapes of their results, for which it is called once in eval mode without gradients.

        >>> print(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).summary(tn.zeros(2, 3)))
        """
        from tenon.nn.modules._summary import summary

        return summary(self, args, kwargs)

    # ---- Looking things up by dotted name --------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The module below this one that `target`, like "net.0.conv", names."""
        module: Module = self
        for step in target.split(".") if target else ():
            if not hasattr(module, step):
                raise AttributeError(f"{module._get_name()} has no attribute `{step}`")
            module = getattr(module, step)
            if not isinstance(module, Module):
                raise AttributeError(f"`{step}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` where `target` names; strict: there must be a module already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter that `target` names."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer that `target` names."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return getattr(module, name)

    # ---- Changing every tensor -------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replaces every parameter's and buffer's data by fn(data); parameters stay the same,
        unless `tenon.__future__` says otherwise."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        swaps = conversion.get_swap_module_params_on_conversion()
        overwrites = conversion.get_overwrite_module_params_on_conversion() and not swaps
        for name, param in self._parameters.items():
            if param is None:
                continue
            with tenon.no_grad():
                grad, made = param.grad, fn(param)
                param.grad = None
                if swaps:
                    tenon.utils.swap_tensors(param, Parameter(made, param.requires_grad))
                elif overwrites:
                    param = self._parameters[name] = Parameter(made, param.requires_grad)
                else:
                    param.data = made
                if grad is None:
                    continue
                converted = fn(grad)
                if overwrites:
                    grad = converted.requires_grad_(grad.requires_grad)
                else:
                    grad.data = converted
                param.grad = grad
        for name, buf in self._buffers.items():
            if buf is not None:
                self._buffers[name] = fn(buf)
        return self

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Calls fn on every module below, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Moves tensors to a device, and floating point tensors to a dtype, in place."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex "
                f"dtypes, but got desired dtype={dtype}"
            )
        if dtype is not None and dtype.is_complex:
            warnings.warn(
                "Complex modules are a new feature: some modules might not work as expected when "
                "using complex tensors as parameters or buffers.",
                stacklevel=2,
            )

        def convert(t: Tensor) -> Tensor:
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use Module.to_empty() instead "
                    "of Module.to() when moving a module from meta to a different device."
                )
            kind = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, kind, non_blocking, memory_format=memory_format)
            return t.to(device, kind, non_blocking)

        return self._apply(convert)

    def cpu(self) -> Self:
        """Moves all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Moves all parameters and buffers to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def type(self, dst_type: Any) -> Self:
        """Converts all parameters and buffers to `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def _float_to(self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Self:
        """Converts floating point parameters and buffers to float32."""
        return self._float_to(tenon.float32)

    def double(self) -> Self:
        """Converts floating point parameters and buffers to float64."""
        return self._float_to(tenon.float64)

    def half(self) -> Self:
        """Converts floating point parameters and buffers to float16."""
        return self._float_to(tenon.float16)

    def bfloat16(self) -> Self:
        """Converts floating point parameters and buffers to bfloat16."""
        return self._float_to(tenon.bfloat16)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Gives every tensor new memory on `device` without copying values."""
        return self._apply(lambda t: tenon.empty_like(t, device=device), recurse=recurse)

    def share_memory(self) -> Self:
        """Moves tensors to memory that other processes can map."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    # ---- Iterating -------------------------------------------------------------------------------

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for module_prefix, module in modules:
            for name, member in get_members_fn(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{module_prefix}.{name}" if module_prefix else name), member

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their full names."""
        yield from self._named_members(
            lambda m: m._parameters.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their full names."""
        yield from self._named_members(
            lambda m: m._buffers.items(), prefix, recurse, remove_duplicate
        )

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below, with their names."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their full names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    # ---- Modes -----------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Switches this module and all below it to training mode, or out of it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """The same as train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Says whether the parameters record gradients."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or fills them with zeros."""
        if getattr(self, "_is_replica", False):
            warnings.warn(
                "Calling .zero_grad() from a module created with nn.DataParallel() has no effect.",
                stacklevel=2,
            )
        for param in self.parameters():
            grad = param.grad
            if grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def _replicate_for_data_parallel(self) -> Self:
        """The module for another device: with the same buffers and children, which are its own to
        replace, and without parameters."""
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._is_replica = True
        return replica

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the module's forward in place, with the arguments of `tenon.compile`."""
        from tenon.compiler import CompiledForward

        self.__dict__["forward"] = CompiledForward(self, args, kwargs)

    # ---- Text ------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses of the module's text."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({n}): {_addindent(repr(m), 2)}" for n, m in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join(lines + children)
        return f"{self._get_name()}(\n  {body}\n)"


class _Tables(types.ModuleType):
    """A dictionary of global hooks may be assigned here: modules look at the new one then."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name.startswith("_global_") and hasattr(_calls, name):
            _calls.assign_hooks(name, value)
        elif name.startswith("_global_") and hasattr(_registration, name):
            setattr(_registration, name, value)


sys.modules[__name__].__class__ = _Tables
