"""The op table as the tests see it: entries, sample arguments, references.

TENON_TEST_DEVICE names the device that the tests run on (another one than the CPU: plugins).

A sample in the table maps argument names to values. For a tensor argument a list is a shape, filled
with seeded numbers inside the entry's `domain`; `{ data = [...], dtype = "int64" }` is that tensor.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import refs
import scipy.special  # noqa: F401  (references say sp.special)
import tenon as tn

NP_DTYPES = {
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "int16": np.int16, "int32": np.int32,
    "int64": np.int64, "float16": np.float16, "bfloat16": np.float32, "float32": np.float32,
    "float64": np.float64, "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip
DEVICE = os.environ.get("TENON_TEST_DEVICE", "cpu")
TENSOR_TYPES = ("Tensor", "Operand")
# Names that defaults of the table use.
CONSTANTS = {"inf": np.inf, "nan": np.nan, "contiguous_format": None, "preserve_format": None}


@cache
def rows() -> list[dict[str, Any]]:
    """Every operator."""
    path = Path(tn.__file__).parent / "ops.json"
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def entries() -> list[dict[str, Any]]:
    """Every operator with a reference and samples."""
    return [row for row in rows() if row["ref"] and row["samples"] and row["where"]]


def inner() -> list[dict[str, Any]]:
    """Operators that formulas and gradients call and users do not, with samples."""
    return [row for row in rows() if row["samples"] and not row["where"]]


def sampled() -> list[dict[str, Any]]:
    """Every operator with samples whose results are the same at each call, by its public names."""
    return [
        row for row in rows()
        if row["samples"] and row["where"] and not row["random"]
        and not row["name"].startswith(("_", "empty", "new_empty"))
    ]  # fmt: skip


@dataclass
class Case:
    """One call: arguments as NumPy arrays (tensors) and plain values."""

    row: dict[str, Any]
    dtype: str
    args: dict[str, Any]

    @property
    def tensors(self) -> list[str]:
        return [n for n, v in self.args.items() if isinstance(v, np.ndarray)]

    def label(self) -> str:
        shapes = [f"{n}{list(v.shape)}" if isinstance(v, np.ndarray) else f"{n}={v}"
                  for n, v in self.args.items()]  # fmt: skip
        return f"{self.row['name']}({', '.join(shapes)}) {self.dtype}"


def is_tensor_type(type_: str) -> bool:
    return type_.startswith(TENSOR_TYPES)


def fill(
    shape: list[int], dtype: str, domain: list[float] | None, rng: np.random.Generator
) -> np.ndarray:
    """Numbers of a dtype whose values that dtype holds exactly."""
    lo, hi = domain or (-3.0, 3.0)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    if dtype.startswith(("int", "uint")):
        low = 0 if dtype == "uint8" and lo < 0 else int(np.ceil(lo))
        x = rng.integers(low, max(int(np.floor(hi)), low) + 1, shape)
        return np.asarray(x).astype(NP_DTYPES[dtype])
    if dtype.startswith("complex"):
        z = rng.uniform(lo, hi, shape) + 1j * rng.uniform(lo, hi, shape)
        return np.asarray(z).astype(NP_DTYPES[dtype])
    x = rng.uniform(lo, hi, shape)
    if dtype == "bfloat16":
        bits = np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return np.asarray(bits).view(np.float32)
    return np.asarray(x).astype(NP_DTYPES[dtype])


def described(value: dict[str, Any], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """The array of a sample that is more than a shape."""
    kind = value.get("dtype", dtype)
    if "shape" not in value:
        return np.array(value["data"], dtype=NP_DTYPES[kind])
    bounds = [float(value.get("low", -3)), float(value.get("high", 3))]
    return fill(value["shape"], kind, bounds, rng)


def make_case(row: dict[str, Any], sample: dict[str, Any], dtype: str) -> Case:
    rng = np.random.default_rng(zlib.crc32(f"{row['name']}{sample}".encode()))
    types = {a["name"]: a["type"] for a in row["args"]}
    args: dict[str, Any] = {}
    for name, value in sample.items():
        if is_tensor_type(types[name]) and value == "none":
            args[name] = None
        elif is_tensor_type(types[name]) and isinstance(value, dict):
            args[name] = described(value, dtype, rng)
        elif is_tensor_type(types[name]) and "[]" in types[name]:
            domain = row["domain"].get(name)
            args[name] = [
                described(s, dtype, rng) if isinstance(s, dict) else fill(s, dtype, domain, rng)
                for s in value
            ]
        elif is_tensor_type(types[name]) and isinstance(value, list):
            own = row["inputs"].get(name, dtype)
            args[name] = fill(value, own, row["domain"].get(name), rng)
        else:
            args[name] = value
    return Case(row, dtype, args)


def to_tensor(x: np.ndarray, dtype: str) -> tn.Tensor:
    t = tn.from_numpy(np.ascontiguousarray(x).reshape(x.shape).copy())
    if dtype == "bfloat16" and x.dtype == np.float32:
        t = t.to(tn.bfloat16)
    return t.to(DEVICE)


def tensor_args(case: Case) -> dict[str, Any]:
    """The arguments with tensors in place of arrays."""

    def convert(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            return to_tensor(v, case.dtype)
        if isinstance(v, list) and v and isinstance(v[0], np.ndarray):
            return [to_tensor(x, case.dtype) for x in v]
        return v

    return {n: convert(v) for n, v in case.args.items()}


def function_of(row: dict[str, Any]) -> Any:
    """The extension's own function of an operator, or its method: nothing of Python's stands
    between a test and the entry."""
    if "torch" in row["where"] or not row["where"]:
        return getattr(tn._C._ops, row["py_name"])
    if "nn.functional" in row["where"]:
        return getattr(tn._C._nn, row["py_name"])
    return getattr(tn.Tensor, row["py_name"])


def call(row: dict[str, Any], args: dict[str, Any], **extra: Any) -> Any:
    """Calls the operator; a method gets its first argument by position."""
    fn = function_of(row)
    if row["where"] != ["method"]:
        return fn(**args, **extra)
    rest = dict(args)
    first = rest.pop(row["args"][0]["name"])
    return fn(first, **rest, **extra)


def widen(v: Any) -> Any:
    if isinstance(v, list) and v and isinstance(v[0], np.ndarray):
        return [widen(x) for x in v]
    if not isinstance(v, np.ndarray) or v.dtype.kind in "biu":
        return v
    return v.astype(np.complex128 if v.dtype.kind == "c" else np.float64)


def reference(case: Case) -> Any:
    """The entry's reference, computed in float64, complex128 or exact integers."""
    import scipy as sp

    scope: dict[str, Any] = {"np": np, "sp": sp, "refs": refs}
    for a in case.row["args"]:
        default = a["default"]
        scope[a["name"]] = None if default is None else eval(default, dict(CONSTANTS))
    scope.update({n: widen(v) for n, v in case.args.items()})
    with np.errstate(all="ignore"):
        return eval(case.row["ref"], scope)


def as_array(t: tn.Tensor) -> np.ndarray:
    if t.dtype == tn.bfloat16:
        t = t.to(tn.float32)
    return t.detach().cpu().numpy()
