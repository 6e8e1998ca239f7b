"""Which modules are running."""

from __future__ import annotations

from typing import Any

from tenon.nn.modules import module as modules
from tenon.nn.modules.module import Module

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """While it is entered, `parents` are the names of the modules that are running, and "Global": a
    module that the program calls has its class's name, what is inside has its path behind it."""

    def __init__(self) -> None:
        self.parents = {"Global"}
        self.is_bw = False
        self._running: list[tuple[Module, str]] = []
        self._handles: list[Any] = []

    def _name(self, module: Module) -> str:
        for outer, name in reversed(self._running):
            for path, inner in outer.named_modules():
                if inner is module:
                    return f"{name}.{path}" if path else name
        return type(module).__name__

    def _enter(self, module: Module, args: Any) -> None:
        del args
        self._running.append((module, self._name(module)))
        self.parents = {"Global", *(name for _, name in self._running)}

    def _leave(self, module: Module, args: Any, result: Any) -> None:
        del args, result
        while self._running and self._running.pop()[0] is not module:
            continue
        self.parents = {"Global", *(name for _, name in self._running)}

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
        self.parents = {"Global"}
