"""state_dict and load_state_dict of a module: names, metadata, hooks, and what may go wrong."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import tenon
from tenon import Tensor
from tenon import __future__ as conversion
from tenon._tape.hooks import RemovableHandle, add_hook
from tenon.nn.parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _ModuleHook:
    """A load pre-hook that is also given its module, which keeps it and which it does not keep."""

    def __init__(self, hook: Callable[..., Any], module: Any | None = None) -> None:
        self.hook = hook
        self._module = None if module is None else weakref.ref(module)

    @property
    def module(self) -> Any:
        """The module, None where the hook is not given it."""
        return None if self._module is None else self._module()

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args) if self._module is None else self.hook(self._module(), *args)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hook, self.module

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _ModuleHook.__init__(self, *state)


class StateMixin:
    """The part of Module that turns it into a dictionary of tensors and back."""

    # Changes of a class's state layout are told apart by this number, kept in the metadata.
    _version: int = 1

    def get_extra_state(self) -> Any:
        """State that is no tensor; a class that overrides it gets an entry in the state_dict."""
        raise RuntimeError("get_extra_state() must be overridden before it is called")

    def set_extra_state(self, state: Any) -> None:
        """Takes back what get_extra_state returned."""
        raise RuntimeError("set_extra_state() must be overridden before it is called")

    # ---- Saving ----------------------------------------------------------------------------------

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, state_dict, prefix, local_metadata) runs after the entries are written."""
        hook._from_public_api = True
        return add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, prefix, keep_vars) runs before the entries are written."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                kept = keep_vars or is_lazy(param)  # which has nothing to detach
                destination[prefix + name] = param if kept else param.detach()
        for name, buf in self._buffers.items():
            if buf is not None and name not in self._non_persistent_buffers_set:
                kept = keep_vars or is_lazy(buf)
                destination[prefix + name] = buf if kept else buf.detach()
        if type(self).get_extra_state is not StateMixin.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by their full names, sharing memory."""
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead.",
                FutureWarning,
                stacklevel=2,
            )
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            answer = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if answer is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif answer is not None:
                destination = answer
        return destination

    # ---- Loading ---------------------------------------------------------------------------------

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs) runs before this module's entries are read."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        bound = _ModuleHook(hook, self if with_module else None)
        return add_hook(self._load_state_dict_pre_hooks, bound)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, incompatible_keys) runs after this module's entries were read."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def _load_entry(self, name: str, key: str, param: Tensor, value: Tensor, assign: bool) -> None:
        if conversion.get_swap_module_params_on_conversion():
            made = param.module_load(value, assign=assign)
            if isinstance(param, Parameter) and not isinstance(made, Parameter):
                made = Parameter(made, requires_grad=param.requires_grad)
            tenon.utils.swap_tensors(param, made)
            return
        if not assign:
            if param.is_meta and not value.is_meta:
                warnings.warn(
                    f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                    "parameter in the current model, which is a no-op. (Did you mean to pass "
                    "`assign=True` to assign items in the state dictionary to their corresponding "
                    "key in the module instead of copying them in place?)",
                    stacklevel=2,
                )
            param.copy_(value)
            return
        if isinstance(param, Parameter):
            if isinstance(value, Parameter):
                value.requires_grad_(param.requires_grad)
            else:
                value = Parameter(value, requires_grad=param.requires_grad)
        setattr(self, name, value)

    def _try_entry(
        self, name: str, key: str, param: Tensor, value: Any, assign: bool
    ) -> str | None:
        """Loads an entry; returns what has kept it from being loaded, if anything has."""
        if not isinstance(value, Tensor):
            return (
                f'While copying the parameter named "{key}", expected {_tensor_name()} or '
                f"Tensor-like object from checkpoint but received {type(value)}"
            )
        if is_lazy(param) and is_lazy(value):
            return None
        if param.dim() == 0 and tuple(value.shape) == (1,):
            value = value[0]  # old files keep numbers as vectors of one element
        if value.shape != param.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {value.shape} from "
                f"checkpoint, the shape in current model is {param.shape}."
            )
        try:
            with tenon.no_grad():
                self._load_entry(name, key, param, value, assign)
        except MemoryError:
            raise
        except Exception as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model '
                f"are {param.size()} and whose dimensions in the checkpoint are "
                f"{value.size()}, an exception occurred : {error.args}."
            )
        return None

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Reads the entries of this module alone; problems are appended to the three lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        own = {name: p for name, p in self._parameters.items() if p is not None}
        for name, buf in self._buffers.items():
            if buf is not None and name not in self._non_persistent_buffers_set:
                own[name] = buf
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, param in own.items():
            key = prefix + name
            if key in state_dict:
                problem = self._try_entry(name, key, param, state_dict[key], assign)
                error_msgs.extend([problem] if problem else [])
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + EXTRA_STATE
        if type(self).set_extra_state is not StateMixin.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if not strict:
            return
        for key in state_dict:
            if key.startswith(prefix) and key != extra_key:
                head, dot, _ = key[len(prefix) :].partition(".")
                if head not in (self._modules if dot else own):
                    unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies the entries of `state_dict` into parameters and buffers of the same names."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing_keys: list[str] = []
        unexpected_keys: list[str] = []
        error_msgs: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        # Hooks may change the dictionary, so they get one of their own.
        own_dict = OrderedDict(state_dict)
        if metadata is not None:
            own_dict._metadata = metadata

        problems = (missing_keys, unexpected_keys, error_msgs)
        _load_below(self, own_dict, "", metadata, assign, problems)
        if strict:
            for problem, keys in (("Unexpected", unexpected_keys), ("Missing", missing_keys)):
                if keys:
                    names = ", ".join(f'"{k}"' for k in keys)
                    error_msgs.insert(0, f"{problem} key(s) in state_dict: {names}. ")
        if error_msgs:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(
                    type(self).__name__, "\n\t".join(error_msgs)
                )
            )
        return _IncompatibleKeys(missing_keys, unexpected_keys)


def _load_below(
    module: Any,
    entries: Any,
    prefix: str,
    metadata: Any,
    assign: bool,
    problems: tuple[list[str], list[str], list[str]],
) -> None:
    """Loads a module and those in it; missing and unexpected keys and errors are added."""
    local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local_metadata["assign_to_params_buffers"] = assign
    module._load_from_state_dict(entries, prefix, local_metadata, True, *problems)
    for name, child in module._modules.items():
        if child is not None:
            below = prefix + name + "."
            chosen = {k: v for k, v in entries.items() if k.startswith(below)}
            _load_below(child, chosen, below, metadata, assign, problems)
    incompatible = _IncompatibleKeys(problems[0], problems[1])
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, incompatible) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                "expected to return new values, if incompatible_keys need to be "
                "modified, it should be done inplace."
            )


def _tensor_name() -> str:
    return f"{Tensor.__module__}.{Tensor.__qualname__}"
