"""Reads the op table: TOML entries in, checked `Op` objects out.

An entry that is not understood stops the build with the file and line of the entry; nothing is
guessed. docs/op-table.md describes the keys.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEYS = {
    "sig", "kind", "dtype", "result", "shape", "dtypes", "params", "inputs", "layout", "forward",
    "grad", "save", "save_shape", "where", "alias", "ref", "samples", "domain", "grad_samples",
    "tests", "via", "doc",
    "tol", "dynamic", "random", "cast", "takes_out", "node", "version", "parts", "choices",
    "autocast", "zeros", "wide", "fits", "size_average", "warn", "vmap", "numbers",
    "sparse", "unsigned", "out", "check", "old", "refuses", "history", "writes_if", "repeated",
}  # fmt: skip
KINDS = ("pointwise", "reduction", "structured", "composite", "view")
WHERE = ("torch", "method", "nn.functional", "inplace", "out", "def", "inplace=")
DTYPE_SETS = {
    "bool": ["bool"],
    "int": ["uint8", "int8", "int16", "int32", "int64"],
    "float": ["float16", "bfloat16", "float32", "float64"],
    "complex": ["complex64", "complex128"],
}
ALL_DTYPES = [name for names in DTYPE_SETS.values() for name in names]
COMPUTE_RULES = ("promote", "float", "first", "sum", "bool", "number")
AUTOCAST = ("low", "float32", "widest")
OUT = {"exact", "whole", "apart", "itself", "filled", "dtype"}
REFUSES = {"bool", "int", "complex", "mixed", "lacking"}
CHECKS = (("pointwise", "custom"), ("composite", "custom"), ("pointwise", "unlike"))
REPEATED = (("pointwise", "custom"), ("structured", "custom"))

# schema type -> (field kind, C type in the argument struct, C parameter type)
TYPES = {
    "Tensor": ("TN_F_TENSOR", "const tn_view *", "tn_tensor *"),
    "Tensor!": ("TN_F_TENSOR", "tn_view *", "tn_tensor *"),
    "Tensor?": ("TN_F_TENSOR_OPT", "const tn_view *", "tn_tensor *"),
    "Tensor!?": ("TN_F_TENSOR_OPT", "tn_view *", "tn_tensor *"),
    "Tensor[]": ("TN_F_TENSORS", "tn_views ", "tn_tensors "),
    "Tensor[]!": ("TN_F_TENSORS", "tn_views ", "tn_tensors "),
    "Tensor?[]": ("TN_F_TENSORS", "tn_views ", "tn_tensors "),
    "Operand": ("TN_F_OPERAND", "const tn_view *", "tn_tensor *"),
    "int": ("TN_F_INT", "int64_t ", "int64_t "),
    "int?": ("TN_F_INT_OPT", "tn_opt_int ", "tn_opt_int "),
    "int[]": ("TN_F_INTS", "tn_ints ", "tn_ints "),
    "int[]?": ("TN_F_INTS", "tn_ints ", "tn_ints "),
    "Dim": ("TN_F_DIM", "int64_t ", "int64_t "),
    "Dim?": ("TN_F_DIM_OPT", "tn_opt_int ", "tn_opt_int "),
    "Dims": ("TN_F_DIMS", "tn_ints ", "tn_ints "),
    "bool": ("TN_F_BOOL", "int64_t ", "int64_t "),
    "float": ("TN_F_FLOAT", "double ", "double "),
    "float?": ("TN_F_FLOAT_OPT", "tn_opt_float ", "tn_opt_float "),
    "Scalar": ("TN_F_SCALAR", "tn_scalar ", "tn_scalar "),
    "Scalar?": ("TN_F_SCALAR_OPT", "tn_scalar ", "tn_scalar "),
    "DType": ("TN_F_DTYPE", "int64_t ", "int64_t "),
    "DType?": ("TN_F_DTYPE", "int64_t ", "int64_t "),
    "Device?": ("TN_F_DEVICE", "int64_t ", "int64_t "),
    "Format": ("TN_F_FORMAT", "int64_t ", "int64_t "),
    "str": ("TN_F_STR", "const char *", "const char *"),
    "str?": ("TN_F_STR", "const char *", "const char *"),
    "Generator?": ("TN_F_GENERATOR", "tn_generator *", "tn_generator *"),
}
TENSOR_TYPES = {t for t in TYPES if t.startswith("Tensor") or t == "Operand"}
LIST_TYPES = {"Tensor[]", "Tensor[]!", "Tensor?[]"}


class TableError(Exception):
    """A fault in the table, with the place it stands at."""


@dataclass
class Arg:
    name: str
    type: str
    default: str | None = None
    kwonly: bool = False
    fixed: int = 0

    @property
    def is_tensor(self) -> bool:
        return self.type in TENSOR_TYPES

    @property
    def is_list(self) -> bool:
        return self.type in LIST_TYPES

    @property
    def mutated(self) -> bool:
        return "!" in self.type


@dataclass
class Op:
    key: str
    file: str
    line: int
    entry: dict[str, Any]
    args: list[Arg] = field(default_factory=list)
    outs: list[str] = field(default_factory=list)
    list_out: bool = False
    scalar_form: bool = False  # has a C function that takes a number as second argument
    saved: set[str] = field(default_factory=set)
    saved_shape: set[str] = field(default_factory=set)
    readers: dict[str, set[int]] = field(default_factory=dict)  # saved name -> inputs
    called: set[str] = field(default_factory=set)  # by its formulas, C names

    @property
    def name(self) -> str:
        """The C name: tn_<name>."""
        return self.key.replace(".", "_").replace("@", "_v")

    @property
    def call_name(self) -> str:
        """What the operator is found by: "gelu", an earlier version "gelu@1"."""
        return self.key.replace(".", "_")

    @property
    def is_adapter(self) -> bool:
        """An earlier version of an operator, made of the one that took its place."""
        return "@" in self.key

    @property
    def version(self) -> int:
        return int(self.key.split("@")[1]) if self.is_adapter else self.entry.get("version", 1)

    @property
    def py_name(self) -> str:
        return self.key.split("@")[0].split(".")[0]

    @property
    def kind(self) -> str:
        return self.entry["kind"]

    @property
    def tensors(self) -> list[Arg]:
        return [a for a in self.args if a.is_tensor]

    @property
    def numbers(self) -> list[str]:
        """The tensor arguments that Python callers may give as numbers."""
        given = self.entry.get("numbers", [])
        if given == "all":
            return [a.name for a in self.tensors]
        default = [a.name for a in self.args if a.type == "Operand"]
        return given if "numbers" in self.entry else default

    @property
    def inplace_only(self) -> bool:
        """The first argument is the result."""
        return bool(self.args) and self.args[0].type == "Tensor!" and bool(self.outs)

    @property
    def writes(self) -> bool:
        """Some argument is written that is not the result."""
        return not self.inplace_only and any(a.mutated and not a.is_list for a in self.args)

    @property
    def grads(self) -> dict[str, str] | str | None:
        """Formulas by argument, "custom", "missing", or None where no node is ever made."""
        grads = self.entry.get("grad")
        return None if grads == "none" else grads

    @property
    def autocast(self) -> dict[str, str]:
        """The rules on the CPU and elsewhere."""
        rule = self.entry.get("autocast", {})
        return {"cpu": rule, "other": rule} if isinstance(rule, str) else rule

    @property
    def result_may_float(self) -> bool:
        """Some result can be of a floating or complex dtype."""
        if not self.outs:
            return False
        if self.kind == "view":
            return True
        result = self.entry.get("result", "compute")
        words = result if isinstance(result, list) else [result]
        floating = set(DTYPE_SETS["float"]) | set(DTYPE_SETS["complex"])
        able = self.entry.get("dtype") == "float" or bool(floating & set(self.dtypes))
        return able and any(word in ("compute", "real") for word in words)

    @property
    def where(self) -> list[str]:
        if self.is_adapter:
            return []
        if "where" in self.entry:
            return self.entry["where"]
        forms = ["torch", "method"]
        if self.py_name.endswith("_"):
            return ["method"]
        if not self.outs:
            return forms
        if self.kind == "pointwise":
            return [*forms, "inplace", "out"]
        if self.kind in ("reduction", "structured"):
            return [*forms, "out"]
        return forms

    @property
    def dtypes(self) -> list[str]:
        names: list[str] = []
        for word in self.entry.get("dtypes", "bool int float complex").split():
            names += DTYPE_SETS.get(word, [word])
        return names

    def fail(self, text: str) -> TableError:
        return TableError(f"{self.file}:{self.line}: [{self.key}] {text}")


_ARG = re.compile(
    r"(?P<type>[A-Za-z]+(?:\[\d*\])?[!?]*(?:\[\])?!?)\s+(?P<name>\w+)(?:=(?P<def>.+))?$"
)


def split_commas(text: str) -> list[str]:
    """Splits at commas that stand outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        if ch in "([":
            depth += 1
        elif ch in ")]":
            depth -= 1
        elif ch == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def parse_sig(op: Op) -> None:
    """Fills op.args and op.outs from the signature text."""
    m = re.fullmatch(r"\s*(\w+)\((.*)\)\s*->\s*(.+?)\s*", op.entry["sig"], re.S)
    if not m:
        raise op.fail(f"sig is not of the form name(...) -> ...: {op.entry['sig']}")
    if m[1] != op.py_name:
        raise op.fail(f"sig names '{m[1]}', the header says '{op.py_name}'")
    kwonly = False
    for part in split_commas(m[2]):
        if part == "*":
            kwonly = True
            continue
        a = _ARG.match(part)
        if not a:
            raise op.fail(f"cannot read argument '{part}'")
        type_, fixed = a["type"], 0
        if f := re.fullmatch(r"int\[(\d+)\](\??)", type_):
            type_, fixed = "int[]" + f[2], int(f[1])
        if type_ not in TYPES:
            raise op.fail(f"unknown type '{a['type']}' of argument '{a['name']}'")
        op.args.append(Arg(a["name"], type_, a["def"], kwonly, fixed))
    ret = m[3]
    if ret == "Tensor[]":
        op.outs, op.list_out = ["out"], True
    elif ret == "Tensor":
        op.outs = ["out"]
    elif ret.startswith("("):
        for part in split_commas(ret[1:-1]):
            words = part.split()
            if len(words) != 2 or words[0] != "Tensor":
                raise op.fail(f"cannot read result '{part}'")
            op.outs.append(words[1])
    else:
        raise op.fail(f"cannot read result '{ret}'")
    names = [a.name for a in op.args] + op.outs
    if len(set(names)) != len(names):
        raise op.fail("two arguments or results share a name")


