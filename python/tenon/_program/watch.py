"""What a call of a function depended on and did beside its result, as far as Python can tell.

A recorded graph may stand for a call only if leaving Python out changes nothing. Here the functions
that run are seen (sys.setprofile): what they could read is what guards compare on later calls, and
whatever they do that is no operator, no pure function and no local variable is a reason to run the
function itself each time.
"""

from __future__ import annotations

import builtins
import dis
import linecache
import math
import operator
import sys
import sysconfig
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import tenon
from tenon._program.guards import OURS, Unfit, token

PACKAGE = str(Path(tenon.__file__).parent)
_MOST = 20000  # operators of a call: while it is recorded, all their results are kept
_LIBRARY = sysconfig.get_path("stdlib")
_ASIDE = ("<frozen importlib", linecache.__file__, traceback.__file__)

# Functions of C that only compute.
_PURE = {
    getattr(builtins, n)
    for n in (
        "abs", "all", "any", "bin", "callable", "chr", "divmod", "getattr", "hasattr",
        "isinstance", "issubclass", "iter", "len", "max", "min", "ord", "pow", "repr", "round",
        "sorted", "sum",
    )
} | {f for m in (math, operator) for f in vars(m).values() if callable(f)}  # fmt: skip
_PURE -= {
    f for n, f in vars(operator).items()
    if n in ("setitem", "delitem") or (n.startswith("i") and f"__{n}__" in vars(operator)
                                       and n not in ("index", "inv", "invert"))
}  # fmt: skip
_CLASSES = (list, dict, set, deque)
_READS = {
    "copy", "count", "difference", "fromkeys", "get", "index", "intersection", "isdisjoint",
    "issubset", "issuperset", "items", "keys", "symmetric_difference", "union", "values",
}  # fmt: skip
_PURE_METHODS = (str, bytes, tuple, int, float, frozenset, range, type(None))

# Methods of tensors that change, or tell, what no operator knows of: gradients, memory, hooks.
_HIDDEN = {
    "_is_view", "backward", "data", "data_ptr", "is_pinned", "is_set_to", "is_shared",
    "pin_memory", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_",
    "retain_grad", "set_", "share_memory_", "storage_offset", "untyped_storage",
}  # fmt: skip
# Functions of the package that keep something from call to call, or differentiate.
_KEEPERS = {"backward", "grad", "step", "zero_grad", "clip_grad_norm_"}
_KEEPING = tuple(str(Path(PACKAGE, p)) for p in ("optim", "autograd", "amp"))


# Methods of modules that change them.
_CHANGES = {
    "add_module", "apply", "bfloat16", "cpu", "cuda", "double", "eval", "float", "half",
    "load_state_dict", "requires_grad_", "to", "train", "zero_grad",
}  # fmt: skip
_BUILDS = ("BUILD_LIST", "BUILD_MAP", "BUILD_SET")
_MODULES = str(Path(PACKAGE, "nn", "modules"))


def _sets(name: str) -> bool:
    """Whether a function of the package, called by the program, changes a state of the thread."""
    return name.startswith(("set_", "_set_")) or name in (
        "manual_seed",
        "seed",
        "use_deterministic",
    )


# Steps of size arithmetic that are no sums and products, and choices: from one size to the next
# they may lead elsewhere.
_ROUNDS = {"//", "%", "&", "|", "^", "<<", ">>", "**"}
_ROUNDING = {"min", "max", "round", "divmod", "math", "bool", "range", "sqrt", "ceil", "floor"}
_SIZES = {"shape", "size", "len", "numel", "nelement", "__len__"}

# What changes more than a local variable.
_WRITES = {
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "ASYNC_GEN_WRAP",
    "SETUP_WITH", "BEFORE_WITH",
}  # fmt: skip
# What may change a container, or a tensor, which is an operator.
_ITEMS = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}


# Settings of the thread or the process that guards do not compare.
_UNSEEN = {
    "are_deterministic_algorithms_enabled", "backends", "get_deterministic_debug_mode",
    "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads", "get_rng_state",
    "initial_seed", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
    "is_autocast_cache_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
}  # fmt: skip


def _line(code: CodeType, line: int | None) -> str:
    return f"{code.co_filename}:{line or code.co_firstlineno}, in {code.co_name}"


