"""Hooks that see every parameter, buffer or module being registered anywhere."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tenon._tape.hooks import RemovableHandle, add_hook

_global_parameter_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_buffer_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()


def _registered(
    hooks: OrderedDict[int, Callable[..., Any]], module: Any, name: str, value: Any
) -> Any:
    for hook in hooks.values():
        answer = hook(module, name, value)
        if answer is not None:
            value = answer
    return value


def registered_parameter(module: Any, name: str, param: Any) -> Any:
    """The parameter that is to be kept, after the hooks have seen it."""
    return _registered(_global_parameter_registration_hooks, module, name, param)


def registered_buffer(module: Any, name: str, buffer: Any) -> Any:
    """The buffer that is to be kept, after the hooks have seen it."""
    return _registered(_global_buffer_registration_hooks, module, name, buffer)


def registered_module(module: Any, name: str, child: Any) -> Any:
    """The child that is to be kept, after the hooks have seen it."""
    return _registered(_global_module_registration_hooks, module, name, child)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, name, param) runs at every registration and may return a replacement."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, name, buffer) runs at every registration and may return a replacement."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """hook(module, name, child) runs at every registration and may return a replacement."""
    return add_hook(_global_module_registration_hooks, hook)
