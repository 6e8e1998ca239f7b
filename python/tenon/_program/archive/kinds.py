"""Classes and functions of a TorchScript archive, and the modules that it holds.

`Library` finds what a name of the code means, each once. A class is a `Kind`: of modules, of plain
objects, of tuples with names, or of an enumeration.
"""

from __future__ import annotations

import ast
import collections
import enum
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import tenon
from tenon._program.archive import code, words
from tenon.io.errors import FileFormatError
from tenon.nn import Module


class Kind:
    """A class with methods: of modules (`is_module`) or of plain objects."""

    def __init__(self, library: Library, name: str, tree: ast.ClassDef, is_module: bool) -> None:
        self.library, self.name, self.is_module = library, name, is_module
        self._source = library.source(name)
        self.parameters: list[str] = []
        self.buffers: list[str] = []
        self.fields: set[str] = set()
        self.constants: dict[str, Any] = {}
        self._trees: dict[str, ast.FunctionDef] = {}
        self._methods: dict[str, Callable[..., Any]] = {}
        for node in tree.body:
            self._take(node)

    def _take(self, node: ast.stmt) -> None:
        where = self.library.where(self.name)
        if isinstance(node, ast.FunctionDef):
            self._trees[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_final = isinstance(node.annotation, ast.Subscript) and code.chain_of(
                node.annotation.value
            )[-1:] == ["Final"]
            if is_final and node.value is not None:
                self.constants[node.target.id] = code.constant(node.value, where)
            else:
                self.fields.add(node.target.id)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._take_assigned(node.targets[0], node.value, where)
        elif not isinstance(node, (ast.Pass, ast.Expr)):
            code.refuse(where, node, type(node).__name__)

    def _take_assigned(self, target: ast.expr, value: ast.expr, where: str) -> None:
        if isinstance(target, ast.Subscript) and code.chain_of(target.value) == ["__annotations__"]:
            self.fields.add(str(code.constant(target.slice, where)))
            return
        if not isinstance(target, ast.Name):
            code.refuse(where, target, "what is assigned to")
        if target.id == "__parameters__":
            self.parameters = code.constant(value, where)
        elif target.id == "__buffers__":
            self.buffers = code.constant(value, where)
        elif not target.id.startswith("__"):
            code.refuse(where, target, repr(target.id))

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    def methods(self) -> list[str]:
        return list(self._trees)

    def _tree(self, name: str) -> ast.FunctionDef:
        if name not in self._trees:
            raise AttributeError(f"a TorchScript {self.short_name} has no attribute {name!r}")
        return self._trees[name]

    def text_of(self, name: str) -> str:
        """A method's code, as the archive has it."""
        text = ast.get_source_segment(self._source, self._tree(name), padded=True)
        return textwrap.dedent(text or "") + "\n"

    def tree_of(self, name: str) -> ast.FunctionDef:
        """The same, read."""
        (tree,) = ast.parse(self.text_of(name)).body
        assert isinstance(tree, ast.FunctionDef)
        return tree

    def signature(self, name: str) -> inspect.Signature:
        """A method's arguments, self among them."""
        spec = self._tree(name).args
        first = len(spec.args) - len(spec.defaults)
        empty = inspect.Parameter.empty
        try:
            return inspect.Signature([
                inspect.Parameter(
                    a.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=empty if i < first
                    else code.constant(spec.defaults[i - first], self.name),
                )
                for i, a in enumerate(spec.args)
            ])  # fmt: skip
        except ValueError as err:
            raise FileFormatError(f"{self.name[:100]}.{name[:100]}: {err}") from None

    def function(self, name: str) -> Callable[..., Any]:
        """A method as a function of its object."""
        if name not in self._methods:
            where = self.library.where(self.name)
            self._methods[name] = self.library.function(self._tree(name), where)
        return self._methods[name]

    def method(self, value: Any, name: str) -> Callable[..., Any]:
        return functools.partial(self.function(name), value)


class Library:
    """The code of an archive by name; texts are parsed when they are first asked for."""

    def __init__(self, texts: dict[str, bytes], constants: tuple[Any, ...]) -> None:
        self.texts, self.constants = texts, constants
        self._files: dict[str, dict[str, ast.FunctionDef | ast.ClassDef]] = {}
        self._found: dict[str, Any] = {}

    @staticmethod
    def where(name: str) -> str:
        """The file that a class or function is in."""
        return "code/" + name.rpartition(".")[0].replace(".", "/") + ".py"

    def source(self, name: str) -> str:
        """The file of a class or function."""
        where = self.where(name)
        if where not in self.texts:
            raise FileFormatError(f"the archive has no code of {name[:200]!r}")
        try:
            return self.texts[where].decode("utf-8")
        except UnicodeDecodeError as err:
            raise FileFormatError(f"{where} of the archive is no text: {err}") from None

    def _tree(self, name: str) -> ast.FunctionDef | ast.ClassDef:
        where = self.where(name)
        if where not in self._files:
            self._files[where] = code.parse(self.source(name), where)
        tree = self._files[where].get(name.rpartition(".")[2])
        if tree is None:
            raise FileFormatError(f"{where} of the archive has no {name.rpartition('.')[2]!r}")
        return tree

    def function(self, tree: ast.FunctionDef, where: str) -> Callable[..., Any]:
        return code.function(tree, where, self.word)

    def word(self, text: str) -> Any:
        """What a word of code means."""
        if text.startswith("CONSTANTS.c"):
            number = text[len("CONSTANTS.c") :]
            if not number.isdigit() or int(number) >= len(self.constants):
                raise FileFormatError(f"the archive has no constant {text[:40]!r}")
            return self.constants[int(number)]
        if not text.startswith("__torch__."):
            return words.word(text)
        if text in self._found:
            return self._found[text]
        if text.endswith(".__new__"):
            return words.Object
        try:
            tree = self._tree(text)
        except FileFormatError:
            outer, _, name = text.rpartition(".")
            kind = self._found.get(outer)
            if isinstance(kind, type):  # a member of an enumeration
                return words.get_attribute(kind, name)
            raise
        if isinstance(tree, ast.ClassDef):
            return self.kind(text)
        return self._later(text, tree)

    def _later(self, name: str, tree: ast.FunctionDef) -> Callable[..., Any]:
        """A function that is made when it is first called: it may call itself."""
        made: list[Callable[..., Any]] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            if not made:
                made.append(self.function(tree, self.where(name)))
            return made[0](*args, **kwargs)

        call.__name__ = name.rpartition(".")[2]
        return self._found.setdefault(name, call)

    def kind(self, name: str) -> Any:
        """A class by its whole name."""
        if name in self._found:
            return self._found[name]
        tree = self._tree(name)
        if not isinstance(tree, ast.ClassDef) or tree.keywords:
            raise FileFormatError(f"{name[:200]!r} of the archive is no class")
        bases = [code.chain_of(b)[-1:] for b in tree.bases]
        made: Any
        if bases == [["NamedTuple"]]:
            made = self._named_tuple(tree, name)
        elif bases == [["Enum"]]:
            made = self._enumeration(tree, name)
        else:
            made = Kind(self, name, tree, bases == [["Module"]])
        return self._found.setdefault(name, made)

    def _named_tuple(self, tree: ast.ClassDef, name: str) -> Any:
        fields, defaults, where = [], [], self.where(name)
        for node in tree.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                code.refuse(where, node, type(node).__name__)
            fields.append(node.target.id)
            if node.value is not None:
                defaults.append(code.constant(node.value, where))
        try:
            return collections.namedtuple(tree.name, fields, defaults=defaults)  # noqa: PYI024
        except ValueError as err:
            raise FileFormatError(f"{where}: {tree.name}: {err}") from None

    def _enumeration(self, tree: ast.ClassDef, name: str) -> Any:
        where, members = self.where(name), {}
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                code.refuse(where, node, type(node).__name__)
            members[node.targets[0].id] = code.constant(node.value, where)
        try:
            made = enum.Enum(tree.name, members)
        except (TypeError, ValueError) as err:
            raise FileFormatError(f"{where}: {tree.name}: {err}") from None
        made._members = dict(made.__members__)  # type: ignore[attr-defined]
        return made


# ---- What the structure holds --------------------------------------------------------------------


class Raw:
    """An object as the file's structure has it: the name of its class, and its values."""

    __slots__ = ("name", "state")

    def __init__(self, name: str) -> None:
        self.name, self.state = name, None


class Builder:
    """Makes modules and objects of what a file's structure holds, each once."""

    def __init__(self, library: Library, module_class: Callable[[Kind], type]) -> None:
        self.library, self.module_class = library, module_class
        self._made: dict[int, tuple[Raw, Any]] = {}

    def value(self, value: Any) -> Any:
        if isinstance(value, Raw):
            known = self._made.get(id(value))
            return known[1] if known is not None else self._object(value)
        if type(value) is list:
            value[:] = [self.value(v) for v in value]
        elif type(value) is dict:
            for key in list(value):
                value[key] = self.value(value[key])
        elif type(value) is tuple:
            return tuple(self.value(v) for v in value)
        return value

    def _object(self, raw: Raw) -> Any:
        kind = self.library.kind(raw.name)
        if not isinstance(kind, Kind):
            return self._plain(kind, raw)
        state = raw.state
        made: Any
        if kind.is_module:
            made = self.module_class(kind)()
            self._made[id(raw)] = raw, made
            self._fill(made, kind, state)
            return made
        made = words.Object(kind)
        self._made[id(raw)] = raw, made
        made._values.update({k: self.value(v) for k, v in _attributes(kind, state).items()})
        return made

    def _plain(self, kind: Any, raw: Raw) -> Any:
        values = self.value(raw.state)
        try:
            return kind(*values) if issubclass(kind, tuple) else kind(values)
        except (TypeError, ValueError) as err:
            raise FileFormatError(f"no {raw.name[:100]} can be made: {err}") from None

    def _fill(self, made: Module, kind: Kind, state: Any) -> None:
        for name, held in _attributes(kind, state).items():
            value = self.value(held)
            if isinstance(value, Module):
                made._modules[name] = value
            elif name in kind.parameters and (value is None or isinstance(value, tenon.Tensor)):
                made._parameters[name] = _parameter(value)
            elif name in kind.buffers and (value is None or isinstance(value, tenon.Tensor)):
                made._buffers[name] = value
            elif name == "training":
                made.training = bool(value)
            else:
                vars(made)[name] = value
        for name, value in kind.constants.items():
            vars(made).setdefault(name, value)


def _attributes(kind: Kind, state: Any) -> dict[str, Any]:
    """An object's values by name. No code of the file runs while it is read, its own way to take a
    state neither."""
    if type(state) is not dict or "__setstate__" in kind.methods():
        raise FileFormatError(f"the archive's {kind.short_name} is not kept by its attributes")
    for name in state:
        if type(name) is not str or name.startswith("__") or "." in name:
            raise FileFormatError(f"an object of the archive has the attribute {name!r:.80}")
    return state


def _parameter(value: Any) -> Any:
    if value is None or isinstance(value, tenon.nn.Parameter):
        return value
    return tenon.nn.Parameter(value.detach(), value.requires_grad)
