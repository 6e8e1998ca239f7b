"""Calls operators with arguments that nobody meant: wrong types, shapes, dimensions, dtypes, sizes
up to 2^63, empty and 0-d tensors, views that overlap, expanded or read-only outputs. Half of the
cases begin with a sample of the op table, which the operator takes, and spoil one argument or two:
a stride of 2^31, a dimension that is not there, an output that is an input. An operator that is
new in the table is in it at once. An exception is a right answer; only the death of the process, a
hang or a SystemError is wrong.

    python tests/fuzz/ops.py --seed 7 --seconds 60 [--only NAME] [--log FILE]

Case n of a seed is the same in every run. The log holds the case that is running, so that after a
crash it says which one it was: `--seed S --first N --cases 1` repeats it. A call on few elements
that takes longer than `--slow` seconds is a finding too: it is interrupted, told, and the run goes
on; one that does not hear the interrupt either ends the run.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tenon as tn

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128")  # fmt: skip
SHAPES = ((), (0,), (1,), (3,), (2, 3), (3, 3), (0, 3), (2, 0, 4), (2, 3, 4), (1, 3, 5, 5),
          (2, 4, 1, 3), (2, 1, 2, 3, 2), (1,) * 9, (7, 65))  # fmt: skip
INTS = (0, 1, 2, 3, 5, -1, -2, -3, 7, 64, 255, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62,
        2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**30)  # fmt: skip
FLOATS = (
    0.0,
    -0.0,
    0.5,
    1.0,
    -1.5,
    3.7,
    1e-45,
    1e300,
    -1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
)
TEXTS = ("", "mean", "sum", "none", "batchmean", "constant", "reflect", "replicate", "circular",
         "ij", "floor", "trunc", "same", "valid", "max", "amax", "prod", "nearest", "bilinear",
         "tanh", "r", "ij,jk->ik", "...i,i->...", "ii", "i" * 300, "\udcff", "\0")  # fmt: skip
# Strides, paddings, dilations and windows that no image has.
FAR = (2**31, 2**31 - 1, 2**30, 2**20, 2**22, 2**16, 2**62, -1, 0, -(2**31))
# Sizes that would be allocated if nothing refused them stay out of memory's reach or are small.
SIZES = (0, 1, 2, 3, 4, -1, -2, 2**40, 2**62, 2**63 - 1)


class Pool:
    """Values of every kind, drawn from one seeded source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def array(self, shape: tuple[int, ...], dtype: str) -> Any:
        r = self.rng
        count = int(np.prod(shape))
        kind = r.randrange(8)
        if kind == 0:
            values = [r.choice(FLOATS) for _ in range(count)]
        elif kind == 1:
            values = [float(r.randrange(-300, 300)) for _ in range(count)]
        else:
            values = [float(r.randrange(0, 4)) for _ in range(count)]
        a = np.array(values, np.float64).reshape(shape)
        with np.errstate(all="ignore"):
            if dtype == "bfloat16":
                return tn.from_numpy(a).to(tn.bfloat16)
            a = a.astype({"bool": "bool"}.get(dtype, dtype))
        if r.randrange(20) == 0:
            a.setflags(write=False)
        return tn.from_numpy(a)

    def tensor(self) -> Any:
        r = self.rng
        dtype = r.choice(DTYPES) if r.randrange(3) else r.choice(("float32", "float64", "int64"))
        t = self.array(r.choice(SHAPES), dtype)
        change = r.randrange(14)
        if change == 0 and t.dim():
            t = t.transpose(0, t.dim() - 1)
        elif change == 1:
            t = t.unsqueeze(0).expand(3, *t.shape)
        elif change == 2 and t.dim():
            t = t[::2]
        elif change == 3 and t.numel() > 4:
            t = t.as_strided((3, 3), (1, 1))
        elif change == 4 and t.dim() == 4:
            t = t.contiguous(memory_format=tn.channels_last)
        elif change == 5 and t.dim() > 1:
            t = t.select(-1, 0) if t.shape[-1] else t
        elif change == 6 and (t.is_floating_point() or t.is_complex()):
            t = t.detach().requires_grad_()
        elif change == 7 and (t.is_floating_point() or t.is_complex()):
            t = t.detach().requires_grad_() * 1
        elif change == 8 and t.dim() and t.shape[0]:
            t = t.unfold(0, 1, 1)
        elif change == 9 and t.dim():
            t = self.sparse(t)
        return t

    def sparse(self, t: Any) -> Any:
        """The same elements in a sparse layout, or no elements and a size that no memory holds."""
        kind = self.rng.randrange(8)
        if kind == 0:
            return tn.sparse_coo_tensor((2**31, 2**30))
        if kind == 1:
            return tn.sparse_coo_tensor([[2, 0, 2], [1, 1, 1]], [1.0, 2.0, 3.0], (3, 3))
        if kind == 2 or t.dim() != 2:
            return t.to_sparse(self.rng.randrange(1, t.dim() + 1))
        layout = self.rng.choice((tn.sparse_csr, tn.sparse_csc, tn.sparse_bsr, tn.sparse_bsc))
        blocks = layout in (tn.sparse_bsr, tn.sparse_bsc)
        return t.to_sparse(layout=layout, blocksize=(1, 1) if blocks else None)

    def integer(self) -> int:
        r = self.rng
        return r.choice(INTS) if r.randrange(3) == 0 else r.randrange(-3, 5)

    def sizes(self) -> Any:
        r = self.rng
        n = r.choice((0, 1, 1, 2, 2, 2, 3, 4, 5, 70))
        small = r.randrange(2)
        return [r.randrange(0, 4) if small else r.choice(SIZES) for _ in range(n)]

    def of_sample(self, type_: str, value: Any) -> Any:
        """What a value in a sample of the table stands for, with numbers drawn anew."""
        if not type_.startswith(("Tensor", "Operand")):
            return value
        if value == "none":
            return None
        if isinstance(value, dict) and "data" in value:
            return tn.tensor(value["data"], dtype=getattr(tn, value.get("dtype", "float32")))
        if isinstance(value, dict):
            return self.array(tuple(value["shape"]), value.get("dtype", "float32"))
        if "[]" in type_:
            return [self.of_sample("Tensor", member) for member in value]
        return self.array(tuple(value), "float32") if isinstance(value, list) else value

    def spoiled(self, type_: str, value: Any) -> Any:
        """The same argument with one thing about it that is not as it should be."""
        r = self.rng
        if isinstance(value, bool) or value is None or r.randrange(8) == 0:
            return self.of_type(type_)
        if isinstance(value, int):
            return r.choice((self.integer(), value + r.choice((-1, 1)), -value, FAR[0]))
        if isinstance(value, float):
            return r.choice(FLOATS)
        if isinstance(value, tn.Tensor):
            return self.spoiled_tensor(value)
        if isinstance(value, list) and value:
            place = r.randrange(len(value))
            if r.randrange(6) == 0:
                return r.choice((value[:place], [*value, value[place]], value * 9))
            new = list(value)
            far = isinstance(value[place], int) and r.randrange(2)
            new[place] = r.choice(FAR) if far else self.spoiled(type_.replace("[]", ""), new[place])
            return [r.choice(FAR)] * len(value) if far and r.randrange(3) == 0 else new
        return self.of_type(type_)

    def spoiled_tensor(self, t: Any) -> Any:
        """Its elements in another dtype, order, or number."""
        r = self.rng
        if t.layout is not tn.strided:
            return t
        change = r.randrange(9)
        if change == 0 or t.numel() > 1000:  # the large ones repeat one element
            return self.tensor()
        if change == 1:
            return t.to(getattr(tn, r.choice(DTYPES)))
        if change == 2 and t.dim():
            return t.transpose(0, -1)
        if change == 3 and t.dim():
            return t.narrow(r.randrange(t.dim()), 0, 0)
        if change == 4 and t.dim() and t.shape[0]:
            return t[:1].expand(r.choice((1, 3, 2**10, 2**16)), *t.shape[1:])
        if change == 5 and t.dim():
            return t.repeat_interleave(2, 0)[::2]
        if change == 6 and t.is_floating_point():
            return t.detach().requires_grad_()
        return t.unsqueeze(0) if change == 7 else t.flatten()[:1]

    def anything(self) -> Any:
        r = self.rng
        makers: tuple[Callable[[], Any], ...] = (
            self.tensor, self.integer, self.sizes, lambda: r.choice(FLOATS),
            lambda: r.choice(TEXTS), lambda: None, lambda: r.choice((True, False)),
            lambda: complex(r.choice(FLOATS), r.choice(FLOATS)),
            lambda: getattr(tn, r.choice(DTYPES)),
            lambda: [self.tensor() for _ in range(r.randrange(4))],
            lambda: object(), lambda: (None,), lambda: {}, lambda: slice(None), lambda: ...,
            lambda: [[1], 2], lambda: np.float32(2), lambda: np.ones(2), lambda: tn.Size([2]),
            lambda: tn.device("cpu"), lambda: tn.Tensor, lambda: b"x", lambda: tn.Generator(),
        )  # fmt: skip
        return r.choice(makers)()

    def of_type(self, type_: str) -> Any:
        """A value that an argument of the table's type would take; one in ten of no type at all."""
        r = self.rng
        if r.randrange(10) == 0:
            return self.anything()
        base = type_.rstrip("?")
        if type_.endswith("?") and r.randrange(3) == 0:
            return None
        if base.startswith("Tensor") and "[]" in base:
            return [self.tensor() for _ in range(r.randrange(5))]
        if base.startswith("Operand"):
            return self.tensor() if r.randrange(3) else self.of_type("Scalar")
        if base.startswith("Tensor"):
            return self.tensor()
        if base.startswith(("int[", "Dims")):
            return self.sizes()
        simple: dict[str, Callable[[], Any]] = {
            "Scalar": lambda: r.choice((self.integer(), r.choice(FLOATS), 1 + 2j, True)),
            "int": self.integer, "Dim": self.integer, "Format": lambda: tn.channels_last,
            "float": lambda: r.choice(FLOATS),
            "bool": lambda: r.choice((True, False)),
            "str": lambda: r.choice(TEXTS), "DType": lambda: getattr(tn, r.choice(DTYPES)),
            "Device": lambda: "cpu", "Generator": lambda: tn.Generator(),
        }  # fmt: skip
        return simple.get(base, self.anything)()


