"""`tenon run script.py` (or `-m module`, `-c text`, `-`): runs a program that was written for
`import torch`, unmodified.

Inside this process `torch` and its submodules are other names of `tenon` and its submodules, the
very same module objects. Nothing is installed and no other process is affected. Random numbers
follow PyTorch's CPU generator, so that equal seeds give equal numbers, and dtypes print as
torch.float32. A name that is not there raises where the program uses it, and says which it is.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import io
import runpy
import sys
import zipimport
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

THEIRS, OURS = "torch", "tenon"
# Packages beside theirs, and where ours has them inside.
BESIDE = {"torchvision": ".vision", "functorch": "._torch.functorch"}
SPAWN = "multiprocessing.spawn"
INSIDE = "_torch"  # our package of modules that stand for their private ones

# The release whose names and numbers are meant; programs compare it with others.
VERSION = "2.13.0+tenon"

# Modules that stand elsewhere here.
_ELSEWHERE = {
    "torch.jit.annotations": f"{OURS}.{INSIDE}.jit_annotations",
    "torch.torch_version": f"{OURS}.{INSIDE}.torch_version",
    "torch.functional": OURS,
    "torch._C._functorch": f"{OURS}.{INSIDE}._functorch._C_functorch",
    "torch._C._distributed_c10d": f"{OURS}.distributed.distributed_c10d",
    "torch.amp.autocast_mode": f"{OURS}.amp",
    "torch.amp.grad_scaler": f"{OURS}.amp",
    "torch.cuda.amp.autocast_mode": f"{OURS}.cuda.amp",
    "torch.cuda.amp.grad_scaler": f"{OURS}.cuda.amp",
    "torch.cuda.amp.common": f"{OURS}.cuda.amp",
    "torch.cpu.amp": f"{OURS}._device.cpu_amp",
    "torch.optim.sparse_adam": f"{OURS}.optim",
    "torch.profiler.profiler": f"{OURS}.profiler",
    "torch.multiprocessing.spawn": f"{OURS}.{INSIDE}.mp_spawn",
    "torch.signal.windows.windows": f"{OURS}.signal.windows",
    "torch.profiler.itt": f"{OURS}.{INSIDE}.itt",
    "torch.multiprocessing.reductions": f"{OURS}.{INSIDE}.mp_reductions",
    "torch.compiler.config": f"{OURS}.{INSIDE}._dynamo.config",
    "torch.cpu.amp.autocast_mode": f"{OURS}._device.cpu_amp",
    "torch.cpu.amp.grad_scaler": f"{OURS}._device.cpu_amp",
    "torch.masked.maskedtensor": f"{OURS}.masked",
    "torch.masked.maskedtensor.core": f"{OURS}.masked",
    "torch.masked.maskedtensor.creation": f"{OURS}.masked",
}
_PIPES = {  # files of pipes of theirs, by where ours are
    "iter.plain": ("callable", "combinatorics", "selecting", "utils"),
    "iter.files": ("filelister", "fileopener", "streamreader"),
    "map": ("callable", "combinatorics", "combining", "grouping", "utils"),
}
_ELSEWHERE |= {
    f"torch.utils.data.datapipes.{place.partition('.')[0]}.{name}":
    f"{OURS}.utils.data.datapipes.{place}"
    for place, names in _PIPES.items() for name in names
}  # fmt: skip
_LAYERS = {  # files of layers of whole numbers and of fused ones, by where ours are
    "intrinsic": ("fused",),
    "intrinsic.qat": ("conv_fused", "linear_fused", "linear_relu"),
    "qat": ("conv", "linear"),
    "quantized": ("conv", "functional_modules", "linear"),
    "quantized.dynamic": ("linear", "rnn"),
}
_ELSEWHERE |= {
    f"torch.{room}.{place}.modules{name}": f"{OURS}.ao.nn.{place}"
    for room in ("nn", "ao.nn") for place, names in _LAYERS.items()
    for name in ("", *(f".{name}" for name in names))
}  # fmt: skip

# Classes that stand in a module of theirs that is a part of ours.
_CLASSES = {
    "torch.multiprocessing": dict.fromkeys(
        ("ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException"),
        "torch.multiprocessing.spawn",
    ),
}

# The packages that this process imports from here, with the releases that they seem to be.
_SERVED: dict[str, str] = {}


class _Alias:
    """Answers imports of `torch...` with the module `tenon...`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{OURS}."):
            return _and_then(_rename_classes, fullname, path)
        if fullname == SPAWN:
            return _and_then(_follow_into_children, fullname, path)
        del target
        if fullname.partition(".")[0] not in _SERVED:
            return None
        if _ours(fullname) is None:
            # Going on to the next finder could give half of another library.
            raise ModuleNotFoundError(
                f"No module named '{fullname}': Tenon does not have it yet", name=fullname
            )
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ours(spec.name) or OURS)
        # The import system writes the alias's spec into the module; exec_module puts this back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__
        if alias is not None and alias.loader is self:
            module.__spec__ = alias.loader_state

    def find_distributions(self, context: DistributionFinder.Context) -> list[Distribution]:
        """`importlib.metadata` finds a distribution of their name, in this process alone."""
        from tenon._command.metadata import Seeming

        names = [n for n in _SERVED if context.name in (None, n)]
        return [Seeming(name, _SERVED[name]) for name in names]


