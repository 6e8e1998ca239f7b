"""All mutants of the tree: what is changed, and the entries whose tests must notice."""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctext
import formulas
import pycode

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dispatch" / "opgen"))
import emit_c  # noqa: E402
import table as optable  # noqa: E402

KINDS = ("gradient", "forward", "shape", "dtype", "kernel", "code")
OF_PREFIX = {"grad": "gradient", "composite": "forward", "infer": "shape"}
COMMON = "backends/common"
# Formulas of the headers that do not belong to one f_<op>: the entries that they serve.
SERVES = {
    "rules.h": ["_rule_"], "rule_size.h": ["_rule_"], "adam.h": ["_adam_"],
    "order.h": ["sort", "topk", "unique", "searchsorted"], "draw.h": ["multinomial"],
    "philox.h": ["rand", "randn", "uniform_", "normal_", "bernoulli", "dropout"],
    "cast.h": ["to"], "reduce.h": [],
}  # fmt: skip
# Functions that loops of the backends call, or macros: the entries that they serve.
BY_LOOPS = {
    "f32_fmod_far": ["fmod", "remainder", "floor_divide"],
    "f64_fmod_far": ["fmod", "remainder", "floor_divide"],
    "f32_erfinv": ["erfinv"], "f64_ndtr": ["special_ndtr"], "f64_lgamma": ["lgamma", "mvlgamma"],
    "complex_divide_far": ["true_divide", "reciprocal"],
}  # fmt: skip
# What no processor compiles, and what loops over vectors alone call.
ON_DEVICES = {"scalar_gpu.h", "scalar_half.h"}
REDUCTIONS = {
    "sum": ["sum"], "prod": ["prod"], "spread": ["var", "std"], "amax": ["amax"], "amin": ["amin"],
    "all": ["all"], "any": ["any"],
}  # fmt: skip
NEIGHBOURS = {
    "promote": "FIRST", "float": "PROMOTE", "first": "FLOAT", "sum": "PROMOTE", "bool": "PROMOTE",
    "number": "PROMOTE",
}  # fmt: skip


@dataclass
class Mutant:
    """`code` is the text of the changed function under the name `{NAME}` (of a macro: the changed
    expression); or `rule` says which field of which descriptor gets which value. `function` is the
    name of the changed function, with @ and its place where names repeat."""

    kind: str
    unit: str  # what is changed: "gradient of slice", "f_add of scalar_int.h"
    note: str
    entries: list[str]
    file: str = ""
    function: str = ""
    code: str = ""
    rule: tuple[str, str, str] = ("", "", "")
    span: tuple[int, int, str] = (0, 0, "")  # of a module of Python: what becomes what
    number: int = 0
    seen: int = -1

    @property
    def id(self) -> str:
        return f"{self.unit}: {self.note}"


@dataclass
class Source:
    """A C file with mutants: compiled anew from `path`, with `text` in its place."""

    path: str
    text: str

    def functions(self) -> list[ctext.Function]:
        return ctext.functions(self.text)


def read_table() -> list[Any]:
    return optable.load(sorted((ROOT / "dispatch" / "ops").glob("*.toml")), ROOT)


# -- formulas ----------------------------------------------------------------------------------


def formula_mutants(ops: list[Any], generated: Path) -> Iterator[Mutant]:
    table = {op.name: op for op in ops}
    emit_c.emit(ops)  # finds out which operators have a form with a number
    for op in ops:
        grads, file = op.grads, str(generated / f"op_{emit_c.family(op)}.c")
        for arg, text in grads.items() if isinstance(grads, dict) else ():
            if text == "none":
                continue
            for new in formulas.mutants(text, True):
                code = _compiled(op, table, {**grads, arg: new}, None)
                if code:
                    yield Mutant(
                        "gradient", f"gradient of {op.name} for {arg}", f"{text} -> {new}",
                        [op.name], file, f"grad_{op.name}", code,
                    )  # fmt: skip
        text = op.entry.get("forward", "custom")
        for new in formulas.mutants(text, True) if text != "custom" else ():
            code = _compiled(op, table, None, new)
            if code:
                yield Mutant(
                    "forward", f"formula of {op.name}", f"{text} -> {new}", [op.name],
                    file, f"composite_{op.name}", code,
                )  # fmt: skip


