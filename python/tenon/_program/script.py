"""jit.script: functions and modules whose source is held against what TorchScript takes.

What is scripted runs the source that it was made of, so that conditions and loops on values are
what they are in Python. It is looked through first: whatever is no part of the language is an error
that shows its line, in the function itself and in the program's own functions that it calls.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import tenon
from tenon.nn import Module
from tenon.nn.modules._slots import SLOT_NAMES, Slots

_OUTSIDE = (str(Path(tenon.__file__).parent), sysconfig.get_path("stdlib"))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_REFUSED = {
    ast.Yield: "yield", ast.YieldFrom: "yield from", ast.Await: "await", ast.Lambda: "lambda",
    ast.AsyncFunctionDef: "async def", ast.AsyncFor: "async for", ast.AsyncWith: "async with",
    ast.Try: "try blocks", ast.Global: "global variables", ast.Nonlocal: "nonlocal variables",
    ast.Import: "import statements", ast.ImportFrom: "import statements",
    ast.ClassDef: "class definitions", ast.FunctionDef: "function definitions in functions",
    ast.Set: "set literals", ast.SetComp: "set comprehensions", ast.Match: "match statements",
    ast.GeneratorExp: "generator expressions", ast.NamedExpr: "assignment expressions",
}  # fmt: skip


class NotSupportedError(RuntimeError):
    """What the language of scripts does not have."""


class UnsupportedNodeError(NotSupportedError):
    """A construct of Python's that it does not have."""


# ---- Looking through a source --------------------------------------------------------------------


class Source:
    """A function's text, and where it stands."""

    def __init__(self, fn: FunctionType) -> None:
        try:
            lines, self.first = inspect.getsourcelines(fn)
        except (OSError, TypeError):
            raise OSError(
                f"Can't get source for {fn}. jit.script needs the source of what it is given: make "
                "sure that the .py files are there, or use jit.trace"
            ) from None
        self.fn, self.file = fn, inspect.getsourcefile(fn) or "<unknown>"
        try:
            found: ast.stmt = ast.parse(textwrap.dedent("".join(lines))).body[0]
        except (SyntaxError, IndexError):
            found = ast.Pass()
        if not isinstance(found, ast.FunctionDef):
            raise OSError(f"Can't get source for {fn}: it is no function that `def` made")
        found.decorator_list = []
        self.tree = found

    def fail(self, node: ast.AST, what: str) -> None:
        line = self.first + getattr(node, "lineno", 1) - 1
        text = linecache.getline(self.file, line).rstrip()
        mark = " " * (len(text) - len(text.lstrip())) + "~" * max(len(text.lstrip()), 1)
        place = f'File "{self.file}", line {line}'
        raise UnsupportedNodeError(f"{what} aren't supported:\n  {place}\n{text}\n{mark} <--- HERE")

    def check(self) -> None:
        args = self.tree.args
        if args.vararg or args.kwarg:
            self.fail(self.tree, "Compiled functions that take *args or **kwargs")
        for statement in self.tree.body:
            self._check(statement)

    def _check(self, node: ast.AST) -> None:
        what = _REFUSED.get(type(node))
        if what is not None:
            self.fail(node, what)
        if isinstance(node, (ast.For, ast.While)) and node.orelse:
            self.fail(node, "else branches of loops")
        if isinstance(node, (ast.ListComp, ast.DictComp)):
            if len(node.generators) > 1:
                self.fail(node, "comprehensions with several loops")
            if node.generators[0].ifs:
                self.fail(node, "comprehensions with conditions")
        if isinstance(node, ast.If) and "is_scripting" in ast.dump(node.test):
            return  # one side of it is for Python alone
        for child in ast.iter_child_nodes(node):
            self._check(child)

    def calls(self) -> Iterator[FunctionType]:
        """The program's own functions that it calls by name."""
        names = {n.func.id for n in ast.walk(self.tree)
                 if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}  # fmt: skip
        inner = inspect.getclosurevars(self.fn).nonlocals
        for name in sorted(names):
            found = inner.get(name, self.fn.__globals__.get(name))
            if is_own(found):
                yield found


def is_own(fn: Any) -> bool:
    """Whether a function is the program's, and to be looked at."""
    if not isinstance(fn, FunctionType) or hasattr(fn, "_torchscript_modifier"):
        return False
    return not fn.__code__.co_filename.startswith(_OUTSIDE)


