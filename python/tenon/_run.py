"""`tenon run script.py`: runs a program that was written for `import torch`, unmodified.

Inside this process `torch` and its submodules are other names of `tenon` and its submodules, the
very same module objects. Nothing is installed and no other process is affected. Random numbers
follow PyTorch's CPU generator, so that equal seeds give equal numbers.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tenon import _native

THEIRS, OURS = "torch", "tenon"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of `torch...` with the module `tenon...`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != THEIRS and not fullname.startswith(THEIRS + "."):
            return None
        ours = OURS + fullname.removeprefix(THEIRS)
        try:
            known = ours in sys.modules or importlib.util.find_spec(ours) is not None
        except ModuleNotFoundError:
            known = False
        return importlib.machinery.ModuleSpec(fullname, self) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(OURS + spec.name.removeprefix(THEIRS))
        # The import system writes the alias's spec into the module; exec_module puts this back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        if alias is not None and alias.loader is self:
            module.__spec__ = alias.loader_state


def install() -> None:
    """Makes `import torch` give Tenon from here on."""
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    if THEIRS in sys.modules:
        raise RuntimeError(f"{THEIRS} is already imported in this process")
    sys.meta_path.insert(0, _Alias())
    _native.Library().set_rng_kind(_native.RNG_MT19937)


def run(script: str, args: list[str]) -> None:
    """Runs `script` as the main program with `args`."""
    install()
    path = Path(script)
    if not path.exists():
        raise SystemExit(f"tenon run: there is no file {script}")
    sys.argv = [script, *args]
    sys.path[0:1] = [str(path.resolve().parent)]
    runpy.run_path(str(path), run_name="__main__")
