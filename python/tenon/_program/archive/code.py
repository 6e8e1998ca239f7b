"""The code of a TorchScript archive: a few words of Python, read by Python's own parser, looked
through, and made into functions that reach nothing but what is handed to them.

A file of code has functions and classes. Of what Python has it uses assignments, calls, attributes,
indices, lists, tuples, dicts, `if`, `while`, `for`, `with` and `return`; anything else is refused.
Names that a function does not assign itself are words: `torch.add`, `ops.prim.dtype`,
`CONSTANTS.c0`, `__torch__.torch.nn.functional.relu`, and a few of Python's (`int`, `range`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from tenon._program.archive import words
from tenon.io.errors import FileFormatError

MAX_DEPTH = 200
ROOTS = frozenset(("torch", "ops", "CONSTANTS", "__torch__"))
_STATEMENTS = (ast.Assign, ast.Expr, ast.If, ast.While, ast.For, ast.Return, ast.Pass, ast.With)
_EXPRESSIONS = (
    ast.Call, ast.Attribute, ast.Name, ast.Constant, ast.Subscript, ast.List, ast.Tuple, ast.Dict,
    ast.UnaryOp, ast.keyword, ast.withitem, ast.Load, ast.Store, ast.USub,
)  # fmt: skip


def chain_of(node: ast.AST) -> list[str]:
    """a.b.c as its names; empty: it is no such chain."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def refuse(where: str, node: ast.AST, what: str) -> NoReturn:
    """The file holds what no such archive has."""
    line = getattr(node, "lineno", 0)
    raise FileFormatError(f"{where}, line {line}: {what} is no word of TorchScript")


def _check_depth(tree: ast.AST, where: str) -> None:
    """Refuses what is nested so deep that a walk through it would not end well."""
    level, depth = [tree], 0
    while level:
        level, depth = [c for node in level for c in ast.iter_child_nodes(node)], depth + 1
        if depth > MAX_DEPTH:
            raise FileFormatError(f"{where} of the archive is nested more than {MAX_DEPTH} deep")