def _compiled(op: Any, table: dict[str, Any], grads: Any, forward: str | None) -> str:
    """The C function of a changed formula; nothing where the language has no such formula."""
    try:
        if forward is None:
            lines = emit_c.gradient_function(op, table, grads, "{NAME}")[1]
        else:
            lines = emit_c.composite_function(op, table, forward, "{NAME}")[1]
    except (optable.TableError, KeyError):
        return ""
    return "\n".join(lines)


# -- functions by hand -------------------------------------------------------------------------

_ROOT_NAME = re.compile(r"^tni_(grad|composite|infer)_(\w+)$")


def function_mutants(source: Source, ops: dict[str, Any]) -> Iterator[Mutant]:
    """Of shape rules, composites and gradients by hand, with the functions that they call."""
    fns = source.functions()
    roots = {f.name for f in fns if (m := _ROOT_NAME.match(f.name)) and m[2] in ops}
    owners = ctext.reached(fns, roots)
    for fn in fns:
        if not owners[fn.name]:
            continue
        names = [_ROOT_NAME.match(r) for r in sorted(owners[fn.name])]
        kinds = Counter(OF_PREFIX[m[1]] for m in names if m)
        kind = kinds.most_common(1)[0][0]
        entries = [m[2] for m in names if m]
        unit = f"{fn.name} in {Path(source.path).name}"
        if (own := _ROOT_NAME.match(fn.name)) and own[2] in ops:
            yield from _wrapped(source, fn, ops[own[2]], own[1], kind, unit)
        for edit in ctext.edits(source.text, fn, False):
            code = ctext.copy_of(source.text, fn, "{NAME}", edit)
            yield Mutant(kind, unit, edit.note, entries, source.path, fn.key, code)


def _wrapped(
    source: Source, fn: ctext.Function, op: Any, what: str, kind: str, unit: str
) -> Iterator[Mutant]:
    """The function as it is, and its results times 1.01 or one element longer."""
    plain = ctext.copy_of(source.text, fn, "{NAME}_plain")
    grows: list[tuple[str, str]] = []
    if what == "grad":
        lists = any(a.is_list for a in op.tensors)
        grads = [a for a in op.tensors if not a.mutated]
        grows = [("c->ret[0]", "first")] if lists else [
            (f"c->ret[{i}]", a.name) for i, a in enumerate(op.tensors) if a in grads]  # fmt: skip
        lines = "tni_mutate_grow(&{})"
    elif what == "composite":
        own = op.entry.get("takes_out") or op.inplace_only or op.writes or op.list_out
        grows = [] if own else [(f"rets[{i}]", o) for i, o in enumerate(op.outs)]
        lines = "tni_mutate_grow(&{})"
    else:
        lists = op.list_out
        grows = [] if lists else [
            (f"&inf->out[{i}], {last}", f"{o}, {'last' if last else 'first'} dimension")
            for i, o in enumerate(op.outs) for last in (0, 1)]  # fmt: skip
        lines = "tni_mutate_longer({})"
    head = ctext.head_of(source.text, fn, "{NAME}")
    args = ", ".join(fn.params)
    for place, name in grows:
        body = f"{{\n    tn_status st = {{NAME}}_plain({args});\n"
        body += f"    return st ? st : {lines.format(place)};\n}}\n"
        note = f"{name} one longer" if what == "infer" else f"{name} times 1.01"
        yield Mutant(kind, unit, note, [op.name], source.path, fn.key, plain + head + body)


_GLUE = re.compile(r"^infer_(\w+)$")
_RULE = re.compile(r"TNI_(COMPUTE|RESULT)_(\w+)")
RESULT_NEIGHBOURS = {"COMPUTE": "BOOL", "BOOL": "COMPUTE", "REAL": "COMPUTE", "I64": "COMPUTE"}


