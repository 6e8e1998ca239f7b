"""Mutants of Python: one expression or statement of a function of a module."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.machinery
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

_TURNED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
_MESSAGES = ("warn", "debug", "info", "format")
_PARTS = ("co_code", "co_consts", "co_names")  # of a function's code
_SAME_ORDER = ("min", "max", "isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast")

AT_IMPORT = "<what runs at import>"


@dataclass
class Edit:
    """In the function `name`, or in a default of it, text[start:end] becomes `new`."""

    name: str
    start: int
    end: int
    new: str
    note: str
    of_default: bool = False


def edits(text: str) -> Iterator[Edit]:
    """All edits of the functions of a module."""
    lines = [0]
    for line in text.encode().split(b"\n"):
        lines.append(lines[-1] + len(line) + 1)

    def walk(node: ast.AST, inside: str) -> Iterator[Edit]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{inside}.{child.name}".lstrip(".")
                if isinstance(child, ast.ClassDef):
                    yield from walk(child, name)
                else:
                    yield from of_function(child, name)
            elif isinstance(child, ast.Assign | ast.AnnAssign) and child.value:
                for part in [child.value, *inner(child.value)]:
                    yield from of_node(child, part, f"{inside}.{AT_IMPORT}".lstrip("."))

    def of_function(fn: ast.FunctionDef, name: str) -> Iterator[Edit]:
        for arg, default in defaults(fn):
            yield from of_node(fn, default, name, arg)
        for statement in fn.body:
            for node in [statement, *inner(statement)]:
                yield from of_node(fn, node, name)

    def of_node(fn: ast.stmt, node: ast.AST, name: str, arg: str = "") -> Iterator[Edit]:
        for part, new in changes(node):
            start = lines[part.lineno - 1] + part.col_offset
            end = lines[part.end_lineno - 1] + part.end_col_offset
            old = text.encode()[start:end].decode()
            at = arg or f"line {node.lineno - fn.lineno}"
            note = f"{short(old)} -> {short(new)} ({at})"
            yield Edit(name, start, end, new + "\n" * old.count("\n"), note, bool(arg))

    return walk(ast.parse(text), "")


def defaults(fn: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """The names of the arguments that may be left out, and what they are then."""
    plain = [*fn.args.posonlyargs, *fn.args.args]
    last = plain[len(plain) - len(fn.args.defaults) :]
    named = zip(fn.args.kwonlyargs, fn.args.kw_defaults, strict=True)
    pairs = [*zip(last, fn.args.defaults, strict=True), *((a, d) for a, d in named if d)]
    return [(a.arg, d) for a, d in pairs]


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node; not annotations, messages of errors and texts."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from inner(child)


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Parts of a node, or the whole, and what they become."""
    match node:
        case ast.If(test=test) | ast.While(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                yield test, f"(not {ast.unparse(test)})"
        case ast.Raise(exc=ast.Call(func=kind)):
            yield node, "pass"
            yield kind, "ArithmeticError"
        case ast.Expr(value=ast.Constant()):  # a text that documents
            return
        case ast.Break():
            yield node, "continue"
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Raise():
            if not any(f".{m}(" in ast.unparse(node) for m in _MESSAGES):
                yield node, "pass"
        case ast.Call(func=called, args=[ast.expr() as x, ast.expr() as y, *rest]):
            starred = any(isinstance(v, ast.Starred) for v in (x, y))
            if not (starred or ast.unparse(called).split(".")[-1] in _SAME_ORDER):
                turned = ast.Call(called, [y, x, *rest], node.keywords)
                if ast.unparse(turned) != ast.unparse(node):
                    yield node, ast.unparse(turned)
        case ast.Compare(left=x, ops=[op], comparators=[y]) if type(op) in _TURNED:
            yield node, f"({ast.unparse(x)} {_TURNED[type(op)]} {ast.unparse(y)})"
        case ast.BinOp(left=x, op=op, right=y) if type(op) in _OTHER:
            if not any(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in (x, y)):
                yield node, f"({ast.unparse(ast.BinOp(x, _OTHER[type(op)](), y))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=x):
            yield node, f"({ast.unparse(x)})"
        case ast.IfExp(test=test, body=x, orelse=y):
            yield node, f"({ast.unparse(ast.IfExp(test, y, x))})"
        case ast.Constant(value=bool(b)):
            yield node, str(not b)
        case ast.Constant(value=int(i)):
            yield node, f"({i} + 1)"
        case ast.Constant(value=float(f)):
            yield node, f"({f!r} * 1.01)" if f else "0.01"


def short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- in the process that runs the tests ---------------------------------------------------------


def switch_on_at_import(path: Path, start: int, end: int, new: str) -> None:
    """For a process that has not imported the module: it gets the changed text."""
    text = path.read_bytes()
    changed = text[:start] + new.encode() + text[end:]
    loader = importlib.machinery.SourceFileLoader
    usual = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        if Path(self.path).resolve() == path:
            return compile(changed, self.path, "exec", dont_inherit=True)
        return usual(self, name)

    loader.get_code = get_code  # type: ignore[method-assign]


def place(code: CodeType) -> str:
    """A function by its file's name and its own."""
    return f"{code.co_filename}:{code.co_qualname}"


def switch_on(path: Path, start: int, end: int, new: str) -> bool:
    """Gives all functions of a module the code of the changed text; whether that was possible."""
    parts = path.with_suffix("").parts
    name = ".".join(parts[parts.index("python") + 1 :]).removesuffix(".__init__")
    importlib.import_module(name)  # what is loaded at first use is changed, too
    text = path.read_bytes()
    changed = text[:start] + new.encode() + text[end:]
    fresh: dict[tuple[str, int], CodeType] = {}

    def note(code: CodeType) -> None:
        fresh[code.co_qualname, code.co_firstlineno] = code
        for const in code.co_consts:
            if isinstance(const, CodeType):
                note(const)

    flags = 0x1000000  # from __future__ import annotations, as the modules have it
    note(compile(changed, str(path), "exec", flags=flags, dont_inherit=True))
    owner, line, arg, default = default_at(changed, start)
    found = False
    for fn in [o for o in gc.get_objects() if isinstance(o, FunctionType)]:
        code = fn.__code__
        other = fresh.get((code.co_qualname, code.co_firstlineno))
        if code.co_filename.endswith(str(path.name)) and other and _same_file(code, path):
            if other.co_freevars != code.co_freevars:
                return False
            if any(getattr(other, part) != getattr(code, part) for part in _PARTS):
                fn.__code__ = other
                found = True
            elif fn.__name__ == owner and code.co_firstlineno == line:
                found = give_default(fn, arg, default) or found
    return found


def default_at(changed: bytes, start: int) -> tuple[str, int, str, str]:
    """The function of whose argument's default that place is a part: its name, its first line,
    the argument and the default's text; or empty names."""
    before = changed[:start]
    line, column = before.count(b"\n") + 1, start - (before.rfind(b"\n") + 1)
    for fn in ast.walk(ast.parse(changed)):
        for arg, node in defaults(fn) if isinstance(fn, ast.FunctionDef) else ():
            begins = (node.lineno, node.col_offset)
            # A bracket of the changed text is no part of the expression in it.
            if begins <= (line, column + 1) and (line, column) < (
                node.end_lineno, node.end_col_offset):  # fmt: skip
                first = min([fn.lineno, *(d.lineno for d in fn.decorator_list)])
                return fn.name, first, arg, ast.unparse(node)
    return "", 0, "", ""


def give_default(fn: FunctionType, arg: str, text: str) -> bool:
    """Makes it what the text says; False where that is no value."""
    try:
        value = eval(text, fn.__globals__)
    except (NameError, TypeError):
        return False
    if arg in (fn.__kwdefaults__ or {}):
        fn.__kwdefaults__ = {**fn.__kwdefaults__, arg: value}
        return True
    code, old = fn.__code__, list(fn.__defaults__ or ())
    at = code.co_varnames[: code.co_argcount].index(arg) - code.co_argcount
    old[at] = value
    fn.__defaults__ = tuple(old)
    return True


def _same_file(code: CodeType, path: Path) -> bool:
    return Path(code.co_filename).resolve() == path