def targets(only: str | None) -> list[tuple[str, Any, dict[str, Any]]]:
    """Every operator in every public form, and as the table has it."""
    rows = json.loads((Path(tn.__file__).parent / "ops.json").read_text(encoding="utf-8"))
    out = []
    for row in rows:
        places = [(tn._C._ops, row["name"]), (tn, row["py_name"]), (tn.Tensor, row["py_name"]),
                  (tn.nn.functional, row["py_name"]),
                  (tn.Tensor, row["py_name"] + "_")]  # fmt: skip
        for place, name in places:
            fn = getattr(place, name, None)
            if callable(fn) and only in (None, row["name"], row["py_name"]):
                out.append((f"{getattr(place, '__name__', place)}.{name}", fn, row))
    return out


def text_of(value: Any) -> str:
    if isinstance(value, tn.Tensor):
        flags = "grad" if value.requires_grad else ""
        if value.layout is not tn.strided:
            return f"<{value.dtype} {list(value.shape)} {value.layout}>"
        return f"<{value.dtype} {list(value.shape)} strides {list(value.stride())} {flags}>"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text_of(v) for v in value) + "]"
    return ascii(value)


Call = tuple[list[Any], dict[str, Any]]


def drawn_call(pool: Pool, row: dict[str, Any]) -> Call:
    """Arguments out of the air."""
    r, params = pool.rng, row["args"]
    args = [pool.of_type(p["type"]) for p in params]
    cut = r.choice((len(args), len(args), len(args), r.randrange(len(args) + 1)))
    keys: dict[str, Any] = {}
    for p, value in zip(params[cut:], args[cut:], strict=True):
        if p["default"] is None or r.randrange(3) == 0:
            keys[p["name"]] = value
    return args[:cut], keys


