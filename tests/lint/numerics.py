"""The rule that numerics belong in the op table: a function of python/tenon calls one operator that
computes, or none. Two of them in one function, or arithmetic on a result, are a formula, which an
entry could say, so that C programs and other devices got it too.

Operators that compute are the pointwise ones and the reductions of the table that no Python type
has a method like; views, copies and comparisons may stand anywhere.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

# Rooms whose matter is formulas over tensors: programs of ours over the package, and translations.
ROOMS = {
    "distributions": "densities and draws, by whatever parametrisation",
    "vision": "programs over images",
    "onnx/_load": "operators of another table in terms of ours",
    "ao": "grids of quantization, beside training",
    "optim": "LBFGS, Adafactor, Muon and SparseAdam; the others are steps of the table",
    "distributed/tensor": "what is left of an operator when its tensors are in parts",
}
# Functions elsewhere, each with the reason.
FUNCTIONS = {
    "_tensor/methods.py:__rdiv__": "rounds twice, as the name's users expect",
    "_tensor/lobpcg.py:_iterate": "ends by values that it has come to: no formula",
    "linalg.py:matrix_norm": "chooses among norms by a word or number",
    "nn/_pooling.py:_root": "an entry could say lp_pool",
    "nn/_vision.py:_cubic_taps": "weights of bicubic interpolation; an entry could say them",
    "nn/_vision.py:_of_bytes": "sums of bytes by whole weights; an entry could say them",
    "nn/attention/flex_attention.py:flex_attention": "around functions that the caller gives",
    "nn/functional.py:glu": "an entry could say it",
    "nn/functional.py:gumbel_softmax": "draws, so that it has no formula",
    "nn/modules/adaptive.py:_get_full_log_prob": "clusters of classes, each through modules",
    "signal/windows.py:_cosines": "windows: rows of constants",
    "signal/windows.py:exponential": "windows: rows of constants",
    "testing/_comparison.py:_compare_tensors": "what a message says of a difference",
}
# Methods of sets, texts, numbers and modules, and what only arranges.
OTHERS = {"add", "sub", "round", "sum", "all", "any", "mean", "pow", "fill", "copy", "clamp", "neg",
          "where", "square", "not", "std", "div", "mul"}  # fmt: skip
HOMES = {"math", "np", "numpy", "re", "c", "operator", "builtins", "statistics"}


def computing(tables: list[Path]) -> set[str]:
    """The names of operators that compute."""
    names: set[str] = set()
    for path in tables:
        if path.stem == "compare":
            continue
        for key, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if entry.get("kind") in ("pointwise", "reduction"):
                names |= {key.split(".")[0], *entry.get("alias", [])}
    names |= {"matmul", "mm", "bmm", "einsum", "softmax", "log_softmax", "logsumexp", "norm"}
    names = {n for n in names if not n.startswith("_")} - OTHERS
    return names | {f"{n}_" for n in names}


def name_of(node: ast.AST, names: set[str]) -> str:
    """The operator that is called."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    home = node.func.value
    ours = not (isinstance(home, ast.Name) and home.id in HOMES)
    return node.func.attr if ours and node.func.attr in names else ""


def called(function: ast.AST, names: set[str]) -> set[str]:
    """The operators that a function calls, and the arithmetic on their results; not those of
    functions in it."""
    found: set[str] = set()
    inside = list(ast.iter_child_nodes(function))
    while inside:
        node = inside.pop()
        if isinstance(node, ast.FunctionDef):
            continue
        inside += ast.iter_child_nodes(node)
        if name_of(node, names):
            found.add(name_of(node, names))
        elif isinstance(node, ast.BinOp) and any(
            name_of(n, names) for n in (node.left, node.right)
        ):
            found.add(type(node.op).__name__)
    return found


def formulas(package: Path, tables: list[Path]) -> Iterator[tuple[Path, int, str, set[str]]]:
    """(file, line, function, operators) of every function with more than one."""
    names = computing(tables)
    for path in sorted(package.rglob("*.py")):
        folder = path.relative_to(package).as_posix()
        if any(folder.startswith(f"{name}/") for name in ROOMS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found = called(node, names)
                if len(found) > 1:
                    yield path, node.lineno, f"{folder}:{node.name}", found


def complaints(package: Path, tables: list[Path]) -> Iterator[tuple[Path, int, str]]:
    """Formulas that nobody allowed, and allowances without one."""
    seen = set()
    for path, line, name, found in formulas(package, tables):
        seen.add(name)
        if name not in FUNCTIONS:
            words = ", ".join(sorted(found))
            yield path, line, f"{name} computes with {words}: a formula for dispatch/ops"
    for name in sorted(set(FUNCTIONS) - seen):
        yield Path(__file__), 1, f"{name} has no formula to allow"
    for room in ROOMS:
        if not (package / room).is_dir():
            yield Path(__file__), 1, f"there is no room {room}"