def check_no_result(op: Op) -> None:
    """Entries that end in `-> ()`."""
    if not any(a.mutated for a in op.args):
        raise op.fail("returns nothing and writes to no argument")
    if op.kind not in ("structured", "composite"):
        raise op.fail(f"a {op.kind} operator has a result")
    for form in ("inplace", "out"):
        if form in op.where:
            raise op.fail(f"returns nothing, so it has no form '{form}'")
    if op.grads is not None:
        raise op.fail(
            "returns nothing, so no gradient comes to it; a composite is recorded through its parts"
        )


def check_forms(op: Op) -> None:
    """Keys of the functions that Python writes around an operator."""
    if "inplace=" in op.where and not {"nn.functional", "inplace"} <= set(op.where):
        raise op.fail("'inplace=' chooses between the forms 'nn.functional' and 'inplace'")
    for order in op.entry.get("old", []):
        strange = set(order.split(" ")) - {a.name for a in op.args}
        if strange:
            raise op.fail(f"old: there is no argument {', '.join(sorted(strange))}")
    if "size_average" in op.entry:
        names = [a.name for a in op.args]
        if op.entry["size_average"] not in names or "reduction" not in names:
            raise op.fail("size_average names the argument that it stands before, and there is a "
                          "'reduction'")  # fmt: skip
    if (
        op.entry.get("warn", "sizes") != "sizes"
        or "warn" in op.entry
        and "size_average" not in op.entry
    ):
        raise op.fail("warn is 'sizes', and goes with size_average")


