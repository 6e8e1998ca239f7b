"""GraphModule: a module whose forward is generated from a graph."""

from __future__ import annotations

import copy
import itertools
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import tenon
from tenon._program.source_lines import keep_lines
from tenon.fx.graph import CodeGen, Graph, PythonCode
from tenon.nn import Module

_count = itertools.count()


# Layers whose text makes them anew.
_TOLD = {
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "Linear",
}  # fmt: skip


def _compiled(code: PythonCode) -> Any:
    """The forward function of a source, with lines that tracebacks can show."""
    name = f"<eval_with_key>.{next(_count)}"
    space = dict(code.globals)
    keep_lines(name, code.src, space)
    exec(compile(code.src, name, "exec"), space)
    return space["forward"]


def _copy_attribute(source: Any, target: Module, path: str) -> None:
    """Gives target what source has at a path, with modules on the way."""
    *prefix, name = path.split(".")
    for part in prefix:
        source = getattr(source, part)
        if not hasattr(target, part):
            target.add_module(part, Module())
        target = getattr(target, part)
    value = getattr(source, name)
    plain = isinstance(value, tenon.Tensor) and not isinstance(value, tenon.nn.Parameter)
    if plain and name not in getattr(target, "_buffers", {}):
        target.register_buffer(name, value)
    else:
        setattr(target, name, value)


