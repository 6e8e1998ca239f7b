"""The language of scripts in files: what their text may say, whoever wrote it.

A file's text becomes functions, so it is held against lists of what is allowed, never of what is
not: statements and expressions, attributes, and functions of the library that compute. It reaches
no file, no module, no attribute that begins with an underscore.
"""

from __future__ import annotations

import ast
import builtins
import functools
import math
import string
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

import tenon
from tenon import _C

_NODES = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Delete, ast.Assign, ast.AugAssign,
    ast.For, ast.While, ast.If, ast.With, ast.withitem, ast.Raise, ast.Assert, ast.Expr, ast.Pass,
    ast.Break, ast.Continue, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.List,
    ast.Tuple, ast.ListComp, ast.DictComp, ast.comprehension, ast.Compare, ast.Call, ast.keyword,
    ast.Starred, ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript,
    ast.Slice, ast.Name, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip

_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError",
    "LookupError", "NotImplementedError", "OverflowError", "RuntimeError", "StopIteration",
    "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
_BUILTINS = (
    "abs", "all", "any", "bool", "chr", "complex", "dict", "divmod", "enumerate", "float", "hex",
    "int", "isinstance", "len", "list", "max", "min", "oct", "ord", "pow", "print", "range",
    "reversed", "round", "slice", "sorted", "str", "sum", "tuple", "zip", *_ERRORS,
)  # fmt: skip
BUILTINS = {name: getattr(builtins, name) for name in _BUILTINS}

_OF_PYTHON = frozenset((
    "append", "capitalize", "clear", "copy", "count", "endswith", "extend", "find", "format", "get",
    "index", "insert", "isalpha", "isdigit", "items", "join", "keys", "lower", "lstrip", "pop",
    "popitem", "remove", "replace", "reverse", "rfind", "rsplit", "rstrip", "setdefault", "sort",
    "split", "startswith", "strip", "title", "update", "upper", "values", "wait", "zfill",
    "real", "imag",
))  # fmt: skip
_TENSOR_FACTS = frozenset((
    "H", "T", "data", "device", "dtype", "grad", "is_cpu", "is_cuda", "is_leaf", "is_meta",
    "is_quantized", "is_sparse", "itemsize", "layout", "mH", "mT", "nbytes", "ndim", "names",
    "requires_grad", "shape", "type",
))  # fmt: skip
_NOT_METHODS = frozenset((
    "apply_", "as_subclass", "data_ptr", "map2_", "map_", "module_load", "numpy",
    "record_stream", "register_hook", "register_post_accumulate_grad_hook", "set_",
    "share_memory_", "storage", "untyped_storage",
))  # fmt: skip
_DUNDERS = frozenset(
    f"__{n}__" for n in (
        "init", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv",
        "mod", "pow", "neg", "matmul", "eq", "ne", "lt", "le", "gt", "ge", "len", "getitem",
        "setitem", "contains", "bool", "str", "repr", "int", "float", "call", "abs", "iadd",
    )
)  # fmt: skip


def _tensor_words() -> frozenset[str]:
    own = {n: getattr(tenon.Tensor, n) for n in dir(tenon.Tensor) if not n.startswith("_")}
    kinds = (MethodDescriptorType, FunctionType, BuiltinFunctionType)
    return frozenset(n for n, v in own.items() if isinstance(v, kinds)) - _NOT_METHODS


ATTRIBUTES = _OF_PYTHON | _TENSOR_FACTS | _tensor_words()
_OF_MODULES = frozenset((
    "buffers", "children", "code", "eval", "extra_repr", "forward", "graph", "modules", "name",
    "named_buffers", "named_children", "named_modules", "named_parameters", "parameters",
    "requires_grad_", "train", "training", "zero_grad",
))  # fmt: skip


@functools.cache
def _others() -> frozenset[str]:
    """Attributes of what a script can have in hand, which do more than compute."""
    kinds = (tenon.Tensor, tenon.jit.ScriptModule, tenon.jit._ScriptedModule, FunctionType)
    return (
        frozenset(
            n for kind in (*kinds, str, list, dict, tuple, bytes, int, float) for n in dir(kind)
        )
        - _OF_MODULES
    )


