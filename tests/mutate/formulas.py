"""Mutants of the table's formulas: the changed expressions, as syntax trees."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

SWAPPED = (ast.Sub, ast.Div, ast.Pow, ast.Mod, ast.FloorDiv)
EITHER_WAY = {"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "dot"}
TURNED = {ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.GtE: ast.LtE, ast.LtE: ast.GtE, ast.Eq: ast.NotEq,
          ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip


def changes(e: ast.expr) -> Iterator[ast.expr]:
    """What may stand in place of one node."""
    match e:
        case ast.BinOp(left=x, op=op, right=y):
            if isinstance(op, SWAPPED):
                yield ast.BinOp(y, op, x)
            if isinstance(op, (ast.Add, ast.Sub)):
                yield ast.BinOp(x, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), y)
            if isinstance(op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
                yield x
            if isinstance(op, (ast.Add, ast.Mult)):
                yield y
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=x):
            yield x
        case ast.Compare(left=x, ops=[op], comparators=[y]) if type(op) in TURNED:
            yield ast.Compare(x, [TURNED[type(op)]()], [y])
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.IfExp(body=x, orelse=y):
            yield x
            yield y
        case ast.Constant(value=bool(b)):
            yield ast.Constant(not b)
        case ast.Constant(value=int(i)):
            yield ast.Constant(i + 1)
        case ast.Constant(value=float(f)):
            yield ast.Constant(f * 1.01)
        case ast.Call(func=ast.Name(id="zeros_like"), args=args, keywords=kws):
            yield ast.Call(ast.Name("ones_like"), args, kws)
        case ast.Call(func=ast.Name(id=name), args=[x, y, *rest], keywords=kws):
            if name not in EITHER_WAY:
                yield ast.Call(e.func, [y, x, *rest], kws)
            yield x
        case ast.Call(args=[x, *_]):
            yield x


def places(e: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Every expression below e with the field that holds it."""
    for name, value in ast.iter_fields(e):
        for i, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.keyword):
                yield child, "value", None, child.value
                yield from places(child.value)
            elif isinstance(child, ast.expr) and not (isinstance(e, ast.Call) and name == "func"):
                yield e, name, i, child
                yield from places(child)


def mutants(text: str, scaled: bool) -> list[str]:
    """Changed formulas, without repetition; `scaled`: also the whole times 1.01."""
    tree = ast.parse(text, mode="eval")
    found = {ast.unparse(tree): None}
    if scaled and not text.startswith("zeros_like("):
        found[f"({text}) * 1.01"] = None
    holders = list(places(tree))
    for k, (_, _, _, node) in enumerate(holders):
        for new in changes(node):
            other = copy.deepcopy(tree)
            holder, name, i, _ = list(places(other))[k]
            fresh = copy.deepcopy(new)
            if i is None:
                setattr(holder, name, fresh)
            else:
                getattr(holder, name)[i] = fresh
            found[ast.unparse(ast.fix_missing_locations(other))] = None
    return [t for t in found if t != ast.unparse(tree)]