def check_version(op: Op, seen: dict[str, Op]) -> None:
    """An adapter stands behind the entry that it adapts, and is older."""
    version = op.entry.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= 9999:
        raise op.fail("version is a number from 1 to 9999")
    if not op.is_adapter:
        return
    newest = seen.get(op.call_name.split("@")[0])
    if newest is None or newest.version <= op.version:
        raise op.fail("stands behind no entry of a later version")
    for key in op.entry.keys() - {"sig", "kind", "forward", "doc"}:
        raise op.fail(f"key '{key}' is not for an earlier version, which is a composite")
    if op.kind != "composite":
        raise op.fail("an earlier version is a composite of the later one")


def check_words(op: Op) -> None:
    """That keys are known, and that those with words of their own have one of them."""
    e = op.entry
    for key in e:
        if key not in KEYS:
            raise op.fail(f"unknown key '{key}'")
    for key in ("sig", "kind"):
        if key not in e:
            raise op.fail(f"key '{key}' is missing")
    if op.kind not in KINDS:
        raise op.fail(f"kind '{op.kind}' is none of {', '.join(KINDS)}")
    for form in e.get("where", []):
        if form not in WHERE:
            raise op.fail(f"where '{form}' is none of {', '.join(WHERE)}")
    for name in op.dtypes:
        if name not in ALL_DTYPES:
            raise op.fail(f"dtypes names '{name}', which is no dtype")
    rules = op.autocast
    if rules.keys() - {"cpu", "other"} or set(rules.values()) - set(AUTOCAST):
        raise op.fail(f"autocast is one of {', '.join(AUTOCAST)}, or a table with cpu and other")
    if e.get("history", "first") != "first":
        raise op.fail("history is 'first' where it is not that of all results")


