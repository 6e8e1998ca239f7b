"""Calls like an operator's samples that differ in one argument: what the samples leave at its
default, the other dimensions, the other ranks. Which of them mean something PyTorch says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import tenon as tn
from table import CONSTANTS, Case, is_tensor_type, make_case

# How many of an operator's samples are varied, and of how many calls at most.
SAMPLES, CALLS = 3, 32
# Random numbers, or nothing that a result shows.
APART = {"dropout", "dropout_p", "generator", "device", "memory_format", "out", "layout"}
WORDS = {
    "reduction": ["none", "mean", "sum"],
    "rounding_mode": ["floor", "trunc"],
    "approximate": ["none", "tanh"],
    "interpolation": ["linear", "lower", "higher", "midpoint", "nearest"],
    "norm": ["backward", "ortho", "forward"],
    "indexing": ["ij", "xy"],
    "side": ["left", "right"],
    "pad_mode": ["reflect", "constant", "replicate"],
    "padding": ["same", "valid"],
    "reduce": ["sum", "prod", "mean", "amax", "amin", "add", "multiply"],
    "mode": ["constant", "reflect", "replicate", "circular", "nearest", "bilinear", "reduced",
             "complete", "r"],
    "compute_mode": ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"],
    "p": ["fro", "nuc"],
    "ord": ["fro", "nuc"],
}  # fmt: skip


# PyTorch ends the process for no points.
CRASHES = {"pdist"}


def default_of(arg: dict[str, Any]) -> Any:
    text = arg["default"]
    return None if text is None else eval(text, dict(CONSTANTS))


def other_values(arg: dict[str, Any], value: Any, first: list[int]) -> list[Any]:
    """What an argument may be in place of `value`; `first` is the shape of the first tensor."""
    kind, name = arg["type"].rstrip("?"), arg["name"]
    if name in APART:
        return []
    if is_tensor_type(kind):
        if value in (None, "none"):
            last = [first[-1:], first[1:2], first] if arg["type"].endswith("?") else []
            return [s for i, s in enumerate(last) if s and s not in last[:i]]
        return ["none"] if arg["type"].endswith("?") else []
    if kind == "bool":
        return [not value]
    if kind == "str":
        return WORDS.get(name, [])
    if kind == "DType":
        return ["float32", "int64", "complex64", "float16"]
    if kind in ("Dim", "Dims") or name.startswith("dim"):
        single = [0, 1, -1, 2, -2, len(first), -len(first) - 1]
        if kind == "Dim" or kind == "int":
            return single
        return [[0], [-1], [0, -1], [1, 0], [len(first)], [0, 0]]
    if kind == "int":
        return [1, 2] if value is None else [value + 1, value - 1, -1]
    if kind == "int[]" or (isinstance(value, list) and all(isinstance(v, int) for v in value)):
        if isinstance(value, int):
            return [value + 1, [value, value + 1], -1]
        if not value:
            return []
        return [[v + 1 for v in value], [*value[:-1], value[-1] + 1], value[::-1], [*value, 1]]
    if kind in ("float", "Scalar"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            return [0.5, 1.5] if value is None else []
        more = [value + 1] if isinstance(value, int) and kind == "Scalar" else []
        return [value + 0.5, value * 0.5 + 0.25, *more]
    return []


def reshaped(sample: dict[str, Any], types: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Ranks and sizes: one dimension more in front, one less, none of an element, a single one."""
    shapes = {
        n: v for n, v in sample.items()
        if is_tensor_type(types[n]) and "[]" not in types[n] and isinstance(v, list)
        and all(isinstance(k, int) for k in v)
    }  # fmt: skip
    if not shapes:
        return
    name, shape = next(iter(shapes.items()))
    yield {**sample, name: [2, *shape]}
    yield {**sample, **{n: [2, *s] for n, s in shapes.items()}}
    yield {**sample, **{n: s[1:] for n, s in shapes.items()}}
    if shape:
        lead = shape[0]
        yield {**sample, **{n: [0, *s[1:]] if s[:1] == [lead] else s for n, s in shapes.items()}}
        yield {**sample, **{n: [1, *s[1:]] if s[:1] == [lead] else s for n, s in shapes.items()}}
        yield {**sample, name: [lead + 1, *shape[1:]]}
        yield {**sample, name: [*shape[:-1], shape[-1] + 1]}
    for other in list(shapes)[1:3]:
        yield {**sample, other: [*shapes[other], 2]}


def variations(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Samples of an operator that differ in one argument from those of its entry."""
    types = {a["name"]: a["type"] for a in row["args"]}
    known = {json.dumps(s, sort_keys=True) for s in row["samples"]}
    found = []
    for sample in row["samples"][:SAMPLES]:
        plain = [v for n, v in sample.items() if is_tensor_type(types[n]) and isinstance(v, list)]
        shape = next((v for v in plain if all(isinstance(k, int) for k in v)), [])
        made = list(reshaped(sample, types)) if row["name"] not in CRASHES else []
        for arg in row["args"]:
            value = sample.get(arg["name"], default_of(arg))
            if arg["name"] in sample or arg["default"] is not None:
                for other in other_values(arg, value, shape):
                    made.append({**sample, arg["name"]: other})
        for one in made:
            text = json.dumps(one, sort_keys=True)
            if text not in known:
                known.add(text)
                found.append(one)
    return found[:: max(1, -(-len(found) // CALLS))]


def varied(row: dict[str, Any], dtype: str) -> list[Case]:
    """The calls, where their data fit that dtype."""
    types = {a["name"]: a["type"] for a in row["args"]}
    found = []
    for sample in variations(row):
        try:
            with np.errstate(all="ignore"):
                case = make_case(row, sample, dtype)
        except (OverflowError, ValueError):
            continue
        for name, value in case.args.items():
            if types[name].startswith("DType") and isinstance(value, str):
                case.args[name] = getattr(tn, value)
        found.append(case)
    return found