class _AndThen(importlib.machinery.SourceFileLoader):
    """Loads a module and does something with it."""

    def __init__(self, name: str, path: str, act: Callable[[ModuleType], None]) -> None:
        super().__init__(name, path)
        self._act = act

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._act(module)


def _and_then(
    act: Callable[[ModuleType], None], fullname: str, path: Sequence[str] | None
) -> importlib.machinery.ModuleSpec | None:
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
        spec.loader = _AndThen(spec.loader.name, spec.loader.path, act)
    return spec


def _is_public(module: str) -> bool:
    return not any(part.startswith("_") for part in module.split("."))


def _rename_classes(module: ModuleType) -> None:
    """The classes of a module, and those of private ones that it shows, are named as theirs; the
    module is found by the name that they say, where `typing.get_type_hints` looks for names."""
    names = vars(module)
    alias = THEIRS + module.__name__.removeprefix(OURS)
    # A module whose names are known by another one's name is not that other module.
    if module.__spec__ is not None and module.__spec__.name == module.__name__:
        sys.modules.setdefault(alias, module)
    _show_inside(module, alias)
    shown = names.get("__all__", ()) if _is_public(module.__name__) else ()
    for name, value in list(names.items()):
        if not isinstance(value, type):
            continue
        if value.__module__ == module.__name__:
            _resolve_annotations(value, names)
        if f"{value.__module__}.".startswith(f"{OURS}."):
            value.__module__ = THEIRS + value.__module__.removeprefix(OURS)
        if name in _CLASSES.get(value.__module__, ()):
            value.__module__ = _CLASSES[value.__module__][name]
        place = value.__module__
        if name in shown and place.startswith(THEIRS) and not _is_public(place):
            _resolve_annotations(value, vars(sys.modules.get(place, module)))
            value.__module__ = THEIRS + module.__name__.removeprefix(OURS)


def _show_inside(module: ModuleType, alias: str) -> None:
    """Modules that stand elsewhere here are attributes of the one that they belong to there."""
    own = {alias, *(n for n, place in _ELSEWHERE.items() if place == module.__name__)}
    inside = {n.rpartition(".")[2]: n for n in _ELSEWHERE if n.rpartition(".")[0] in own}
    if not inside or alias == THEIRS:
        return
    names = vars(module)
    names.setdefault("__path__", [])  # or nobody asks for what is inside
    before = names.get("__getattr__")

    def look_up(name: str) -> Any:
        if name in inside:
            return importlib.import_module(inside[name])
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    names["__getattr__"] = look_up


def _resolve_annotations(cls: type, names: dict[str, Any]) -> None:
    """Makes types of the texts that annotate a class, while it is known where their names are."""
    annotations = vars(cls).get("__annotations__", {})
    for name, text in annotations.items():
        if isinstance(text, str):
            try:
                annotations[name] = eval(text, names)
            except (NameError, AttributeError, TypeError):
                continue  # of a module that is imported for those who check types


