"""Writes the conformance kit's data: `make_data.py OPS_JSON LEVELS_TOML TOLERANCES_TOML OUTPUT`.

One line per fact, its parts separated by tabs: tolerances, what levels need, and for every operator
its samples as the op table has them, with defaults filled in. README.md describes the lines.
"""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "contiguous_format": 0, "preserve_format": 1}
# Operators whose results hold whatever was in memory.
UNSET = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip


def join(numbers: Any) -> str:
    return ",".join(repr(int(n) if isinstance(n, bool) else n) for n in numbers)


def flatten(data: Any) -> tuple[list[int], list[Any]]:
    """The shape of nested lists, and their numbers in order."""
    if not isinstance(data, list):
        return [], [data]
    parts = [flatten(item) for item in data]
    shape = [len(data), *(parts[0][0] if parts else [])]
    return shape, [number for _, numbers in parts for number in numbers]


def tensor_text(value: Any, dtype: str, domain: list[float] | None) -> str:
    """T:shape:dtype:low:high to be filled, D:shape:dtype:numbers; no dtype: that of the case.

    "@cpu" behind the dtype: the tensor is on the CPU, whatever the device under test."""
    if isinstance(value, list):
        value = {"shape": value}
    dtype = value.get("dtype", dtype) + ("@cpu" if value.get("device") == "cpu" else "")
    if "data" in value:
        shape, numbers = flatten(value["data"])
        return f"D:{join(shape)}:{dtype}:{join(numbers)}"
    low, high = domain or (-3.0, 3.0)
    return f"T:{join(value['shape'])}:{dtype}:{value.get('low', low)!r}:{value.get('high', high)!r}"


def number_text(value: Any) -> str:
    if isinstance(value, bool):
        return f"b:{int(value)}"
    return f"i:{value}" if isinstance(value, int) else f"f:{value!r}"


def value_text(row: dict[str, Any], name: str, kind: str, value: Any) -> str:
    domain, dtype = row["domain"].get(name), row["inputs"].get(name, "")
    if value is None or (value == "none" and kind.startswith("Tensor")):
        return "-"
    if kind.startswith(("Tensor[]", "Tensor?[]")):
        items = ["-" if v == "none" else tensor_text(v, dtype, domain) for v in value]
        return "L:" + ";".join(items)
    if kind.startswith(("Tensor", "Operand")) and isinstance(value, (list, dict)):
        return tensor_text(value, dtype, domain)
    if kind.startswith(("int[", "Dims")):
        return "I:" + join(value if isinstance(value, (list, tuple)) else [value])
    if kind.startswith("DType"):
        return f"d:{value}"
    if isinstance(value, str):
        return f"s:{value}"
    return number_text(float(value) if kind.startswith("float") else value)


def default(text: str | None) -> Any:
    return CONSTANTS[text] if text in CONSTANTS else ast.literal_eval(text or "None")


def sample_line(word: str, row: dict[str, Any], sample: dict[str, Any]) -> str:
    parts = [
        value_text(row, a["name"], a["type"], sample.get(a["name"], default(a["default"])))
        for a in row["args"]
    ]
    return "\t".join([word, *parts])


def op_lines(row: dict[str, Any]) -> list[str]:
    forms = [form for form in ("inplace", "out") if form in row["where"]]
    if row["inplace_only"]:
        forms = []
    forms += ["unset"] if row["py_name"] in UNSET else []
    words = [row["name"], row["kind"], " ".join(forms) or "-", repr(float(row["tol"] or 1))]
    lines = ["\t".join(["op", *words, " ".join(row["dtypes"]) or "*"])]
    lines += [sample_line("sample", row, sample) for sample in row["samples"]]
    lines += [sample_line("grad", row, sample) for sample in row["grad_samples"] or []]
    return lines


def level_lines(levels: dict[str, Any]) -> list[str]:
    lines = []
    for level, needs in levels.items():
        lines += [f"need\t{level}\tinterface\t{name}" for name in needs.get("interfaces", [])]
        for dtypes, ops in needs.get("kernels", {}).items():
            choice = dtypes.replace(" or ", " ")
            lines += [f"need\t{level}\tkernel\t{op}\t{choice}" for op in ops]
    return lines


def tolerance_lines(tolerances: dict[str, Any]) -> list[str]:
    return [
        f"tolerance\t{name}\t{t['ulps'] * t['epsilon']!r}\t{t['absolute']!r}\t{t['epsilon']!r}"
        for name, t in tolerances.items()
    ]


def main(ops: Path, levels: Path, tolerances: Path, output: Path) -> None:
    lines = ["tenon-conform\t1"]
    lines += tolerance_lines(tomllib.loads(tolerances.read_text(encoding="utf-8")))
    lines += level_lines(tomllib.loads(levels.read_text(encoding="utf-8")))
    for row in json.loads(ops.read_text(encoding="utf-8")):
        lines += op_lines(row)
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