def parse(text: str, where: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of a file of code by name."""
    try:
        tree = ast.parse(text, where)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise FileFormatError(f"{where} of the archive is no code: {err}") from None
    _check_depth(tree, where)
    found: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.decorator_list:
            refuse(where, node, type(node).__name__)
        found[node.name] = node
    return found


# ---- Values in the text of a class, and types ----------------------------------------------------


def constant(node: ast.AST, where: str) -> Any:
    """A number, a text, None, or a list, tuple or dict of such."""
    if isinstance(node, ast.Constant) and isinstance(
        node.value, (int, float, str, complex, type(None))
    ):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand, where)
        if isinstance(value, (int, float, complex)):
            return -value
    if isinstance(node, ast.List):
        return [constant(e, where) for e in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(constant(e, where) for e in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [constant(k, where) for k in node.keys if k is not None]
        return dict(zip(keys, (constant(v, where) for v in node.values), strict=True))
    if isinstance(node, ast.Call) and chain_of(node.func) == ["annotate"] and len(node.args) == 2:
        return constant(node.args[1], where)
    if isinstance(node, ast.Call) and chain_of(node.func) == ["float"] and len(node.args) == 1:
        return words.to_float(constant(node.args[0], where))
    if isinstance(node, ast.Name) and node.id in words.NUMBERS:
        return words.NUMBERS[node.id]
    refuse(where, node, "what stands for a constant")


def is_of(node: ast.AST, where: str, find: Callable[[str], Any]) -> Callable[[Any], bool]:
    """Whether a value is of the type that stands in an `isinstance`."""
    if isinstance(node, ast.Subscript):
        outer = chain_of(node.value)[-1:]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        tests = [is_of(e, where, find) for e in inner]
        match outer:
            case ["List"]:
                return lambda v: isinstance(v, list) and all(map(tests[0], v))
            case ["Optional"]:
                return lambda v: v is None or tests[0](v)
            case ["Union"]:
                return lambda v: any(t(v) for t in tests)
            case ["Dict"]:
                return lambda v: (
                    isinstance(v, dict) and all(tests[0](k) and tests[-1](e) for k, e in v.items())
                )
            case ["Tuple"]:
                return lambda v: (
                    isinstance(v, tuple)
                    and len(v) == len(tests)
                    and all(t(e) for t, e in zip(tests, v, strict=True))
                )
    if isinstance(node, (ast.List, ast.Tuple)):
        each = [is_of(e, where, find) for e in node.elts]
        return lambda v: any(t(v) for t in each)
    chain = chain_of(node)
    if isinstance(node, ast.Constant) and node.value is None or chain == ["NoneType"]:
        return lambda v: v is None
    if chain and chain[0] == "__torch__":
        made = find(".".join(chain))
        return lambda v: words.is_made_by(v, made)
    if chain and chain[-1] in words.TYPES:
        kind = words.TYPES[chain[-1]]
        return lambda v: isinstance(v, kind) and (kind is not int or not isinstance(v, bool))
    refuse(where, node, "what stands for a type")


# ---- Functions -----------------------------------------------------------------------------------


class _Plain(ast.NodeTransformer):
    """A function whose words are names of what they mean."""

    def __init__(self, where: str, own: set[str], find: Callable[[str], Any]) -> None:
        self.where, self.own, self.find = where, own, find
        self.meant: dict[str, Any] = {}

    def _word(self, text: str, value: Any = None) -> ast.Name:
        # No name of a function has a dot or a blank in it.
        if text not in self.meant:
            self.meant[text] = self.find(text) if value is None else value
        return ast.Name(text, ast.Load())

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS)):
            refuse(self.where, node, type(node).__name__)
        return super().generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if len(node.targets) != 1:
            refuse(self.where, node, "a double assignment")
        if isinstance(target, ast.Attribute):
            call = ast.Call(
                self._word("set it", words.set_attribute),
                [self.visit(target.value), ast.Constant(target.attr), self.visit(node.value)],
                [],
            )
            return ast.Expr(call)
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(n, ast.Name) for n in names):
            refuse(self.where, target, "what is assigned to")
        node.value = self.visit(node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_With(self, node: ast.With) -> ast.AST:
        for item in node.items:
            item.context_expr = ast.Call(
                self._word("enter it", words.entered), [self.visit(item.context_expr)], []
            )
        node.body = [self.visit(s) for s in node.body]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain = chain_of(node)
        if chain and chain[0] in ROOTS and chain[0] not in self.own:
            return self._word(".".join(chain))
        value, name = self.visit(node.value), ast.Constant(node.attr)
        return ast.Call(self._word("get it", words.get_attribute), [value, name], [])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.own and not node.id.startswith("__"):
            return node
        if node.id in words.NUMBERS:
            return ast.Constant(words.NUMBERS[node.id])
        if node.id not in words.BUILTINS:
            refuse(self.where, node, repr(node.id))
        return self._word(f"{node.id} of Python", words.BUILTINS[node.id])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if not isinstance(node.op, ast.USub):
            refuse(self.where, node, "this sign")
        return ast.Constant(constant(node, self.where))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            refuse(self.where, node, "an argument with a star")
        if name in ("annotate", "unchecked_cast") and len(node.args) == 2:
            return self.visit(node.args[1])
        if name == "uninitialized":
            return ast.Constant(None)
        if name == "isinstance" and len(node.args) == 2:
            test = is_of(node.args[1], self.where, self.find)
            word = self._word(f"is {ast.unparse(node.args[1])}", test)
            return ast.Call(word, [self.visit(node.args[0])], [])
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            key = ast.Constant(str(node.args[1].value))
            return ast.Call(
                self._word("get it", words.get_attribute), [self.visit(node.args[0]), key], []
            )
        node.func = self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return node


def function(tree: ast.FunctionDef, where: str, find: Callable[[str], Any]) -> Callable[..., Any]:
    """A function of the archive; `find` gives what a word means."""
    spec = tree.args
    if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs or tree.decorator_list:
        refuse(where, tree, "this list of arguments")
    own = {a.arg for a in spec.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    defaults = [constant(d, where) for d in spec.defaults]
    for arg in spec.args:
        arg.annotation = None
    spec.defaults = [ast.Constant(None) for _ in defaults]
    try:
        plain = _Plain(where, own, find)
        body = [plain.visit(statement) for statement in tree.body]
        made = ast.FunctionDef(tree.name, spec, body or [ast.Pass()], [], None)
        module = ast.fix_missing_locations(ast.Module([ast.copy_location(made, tree)], []))
        space: dict[str, Any] = {"__builtins__": {}, "__name__": "torchscript"}
        exec(compile(module, where, "exec"), space)  # noqa: S102 - what it may say is above
    except (ValueError, SyntaxError, RecursionError, MemoryError) as err:
        if isinstance(err, FileFormatError):
            raise
        raise FileFormatError(f"{where}: {tree.name} is no function: {err}") from None
    found = space[tree.name]
    space.update(plain.meant)
    assert isinstance(found, FunctionType)
    found.__defaults__ = tuple(defaults) or None
    return found