def _write_in(code: CodeType) -> str | None:
    """Why the code may change what outlives it, or look at what nobody compares; None: neither."""
    line = code.co_firstlineno
    # Python's library keeps containers in classes of its own, which nobody looks through.
    writes = _WRITES | _ITEMS if code.co_filename.startswith(_LIBRARY) else _WRITES
    for name in _UNSEEN.intersection(code.co_names):
        return f"a look at {name} at {_line(code, line)}"
    for step in dis.get_instructions(code):
        # From 3.13 on `starts_line` says whether, and `line_number` which.
        line = getattr(step, "line_number", None) or int(step.starts_line or 0) or line
        outer = step.opname == "STORE_DEREF" and step.argval in code.co_freevars
        if step.opname in writes or outer:
            return f"{step.opname} at {_line(code, line)}"
    return None


def _depends_on_sizes(code: CodeType) -> bool:
    """Whether the code may take another course, or round, because of a size."""
    if not _SIZES & set(code.co_names):
        return False
    return bool(_ROUNDING & set(code.co_names)) or any(
        "JUMP_IF" in step.opname
        or step.opname in ("COMPARE_OP", "CONTAINS_OP")
        or (step.opname.startswith("BINARY") and step.argrepr.rstrip("=") in _ROUNDS)
        for step in dis.get_instructions(code)
    )