class Refused(ValueError):
    """What the text of a script in a file may not say, and the node that says it."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(f"{what} (line {getattr(node, 'lineno', 1)} of its text)")
        self.node, self.what = node, what


def check(tree: ast.AST, own: frozenset[str]) -> None:
    """Whether a function's text may run; `own` are the attributes of the file's own objects."""
    _check_head(tree)
    for node in ast.walk(tree):
        if not isinstance(node, _NODES) or (isinstance(node, ast.FunctionDef) and node is not tree):
            raise Refused(node, f"{type(node).__name__} is no part of the language of scripts")
        if isinstance(node, ast.Attribute) and not attribute_is_sound(node.attr, own):
            raise Refused(node, f"'.{node.attr}' is no attribute that a script in a file may use")
        name = getattr(node, "id", getattr(node, "arg", None))
        if isinstance(node, (ast.Name, ast.arg, ast.keyword)) and str(name).startswith("__"):
            raise Refused(node, f"'{name}' is no name of a script's")


def _check_head(tree: ast.AST) -> None:
    """Making the function runs nothing of it."""
    if not isinstance(tree, ast.FunctionDef):
        raise Refused(tree, f"{type(tree).__name__} is no function")
    args = tree.args
    plain = [*args.defaults, *(d for d in args.kw_defaults if d is not None)]
    noted = [a.annotation for a in ast.walk(args) if isinstance(a, ast.arg)]
    if any(noted) or tree.returns or tree.decorator_list or args.vararg or args.kwarg:
        raise Refused(tree, "the head of a function has names and defaults only")
    if not all(isinstance(d, ast.Constant) for d in plain):
        raise Refused(tree, "defaults stand beside the text")


def attribute_is_sound(name: str, own: frozenset[str]) -> bool:
    if name in ATTRIBUTES:
        return True
    return name in own and not name.startswith("__") and name not in _others()


def method_is_sound(name: str) -> bool:
    return name in _DUNDERS or (name.isidentifier() and not name.startswith("__"))


class _Formats(string.Formatter):
    """str.format without attributes and items of what is formatted."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        if "." in field_name or "[" in field_name:
            raise ValueError("format: a script's fields are names and numbers")
        return super().get_field(field_name, args, kwargs)


FORMAT = "_format_text"


def format_text(text: str, *args: Any, **kwargs: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"format is a method of texts, not of {type(text).__name__}")
    return _Formats().vformat(text, args, kwargs)


class FormatCalls(ast.NodeTransformer):
    """text.format(...) as a call of `format_text`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "format":
            raise Refused(node, "'format' can only be called")
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            given = [self.visit(n) for n in (node.func.value, *node.args)]
            named = [self.visit(n) for n in node.keywords]
            name = ast.copy_location(ast.Name(FORMAT, ast.Load()), node)
            return ast.copy_location(ast.Call(name, given, named), node)
        self.generic_visit(node)
        return node


# ---- What the library gives them -----------------------------------------------------------------

_TOP = frozenset((
    "as_tensor", "block_diag", "get_default_dtype", "is_grad_enabled", "is_tensor", "isin",
    "manual_seed", "promote_types", "tensor", "unique", "unique_consecutive", "no_grad",
    "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "Tensor", "Size",
))  # fmt: skip
_JIT = frozenset(("fork", "wait", "is_scripting", "is_tracing"))
_WORDS = (tenon.dtype, tenon.layout, tenon.memory_format)


def _spaces() -> Iterator[tuple[str, Any, Callable[[str, Any], bool]]]:
    def computes(name: str, value: Any) -> bool:
        return isinstance(value, (FunctionType, BuiltinFunctionType))

    def of_table(name: str, value: Any) -> bool:
        known = name in _TOP or name in dir(_C._ops) or name.rstrip("_") in dir(_C._ops)
        return isinstance(value, _WORDS) or (known and (computes(name, value) or name in _TOP))

    yield "", tenon, of_table
    yield "functional", tenon.nn.functional, computes
    yield "linalg", tenon.linalg, computes
    yield "special", tenon.special, computes
    yield "fft", tenon.fft, computes
    yield "math", math, computes
    yield "jit", tenon.jit, lambda name, value: name in _JIT


def library(name: str) -> Any:
    """What a file means by "functional.relu"."""
    space, _, last = name.rpartition(".")
    for known, holder, sound in _spaces():
        found = getattr(holder, last, None) if known == space else None
        if found is not None and not last.startswith("_") and sound(last, found):
            return found
    raise ValueError(f"'{name}' is nothing that a script in a file may use")


def library_name(value: Any) -> str | None:
    """The name of something of the library by which `library` finds it."""
    if isinstance(value, _WORDS):
        last = str(value).rpartition(".")[2]
    else:
        last = getattr(value, "__name__", "")
    for space, holder, sound in _spaces():
        if last and not last.startswith("_") and getattr(holder, last, None) is value:
            if sound(last, value):
                return f"{space}.{last}" if space else last
    return None


def is_module_class(kind: type) -> bool:
    """Whether it is a layer of the library's own."""
    holders = (tenon.nn, tenon.nn.modules.linear)
    known = any(getattr(h, kind.__name__, None) is kind for h in holders)
    return known and issubclass(kind, tenon.nn.Module)


def module_class(name: str) -> type:
    found = getattr(tenon.nn, name, getattr(tenon.nn.modules.linear, name, None))
    if isinstance(found, type) and found.__name__ == name and is_module_class(found):
        return found
    raise ValueError(f"'{name}' is no layer of tenon.nn")