def sampled_call(pool: Pool, row: dict[str, Any]) -> Call:
    """The arguments that a sample of the table gives, with one or two of them spoiled."""
    r = pool.rng
    sample = r.choice(row["samples"])
    types = {p["name"]: p["type"] for p in row["args"]}
    keys: dict[str, Any] = {}
    for p in row["args"]:
        name = p["name"]
        if name in sample:
            keys[name] = pool.of_sample(p["type"], sample[name])
        elif p["default"] is None or r.randrange(4) == 0:
            keys[name] = pool.of_type(p["type"])
    for _ in range(r.choice((0, 1, 1, 2)) if keys else 0):
        name = r.choice(list(keys))
        keys[name] = pool.spoiled(types[name], keys[name])
    first = row["args"][0]["name"] if row["args"] else ""
    return ([keys.pop(first)], keys) if first in keys else ([], keys)


def run_case(pool: Pool, what: list[Any], note: Callable[[str], None]) -> None:
    r = pool.rng
    name, fn, row = r.choice(what)
    sampled = row["samples"] and r.randrange(2)
    args, keys = sampled_call(pool, row) if sampled else drawn_call(pool, row)
    if r.randrange(6) == 0:
        keys["out"] = pool.tensor() if r.randrange(4) else r.choice([*args, None])
    named = ", ".join(f"{k}={text_of(v)}" for k, v in keys.items())
    note(f"{name}({text_of(args)}, {named})")
    try:
        result = fn(*args, **keys)
        for t in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(t, tn.Tensor) and t.numel() < 10**6:
                if t.requires_grad and t.grad_fn is not None and r.randrange(2):
                    t.sum().abs().backward()
                t.detach().tolist()
    except SystemError:
        raise
    except Exception:
        return