@cache
def _asked_for(code: CodeType) -> tuple[str, ...]:
    """The names that the code looks up in its module; not those of attributes, which may be called
    as something there that the call has nothing to do with."""
    steps = dis.get_instructions(code)
    names = (str(s.argval) for s in steps if s.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return tuple(dict.fromkeys(names))


@cache
def _attributes(code: CodeType) -> tuple[str, ...]:
    """The names that the code may ask a module for, `getattr(module, "name")` among them."""
    texts = (c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    return (*code.co_names, *texts)


@cache
def _writes_in_place(code: CodeType) -> bool:
    """Whether the code has `a += b` or `a[i] = b`, which write to a list as to a tensor."""
    return any(
        step.opname in _ITEMS or (step.opname == "BINARY_OP" and step.argrepr.endswith("="))
        for step in dis.get_instructions(code)
    )


@cache
def _made_here(code: CodeType) -> frozenset[str]:
    """Local names that stand for nothing but containers written out there: `rows = []`."""
    found: set[str] = set()
    others = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    before = ""
    for step in dis.get_instructions(code):
        if step.opname.startswith("STORE_FAST"):
            (found if before in _BUILDS else others).add(str(step.argval))
        before = step.opname
    return frozenset(found - others)


def _of_container(frame: FrameType, fn: Any) -> bool:
    """Whether a function of C is a method of a list, dict or set that reads, or of one that the
    running function made, and makes each time."""
    owner = getattr(fn, "__self__", None)
    if fn.__name__ in _READS and (owner in _CLASSES or isinstance(owner, _CLASSES)):
        return True
    if not isinstance(owner, (list, dict, set)):
        return False
    made = _made_here(frame.f_code)
    return any(v is owner for n, v in frame.f_locals.items() if n in made)


class Watch:
    """Sees the functions that run while it is open."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.sized = False  # the course, or a number, may depend on sizes
        self.read: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._found: list[tuple[Any, Any, str]] = []  # what could be written to, and how it was
        self._through: set[tuple[int, tuple[str, ...]]] = set()  # modules, and names asked of them
        self._remembered = 0  # of the names
        self.stop: Callable[[], None] | None = None  # called when there is a reason
        self.count: Callable[[], int] | None = None  # of operators so far
        self._events = 0
        self._codes: set[CodeType] = set()
        self._before: Any = None

    def __enter__(self) -> Watch:
        self._before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs meanwhile is nobody's concern."""
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.reason is None and event in ("call", "c_call"):
            self._look(frame, event, arg)
            if self.reason is not None and self._is_aside(frame):
                self.reason = None
            self._events += 1
            if self._events % 1024 == 0 and self.count is not None and self.count() > _MOST:
                self.reason = f"more than {_MOST} operators at {self._user(frame)}"
        if self.reason is not None and self.stop is not None:
            sys.setprofile(self._before)
            stop, self.stop = self.stop, None
            stop()

    @staticmethod
    def _is_aside(frame: FrameType | None) -> bool:
        """Whether a module is being loaded, or a line of source text looked up: what the package
        does when it needs them first, and no later call depends on."""
        while frame is not None and not frame.f_code.co_filename.startswith(_ASIDE):
            frame = frame.f_back
        return frame is not None

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            if event == "call":
                self._own(frame)
            elif arg.__name__ == "backward":
                self.reason = f"a backward pass at {self._user(frame)}"
        elif code.co_filename.startswith(_LIBRARY) and self._serves_package(frame):
            return
        elif event == "call":
            if not self._is_aside(frame):
                self._python(frame)
        elif not self._is_pure(arg) and not _of_container(frame, arg):
            name = getattr(arg, "__qualname__", repr(arg))
            self.reason = f"a call of {name} at {_line(code, frame.f_lineno)}"

    def _own(self, frame: FrameType) -> None:
        """A function of the package: it calls operators, unless it keeps something."""
        code = frame.f_code
        name = code.co_name
        keeps = name in _KEEPERS and code.co_filename.startswith(_KEEPING)
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        changes = (name in _CHANGES or name.startswith("register_")) and (
            code.co_filename.startswith(_MODULES)
        )
        if keeps or ((changes or _sets(name)) and not caller.startswith(PACKAGE)):
            self.reason = f"{name} at {self._user(frame)}"

    @staticmethod
    def _serves_package(frame: FrameType) -> bool:
        """Whether a function of Python's library was called by the package."""
        at: FrameType | None = frame
        while at is not None and at.f_code.co_filename.startswith(_LIBRARY):
            at = at.f_back
        return at is not None and at.f_code.co_filename.startswith(PACKAGE)

    @staticmethod
    def _user(frame: FrameType | None) -> str:
        while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        return _line(frame.f_code, frame.f_lineno) if frame else "an unknown place"

    def _is_pure(self, fn: Any) -> bool:
        module = getattr(fn, "__module__", None) or ""
        owner = getattr(fn, "__self__", None)
        if fn.__name__ in _HIDDEN or _sets(fn.__name__):
            return False
        if isinstance(owner, (tenon.Tensor, tenon.Size)) or module.startswith(("tenon", "torch")):
            return True
        if type(owner).__module__.startswith(("tenon._C", "torch._C")):
            return True
        return fn in _PURE or isinstance(owner, _PURE_METHODS) or owner is sys.setprofile

    def _python(self, frame: FrameType) -> None:
        code = frame.f_code
        if code not in self._codes:
            self._codes.add(code)
            self.reason = _write_in(code)
            self.sized = self.sized or _depends_on_sizes(code)
        space, names = frame.f_globals, _attributes(code)
        for name in _asked_for(code):  # of builtins, or of nothing, where it is not there
            self.read.setdefault((id(space), name), (space, name, None))
            self._module(space.get(name), names)
        for held in frame.f_locals.values():  # arguments, and what is around the function
            self._module(held, names)
        if self.reason is None and _writes_in_place(code):
            self._remember(frame)

    def _remember(self, frame: FrameType) -> None:
        names = list(self.read.values())[self._remembered :]
        self._remembered = len(self.read)
        held = [*frame.f_locals.values(), *(space.get(name) for space, name, _ in names)]
        where = _line(frame.f_code, frame.f_code.co_firstlineno)
        try:
            self._found.append((held, token(held), where))
        except Unfit as err:
            self.reason = f"an operator that may write in place at {where}: {err}"

    def check(self) -> None:
        """Called when the function has returned: whether containers are as they were."""
        for held, before, where in self._found:
            if self.reason is None and token(held) != before:
                self.reason = f"something older than the call is written to at {where}"

    def _module(self, found: Any, names: tuple[str, ...]) -> None:
        """Which of the names of attributes a module has, and those that it has."""
        if not isinstance(found, ModuleType) or found.__name__.partition(".")[0] in OURS:
            return
        space = vars(found)
        if (id(space), names) in self._through:
            return
        self._through.add((id(space), names))
        for name in names:  # also those that it has not, and may have later
            self.read.setdefault((id(space), name), (space, name, None))
            self._module(space.get(name), names)

    def values(self) -> list[tuple[Any, str, Any]]:
        return list(self.read.values())
