"""What a call of a function depended on and did beside its result, as far as Python can tell.

A recorded graph may stand for a call only if leaving Python out changes nothing. Here the functions
that run are seen (sys.setprofile): what they could read is what guards compare on later calls, and
whatever they do that is no operator, no pure function and no local variable is a reason to run the
function itself each time.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import linecache
import math
import operator
import sys
import sysconfig
import traceback
from _abc import _abc_instancecheck as abc_instancecheck
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import tenon
from tenon._program.guards import OURS, Unfit, Walk, is_ours, of_names

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
_PURE |= {tuple.__new__, abc_instancecheck, functools.reduce}
_PURE |= {next}  # of an iterator that is older than the call nothing can be told
_CONTAINERS = (list, dict, set, deque)
_READS = {
    "copy", "count", "difference", "fromkeys", "get", "index", "intersection", "isdisjoint",
    "issubset", "issuperset", "items", "keys", "symmetric_difference", "union", "values",
}  # fmt: skip
_PURE_METHODS = (str, bytes, tuple, int, float, frozenset, range, type(None))
# Blocks that a graph tells of, or may leave out.
_MANAGERS = ("autocast", "enable_grad", "no_grad", "nullcontext", "record_function",
             "set_grad_enabled")  # fmt: skip

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

# What changes more than a local variable, and nothing that can be looked at here.
_WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL", "ASYNC_GEN_WRAP", "SETUP_WITH"}
# What may change what the call has made itself.
_STORES = {"STORE_ATTR", "DELETE_ATTR"}
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


class _Plan(NamedTuple):
    """What a code may change or read beside local variables, each with its line."""

    refused: str | None  # what no look at the call shows to be harmless
    stores: str | None  # attributes of its first argument
    cells: str | None  # variables of the functions around it
    blocks: tuple[tuple[tuple[str, ...], str], ...]  # what `with` calls: names, one of the other
    imports: tuple[tuple[str, str], ...]


@cache
def _plan(code: CodeType) -> _Plan:
    line = code.co_firstlineno
    # Python's library keeps containers in classes of its own, which nobody looks through.
    writes = _WRITES | _ITEMS if code.co_filename.startswith(_LIBRARY) else _WRITES
    own = code.co_varnames[0] if code.co_argcount else None
    refused: str | None = None
    stores: str | None = None
    cells: str | None = None
    blocks, imports = [], []
    for name in _UNSEEN.intersection(code.co_names):
        refused = f"a look at {name} at {_line(code, line)}"
    steps = list(dis.get_instructions(code))
    for i, step in enumerate(steps):
        # From 3.13 on `starts_line` says whether, and `line_number` which.
        line = getattr(step, "line_number", None) or int(step.starts_line or 0) or line
        where = f"{step.opname} at {_line(code, line)}"
        if step.opname in _STORES and _loads(steps[i - 1], own):
            stores = stores or where
        elif (
            step.opname in _STORES and step.argval == "__traceback__"
        ):  # of an error that is caught
            continue
        elif step.opname in writes or step.opname in _STORES:
            refused = refused or where
        elif step.opname == "STORE_DEREF" and step.argval in code.co_freevars:
            cells = cells or where
        elif step.opname == "BEFORE_WITH":
            blocks.append((_called_before(steps, i), where))
        elif step.opname == "IMPORT_NAME":
            imports.append((str(step.argval) if steps[i - 2].argval == 0 else "", where))
    return _Plan(refused, stores, cells, tuple(blocks), tuple(imports))


def _loads(step: dis.Instruction, name: str | None) -> bool:
    return step.opname.startswith("LOAD_FAST") and step.argval == name is not None


def _called_before(steps: list[dis.Instruction], end: int) -> tuple[str, ...]:
    """The names by which the function is found whose call ends before a step; (): it is no call
    that lies in one line of steps."""
    at, made = end, 0
    while made < 1 and at > 0:
        at -= 1
        made += dis.stack_effect(steps[at].opcode, steps[at].arg, jump=False)
    jumps = any(s.is_jump_target for s in steps[at + 1 : end])
    if jumps or not steps[end - 1].opname.startswith("CALL"):
        return ()
    names: list[str] = []
    for step in steps[at:end]:
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
            if names:
                break
            names.append(str(step.argval))
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and names:
            names.append(str(step.argval))
        elif step.opname != "PUSH_NULL":
            break
    return tuple(names)


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


def _reads_container(fn: Any) -> bool:
    """Whether a function of C is a method of a list, dict or set that reads."""
    owner = getattr(fn, "__self__", None)
    kind = owner if isinstance(owner, type) else type(owner)
    return fn.__name__ in _READS and issubclass(kind, _CONTAINERS)


def _is_plain_block(found: Any) -> bool:
    """Whether what a call gives, and `with` enters, are functions of Python that are seen, or a
    block that a graph tells of."""
    if getattr(found, "__name__", "") in _MANAGERS and (
        is_ours(found) or found.__module__ == "contextlib"
    ):
        return True
    code = getattr(found, "__code__", None)
    if code is not None and code.co_filename == contextlib.__file__:
        return hasattr(found, "__wrapped__") or code.co_name == "_recreate_cm"
    if not isinstance(found, type) or is_ours(found):
        return False
    return all(isinstance(getattr(found, n, None), FunctionType) for n in ("__enter__", "__exit__"))


class Watch:
    """Sees the functions that run while it is open."""

    def __init__(self, roots: Any = ()) -> None:
        """`roots`: the function and its arguments."""
        self.reason: str | None = None
        self.sized = False  # the course, or a number, may depend on sizes
        self.read: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._roots = roots
        self._older = Walk()  # what there was before the call, as far as names have led to it
        self._found: list[Any] = []  # and how it was
        self._hidden: str | None = None  # why not all of it can be seen
        self._in_place: str | None = None  # where items are written
        self._through: set[tuple[int, tuple[str, ...]]] = set()  # modules, and names asked of them
        self._remembered = 0  # of the names
        self.stop: Callable[[], None] | None = None  # called when there is a reason
        self.count: Callable[[], int] | None = None  # of operators so far
        self._events = 0
        self._codes: set[CodeType] = set()
        self._before: Any = None

    def __enter__(self) -> Watch:
        self._before = sys.getprofile()
        self._remember()
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
        elif not self._is_pure(arg) and not _reads_container(arg):
            owner = getattr(arg, "__self__", None)
            if not isinstance(owner, _CONTAINERS) or not self._is_new(owner):
                name = getattr(arg, "__qualname__", repr(arg))
                self.reason = self._because(f"a call of {name} at {_line(code, frame.f_lineno)}")

    def _because(self, reason: str) -> str:
        """With why it cannot be told what the call has made."""
        return reason if self._hidden is None else f"{reason}: {self._hidden}"

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
        if fn.__name__ == "__exit__":
            return is_ours(type(owner)) and type(owner).__name__ in _MANAGERS
        return fn in _PURE or isinstance(owner, _PURE_METHODS) or owner is sys.setprofile

    def _python(self, frame: FrameType) -> None:
        code, plan = frame.f_code, _plan(frame.f_code)
        if code not in self._codes:
            self._codes.add(code)
            self.reason = plan.refused
            self.sized = self.sized or _depends_on_sizes(code)
        space, names = frame.f_globals, _attributes(code)
        for name in _asked_for(code):  # of builtins, or of nothing, where it is not there
            self.read.setdefault((id(space), name), (space, name, None))
            self._module(space.get(name), names)
        for held in frame.f_locals.values():  # arguments, and what is around the function
            self._module(held, names)
        for name, where in plan.imports:
            if name not in sys.modules:
                self.reason = self.reason or where
                continue
            self.read.setdefault((id(sys.modules), name), (sys.modules, name, None))
            self._module(sys.modules[name], names)
        self._remember()
        if _writes_in_place(code):
            self._in_place = self._in_place or _line(code, code.co_firstlineno)
        if self.reason is None:
            self.reason = self._not_its_own(frame, plan)

    def _not_its_own(self, frame: FrameType, plan: _Plan) -> str | None:
        """What the function may change that the call has not made, or enter that is not seen."""
        if plan.stores:
            owner = frame.f_locals.get(frame.f_code.co_varnames[0])
            unseen = isinstance(owner, (tenon.Tensor, type, ModuleType)) or (
                is_ours(type(owner)) and not isinstance(owner, tenon.nn.Module)
            )
            if unseen or not self._is_new(owner):
                return self._because(plan.stores)
        if plan.cells and (self._hidden or any(
            getattr(f, "__code__", None) is frame.f_code for f in self._older.seen.values()
        )):  # fmt: skip
            return self._because(plan.cells)
        for names, where in plan.blocks:
            found = None
            for i, name in enumerate(names):
                spaces = (frame.f_locals, frame.f_globals, vars(builtins))
                held = next((s[name] for s in spaces if name in s), None)
                found = getattr(found, name, None) if i else held
            if not _is_plain_block(found):
                return where
        return None

    def _is_new(self, value: Any) -> bool:
        """Whether the call has made an object: nothing older leads to it."""
        return self._hidden is None and not self._older.reaches(value)

    def _remember(self) -> None:
        """Takes note of what roots and names stand for, before code that has them runs."""
        names = list(self.read.values())[self._remembered :]
        first = not self._found
        self._remembered = len(self.read)
        if self._hidden is not None or not (names or first):
            return
        try:
            if first:
                self._found.append(self._older.token(self._roots))
            self._found += of_names(names, self._older)
        except Unfit as err:
            self._hidden = str(err)

    def check(self) -> None:
        """Called when the function has returned: whether containers are as they were."""
        if self.reason is not None or self._in_place is None:
            return
        if self._hidden is not None:
            self.reason = self._because(f"an operator that may write in place at {self._in_place}")
            return
        walk = Walk()
        names = list(self.read.values())[: self._remembered]
        found = [walk.token(self._roots), *of_names(names, walk)]
        if found != self._found:
            self.reason = f"something older than the call is written to at {self._in_place}"

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