def glue_mutants(source: Source, ops: dict[str, Any]) -> Iterator[Mutant]:
    """Of the rules that structured operators name: dtypes, and shapes where the rule is a word."""
    for fn in source.functions():
        m = _GLUE.match(fn.name)
        if not m or m[1] not in ops:
            continue
        op, text = ops[m[1]], source.text
        for r in _RULE.finditer(text, fn.brace, fn.end):
            word = r[2].lower()
            if r[1] == "RESULT":
                if not (new := RESULT_NEIGHBOURS.get(r[2])):
                    continue
            elif word == "first" and not _whole(op):
                continue  # floating numbers stay what they are under all rules
            else:
                new = NEIGHBOURS.get(word, "")
            edit = ctext.Edit(r.start(2), r.end(2), new, f"{r[0]} -> {new}")
            code = ctext.copy_of(text, fn, "{NAME}", edit)
            unit = f"dtype rule of {op.name}"
            yield Mutant("dtype", unit, edit.note, [op.name], source.path, fn.key, code)
        if op.entry["shape"] != "custom":
            unit = f"shape rule of {op.name}"
            yield from _wrapped(source, fn, op, "infer", "shape", unit)


def _whole(op: Any) -> bool:
    """Whether an operator takes integers."""
    return any(name.startswith(("int", "uint", "bool")) for name in op.dtypes)


def descriptor_mutants(ops: list[Any]) -> Iterator[Mutant]:
    """Of the dtype rules of pointwise operators and reductions, which their descriptors hold."""
    for op in ops:
        if op.kind not in ("pointwise", "reduction"):
            continue
        rule, result = op.entry["dtype"], op.entry.get("result", "compute")
        first = result[0] if isinstance(result, list) else result
        unit = f"dtype rule of {op.name}"
        new = NEIGHBOURS[rule]
        if not (len(op.tensors) == 1 and {rule, new.lower()} == {"promote", "first"}):
            yield Mutant(
                "dtype", unit, f"{rule} -> {new.lower()}", [op.name],
                rule=(op.name, "compute_rule", f"TNI_COMPUTE_{new}"),
            )  # fmt: skip
        to = {"compute": "BOOL", "bool": "COMPUTE", "real": "COMPUTE", "int64": "COMPUTE"}[first]
        yield Mutant(
            "dtype", unit, f"result {first} -> {to.lower()}", [op.name],
            rule=(op.name, "result_rule", f"TNI_RESULT_{to}"),
        )  # fmt: skip


# -- kernels -----------------------------------------------------------------------------------


def kernel_mutants(ops: dict[str, Any], fused: bool) -> Iterator[Mutant]:
    """Of every function that the backends share, and of the steps of reductions."""
    folder = ROOT / COMMON
    sources = {}
    for path in sorted(folder.glob("*.h")):
        if path.name in ON_DEVICES:
            continue
        if path.name.startswith("scalar") or path.name in SERVES:
            text = path.read_text(encoding="utf-8")
            sources[path.name] = Source(str(path), text)
    fns = [(s, f) for s in sources.values() for f in ctext.functions(s.text)]
    roots = {f.name for _, f in fns if f.name.startswith("f_") and f.name[2:] in ops}
    calls: dict[str, ctext.Function] = {}
    for s, f in fns:  # the same name stands once for each class of types
        f.calls |= {f"{kind}_{c}" for c in _pasted(s, f) for kind in ("f32", "f64")}
        if f.name in calls:
            calls[f.name].calls |= f.calls
        else:
            calls[f.name] = ctext.Function(f.name, "", [], 0, 0, 0, set(f.calls))
    owners = ctext.reached(list(calls.values()), roots)
    for source, fn in fns:
        if any(m.start() < fn.start < m.end() for m in ctext.ELSEWHERE.finditer(source.text)):
            continue
        name = Path(source.path).name
        entries = sorted(r[2:] for r in owners[fn.name])
        entries = entries or BY_LOOPS.get(fn.name) or SERVES.get(name, [])
        unit = f"{fn.name} in {name}"
        counted = sum(f.name == fn.name for s, f in fns if s is source)
        if counted > 1:
            before = [f for s, f in fns if s is source and f.name == fn.name and f.start < fn.start]
            unit += f" ({len(before) + 1})"
        unseen = ctext.left_alone(source.text, fused)
        for edit in ctext.edits(source.text, fn, True):
            if any(first <= edit.start < end for first, end in unseen):
                continue
            code = ctext.copy_of(source.text, fn, "{NAME}", edit)
            yield Mutant("kernel", unit, edit.note, entries, source.path, fn.key, code)


