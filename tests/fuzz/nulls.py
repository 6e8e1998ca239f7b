"""Calls every function of the C API with NULL for each of its pointers in turn, the other arguments
being valid. Functions that report a status must report one; none may end the process.

    python tests/fuzz/nulls.py [NAME]

Prototypes are read from the headers, so that a new function is called without being named here.
"""

from __future__ import annotations

import ctypes as c
import os
import re
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import tenon as tn

PACKAGE = Path(tn.__file__).parent
# Not callable like the rest: varargs, callbacks of a host language, the end of the process.
LEFT_OUT = {"tn_fail", "tn_op_invoke", "tn_layer_next"}

# Made by functions, or unknown here; anything else is memory that holds ones.
OBJECTS = {"tn_generator", "tn_node", "tn_hook", "tn_saved", "tn_stream", "tn_event"}
OBJECTS |= {"tn_graph", "tn_group", "tn_program", "tn_world", "tn_work"}
OBJECTS |= {"tn_ffi_scope", "tn_ffi_function", "tn_ffi_closure", "tn_ffi_op"}


class Ints(c.Structure):
    _fields_ = [("v", c.POINTER(c.c_int64)), ("n", c.c_int64)]


class Tensors(c.Structure):
    _fields_ = [("v", c.POINTER(c.c_void_p)), ("n", c.c_int64)]


class OptInt(c.Structure):
    _fields_ = [("value", c.c_int64), ("has", c.c_int64)]


class OptFloat(c.Structure):
    _fields_ = [("value", c.c_double), ("has", c.c_int64)]


class Scalar(c.Structure):
    _fields_ = [("kind", c.c_int32), ("reserved", c.c_int32), ("i", c.c_int64), ("re", c.c_double),
                ("im", c.c_double)]  # fmt: skip


class Device(c.Structure):
    _fields_ = [("slot", c.c_int32), ("index", c.c_int32)]


NUMBERS = {
    "int": c.c_int, "int32_t": c.c_int32, "uint32_t": c.c_uint32, "int64_t": c.c_int64,
    "uint64_t": c.c_uint64, "size_t": c.c_size_t, "double": c.c_double, "float": c.c_float,
    "tn_status": c.c_int,
}  # fmt: skip
VALUES: dict[str, Any] = {
    "tn_ints": Ints, "tn_tensors": Tensors, "tn_opt_int": OptInt, "tn_opt_float": OptFloat,
    "tn_scalar": Scalar, "tn_device": Device,
}  # fmt: skip


def headers() -> list[Path]:
    """Those of an installed package, else of the sources and their build folder."""
    found = sorted((PACKAGE / "include" / "tenon").glob("*.h"))
    source, build = Path(__file__).resolve().parents[2], PACKAGE.resolve().parents[1]
    for folder in (*source.glob("*/include/tenon"), build / "dispatch" / "include" / "tenon"):
        found += sorted(folder.glob("*.h")) if not (PACKAGE / "include").exists() else []
    return found


def prototypes() -> list[tuple[str, str, list[str]]]:
    """(result, name, parameters) of every exported function."""
    out = []
    for header in headers():
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        for m in re.finditer(r"^TN_API\s+([\w\s*]+?)(\w+)\(([^;{]*)\)[^;{]*;", text, re.M):
            params = [] if m[3].strip() in ("void", "") else [p.strip() for p in m[3].split(",")]
            if "..." not in m[3] and m[2] not in LEFT_OUT:
                out.append((m[1].strip(), m[2], [" ".join(p.split()) for p in params]))
    return out


