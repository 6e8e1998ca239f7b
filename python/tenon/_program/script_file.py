"""Scripts in files: the text of functions and modules, their values and their weights.

The file is a program that gives its weights, and whose note (JSON) is everything else. Functions
are kept as text without annotations, with all that their names mean; modules as their class, its
methods that can be reached, and their attributes. `script_words` says what a text may say.
"""

from __future__ import annotations

import ast
import base64
import copy
import itertools
import types
from collections.abc import Callable
from typing import Any, NoReturn

import tenon
from tenon import _program
from tenon._program import script_words as words
from tenon._program.script import Source
from tenon._program.source_lines import keep_lines
from tenon.io.errors import FileFormatError
from tenon.nn import Module
from tenon.nn.modules._slots import SLOT_NAMES, Slots
from tenon.nn.parameter import Parameter

_INNER = frozenset(vars(Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (bool, int, str, float, type(None))


_texts = itertools.count()  # each has a place of its own among the lines that Python shows


class Space(types.SimpleNamespace):
    """What a script uses of a module of Python's."""


# ---- The text of a function ----------------------------------------------------------------------


class _Bare(ast.NodeTransformer):
    """A script without what is for others than its reader: annotations, defaults, documentation,
    and the sides of `is_scripting` that are for Python."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns, node.decorator_list = None, []
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            arg.annotation = None
        node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
        node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.visit(ast.Assign([node.target], node.value))

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        test, taken = node.test, node.body
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, taken = test.operand, node.orelse
        if not (isinstance(test, ast.Constant) and test.value is True):
            return node
        return taken or ast.Pass()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name == "is_scripting" and not node.args:
            return ast.Constant(True)
        if name == "annotate" and len(node.args) == 2:
            return node.args[1]
        if name in ("getattr", "hasattr") and isinstance(node.func, ast.Name):
            key = node.args[1] if len(node.args) == 2 else None
            if name == "getattr" and isinstance(key, ast.Constant) and isinstance(key.value, str):
                return ast.Attribute(node.args[0], key.value, ast.Load())
        return node


def _chain(node: ast.AST) -> list[str] | None:
    """a.b.c as its names."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else None


def _outer_names(tree: ast.FunctionDef) -> dict[str, list[list[str]]]:
    """Names that are not the function's own, each with the ways on that start from it."""
    args = tree.args
    own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.ctx.__class__ != ast.Load}
    found: dict[str, list[list[str]]] = {}

    def walk(node: ast.AST) -> None:
        chain = _chain(node)
        if chain is None:
            for child in ast.iter_child_nodes(node):
                walk(child)
        elif chain[0] not in own:
            found.setdefault(chain[0], []).append(chain[1:])

    walk(tree)
    return found


def _self_uses(tree: ast.FunctionDef) -> set[str]:
    first = (*tree.args.posonlyargs, *tree.args.args)[:1]
    return {
        n.attr for n in ast.walk(tree)
        if first and isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
        and n.value.id == first[0].arg
    }  # fmt: skip


# ---- Writing -------------------------------------------------------------------------------------


class Writer:
    """A script as data. What it cannot say is a RuntimeError that names it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: list[Any] = []
        self.parts: dict[str, list[Any]] = {"functions": [], "classes": [], "modules": []}
        self._seen: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._trees: dict[int, tuple[Source, ast.FunctionDef]] = {}

    def fail(self, what: str) -> NoReturn:
        raise RuntimeError(f"jit.save: {self.name} cannot be kept in a file: {what}")

    def value(self, value: Any, where: str) -> Any:
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        made = self._value(value, where)
        if isinstance(value, (tenon.Tensor, Module)) or callable(value):
            self._seen[id(value)] = (value, made)
        return made

    def _value(self, value: Any, where: str) -> dict[str, Any]:
        kind = type(value)
        if kind is list or kind is tuple or kind is tenon.Size:
            key = "list" if kind is list else "tuple"
            return {key: [self.value(v, where) for v in value]}
        if isinstance(value, dict):
            pairs = [[self.value(k, where), self.value(v, where)] for k, v in value.items()]
            return {"dict": pairs}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if isinstance(value, tenon.device):
            return {"device": str(value)}
        if isinstance(value, tenon.Tensor):
            return self._tensor(value)
        library = words.library_name(value)
        if library is not None:
            return {"library": library}
        if isinstance(value, Module):
            return self._module(value)
        fn = getattr(value, "_fn", value) if hasattr(value, "_source") else value
        if isinstance(fn, types.FunctionType):
            place = self.function(fn)
            return {"function": place, "script": fn is not value}
        if isinstance(value, type):
            return self._class(value)
        self.fail(f"{where} is a {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, value: Any) -> dict[str, Any]:
        if value.numel() and any(
            t.numel() and t.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
            for t in self.tensors
        ):
            self.fail("two of its tensors share memory")
        self.tensors.append(value)
        kept = {"tensor": len(self.tensors) - 1, "grad": value.requires_grad}
        return {**kept, "parameter": isinstance(value, Parameter)}

    def function(self, fn: types.FunctionType, owner: dict[str, Any] | None = None) -> int:
        known = self._seen.get(id(fn.__code__))
        if known is not None and fn.__closure__ is None:
            return known[1]["function"]
        source = Source(fn)
        tree = copy.deepcopy(source.tree)
        try:
            tree = ast.fix_missing_locations(_Bare().visit(tree))
        except RecursionError:
            self.fail(f"{fn.__name__} is nested too deep")
        kept: dict[str, Any] = {"name": fn.__name__, "text": ast.unparse(tree)}
        place = len(self.parts["functions"])
        self.parts["functions"].append(kept)
        self._seen[id(fn.__code__)] = (fn, {"function": place})
        self._trees[place] = source, tree
        if owner is not None:
            owner.setdefault("uses", set()).update(_self_uses(tree))
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        inner = {name: cell.cell_contents for name, cell in cells}
        names: dict[str, Any] = {}
        for name, chains in _outer_names(tree).items():
            if name in inner or name in fn.__globals__:
                value = inner.get(name, fn.__globals__.get(name))
                names[name] = self._named(value, chains, name, fn.__name__)
            elif name not in words.BUILTINS:
                self.fail(f"{fn.__name__} uses '{name}', which is no name of a script's")
        kept["names"] = names
        where = f"a default of {fn.__name__}"
        kept["defaults"] = [self.value(v, where) for v in fn.__defaults__ or ()]
        kept["named"] = {k: self.value(v, where) for k, v in (fn.__kwdefaults__ or {}).items()}
        return place

    def _named(self, value: Any, chains: list[list[str]], name: str, fn: str) -> Any:
        """A value by the name of which a text goes on, as far as it is a module of Python's."""
        if not isinstance(value, (types.ModuleType, Space)):
            return self.value(value, f"'{name}', which {fn} uses,")
        kept: dict[str, Any] = {}
        for first in dict.fromkeys(c[0] if c else "" for c in chains):
            if not first:
                self.fail(f"{fn} uses the module '{name}' as a value")
            if not hasattr(value, first):
                self.fail(f"{fn} uses '{name}.{first}', which is not there")
            rest = [c[1:] for c in chains if c[0] == first]
            kept[first] = self._named(getattr(value, first), rest, f"{name}.{first}", fn)
        return {"space": kept}

    def _class(self, kind: type) -> dict[str, Any]:
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            given = getattr(kind, "_field_defaults", {})
            defaults = [self.value(v, kind.__name__) for v in given.values()]
            fields = {"fields": list(kind._fields), "defaults": defaults}
            return self._add_class({"name": kind.__name__, **fields})
        own = {k: v for k, v in vars(kind).items() if isinstance(v, types.FunctionType)}
        if kind.__bases__ != (object,) or kind.__module__ == "builtins" or not own:
            self.fail(f"{kind.__name__} is no class of scripts")
        spec: dict[str, Any] = {"name": kind.__name__, "methods": {}}
        made = self._add_class(spec)
        self._seen[id(kind)] = (kind, made)
        spec["methods"] = {k: self.function(v, spec) for k, v in own.items()}
        spec["uses"] = sorted(spec.get("uses", ()))
        return made

    def _add_class(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.parts["classes"].append(spec)
        return {"class": len(self.parts["classes"]) - 1}

    def _module(self, module: Module) -> dict[str, Any]:
        name = type(module).__name__
        if any(getattr(module, h, None) for h in _HOOKS):
            self.fail(f"a {name} has hooks")
        if isinstance(module, tenon.jit.ScriptModule) and hasattr(module, "program"):
            module._widen()
            return {"traced": base64.b64encode(module.program.to_bytes()).decode()}
        made = {"module": len(self.parts["modules"])}
        spec: dict[str, Any] = {"class": None, "training": module.training}
        self.parts["modules"].append(spec)
        self._seen[id(module)] = (module, made)
        kind, used = self._module_class(module, spec)
        attrs = {
            k: v
            for k, v in vars(module).items()
            if k not in _INNER and not any(k in getattr(module, s) for s in SLOT_NAMES)
        }
        for key in used:
            found = getattr(type(module), key, None)
            if key not in attrs and isinstance(found, (*_PLAIN, list, tuple, dict)):
                if not any(key in getattr(module, s) for s in SLOT_NAMES):
                    attrs[key] = found
        spec["attributes"] = {}
        for key, value in attrs.items():
            try:
                spec["attributes"][key] = self.value(value, f"{name}.{key}")
            except (RuntimeError, OSError):
                if kind is None or key in used:
                    raise
        for slot in SLOT_NAMES:
            found = getattr(module, slot).items()
            spec[slot] = [[k, self.value(v, f"{name}.{k}")] for k, v in found]
        spec["passing"] = sorted(module._non_persistent_buffers_set)
        return made

    def _module_class(self, module: Module, spec: dict[str, Any]) -> tuple[Any, set[str]]:
        """The nearest class of the library's, and the program's own methods below it."""
        kinds = [k for k in type(module).__mro__
                 if not issubclass(k, tenon.jit._ScriptedModule)
                 and k not in tenon.jit.ScriptModule.__mro__[:3]]  # fmt: skip
        places = [i for i, k in enumerate(kinds) if k.__module__.startswith(("tenon", "torch"))]
        own, base = kinds[: places[0]], kinds[places[0]]
        if not words.is_module_class(base):
            self.fail(f"{base.__module__}.{base.__qualname__} is no layer of tenon.nn")
        spec["base"], spec["name"] = base.__name__, type(module).__name__
        if not own and not isinstance(module, tenon.jit._ScriptedModule):
            return None, set()
        methods: dict[str, Any] = {}
        spec["methods"] = methods
        scratch: dict[str, Any] = {"uses": set()}
        todo = ["forward"] + [
            n for k in own for n, v in vars(k).items()
            if getattr(v, "_torchscript_modifier", None) == "export"
        ]  # fmt: skip
        while todo:
            key = todo.pop()
            holder = next((k for k in own if key in vars(k)), None)
            found = None if holder is None else vars(holder)[key]
            modifier = getattr(found, "_torchscript_modifier", None)
            if key in methods or key.startswith("__") or modifier in ("ignore", "unused"):
                continue
            how = "property" if isinstance(found, property) else type(found).__name__
            fn = getattr(found, "fget" if how == "property" else "__func__", found)
            if isinstance(fn, types.FunctionType):
                place = self.function(fn, scratch)
                methods[key] = {"kind": how, "function": place}
                todo += sorted(_self_uses(self._trees[place][1]))
        return (own or kinds)[0], scratch["uses"]

    def note(self, root: Any) -> dict[str, Any]:
        return {"kind": "script", "name": self.name, "root": root, **self.parts}

    def check(self) -> None:
        """Errors of the text come where it is saved, with the program's own lines."""
        own = own_attributes(self.parts)
        for source, tree in self._trees.values():
            try:
                words.check(words.FormatCalls().visit(copy.deepcopy(tree)), own)
            except words.Refused as err:
                place = f'File "{source.file}", in {source.fn.__name__}'
                self.fail(f"{err.what}\n  {place}\n{ast.unparse(err.node)}")


def own_attributes(parts: dict[str, Any]) -> frozenset[str]:
    """Attributes of the objects that a file describes."""
    found: set[str] = set()

    def spaces(data: Any) -> None:
        if isinstance(data, dict) and isinstance(data.get("space"), dict):
            for name, inner in data["space"].items():
                found.add(name)
                spaces(inner)

    for spec in parts["modules"]:
        found.update(spec["attributes"], spec.get("methods", ()))
        for slot in SLOT_NAMES:
            found.update(name for name, _ in spec[slot])
    for spec in parts["classes"]:
        found.update(spec.get("fields", ()), spec.get("methods", ()), spec.get("uses", ()))
    for spec in parts["functions"]:
        for data in spec["names"].values():
            spaces(data)
    return frozenset(n for n in found if isinstance(n, str) and n.isidentifier())


# ---- Reading -------------------------------------------------------------------------------------


class Reader:
    """Objects of a note that nobody vouches for. ValueError and the like: it is wrong."""

    def __init__(self, note: dict[str, Any], tensors: list[Any]) -> None:
        self._note, self._given = note, tensors
        self._tensors: dict[int, Any] = {}
        self.functions = self._make_functions()
        self.classes = [self._make_class(spec) for spec in note["classes"]]
        self.modules = [self._make_module(spec) for spec in note["modules"]]
        self.scripts: dict[int, Any] = {}

    def root(self) -> Any:
        for fn, spec in zip(self.functions, self._note["functions"], strict=True):
            fn.__globals__.update(self._named_values(spec["names"]))
            fn.__defaults__ = tuple(self.value(v) for v in spec["defaults"]) or None
            fn.__kwdefaults__ = {k: self.value(v) for k, v in spec["named"].items()} or None
        for kind, spec in zip(self.classes, self._note["classes"], strict=True):
            if "fields" in spec:
                given = tuple(self.value(v) for v in spec["defaults"])
                kind.__new__.__defaults__ = given
                kind._field_defaults = dict(zip(kind._fields[::-1], given[::-1], strict=False))
        for module, spec in zip(self.modules, self._note["modules"], strict=True):
            self._fill(module, spec)
        return self.value(self._note["root"])

    def _make_functions(self) -> list[types.FunctionType]:
        own = own_attributes(self._note)
        made = []
        for spec in self._note["functions"]:
            name, text = str(spec["name"]), str(spec["text"])
            tree = words.FormatCalls().visit(ast.parse(text))
            if len(tree.body) != 1:
                raise ValueError(f"the text of {name} is no function")
            words.check(tree.body[0], own)
            file = f"<script {name} {next(_texts)}>"
            scope: dict[str, Any] = {"__builtins__": words.BUILTINS, "__name__": "script"}
            exec(compile(ast.fix_missing_locations(tree), file, "exec"), scope)  # makes a function
            keep_lines(file, text, scope)
            fn = scope.pop(tree.body[0].name)
            scope[words.FORMAT] = words.format_text
            made.append(fn)
        return made

    def _make_class(self, spec: dict[str, Any]) -> Any:
        name = str(spec["name"])
        if "fields" in spec:
            import collections

            return collections.namedtuple(name, spec["fields"], defaults=spec["defaults"])
        return type(name, (), self._methods(spec["methods"], lambda place: self.functions[place]))

    def _methods(self, table: dict[str, Any], of: Callable[[Any], Any]) -> dict[str, Any]:
        for key in table:
            if not words.method_is_sound(key):
                raise ValueError(f"'{key}' is no name of a method")
        return {"__module__": "script", **{k: of(v) for k, v in table.items()}}

    def _method(self, spec: dict[str, Any]) -> Any:
        kinds = {"function": lambda f: f, "property": property, "staticmethod": staticmethod}
        fn = self.functions[spec["function"]]
        if fn.__name__ != "forward":
            vars(fn)["_torchscript_modifier"] = "export"  # kept again, whoever calls it
        return kinds[spec["kind"]](fn)  # type: ignore[no-untyped-call]

    def _make_module(self, spec: dict[str, Any]) -> Module:
        kind = words.module_class(spec["base"])
        if "methods" in spec:
            table = self._methods(spec["methods"], self._method)
            kind = tenon.jit._scripted_class(type(str(spec["name"]), (kind,), table))
        made: Module = object.__new__(kind)
        Module.__init__(made)
        return made

    def _fill(self, module: Module, spec: dict[str, Any]) -> None:
        for key, data in spec["attributes"].items():
            if key in _INNER or key.startswith("__"):
                raise ValueError(f"'{key}' is no attribute of a module's")
            module.__dict__[key] = self.value(data)
        wanted = {"_parameters": Parameter, "_buffers": tenon.Tensor, "_modules": Module}
        for slot in sorted(SLOT_NAMES):
            table = {k: self.value(v) for k, v in spec[slot]}
            for key, value in table.items():
                if key in _INNER or not isinstance(value, (wanted[slot], type(None))):
                    raise ValueError(f"'{key}' is no entry of a module's {slot}")
            module.__dict__[slot] = Slots(module)
            module.__dict__[slot].update(table)
        module.__dict__["_non_persistent_buffers_set"] = {str(n) for n in spec["passing"]}
        module.__dict__["training"] = bool(spec["training"])

    def value(self, data: Any) -> Any:
        if isinstance(data, _PLAIN):
            return data
        ((key, inner),) = [(k, v) for k, v in data.items()
                           if k not in ("grad", "parameter", "script")]  # fmt: skip
        match key:
            case "list" | "tuple":
                return (list if key == "list" else tuple)([self.value(v) for v in inner])
            case "dict":
                return {self.value(k): self.value(v) for k, v in inner}
            case "complex":
                return complex(*inner)
            case "device":
                return tenon.device(inner)
            case "tensor":
                return self._tensor(inner, data)
            case "library":
                return words.library(inner)
            case "function":
                fn = self.functions[inner]
                return tenon.jit.script(fn) if data["script"] else fn
            case "class":
                return self.classes[inner]
            case "module":
                return self.modules[inner]
            case "traced":
                return tenon.jit._of_program(_program.load(base64.b64decode(inner)))
            case "space":
                return Space(**self._named_values(inner))
        raise ValueError(f"'{key}' is nothing that a script holds")

    def _named_values(self, table: dict[str, Any]) -> dict[str, Any]:
        for key in table:
            if not key.isidentifier() or key.startswith("__") or key == words.FORMAT:
                raise ValueError(f"'{key}' is no name of a script's")
        return {k: self.value(v) for k, v in table.items()}

    def _tensor(self, place: int, data: dict[str, Any]) -> Any:
        if place not in self._tensors:
            made = self._given[place].detach()
            if data["parameter"]:
                made = Parameter(made, bool(data["grad"]))
            elif data["grad"]:
                made.requires_grad_()
            self._tensors[place] = made
        return self._tensors[place]


def program_of(root: Any, name: str) -> tuple[_program.Program, dict[str, Any]]:
    """A program that gives the weights of a script, and the note that says what they belong to."""
    writer = Writer(name)
    data = writer.value(root, name)
    writer.check()
    tensors = [t.detach() for t in writer.tensors]
    named = [(f"t{i}", _program.BUFFER, t) for i, t in enumerate(tensors)]
    program, _ = _program.record(lambda: tensors, {}, named)
    return program, writer.note(data)


def read(program: _program.Program, note: dict[str, Any]) -> Any:
    """What `program_of` made a program of. FileFormatError: it is damaged, or hostile."""
    known = {name: tensor for name, _, tensor in program.weights}
    try:
        tensors = [known[f"t{i}"] for i in range(len(known))]
        return Reader(note, tensors).root()
    except MemoryError:
        raise
    except Exception as err:
        raise FileFormatError(f"the script is damaged: {type(err).__name__}: {err}") from None
