"""`tenon run script.py`: runs a program that was written for `import torch`, unmodified.

Inside this process `torch` and its submodules are other names of `tenon` and its submodules, the
very same module objects. Nothing is installed and no other process is affected. Random numbers
follow PyTorch's CPU generator, so that equal seeds give equal numbers, and dtypes print as
torch.float32. A name that is not there raises where the program uses it, and says which it is.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from collections.abc import Sequence
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

THEIRS, OURS = "torch", "tenon"

# The release whose names and numbers are meant; programs compare it with others.
VERSION = "2.13.0+tenon"


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
        if not known:
            # Going on to the next finder could give half of another library.
            raise ModuleNotFoundError(
                f"No module named '{fullname}': Tenon does not have it yet", name=fullname
            )
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(OURS + spec.name.removeprefix(THEIRS))
        # The import system writes the alias's spec into the module; exec_module puts this back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        if alias is not None and alias.loader is self:
            module.__spec__ = alias.loader_state


def _name_what_is_missing(package: ModuleType) -> None:
    """Errors about the package's names speak of the module that the program imported."""
    look = package.__getattr__

    def look_up(name: str) -> Any:
        try:
            return look(name)
        except AttributeError as err:
            if str(err).startswith(f"module '{OURS}'"):
                raise AttributeError(
                    f"module '{THEIRS}' has no attribute '{name}': Tenon does not have it yet",
                    name=name,
                    obj=package,
                ) from None
            raise

    package.__getattr__ = look_up


def _follow_into_children() -> None:
    """Processes that multiprocessing spawns start with the same aliases."""
    plain = spawn.get_command_line

    def get_command_line(**options: Any) -> list[str]:
        line = plain(**options)
        program = line.index("-c") + 1 if "-c" in line else 0  # none: a frozen program
        if program:
            line[program] = f"from {__name__} import install; install(); {line[program]}"
        return line

    spawn.get_command_line = get_command_line


def install() -> None:
    """Makes `import torch` give Tenon from here on."""
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    if THEIRS in sys.modules:
        raise RuntimeError(
            f"{THEIRS} is already imported in this process; `tenon run` must come first"
        )
    package = importlib.import_module(OURS)
    package.set_rng(THEIRS)
    package._C._set_prefix(THEIRS)
    package.__version__ = VERSION
    _name_what_is_missing(package)
    sys.meta_path.insert(0, _Alias())
    _follow_into_children()


def _program_frames(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the program."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    return tb


def run(script: str, args: list[str]) -> None:
    """Runs `script` as the main program with `args`, and ends as Python would."""
    path = Path(script)
    if not path.is_file():
        raise SystemExit(f"tenon run: there is no file {script}")
    install()
    sys.argv = [script, *args]
    sys.path[0:1] = [str(path.resolve().parent)]
    main = ModuleType("__main__")
    main.__file__ = script
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    try:
        with io.open_code(str(path.resolve())) as file:
            code = compile(file.read(), script, "exec")
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as err:
        err = err.with_traceback(_program_frames(err.__traceback__))
        sys.excepthook(type(err), err, err.__traceback__)
        raise SystemExit(130 if isinstance(err, KeyboardInterrupt) else 1) from None
