"""Type checkers in strict mode accept correct programs, and find planted mistakes and no others."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tenon

HERE = Path(__file__).parent
TYPED = HERE / "typed"
EXAMPLES = HERE.parents[1] / "examples"
SITE = Path(tenon.__file__).parent
FILES = [*sorted(TYPED.glob("*.py")), *sorted(EXAMPLES.rglob("*.py"))]
Found = set[tuple[str, int, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `torch` means Tenon, as under `tenon run`, with the files to check."""
    place = tmp_path_factory.mktemp("typed")
    for source in [*SITE.rglob("*.py"), SITE / "_C.pyi"]:
        path = source.relative_to(SITE).with_suffix("")
        module = ".".join(path.parts).removesuffix("__init__").rstrip(".")
        stub = (place / "stubs" / "torch" / path).with_suffix(".pyi")
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(f"from tenon{'.' * bool(module)}{module} import *\n")
    for path in FILES:
        shutil.copy(path, place / path.name)
    return place


def run(command: list[str], folder: Path) -> str:
    env = dict(os.environ, PYTHONPATH=str(SITE.parent), MYPYPATH=str(folder / "stubs"))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, timeout=500)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def check(found: Found) -> None:
    """Each marked line is found, and nothing else."""
    lines = (TYPED / "mistakes.py").read_text().splitlines()
    marked = {n for n, line in enumerate(lines, 1) if "# wrong" in line}
    assert len(marked) >= 20
    others = [f for f in found if f[0] != "mistakes.py" or f[1] not in marked]
    assert not others
    missed = marked - {line for _, line, _ in found}
    assert not missed, [lines[n - 1] for n in sorted(missed)]


@pytest.mark.slow
def test_mypy(folder: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    cache = HERE.parents[1] / ".cache" / "mypy"
    text = run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), "--no-pretty",
                "--no-error-summary", "--hide-error-context",
                *(p.name for p in FILES)], folder)  # fmt: skip
    rows = re.findall(r"^(\S+?):(\d+): error: (.*)$", text, re.M)
    check({(name, int(line), what) for name, line, what in rows})


@pytest.mark.slow
def test_pyright(folder: Path) -> None:
    if importlib.util.find_spec("pyright") is None or shutil.which("node") is None:
        pytest.skip("pyright and node are not installed")
    command = [sys.executable, "-m", "pyright"]
    if subprocess.run([*command, "--version"], capture_output=True).returncode:
        pytest.skip("pyright could not fetch its program")
    settings = {
        "typeCheckingMode": "strict", "include": [p.name for p in FILES],
        "extraPaths": ["stubs", str(SITE.parent)],
        # Statements of the mistakes' file stand for themselves.
        "reportUnusedExpression": False,
    }  # fmt: skip
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    text = run([*command, "-p", ".", "--outputjson"], folder)
    rows = json.loads(text)["generalDiagnostics"]
    check({(Path(row["file"]).name, row["range"]["start"]["line"] + 1, row["message"])
           for row in rows if row["severity"] == "error"})  # fmt: skip


def names_in(path: Path, owner: str = "") -> set[str]:
    """What a stub says of a module, or of a class in it."""
    tree: ast.Module | ast.ClassDef = ast.parse(path.read_text())
    if owner:
        tree = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found.add(ast.unparse(target))
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname for a in node.names if a.asname}
    return {name for name in found if not name.startswith("_")}


def public(owner: Any) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def is_ours(name: str, value: Any) -> bool:
    """Of the module itself: no helper of its file, nothing that was made when it was asked for."""
    made = isinstance(value, ModuleType) or name.endswith("Tensor")
    home = str(getattr(value, "__module__", "tenon"))
    return not made and home.startswith("tenon") and home != "tenon.nn._reduction"


def test_stubs_name_what_is_there_and_nothing_else() -> None:
    methods = names_in(SITE / "_C.pyi", "Tensor") | names_in(SITE / "_ops.pyi", "_Methods")
    assert methods == public(tenon.Tensor)
    extension = names_in(SITE / "_C.pyi")
    assert not {n for n in extension if not hasattr(tenon._C, n)}
    helpers = {n for n in dir(tenon._C) if n.startswith("Ffi")} | {"DisableTorchFunctionSubclass"}
    assert public(tenon._C) - helpers <= extension
    for module, path in ((tenon, "__init__.pyi"), (tenon.nn.functional, "nn/functional.pyi")):
        names = names_in(SITE / path)
        assert names <= public(module)
        assert not {n for n in public(module) - names if is_ours(n, getattr(module, n))}


def test_signatures_in_stubs_are_those_of_the_binding() -> None:
    """Parameters of an operator's function, where it has one signature."""
    wrong = []
    for node in ast.parse((SITE / "_ops.pyi").read_text()).body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        if node.name.startswith("_") or node.name.endswith("_"):
            continue
        binding = getattr(tenon._C._ops, node.name)
        known = set(inspect.signature(binding).parameters)
        args = node.args
        said = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        said -= {"layout", "pin_memory", "requires_grad", "out"}
        if said | {"out"} != known | {"out"} and "kwargs" not in known:
            wrong.append((node.name, said ^ known))
    assert not wrong