class GraphModule(Module):
    """A module that runs a graph: `graph` is what it does, `code` the Python of it.

    After changes of the graph, `recompile()` makes forward anew.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # A class of its own, since forward is looked up in the class. Programs tell it by the name:
        # what they put in forward's place they put into the class.
        class GraphModuleImpl(cls):  # type: ignore[misc, valid-type]
            __module__ = cls.__module__

        return super().__new__(GraphModuleImpl)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        wanted = [str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for path in dict.fromkeys(wanted):
                self._take(root, path)
        else:
            missing = sorted(set(wanted) - set(root))
            if missing:
                raise RuntimeError(
                    f"Node referenced target {missing[0]} but that target was not provided in root!"
                )
            for path in sorted(dict.fromkeys(wanted), key=lambda p: p.count(".")):
                self._put(path, root[path])
        self.meta: dict[str, Any] = {}
        self.graph = graph

    def _take(self, root: Module, path: str) -> None:
        try:
            _copy_attribute(root, self, path)
        except AttributeError:
            raise AttributeError(
                f"the graph names '{path}', which {type(root).__name__} has not"
            ) from None

    def _put(self, path: str, value: Any) -> None:
        owner: Any = self
        *prefix, name = path.split(".")
        for part in prefix:
            if not hasattr(owner, part):
                owner.add_module(part, Module())
            owner = getattr(owner, part)
        plain = isinstance(value, tenon.Tensor) and not isinstance(value, tenon.nn.Parameter)
        if plain:
            owner.register_buffer(name, value)
        else:
            setattr(owner, name, value)

    @property
    def graph(self) -> Graph:
        return self.__dict__["_graph"]

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        g.owning_module = self
        self.__dict__["_graph"] = g
        self.recompile()

    @property
    def code(self) -> str:
        return self.__dict__["_code"]

    def recompile(self) -> PythonCode:
        """Makes forward of the graph as it is now."""
        tree = self.graph._codegen.pytree_info
        if tree is not None:
            self.__dict__.update(_in_spec=tree.in_spec, _out_spec=tree.out_spec)
        code = self.graph.python_code()
        self.__dict__["_code"] = code.src
        type(self).forward = _compiled(code)
        return code

    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a path, with empty modules on the way."""
        self._put(target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes the module at a path; False: there is none."""
        owner: Any = self
        *prefix, name = target.split(".")
        for part in prefix:
            owner = getattr(owner, part, None)
        if not isinstance(owner, Module) or name not in owner._modules:
            return False
        delattr(owner, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        used = {str(n.target) for n in self.graph.nodes if n.op in ("call_module", "get_attr")}
        for name, _ in list(self.named_modules(remove_duplicate=False)):
            held = any(
                u == name or u.startswith(f"{name}.") or name.startswith(f"{u}.") for u in used
            )
            if name and not held:
                self.delete_submodule(name)

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Writes a package: `module.py` with a class that makes the module anew, what it holds
        beside, and `state_dict.pt`. Layers whose text says all of them are made by it, others are
        pickled."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tenon.save(self.state_dict(), folder / "state_dict.pt")
        head = str(tenon.float32).split(".")[0]
        lines, left = [], []
        for i, (name, module) in enumerate(self.named_children()):
            text = repr(module)
            if type(module).__name__ not in _TOLD or type(module).__module__[:9] != "tenon.nn.":
                left.append(name)
                path = folder / (f"{name}.pt" if re.fullmatch(r"[\w-]+", name) else f"part-{i}.pt")
                tenon.save(module, path)
                text = f"{head}.load({str(path)!r}, weights_only=False)"
            lines.append(f"setattr(self, {name!r}, {text})")
        for name, t in self._buffers.items():
            if t is not None:
                made = f"{head}.empty({list(t.shape)}, dtype={t.dtype})"
                lines.append(f"self.register_buffer({name!r}, {made})")
        for name, t in self._parameters.items():
            if t is not None:
                made = f"{head}.nn.Parameter({head}.empty({list(t.shape)}, dtype={t.dtype}))"
                lines.append(f"setattr(self, {name!r}, {made})")
        state = str(folder / "state_dict.pt")
        lines.append(f"self.load_state_dict({head}.load({state!r}))")
        code = self.graph.python_code()
        imports = [f"import {head}", f"from {head}.nn import *"]
        for name, value in code.globals.items():
            if isinstance(value, float):
                imports.append(f"from math import {name}")
            elif isinstance(value, ModuleType):
                if value.__name__ != name:
                    imports.append(f"import {value.__name__} as {name}")
            else:
                imports.append(_imported(name, value))
        body = "\n".join(f"        {line}" for line in lines)
        forward = "\n".join(f"    {line}".rstrip() for line in code.src.strip().split("\n"))
        (folder / "module.py").write_text(
            "\n".join(dict.fromkeys(imports)) + f"\n\n\nclass {module_name}({head}.nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{body}\n\n{forward}\n",
            encoding="utf-8",
        )  # fmt: skip
        (folder / "__init__.py").write_text("from .module import *", encoding="utf-8")
        if left:
            warnings.warn(
                "Was not able to save the following children modules as reprs -saved as pickled "
                f"files instead: {left}",
                stacklevel=2,
            )

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        code = self.graph.python_code(verbose=True).src
        body = "".join(f"    {s}\n" if s.strip() else "\n" for s in code.strip().split("\n"))
        text = f"class {type(self).__name__}(torch.nn.Module):\n{body}"
        if print_output:
            print(text)
        return text

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        root = Module()
        root.__dict__.update(
            {
                k: copy.deepcopy(v, memo)
                for k, v in self.__dict__.items()
                if k not in ("_graph", "_code", "meta")
            }
        )
        made = GraphModule(root, copy.deepcopy(self.graph), type(self).__name__)
        memo[id(self)] = made
        made.meta = copy.deepcopy(self.meta, memo)
        return _with_hooks(made, self)

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = dict(self.meta)
        return _with_hooks(made, self)

    def __reduce__(self) -> Any:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code", "meta")}
        plain = copy.deepcopy(self.graph)
        plain.set_codegen(CodeGen())
        code = plain.python_code()
        names = _names_of(code.globals)
        return _restore, (state, code.src, names, type(self).__name__, self.graph._codegen)

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__str__()}\n{self.code}\n{hint}"


def _imported(name: str, value: Any) -> str:
    """The line that gives a module an object under a name."""
    place, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if value is type(None):
        return f"{name} = type(None)"
    if not place or not own or "<" in own:
        raise RuntimeError(f"to_folder: {value!r} is no function or class that can be imported")
    if "." not in own:
        return f"from {place} import {own} as {name}"
    return f"import {place}\n{name} = {place}.{own}"


def _names_of(space: dict[str, Any]) -> dict[str, Any]:
    """Globals of generated code, as pickle can write them."""
    import types

    return {
        k: ("module", v.__name__) if isinstance(v, types.ModuleType) else ("value", v)
        for k, v in space.items()
    }


def _restore(
    state: dict[str, Any], src: str, names: dict[str, Any], class_name: str, codegen: CodeGen
) -> GraphModule:
    """A pickled GraphModule: its code, traced again with modules as they are."""
    import importlib

    from tenon.fx._symbolic_trace import Tracer

    class KeepModules(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    space = {
        k: importlib.import_module(v) if kind == "module" else v for k, (kind, v) in names.items()
    }
    body = type(class_name, (Module,), {"forward": _compiled(PythonCode(src, space))})
    root = body()
    root.__dict__.update(state)
    graph = KeepModules().trace(root)
    graph.set_codegen(codegen)
    return _with_hooks(GraphModule(root, graph, class_name), root)


def _with_hooks(made: GraphModule, source: Module) -> GraphModule:
    """With the hooks of another module that are about its graph."""
    for hook in source._forward_pre_hooks.values():
        if getattr(hook, "of_the_graph", False):
            made.register_forward_pre_hook(hook)
    return made