def check_kind(op: Op) -> None:
    """That an operator has what its kind needs, and no key of another kind."""
    e = op.entry
    if op.kind in ("pointwise", "reduction"):
        if e.get("dtype") not in COMPUTE_RULES:
            raise op.fail(f"dtype must be one of {', '.join(COMPUTE_RULES)}")
        if len(op.tensors) + len(op.outs) > 8:
            raise op.fail("a plan has at most 8 operands")
    if op.kind == "structured" and "shape" not in e:
        raise op.fail("a structured operator needs a shape rule")
    if op.kind == "composite" and "forward" not in e:
        raise op.fail("a composite operator needs 'forward'")
    if "parts" in e and (op.kind == "composite" or e.get("forward") != "custom"):
        raise op.fail("parts go with forward = 'custom' of an operator that has kernels")
    if e.get("wide") and (op.kind != "composite" or op.list_out or e.get("takes_out") or
                          any(a.is_list for a in op.args)):  # fmt: skip
        raise op.fail("wide is for a composite without lists that leaves out= to its caller")
    if "check" in e and (op.kind, e["check"]) not in CHECKS:
        raise op.fail("check is 'custom', for pointwise and composite operators, or 'unlike'")
    if "repeated" in e and (op.kind, e["repeated"]) not in REPEATED:
        raise op.fail("repeated is 'custom', for pointwise and structured operators")
    if "fits" in e and op.kind != "pointwise":
        raise op.fail("fits is for pointwise operators")


def check_arguments(op: Op) -> None:
    """That keys which name arguments name those that there are, of the type that is wanted."""
    e = op.entry
    gate = next((a.type for a in op.args if a.name == e.get("writes_if")), None)
    if "writes_if" in e and (gate != "bool" or not any(a.mutated for a in op.args)):
        raise op.fail("writes_if names a bool argument of an operator that writes to others")
    for p in e.get("params", []):
        if p not in {a.name for a in op.args}:
            raise op.fail(f"params names '{p}', which is no argument")
    for p, names in e.get("choices", {}).items():
        if p not in {a.name for a in op.args if a.type == "int"}:
            raise op.fail(f"choices names '{p}', which is no int argument")
        if not names or not all(re.fullmatch(r"[A-Z][A-Z0-9_]*", n) for n in names):
            raise op.fail(f"choices.{p} lists names of constants, such as SET")
    for p in op.numbers:
        if p not in {a.name for a in op.args if a.type in ("Tensor", "Operand")}:
            raise op.fail(f"numbers names '{p}', which is no tensor argument")
    for p in e.get("inputs", {}):
        if p not in {a.name for a in op.tensors}:
            raise op.fail(f"inputs names '{p}', which is no tensor argument")


def check_gradient(op: Op) -> None:
    """That an operator says what its gradient is, for arguments that there are."""
    e, grads = op.entry, op.grads
    if "zeros" in e and e.get("grad") != "custom":
        raise op.fail("zeros goes with grad = 'custom'")
    if isinstance(grads, dict):
        for name in grads:
            if name not in {a.name for a in op.tensors}:
                raise op.fail(f"grad.{name}: no such tensor argument")
    elif grads not in (None, "custom", "missing"):
        raise op.fail("grad must be a table of formulas, 'custom', 'none' or 'missing'")
    for name in e.get("node", "").split():
        renames = r"([A-Z]\w*Backward\w*=)?" if op.kind == "composite" else ""
        if not re.fullmatch(renames + r"[A-Z]\w*Backward\w*", name):
            raise op.fail(f"node '{name}' is not of the form SumBackward1")
    if "grad" not in e and op.kind != "composite" and op.tensors and op.result_may_float:
        raise op.fail(
            "needs 'grad': formulas, 'custom', 'none' (the result has no history) or 'missing' "
            "(backward raises)"
        )