def _ours(fullname: str) -> str | None:
    """The module of ours that stands for a module of theirs; None: there is none."""
    if fullname in _ELSEWHERE:
        return _ELSEWHERE[fullname]
    top, dot, rest = fullname.partition(".")
    rest = BESIDE.get(top, "") + dot + rest
    inside = rest.startswith("._") and rest != "._C" and top not in BESIDE
    for name in [f"{OURS}.{INSIDE}{rest}"] * inside + [OURS + rest]:
        try:
            if name in sys.modules or importlib.util.find_spec(name) is not None:
                return name
        except ModuleNotFoundError:
            pass
    found = getattr(sys.modules[OURS], rest[1:], None) if rest.count(".") == 1 else None
    if isinstance(found, ModuleType):  # of a kind of device, which no file is
        vars(found).setdefault("__path__", [])  # or nobody asks for what is inside
        return sys.modules.setdefault(OURS + rest, found).__name__
    return None


def _name_what_is_missing(package: ModuleType) -> None:
    """Errors about the package's names speak of the module that the program imported."""
    look = package.__getattr__

    def look_up(name: str) -> Any:
        if name == THEIRS:
            return package
        if f"{THEIRS}.{name}" in _ELSEWHERE:
            return importlib.import_module(f"{THEIRS}.{name}")
        if name.startswith("_") and not name.startswith("__") and name.isidentifier():
            try:
                return importlib.import_module(f"{OURS}.{INSIDE}.{name}")
            except ModuleNotFoundError as err:
                if err.name != f"{OURS}.{INSIDE}.{name}":
                    raise
        try:
            return look(name)
        except AttributeError as err:
            if str(err).startswith((f"module '{OURS}'", f"module '{THEIRS}'")):
                raise AttributeError(
                    f"module '{THEIRS}' has no attribute '{name}': Tenon does not have it yet",
                    name=name,
                    obj=package,
                ) from None
            raise

    package.__getattr__ = look_up


def _follow_into_children(spawn: Any) -> None:
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
    package.__name__ = THEIRS
    package.set_rng(THEIRS)
    package._C._set_prefix(THEIRS)
    _SERVED[THEIRS] = VERSION
    _SERVED["functorch"] = VERSION  # a part of their distribution
    if importlib.util.find_spec("torchvision") is None:
        _SERVED["torchvision"] = importlib.import_module(f"{OURS}.vision").__version__
    package.__version__ = importlib.import_module(_ELSEWHERE["torch.torch_version"]).TorchVersion(
        VERSION
    )
    importlib.import_module(f"{OURS}.{INSIDE}._C_names").add()
    _name_what_is_missing(package)
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(f"{OURS}.") and name != __name__:
            _rename_classes(module)
    sys.meta_path.insert(0, _Alias())
    if SPAWN in sys.modules:
        _follow_into_children(sys.modules[SPAWN])


def _program_frames(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the program."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    return tb


def _main(name: str | None) -> dict[str, Any]:
    """A fresh main module, whose names the program gets."""
    main = ModuleType("__main__")
    main.__builtins__ = builtins
    if name is not None:
        main.__file__ = name
    sys.modules["__main__"] = main
    return main.__dict__


def _is_archive(path: str) -> bool:
    try:
        zipimport.zipimporter(path)
    except zipimport.ZipImportError:
        return False
    return True


def run(script: str, args: list[str], module: bool = False, text: bool = False) -> None:
    """Runs a program as the main one with `args`, and ends as Python would.

    script is a file, `-` for standard input, a folder or archive with a `__main__`; with `module`
    the name of a module (`python -m`), with `text` the program itself (`python -c`).
    """
    path = Path(script)
    named = not module and not text and script != "-"
    if named and not path.exists():
        raise SystemExit(f"tenon run: there is no file {script}")
    install()
    sys.argv = ["-c" if text else script, *args]
    try:
        if module:
            sys.path[0:1] = [str(Path.cwd())]
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        elif named and (path.is_dir() or _is_archive(script)):
            runpy.run_path(script, run_name="__main__")
        elif named:
            sys.path[0:1] = [str(path.resolve().parent)]
            with io.open_code(str(path.resolve())) as file:
                exec(compile(file.read(), script, "exec", dont_inherit=True), _main(script))
        else:
            sys.path[0:1] = [""]
            source, name = (script, "<string>") if text else (sys.stdin.read(), "<stdin>")
            exec(compile(source, name, "exec", dont_inherit=True), _main(None))
    except SystemExit:
        raise
    except BaseException as err:
        err = err.with_traceback(_program_frames(err.__traceback__))
        sys.last_type, sys.last_value, sys.last_traceback = type(err), err, err.__traceback__
        sys.excepthook(type(err), err, err.__traceback__)
        raise SystemExit(130 if isinstance(err, KeyboardInterrupt) else 1) from None