class SlowError(BaseException):
    """A call takes too long; no `except Exception` takes it for an answer."""


def interrupt(_signal: int, _frame: object) -> None:
    raise SlowError


def is_slow(pool: Pool, what: list[Any], note: Callable[[str], None], seconds: float) -> bool:
    """Runs a case; the interrupt has five seconds to be heard."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + 5, exit=True)
    try:
        run_case(pool, what, note)
    except SlowError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
    return False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    parser.add_argument("--only")
    parser.add_argument("--log")
    parser.add_argument("--slow", type=float, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    # Half a gigabyte more than there is: what is larger is refused, and nothing takes long. A
    # sanitizer's own allocator takes address space by larger pieces.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = 1 << (32 if "asan" in os.environ.get("LD_PRELOAD", "") else 29)
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    what = targets(options.only)
    log = open(options.log, "wb", buffering=0) if options.log else None
    end = time.monotonic() + options.seconds
    n, slow, text = options.first, 0, ""
    signal.signal(signal.SIGALRM, interrupt)
    while n - options.first < options.cases and time.monotonic() < end:
        pool = Pool(random.Random(f"{options.seed}:{n}"))

        def note(call: str, n: int = n) -> None:
            nonlocal text
            text = f"case {n}: {call}\n"
            if log:
                log.seek(0)
                log.truncate()
                log.write(text.encode())

        if is_slow(pool, what, note, options.slow):
            slow += 1
            print(f"slower than {options.slow:g} s: {text}", end="", flush=True)
        n += 1
    print(f"{n - options.first} cases, {slow} slow")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
