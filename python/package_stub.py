"""Writes the stub of a module whose names are put together at run time:
`package_stub.py SOURCE OPERATORS OUT MODULE...`.

SOURCE says the names in literals: imports, `from a import *` with `__all__` in a, the tables
_SUBMODULES and _LATER, functions. OPERATORS is a generated stub, whose functions the module has
where it defines no other; MODULE are the sources of what it imports by a star.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

HEAD = "# Generated from {} by python/package_stub.py.\n"
PACKAGE = "tenon"


def value_of(node: ast.expr) -> dict[str, str] | list[str]:
    """A literal table of names; dict.fromkeys(names, value) counts as one."""
    if isinstance(node, ast.Dict):
        table: dict[str, str] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                part = value_of(value)
                table |= part if isinstance(part, dict) else {}
            else:
                table[ast.literal_eval(key)] = ast.literal_eval(value)
        return table
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict.fromkeys":
        names, value = node.args
        return dict.fromkeys(ast.literal_eval(names), ast.literal_eval(value))
    if isinstance(node, ast.Call):  # frozenset
        return list(ast.literal_eval(node.args[0]))
    return list(ast.literal_eval(node))


def table(tree: ast.Module, name: str) -> dict[str, str] | list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return value_of(node.value)
    return []


def defined(node: ast.stmt) -> str:
    """The name of a function or value of a module; "_" for anything else."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return "_"


def imports(node: ast.ImportFrom, modules: dict[str, ast.Module]) -> dict[str, str]:
    """Lines by the name that they bring."""
    source = node.module or ""
    names = [(a.name, a.asname or a.name) for a in node.names]
    if names[0][0] == "*":
        if source not in modules:
            raise SystemExit(f"package_stub: the source of {source} is not among the arguments")
        tree = modules[source]
        offered = table(tree, "__all__") or [n for n in map(defined, tree.body) if n[:1] != "_"]
        names = [(n, n) for n in offered]
    return {name: f"from {source} import {origin} as {name}" for origin, name in names}


def stub_of(function: ast.FunctionDef) -> str:
    text = ast.get_docstring(function)
    body = [ast.Expr(ast.Constant(text))] if text else []
    function.body = [*body, ast.Expr(ast.Constant(...))]
    return ast.unparse(function)


def stub(source: Path, operators: Path, modules: list[Path]) -> str:
    parsed = ast.parse(source.read_text(encoding="utf-8"))
    known = {}
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known[f"{PACKAGE}.nn.{path.stem}"] = known[f"{PACKAGE}.{path.stem}"] = tree
    names: dict[str, str] = {}
    own: list[str] = []
    for node in parsed.body:
        if isinstance(node, ast.ImportFrom) and node.module not in ("__future__", "typing"):
            names |= imports(node, known)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            names.pop(node.name, None)
            own.append(node.name)
    for name in table(parsed, "_SUBMODULES"):
        if (source.parent / name).is_dir() or (source.parent / f"{name}.py").exists():
            names[name] = f"from {PACKAGE} import {name} as {name}"
        else:
            names[name] = f"{name}: Any"  # the module of a device
    later = table(parsed, "_LATER")
    for name, module in later.items() if isinstance(later, dict) else ():
        names[name] = f"from {PACKAGE}.{module} import {name} as {name}"
    for node in ast.parse(operators.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith(("_", "special_")):
            if node.name not in own:
                names.setdefault(
                    node.name, f"from {PACKAGE}.{operators.stem} import {node.name} as {node.name}"
                )
    lines = [HEAD.format(source.name), "from typing import Any", *names.values(), ""]
    for node in parsed.body:
        if isinstance(node, ast.FunctionDef) and node.name in own:
            lines.append(stub_of(node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if not name.startswith("_") and isinstance(node.value, ast.Constant):
                lines.append(f"{name}: {'None' if node.value.value is None else 'Any'}")
    if table(parsed, "_LATER"):
        lines.append("__version__: str")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    source, operators, out, *modules = (Path(arg) for arg in sys.argv[1:])
    out.write_text(stub(source, operators, modules), encoding="utf-8")