class World:
    """Valid arguments by type. Tensors are made anew for each call, since calls may change them."""

    def __init__(self, lib: c.CDLL) -> None:
        self.lib = lib
        self.keep: list[Any] = []

    def tensor(self) -> int:
        shape, data, ret = (c.c_int64 * 2)(2, 3), (c.c_float * 6)(1, 2, 3, 4, 5, 6), c.c_void_p()
        self.lib.tn_tensor_from_data(8, 2, shape, data, c.byref(ret))
        assert ret.value
        return ret.value

    def held(self, value: Any) -> Any:
        self.keep.append(value)
        return value

    def argument(self, param: str) -> Any:
        """A valid argument, or None where the type is unknown here."""
        type_ = re.sub(r"\b(const|struct)\b", "", param).strip()
        pointer = type_.count("*") + ("[" in type_)
        word = re.sub(r"[*\s]", " ", type_).split()[0]
        if pointer == 0:
            return self.value(word)
        if word == "tn_tensor":
            if pointer == 1:
                return c.c_void_p(self.tensor())
            slots = self.held((c.c_void_p * 4)())
            if "ret" not in param:
                for i in range(4):
                    slots[i] = self.tensor()
            return slots
        if word == "char":
            return c.c_char_p(b"mean") if pointer == 1 else self.held((c.c_void_p * 4)())
        if word in OBJECTS:
            return self.held((c.c_void_p * 4)()) if pointer > 1 else self.object(word)
        return self.held((c.c_int64 * 64)(*[1] * 64)) if word != "tn_layer" else None

    def object(self, word: str) -> Any:
        if word == "tn_generator":
            ret = c.c_void_p()
            self.lib.tn_generator_new(Device(0, 0), c.byref(ret))
            return ret
        if word in ("tn_ffi_scope", "tn_ffi_function"):
            scope, self.lib.tn_ffi_functions.restype = c.c_void_p(), c.c_void_p
            self.lib.tn_ffi_scope_new(None, None, c.byref(scope))
            self.lib.tn_ffi_declare(scope, b"int abs(int x)")
            f = c.c_void_p(self.lib.tn_ffi_functions(scope))
            self.lib.tn_ffi_resolve(scope, f)
            return scope if word == "tn_ffi_scope" else f
        return self.program() if word == "tn_program" else None

    def program(self) -> Any:
        """The program of -x."""
        made, x, result = c.c_void_p(), c.c_void_p(self.tensor()), c.c_void_p()
        self.lib.tn_program_begin(c.byref(made))
        self.lib.tn_program_add_input(made, x, b"x")
        self.lib.tn_neg(x, c.byref(result))
        self.lib.tn_program_end(made, Tensors((c.c_void_p * 1)(result.value), 1))
        return made

    def value(self, word: str) -> Any:
        if word in NUMBERS:
            return NUMBERS[word](1)
        if word == "tn_ints":
            return Ints(self.held((c.c_int64 * 2)(0, 1)), 2)
        if word == "tn_tensors":
            return Tensors(self.held((c.c_void_p * 2)(self.tensor(), self.tensor())), 2)
        if word == "tn_scalar":
            return Scalar(2, 0, 1, 1.0, 0.0)
        return VALUES[word]() if word in VALUES else None


def nulls_of(param: str, value: Any) -> list[Any]:
    """What stands for NULL in a parameter."""
    if isinstance(value, Tensors):
        return [Tensors(None, 2), Tensors(c.cast((c.c_void_p * 2)(), c.POINTER(c.c_void_p)), 2)]
    if isinstance(value, Ints):
        return [Ints(None, 2), Ints(None, -1)]
    if "*" in param or "[" in param:
        return [c.c_void_p()]
    return []


def in_child(lib: c.CDLL, name: str, args: list[Any]) -> int:
    """The wait status of a child that makes the call."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        fn = getattr(lib, name)
        fn.restype = c.c_void_p
        fn(*args)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def main() -> int:
    only = sys.argv[1:]
    lib = c.CDLL(str(PACKAGE / "libtenon.so"))
    warnings.simplefilter("ignore")
    tn.ones(2).sum()  # what is loaded once is loaded before the children
    dead, calls = [], 0
    for result, name, params in prototypes():
        by_value = result.startswith("tn_") and "*" not in result and result not in NUMBERS
        if (only and name not in only) or by_value:  # a struct comes back in its caller's memory
            continue
        for i, param in enumerate(params):
            world = World(lib)
            args = [world.argument(p) for p in params]
            if any(a is None and k != i for k, a in enumerate(args)):
                continue
            for null in nulls_of(param, args[i]):
                status = in_child(lib, name, [*args[:i], null, *args[i + 1 :]])
                calls += 1
                if status:
                    dead.append(f"{name}: {param} NULL: wait status {status}")
    print("\n".join(dead))
    print(f"{calls} calls, {len(dead)} died")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