def _pasted(source: Source, fn: ctext.Function) -> set[str]:
    """The names that a function gives to M_(name) or ARC_(name)."""
    return set(re.findall(r"\b(?:M|ARC)_\((\w+)\)", source.text[fn.brace : fn.end]))


_MACRO = re.compile(
    r"^#define RED (\w+)$|^#define (RED_(?:STEP|JOIN|PICK))\((\w+), (\w+)\) (.+)$", re.M
)


def reduction_mutants() -> Iterator[Mutant]:
    """Of the steps of reductions, which are macros: `code` is the changed expression."""
    path = ROOT / COMMON / "reduce.h"
    name, count = "", Counter[str]()
    text = path.read_text(encoding="utf-8")
    for m in _MACRO.finditer(text):
        if m[1]:
            name = m[1]
            continue
        after = re.search(r"^#define RED (\w+)$", text[m.end() :], re.M)
        what = name
        if m[2] == "RED_PICK" and after:
            what = after[1]
        count[what + m[2]] += 1
        unit = f"{m[2]} of {what} ({count[what + m[2]]}) in reduce.h"
        how = "NOT" if what in ("all", "any") else "GROW"
        one = f"MUTATE_{how}({m[5]})"
        for note, code in ((f"{m[2]} grown", one), (f"{m[2]} leaves {m[4]} out", f"({m[3]})")):
            yield Mutant(
                "kernel", unit, note, REDUCTIONS[what], str(path), f"{m[2]}@{m.start()}", code
            )


# -- code that belongs to no entry -------------------------------------------------------------


def code_mutants(path: Path) -> Iterator[Mutant]:
    """Of all functions of a file, in C or Python."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".py":
        for e in pycode.edits(text):
            unit = f"{'default of ' * e.of_default}{e.name} in {name}"
            span = (e.start, e.end, e.new)
            yield Mutant("code", unit, e.note, [], str(path), e.name, span=span)
        return
    for fn in ctext.functions(text):
        dropped = [*ctext.left_out(text, fn), *ctext.never_true(text, fn)]
        for edit in [*ctext.edits(text, fn, False), *dropped]:
            code = ctext.copy_of(text, fn, "{NAME}", edit)
            unit = f"{fn.name} in {name}"
            yield Mutant("code", unit, edit.note, [], str(path), fn.key, code)


# -- who calls whom ----------------------------------------------------------------------------


def callers(sources: list[Source], ops: list[Any]) -> dict[str, list[str]]:
    """For each operator those that are made of it or whose gradients call it."""
    names = {op.name for op in ops}
    found: dict[str, set[str]] = {}
    for op in ops:
        grads = op.grads if isinstance(op.grads, dict) else {}
        for text in [*grads.values(), op.entry.get("forward", "")]:
            for callee in re.findall(r"\b(\w+)\(", text):
                found.setdefault(callee, set()).add(op.name)
    for source in sources:
        fns = source.functions()
        roots = {f.name for f in fns if (m := _ROOT_NAME.match(f.name)) and m[2] in names}
        owners = ctext.reached(fns, roots)
        for fn in fns if roots else []:
            mine = {m[2] for r in owners[fn.name] if (m := _ROOT_NAME.match(r))}
            for callee in fn.calls:
                found.setdefault(callee.removeprefix("tn_").removesuffix("_scalar"), set()).update(
                    mine
                )
    return {k: sorted(v) for k, v in found.items() if k in names}


# -- choosing ----------------------------------------------------------------------------------


def distinct(mutants: Iterable[Mutant]) -> list[Mutant]:
    """With notes that tell mutants of one unit apart."""
    count: Counter[str] = Counter()
    out = []
    for m in mutants:
        count[m.id] += 1
        if count[m.id] > 1:
            m.note += f" #{count[m.id]}"
        out.append(m)
    return out


def at_most(mutants: list[Mutant], each: int) -> list[Mutant]:
    """Of each unit the `each` that a hash of their names puts first."""
    by_unit: dict[str, list[Mutant]] = {}
    for m in mutants:
        by_unit.setdefault(m.unit, []).append(m)
    out = []
    for group in by_unit.values():
        out += sorted(group, key=lambda m: zlib.crc32(m.id.encode()))[:each]
    return out
