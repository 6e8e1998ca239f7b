"""The modules that archives become."""

from __future__ import annotations

from typing import Any

from tenon import jit
from tenon._program.script import ScriptGraph


class ArchiveModule(jit._ScriptedModule, jit.ScriptModule):
    """A module of a TorchScript archive: its class has the methods that the archive's has."""

    _archive_kind: Any

    @property
    def code(self) -> str:
        return str(self._archive_kind.text_of("forward"))

    @property
    def graph(self) -> Any:
        return ScriptGraph(self._archive_kind.tree_of("forward"))

    inlined_graph = graph

    def _get_name(self) -> str:
        return "RecursiveScriptModule"


def module_class(kind: Any) -> type:
    """The class of an archive's modules of a kind."""

    def method(name: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return kind.function(name)(self, *args, **kwargs)

        call.__name__ = name
        call.__signature__ = kind.signature(name)  # type: ignore[attr-defined]
        return call

    own = {name: method(name) for name in kind.methods()}
    return type(kind.short_name, (ArchiveModule,), {**own, "_archive_kind": kind})