def check(op: Op) -> None:
    """Everything that an entry must keep to; the first thing that it does not is an error."""
    e = op.entry
    check_words(op)
    parse_sig(op)
    check_forms(op)
    if not op.outs:
        check_no_result(op)
    check_kind(op)
    check_arguments(op)
    check_gradient(op)
    if op.is_adapter:
        return
    if not op.py_name.startswith("_") and "tests" not in e and not ("ref" in e and "samples" in e):
        raise op.fail("needs 'ref' and 'samples', or 'tests' naming the file that covers it")
    if not op.py_name.startswith("_") and "doc" not in e:
        raise op.fail("needs 'doc'")


def check_tests(op: Op, root: Path, texts: dict[str, str]) -> None:
    """The file that `tests` names exists and says the operator's name, or what `via` says."""
    name = op.entry.get("tests")
    via = op.entry.get("via")
    if name is None:
        if via is not None:
            raise op.fail("via goes with tests")
        return
    if name not in texts:
        path = root / name
        if not path.is_file():
            raise op.fail(f"tests names '{name}', which is no file")
        texts[name] = path.read_text(encoding="utf-8")
    if via is not None and via not in texts[name]:
        raise op.fail(f"tests names '{name}', where '{via}' is not called")
    if via is None and not re.search(rf"(?<!\w){re.escape(op.py_name)}(?!\w)", texts[name]):
        raise op.fail(
            f"tests names '{name}', where '{op.py_name}' does not occur: test it there, or say "
            "with 'via' how it is called"
        )


def load(paths: list[Path], root: Path) -> list[Op]:
    """All entries of the given files, in file order."""
    ops: list[Op] = []
    seen: dict[str, Op] = {}
    rules: dict[str, list[str]] = {}
    outs: dict[str, list[str]] = {}
    refusals: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        lines: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if m := re.match(r'\[(?:"([\w.@]+)"|(\w+))\]', line):
                lines[m[1] or m[2]] = number
        rel = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as err:
            raise TableError(f"{rel}: {err}") from err
        rules |= data.pop("sparse_rules", {})
        outs |= data.pop("out_rules", {})
        refusals |= data.pop("refuses_rules", {})
        for key, entry in data.items():
            if key not in lines or not isinstance(entry, dict):
                raise TableError(f"{rel}: '{key}' is not an entry [name]")
            op = Op(key, rel, lines[key], entry)
            if other := seen.get(op.name):
                raise op.fail(f"already defined at {other.file}:{other.line}")
            check_version(op, seen)
            seen[op.name] = op
            check(op)
            check_tests(op, root, texts)
            ops.append(op)
    by_key = {op.key: op for op in ops}
    set_rules("sparse", rules, by_key)
    set_rules("out", outs, by_key)
    set_rules("refuses", refusals, by_key)
    for op in ops:
        check_out(op)
        check_refuses(op)
    return ops


def set_rules(word: str, rules: dict[str, list[str]], ops: dict[str, Op]) -> None:
    """The key `sparse`, `out` or `refuses` of the entries that a table [KEY_rules] names."""
    for rule, keys in rules.items():
        for key in keys:
            if key not in ops:
                raise TableError(f"{word}_rules.{rule} names '{key}', which is no operator")
            if word in ops[key].entry:
                raise ops[key].fail(f"has two rules for '{word}'")
            ops[key].entry[word] = rule


def check_out(op: Op) -> None:
    words = set(op.entry.get("out", "").split())
    written = op.inplace_only or {"out", "inplace"} & set(op.where)
    if words and (not written or words - OUT):
        raise op.fail(
            f"out holds words of {', '.join(sorted(OUT))}, and goes with a form 'out' or in place"
        )
    if words and op.entry.get("takes_out"):
        raise op.fail("out is checked for an operator that leaves out= to its caller")


def check_refuses(op: Op) -> None:
    words = set(op.entry.get("refuses", "").split())
    if words - REFUSES:
        raise op.fail(f"refuses holds words of {', '.join(sorted(REFUSES))}")
    if "mixed" in words and op.kind not in ("pointwise", "composite"):
        raise op.fail("refuses 'mixed' is for pointwise and composite operators")
    kernels = {name for word in words - {"mixed", "lacking"} for name in DTYPE_SETS[word]}
    if op.kind != "composite" and (both := kernels & set(op.dtypes)):
        raise op.fail(f"refuses {', '.join(sorted(both))}, which it has kernels for")
