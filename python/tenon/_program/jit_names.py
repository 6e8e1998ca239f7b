"""Names of `jit` that settle nothing about a program, and texts as scripts."""

from __future__ import annotations

import ast
import contextlib
import dis
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tenon
from tenon._program.source_lines import keep_lines
from tenon.futures import Future
from tenon.nn import Module

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "annotate", "enable_onednn_fusion",
    "fork", "fuser", "hidden_weights", "onednn_fusion_enabled", "optimized_execution",
    "set_fusion_strategy", "strict_fusion", "wait",
]  # fmt: skip


class Error(Exception):
    """A script does what it may not."""


_RAISE = dis.opmap["RAISE_VARARGS"]


def is_raised(err: BaseException) -> bool:
    """Whether a statement of the program raised it, or an assertion anywhere."""
    at = err.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if isinstance(err, AssertionError) or at is None:
        return at is not None
    code, name = at.tb_frame.f_code.co_code, str(at.tb_frame.f_globals.get("__name__"))
    return code[at.tb_lasti] == _RAISE and not name.startswith("tenon.")


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A future of func(*args, **kwargs), which runs at once: as PyTorch's outside a script."""
    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """What `fork` began, when it is there."""
    return future.wait()


class ScriptObject:
    """Made by classes that libraries bring, which there are none of (`torch.classes`)."""


class Attribute(NamedTuple):
    """A value and its type: in a script the attribute is the value."""

    value: Any
    type: Any


def attributes_as_values(module: Module) -> None:
    """Puts values in the place of Attributes, in a module and all within it."""
    for part in module.modules():
        found = {k: v.value for k, v in vars(part).items() if isinstance(v, Attribute)}
        vars(part).update(found)


def hidden_weights(module: Module, kept: list[str]) -> None:
    """Makes parameters and buffers plain attributes, of no state dict; not those that are kept."""
    for path, part in module.named_modules():
        for table in (part._parameters, part._buffers):
            for name in [n for n, t in table.items() if t is not None]:
                if f"{path}.{name}".lstrip(".") not in kept:
                    tensor = table.pop(name)
                    vars(part)[name] = tensor.detach()


_count = itertools.count()


def _check_definitions(text: str, name: str) -> None:
    """Refuses what would run when a text is read: all but functions, and calls at their heads."""
    for node in ast.parse(text, name).body:
        if not isinstance(node, ast.FunctionDef):
            line = text.splitlines()[node.lineno - 1]
            raise RuntimeError(
                f"expected def but found {type(node).__name__} here:\n"
                f'  File "<string>", line {node.lineno}\n{line}'
            )
        head = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, node.returns]
        head += [a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg)]
        if node.decorator_list or any(
            isinstance(part, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield))
            for value in head
            if value is not None
            for part in ast.walk(value)
        ):
            raise RuntimeError(f"{node.name}() of a script is declared by what would have to run")


class CompilationUnit:
    """Functions of a text, as scripts: `CompilationUnit("def f(x): ...").f`."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, Any] = {}
        if lang is not None:
            self.define(lang)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Adds the functions of another text, which may call those that are there."""
        name = f"<jit text {next(_count)}>"
        _check_definitions(lang, name)
        head = str(tenon.float32).split(".")[0]
        space: dict[str, Any] = {head: tenon, "Tensor": tenon.Tensor, **self._functions}
        keep_lines(name, lang, space)
        before = dict(space)
        exec(compile(lang, name, "exec"), space)
        for key, value in space.items():
            if callable(value) and before.get(key) is not value:
                self._functions[key] = tenon.jit.script(value)
        space.update(self._functions)

    def __getattr__(self, attr: str) -> Any:
        found = self.__dict__.get("_functions", {}).get(attr)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{attr}'")
        return found

    def get_functions(self) -> list[Any]:
        return list(self._functions.values())


def _unwrap_optional(x: Any) -> Any:
    """The value, which is not None."""
    if x is None:
        raise AssertionError("Unwrapping null optional")
    return x


def annotate(the_type: Any, the_value: Any) -> Any:
    """Returns the value."""
    return the_value


class Final:
    """Marks attributes that do not change."""

    def __class_getitem__(cls, item: Any) -> Any:
        return item


def _overload(fn: Any) -> Any:
    """Declares another signature of the function that follows, for the script compiler."""
    return fn


_overload_method = _overload


# ---- Settings of a compiler that is not there ----------------------------------------------------

_settings: dict[str, Any] = {"strategy": [("STATIC", 2), ("DYNAMIC", 10)], "onednn": False}


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Returns the former one; what fuses here asks for none."""
    before, _settings["strategy"] = _settings["strategy"], strategy
    return before


def enable_onednn_fusion(enabled: bool) -> None:
    """Is remembered."""
    _settings["onednn"] = enabled


def onednn_fusion_enabled() -> bool:
    return _settings["onednn"]


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Programs run as they do, with or without."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Programs run as they do, whatever compiler is named."""
    if name not in ("fuser0", "fuser1", "fuser2", "fuser3"):
        raise Exception(f"unrecognized fuser option (name: {name})")  # noqa: TRY002 - as PyTorch
    yield


class strict_fusion:  # noqa: N801 - PyTorch's name
    """Asks for errors where a script is not fused, which is nowhere looked for."""

    def __init__(self) -> None:
        return None

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def run_frozen_optimizations(mod: Any, *_: Any, **__: Any) -> None:
    """What can be computed in advance has been, by `freeze`."""


def not_to_be_called(fn: Callable[..., Any], inside: Callable[[], bool]) -> Callable[..., Any]:
    """The function, which raises where a script calls it."""
    import functools

    @functools.wraps(fn)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        if inside():
            raise Error(
                f"{fn.__name__}: this Python function is annotated to be ignored and cannot be run "
                "in a script: it was marked jit.unused, or ignore(drop=True)"
            )
        return fn(*args, **kwargs)

    return refusing
