"""Which modules are running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import _C, Tensor
from tenon.autograd.graph import register_multi_grad_hook
from tenon.nn.modules import module as modules
from tenon.nn.modules.module import Module
from tenon.utils._pytree import tree_flatten

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """While it is entered, `parents` are the names of the modules that are running, forward or in
    a backward pass, and "Global": a module that the program calls has its class's name, what is
    inside has its path behind it."""

    def __init__(self) -> None:
        self._running: list[tuple[Module, str]] = []
        self._backward: tuple[int, set[str]] = 0, set()  # a pass, and whose part of it has begun
        self._handles: list[Any] = []

    @property
    def parents(self) -> set[str]:
        """The modules by name."""
        now, _ = _C._current_pass()
        names = {"Global", *(name for _, name in self._running)}
        return names | self._backward[1] if now and now == self._backward[0] else names

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is running."""
        return bool(_C._current_pass()[0])

    def _name(self, module: Module) -> str:
        for outer, name in reversed(self._running):
            for path, inner in outer.named_modules():
                if inner is module:
                    return f"{name}.{path}" if path else name
        return type(module).__name__

    def _on_gradients(self, value: Any, act: Callable[[set[str]], None]) -> None:
        """act(names) when the gradients of a value's tensors have come."""
        found = [t for t in tree_flatten(value)[0] if isinstance(t, Tensor) and t.requires_grad]

        def arrived(grads: Any) -> None:
            now, _ = _C._current_pass()
            if self._backward[0] != now:
                self._backward = now, set()
            act(self._backward[1])

        if found:
            self._handles.append(register_multi_grad_hook(found, arrived))

    def _enter(self, module: Module, args: Any) -> None:
        name = self._name(module)
        self._running.append((module, name))
        self._on_gradients(args, lambda names: names.discard(name))

    def _leave(self, module: Module, args: Any, result: Any) -> None:
        name = ""
        while self._running and not name:
            last, found = self._running.pop()
            name = found if last is module else ""
        if name:
            self._on_gradients(result, lambda names: names.add(name))

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._running.clear()