def check(fn: FunctionType, seen: set[Any]) -> Source:
    """The source of a function that is sound, with all that it calls."""
    source = Source(fn)
    source.check()
    seen.add(fn.__code__)
    for called in source.calls():
        if called.__code__ not in seen:
            try:
                check(called, seen)
            except OSError:
                continue  # made at run time
    return source


# ---- Text ----------------------------------------------------------------------------------------


class ScriptGraph:
    """A function's statements, with the regions of its conditions and loops."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.tree = tree

    def __str__(self) -> str:
        given = [f"%{a.arg}" + (f" : {ast.unparse(a.annotation)}" if a.annotation else "")
                 for a in self.tree.args.args]  # fmt: skip
        return "\n".join([f"graph({', '.join(given)}):", *_block(self.tree.body, 1)]) + "\n"

    __repr__ = __str__


def _block(body: list[ast.stmt], depth: int) -> list[str]:
    pad, lines = "  " * depth, []
    for node in body:
        if isinstance(node, ast.If):
            lines.append(f"{pad}prim::If({ast.unparse(node.test)})")
            for i, part in enumerate((node.body, node.orelse)):
                lines += [f"{pad}  block{i}():", *_block(part, depth + 2)]
        elif isinstance(node, (ast.For, ast.While)):
            head = (f"{ast.unparse(node.target)} in {ast.unparse(node.iter)}"
                    if isinstance(node, ast.For) else ast.unparse(node.test))  # fmt: skip
            lines += [f"{pad}prim::Loop({head})", f"{pad}  block0():"]
            lines += _block(node.body, depth + 2)
        else:
            lines += [pad + line for line in ast.unparse(node).splitlines()]
    return lines


def text_of(source: Source) -> str:
    return ast.unparse(source.tree) + "\n"


# ---- Modules -------------------------------------------------------------------------------------


def _of_package(kind: type) -> bool:
    return kind.__module__.startswith(("tenon", "torch"))


def methods(module: Module) -> list[FunctionType]:
    """forward, and what was marked to be compiled, too."""
    kind = type(module)
    marked = [
        v for k in kind.__mro__ for v in vars(k).values()
        if getattr(v, "_torchscript_modifier", None) == "export"
    ]  # fmt: skip
    own = [kind.forward] if is_own(kind.forward) else []
    return own + [m for m in marked if isinstance(m, FunctionType)]


def check_module(module: Module, seen: set[Any]) -> None:
    """All methods of the program's own modules in it."""
    for part in module.modules():
        for method in methods(part):
            if method.__code__ in seen:
                continue
            source = check(method, seen)
            for name in _self_calls(source.tree):
                called = getattr(type(part), name, None)
                if is_own(called) and called.__code__ not in seen:
                    check(called, seen)


def _self_calls(tree: ast.FunctionDef) -> list[str]:
    first = tree.args.args[0].arg if tree.args.args else ""
    return [
        n.func.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Name) and n.func.value.id == first
    ]  # fmt: skip


def copy_of(
    module: Module, kind: Callable[[type], type], memo: dict[int, Module], layers: bool = False
) -> Module:
    """The module with the same parameters and buffers, the program's own parts of another class.
    `layers`: parts that are the library's are copies, too, which may be changed."""
    if id(module) in memo:
        return memo[id(module)]
    own = type(module)
    children = module._modules
    top = not memo
    inside = _of_package(own) and not top
    if inside and not layers and all(_of_package(type(m)) for m in module.modules()):
        memo[id(module)] = module
        return module
    cls = own if inside else kind(own)
    made: Module = object.__new__(cls)
    memo[id(module)] = made
    made.__dict__.update(module.__dict__)
    for name, table in module.__dict__.items():
        if name in SLOT_NAMES:
            made.__dict__[name] = Slots(made, table)
        elif name in _HOOKS:
            made.__dict__[name] = type(table)(table)
    for name, child in children.items():
        if child is not None:
            made._modules[name] = copy_of(child, kind, memo, layers)
    return made


@functools.cache
def forward_source(fn: FunctionType) -> Source:
    return Source(fn)


def function_of(obj: Any) -> FunctionType:
    found = inspect.unwrap(obj) if callable(obj) else obj
    if isinstance(found, MethodType):
        found = found.__func__
    if not isinstance(found, FunctionType):
        raise TypeError(f"jit.script takes a function or a module, not {type(obj).__name__}")
    return found
