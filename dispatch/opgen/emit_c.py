"""Writes the C side of the op table: argument structs, C API, descriptors, formulas."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from expr import KIND_OF_TYPE, Formula, Value
from language import GRADIENTS, words_inc
from table import DTYPE_SETS, TYPES, Arg, Op

HEAD = "/* Generated from dispatch/ops by dispatch/opgen. */\n"


def emit(ops: list[Op]) -> dict[str, str]:
    table = {op.name: op for op in ops}
    for op in ops:
        second = op.args[1].type if len(op.args) > 1 else ""
        op.scalar_form = second == "Operand" and f"{op.name}_scalar" not in table
    formulas = {op.name: formulas_c(op, table) for op in ops}  # finds out what gradients save
    families: dict[str, list[Op]] = {}
    for op in ops:
        families.setdefault(family(op), []).append(op)
    files = {
        **args_headers(ops),
        "tenon/ops.h": ops_h(families),
        "op_list.c": list_c(families),
        "pointwise_ops.inc": pointwise_inc(ops),
        "pointwise_rows.inc": pointwise_rows(ops),
        "formula_words.inc": words_inc(),
    }
    for name, group in families.items():
        files[f"tenon/ops_{name}.h"] = family_api_h(name, group)
        files[f"op_{name}.h"] = family_h(name, group, table)
        files[f"op_{name}.c"] = family_c(name, group, table, formulas)
    return files


def family(op: Op) -> str:
    """The operators of one table file."""
    return Path(op.file).stem


def guarded(name: str, lines: list[str]) -> str:
    guard = f"TENON_{name.upper()}_H"
    return "\n".join([f"#ifndef {guard}\n#define {guard}\n", *lines, "\n#endif"]) + "\n"


# -- tenon/op_args.h, tenon/args_*.h -----------------------------------------------------------


def fnv1a(text: str) -> int:
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def layout_text(op: Op) -> str:
    """The argument struct's layout as text: what the signature hash covers."""
    kinds = [TYPES[a.type][0] for a in op.args]
    outs = ["TN_F_OUTS" if op.list_out else "TN_F_OUT"] * len(op.outs)
    name = op.call_name.split("@")[0] + (f"@{op.version}" if op.version > 1 else "")
    return f"{name}({','.join([*kinds, *outs])})"


def args_group(op: Op) -> str:
    """The header of an operator's argument struct. Pointwise operators share one, because all
    their kernels come from one template; the others go by table file."""
    return "pointwise" if op.kind == "pointwise" else family(op)


def args_headers(ops: list[Op]) -> dict[str, str]:
    """One header per group, so that a changed signature recompiles the kernels of its group."""
    groups: dict[str, list[str]] = {family(op): [] for op in ops}
    for op in ops:
        groups[args_group(op)] += args_struct(op)
    files = {}
    for name, structs in groups.items():
        guard = f"TENON_ARGS_{name.upper()}_H"
        lines = [
            HEAD,
            f"/* tenon/args_{name}.h: a part of tenon/op_args.h. */",
            f"#ifndef {guard}\n#define {guard}\n\n#include <tenon/plugin.h>\n",
            *structs,
            "#endif\n",
        ]
        files[f"tenon/args_{name}.h"] = "\n".join(lines)
    lines = [
        HEAD,
        "/* tenon/op_args.h: the argument struct of every operator, as kernels get it, and the",
        " * hash of its layout that a kernel row must carry. `plan` is NULL unless the operator is",
        " * pointwise or a reduction. */",
        "#ifndef TENON_OP_ARGS_H\n#define TENON_OP_ARGS_H\n",
        *[f"#include <tenon/args_{name}.h>" for name in sorted(groups)],
        "\n/* A row's flag: its kernel writes each result as it lies. Results of operators whose",
        ' * entry says `layout = "follows"` lie channels last where an image does; kernels without',
        " * the flag get them packed, and core copies. */",
        "#define TN_K_LAID 0x4u",
        "\n#endif\n",
    ]
    files["tenon/op_args.h"] = "\n".join(lines)
    return files


def choices(op: Op) -> list[str]:
    """The values of int arguments that stand for words, for kernels and callers alike."""
    return [
        f"#define TN_{op.name.strip('_').upper()}_{name} {value} /* {arg} */"
        for arg, names in op.entry.get("choices", {}).items()
        for value, name in enumerate(names)
    ]


def args_struct(op: Op) -> list[str]:
    return [
        f"/* {op.entry['sig']} */",
        *choices(op),
        f"#define TN_SIG_{op.name} UINT64_C(0x{fnv1a(layout_text(op)):016x})",
        f"typedef struct tn_{op.name}_args {{",
        "    const tn_plan *plan;",
        *[f"    {TYPES[a.type][1]}{a.name};" for a in op.args],
        *[f"    {'tn_views ' if op.list_out else 'tn_view *'}{o};" for o in op.outs],
        f"}} tn_{op.name}_args;\n",
    ]


# -- tenon/ops.h, tenon/ops_*.h ----------------------------------------------------------------


def params(args: list[Arg]) -> list[str]:
    return [f"{TYPES[a.type][2]}{a.name}" for a in args]


def ret_params(op: Op) -> list[str]:
    if op.list_out:
        return ["tn_tensor_list *ret_list"]
    if len(op.outs) == 1:
        return ["tn_tensor **ret"]
    return [f"tn_tensor **ret_{o}" for o in op.outs]


def has_form(op: Op, form: str) -> bool:
    return form in op.where and not op.inplace_only


def prototypes(op: Op) -> list[tuple[str, list[str]]]:
    """(C name, parameters) of every C function of an operator."""
    protos = [(f"tn_{op.name}", params(op.args) + ret_params(op))]
    if has_form(op, "out") and not op.list_out:
        outs = [f"tn_tensor *{o}" for o in op.outs]
        protos.append((f"tn_{op.name}_out", outs + params(op.args)))
    if has_form(op, "inplace"):
        protos.append((f"tn_{op.name}_", params(op.args)))
    if op.scalar_form:
        scalar = [Arg(a.name, "Scalar" if i == 1 else a.type) for i, a in enumerate(op.args)]
        protos.append((f"tn_{op.name}_scalar", params(scalar) + ret_params(op)))
    return protos


def prototype(name: str, ps: list[str]) -> str:
    return f"tn_status {name}({', '.join(ps)})"


def ops_h(families: dict[str, list[Op]]) -> str:
    return "\n".join([
        HEAD,
        "/* tenon/ops.h: every operator as a C function, by families. Arguments are borrowed,",
        " * results are new references, left untouched on failure. docs: `tenon op NAME`. */",
        guarded("ops", [f"#include <tenon/ops_{name}.h>" for name in families]),
    ])  # fmt: skip


def family_api_h(name: str, ops: list[Op]) -> str:
    lines = ["#include <tenon/tensor.h>\n", '#ifdef __cplusplus\nextern "C" {\n#endif\n']
    for op in ops:
        doc = " ".join(op.entry.get("doc", op.entry["sig"]).split()).replace("*/", "* /")
        lines.append(f"/* {doc} */")
        lines += [f"TN_API {prototype(c_name, ps)};" for c_name, ps in prototypes(op)]
        lines.append("")
    lines.append("#ifdef __cplusplus\n}\n#endif")
    head = f"{HEAD}\n/* tenon/ops_{name}.h: a part of tenon/ops.h. */\n"
    return head + guarded(f"ops_{name}", lines)


def initialisers(op: Op) -> list[str]:
    out = []
    for a in op.args:
        if a.is_list:
            out.append(f".{a.name} = tni_views({a.name})")
        elif a.is_tensor:
            out.append(f".{a.name} = tni_v({a.name})")
        else:
            out.append(f".{a.name} = {a.name}")
    return out


def null_checks(op: Op, name: str, ps: list[str]) -> list[str]:
    """What is true when a pointer is missing that op->run, which checks tensors, would follow."""
    args = {f"{TYPES[a.type][2]}{a.name}": a for a in op.args}
    checks = []
    for p in ps:
        word = p.split()[-1].lstrip("*")
        a = args.get(p)
        if a is None:
            is_out = name == f"tn_{op.name}_out" or "**" in p or p.startswith("tn_tensor_list")
            checks += [f"!{word}"] if is_out else []
        elif a.is_list:
            checks.append(f"tni_lacks_tensors({word}, {int('?' in a.type)})")
        elif a.type.startswith(("int[]", "Dims")):
            checks.append(f"tni_lacks_ints({word})")
        elif a.type == "str":
            checks.append(f"!{word}")
    return checks


def api_function(op: Op, name: str, ps: list[str]) -> list[str]:
    id_ = f"&tni_op_{op.name}"
    inits = initialisers(op)
    body = []
    if name == f"tn_{op.name}_out":
        inits += [f".{o} = tni_v({o})" for o in op.outs]
        body = [f"    return tni_call_discard({id_}, &args, {len(op.outs)});"]
    elif name == f"tn_{op.name}_":
        inits.append(f".{op.outs[0]} = tni_v({op.tensors[0].name})")
        body = [f"    return tni_call_discard({id_}, &args, {len(op.outs)});"]
    elif op.list_out:
        body = [f"    return tn_op_call({id_}, &args, (tn_tensor **)(void *)ret_list);"]
    elif len(op.outs) == 1:
        body = [f"    return tn_op_call({id_}, &args, ret);"]
    elif not op.outs:
        body = [f"    return tn_op_call({id_}, &args, NULL);"]
    else:
        n = len(op.outs)
        body = [f"    tn_tensor *rets[{n}] = {{NULL}};",
                f"    TN_TRY(tn_op_call({id_}, &args, rets));"]  # fmt: skip
        body += [f"    *ret_{o} = rets[{i}];" for i, o in enumerate(op.outs)]
        body.append("    return TN_OK;")
    lines = [f"{prototype(name, ps)} {{"]
    if checks := null_checks(op, name, ps):
        lines.append(f"    if (TN_UNLIKELY({' || '.join(checks)})) return tni_fail_pointer({id_});")
    if name == f"tn_{op.name}_scalar":
        s = op.args[1].name
        lines.append("    tn_scalar_box box;")
        inits[1] = f".{s} = tni_v(tn_scalar_box_init(&box, {s}))"
    lines.append(f"    tn_{op.name}_args args = {{{', '.join(inits)}}};")
    return [*lines, *body, "}", ""]


# -- op_*.h, op_*.c, op_list.c -----------------------------------------------------------------


def by_hand(op: Op) -> list[str]:
    """Prototypes of the functions of an entry that somebody has to write."""
    composite = "forward" in op.entry or op.kind == "view"
    protos = []
    if op.kind == "structured" and op.entry["shape"] == "custom":
        protos.append(f"tn_status tni_infer_{op.name}(tn_infer *inf, const void *args);")
    if composite and op.entry.get("forward", "custom") == "custom":
        protos.append(f"tn_status tni_composite_{op.name}(const void *args, tn_tensor **rets);")
    if "check" in op.entry:
        protos.append(f"tn_status tni_check_{op.name}(const void *args);")
    if "repeated" in op.entry:
        protos.append(f"tn_status tni_repeated_{op.name}(const void *args, tn_tensor **rets);")
    if op.grads == "custom":
        protos.append(f"tn_status tni_grad_{op.name}(tn_gctx *c);")
    return protos


def sparse_rule(op: Op) -> str | None:
    """The function that runs calls with sparse tensors."""
    rule = op.entry.get("sparse", "parts")
    return None if rule == "parts" else f"tni_sparse_{rule}"


def sparse_rules(ops: list[Op]) -> list[str]:
    """Prototypes of what sparse_rule names."""
    rules = sorted({rule for op in ops if (rule := sparse_rule(op))})
    return [f"tn_status {r}(const tn_op *op, void *args, tn_tensor **rets);" for r in rules]


def family_h(name: str, ops: list[Op], table: dict[str, Op]) -> str:
    lines = ['#include "core_priv.h"\n']
    for op in ops:
        lines += [f"extern tn_op tni_op_{op.name};", *by_hand(op)]
    if name == "sparse":
        lines += sparse_rules(list(table.values()))
    head = f"{HEAD}\n/* op_{name}.h: descriptors of a family, and its functions by hand. */\n"
    return head + guarded(f"op_{name}", lines)


def family_c(name: str, ops: list[Op], table: dict[str, Op], formulas: dict[str, list[str]]) -> str:
    """The family's C functions, formulas and descriptors. What formulas call is declared here, so
    that a change of another family, or of a doc text, does not compile this one anew."""
    called = sorted({c for op in ops for c in op.called} - {op.name for op in ops})
    parts = sorted({p for op in ops for p in parts_of(op, table)} - {op.name for op in ops})
    groups = sorted({args_group(op) for op in ops})
    out = [
        HEAD,
        "#include <math.h>\n",
        '#include "ask_priv.h"',
        '#include "call_priv.h"',
        '#include "infer_priv.h"',
        f'#include "op_{name}.h"',
        *[f"#include <tenon/args_{g}.h>" for g in groups],
        f"#include <tenon/ops_{name}.h>\n",
        *[f"{prototype(*prototypes(table[c])[0])};" for c in called],
        *[f"extern tn_op tni_op_{p};" for p in parts],
        *(sparse_rules(ops) if name != "sparse" else []),
        "",
    ]
    for op in ops:
        out += [line for c_name, ps in prototypes(op) for line in api_function(op, c_name, ps)]
        out += formulas[op.name]
        out += infer_glue(op)
        out += tables(op, table)
        out += descriptor(op, len(parts_of(op, table)))
    return "\n".join(out) + "\n"


def list_c(families: dict[str, list[Op]]) -> str:
    out = [HEAD, *[f'#include "op_{name}.h"' for name in families], "\ntn_op *const tni_ops[] = {"]
    out += [f"    &tni_op_{op.name}," for ops in families.values() for op in ops]
    out.append("};\nconst int tni_op_count = sizeof tni_ops / sizeof tni_ops[0];")
    return "\n".join(out) + "\n"


RUN = {
    "pointwise": "tni_run_pointwise", "reduction": "tni_run_reduction",
    "structured": "tni_run_structured", "composite": "tni_run_composite", "view": "tni_run_view",
}  # fmt: skip


def c_string(text: str | None) -> str:
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def is_diff(op: Op, a: Arg) -> bool:
    grads = op.grads
    if grads == "missing":
        return a.is_tensor
    if grads == "custom":
        return a.is_tensor and not a.mutated
    return isinstance(grads, dict) and grads.get(a.name, "none") != "none"


def readers(op: Op, name: str) -> list[str]:
    """The inputs whose gradients read the saved tensor `name`, where the formulas say so."""
    inputs = op.readers.get(name, set())
    return [f"TNI_FIELD_READER({i})" for i in sorted(inputs)]


def field_flags(op: Op, a: Arg) -> str:
    flags = []
    if a.kwonly:
        flags.append("TNI_FIELD_KWONLY")
    if a.name in op.saved or (not a.is_tensor and op.grads):
        flags.append("TNI_FIELD_SAVED")
    if a.name in op.saved_shape:
        flags.append("TNI_FIELD_SAVED_SHAPE")
    flags += readers(op, a.name)
    if is_diff(op, a):
        flags.append("TNI_FIELD_DIFF")
    if a.mutated:
        flags.append("TNI_FIELD_MUTATED")
    if "?" in a.type:
        flags.append("TNI_FIELD_OPTIONAL")
    if a.name in op.entry.get("params", []):
        flags.append("TNI_FIELD_PARAM")
    if op.entry.get("inputs", {}).get(a.name) == "bool":
        flags.append("TNI_FIELD_BOOL_INPUT")
    return " | ".join(flags) or "0"


# Tensors beside those that a composite computes with: where, whether, how many; class numbers.
APART = {"index", "indices", "mask", "attn_mask", "condition", "sorter", "batch_sizes", "repeats",
         "targets", "input_lengths", "target_lengths", "offsets"}  # fmt: skip
CLASSES = {"nll_loss", "cross_entropy", "multi_margin_loss", "multilabel_margin_loss"}


def is_apart(op: Op, a: Arg) -> bool:
    """A composite's kernel gets it as it is, and it does not choose the kernel."""
    classes = a.name == "target" and op.name in CLASSES
    return op.kind == "composite" and a.is_tensor and (a.name in APART or classes)


def op_flags(op: Op) -> str:
    e, flags = op.entry, []
    if e.get("layout") == "contiguous":
        flags.append("TNI_OP_CONTIGUOUS")
    if e.get("layout") == "follows":
        flags.append("TNI_OP_FOLLOWS")
    if e.get("takes_out"):
        flags.append("TNI_OP_TAKES_OUT")
    if op.list_out:
        flags.append("TNI_OP_LIST_OUT")
    if e.get("cast"):
        flags.append("TNI_OP_CAST")
    unsigned = e.get("unsigned", "bits" if op.kind == "structured" else None)
    if unsigned:
        flags.append("TNI_OP_ORDER" if unsigned == "order" else "TNI_OP_BITS")
    if e.get("dynamic"):
        flags.append("TNI_OP_DYNAMIC")
    if op.inplace_only:
        flags.append("TNI_OP_INPLACE_ONLY")
    if op.writes:
        flags.append("TNI_OP_WRITES")
    if not has_form(op, "inplace"):
        flags.append("TNI_OP_NO_INPLACE")
    if not has_form(op, "out"):
        flags.append("TNI_OP_NO_OUT")
    flags += [f"TNI_OP_OUT_{word.upper()}" for word in e.get("out", "").split()]
    if not e.get("zeros", True):
        flags.append("TNI_OP_NO_ZEROS")
    if e.get("history"):
        flags.append("TNI_OP_FIRST")
    if e.get("wide"):
        flags.append("TNI_OP_WIDE")
    if e.get("sparse") == "parts":
        flags.append("TNI_OP_SPARSE")
    if op.kind == "pointwise" and (e.get("fits") or "Scalar" in {a.type for a in op.args}):
        flags.append("TNI_OP_NUMBERS")
    if e.get("fits"):
        flags.append("TNI_OP_FITS")
    if e.get("random"):
        flags.append("TNI_OP_RANDOM")
    if "bool" in e.get("inputs", {}).values():
        flags.append("TNI_OP_BOOL_INPUT")
    if any(a.type in ("Dim", "Dim?") for a in op.args):
        flags.append("TNI_OP_HAS_DIM")
    if any(a.is_list or a.type.startswith(("int[", "Dims", "str")) for a in op.args):
        flags.append("TNI_OP_POINTERS")
    if op.kind == "pointwise" and not (e.get("inputs") or e.get("check") == "custom"):
        if e["dtype"] != "bool" and e.get("result", "compute") in ("compute", "bool"):
            flags.append("TNI_OP_PACKED")
        if e["dtype"] == "float":
            flags.append("TNI_OP_FLOATING")
    return " | ".join(flags) or "0"


def infer_glue(op: Op) -> list[str]:
    """The function that applies a structured operator's dtype and shape rules."""
    if op.kind != "structured":
        return []
    rule = op.entry["shape"]
    lines = [f"static tn_status infer_{op.name}(tn_infer *inf, const void *args) {{"]
    dtype = op.entry.get("dtype", "same(" + op.tensors[0].name + ")" if op.tensors else "custom")
    if dtype != "custom":
        m = re.fullmatch(r"(promote|float|same|bool|sum)(?:\(([\w, ]+)\))?", dtype)
        if not m:
            raise op.fail(f"dtype rule '{dtype}' is unknown")
        names = [n.strip() for n in m[2].split(",")] if m[2] else [a.name for a in op.tensors]
        for n in names:
            if n not in {a.name for a in op.tensors}:
                raise op.fail(f"dtype rule names '{n}', which is no tensor argument")
        refs = ", ".join(f"a->{n}" for n in names)
        lines.append(f"    const tn_{op.name}_args *a = args;")
        lines.append(f"    const tn_view *of[] = {{{refs}}};")
        lines.append(
            f"    TN_TRY(tni_infer_dtype(inf, TNI_COMPUTE_{rule_name(m[1])}, of, {len(names)}));"
        )
        results = op.entry.get("result", "compute")
        for i, r in enumerate(results if isinstance(results, list) else [results] * len(op.outs)):
            lines.append(
                f"    inf->out[{i}].dtype = tni_result_of(inf->compute, {result_name(op, r)});"
            )
    if rule == "custom":
        lines.append(f"    return tni_infer_{op.name}(inf, args);")
    else:
        m = re.fullmatch(r"(same|packed)\((\w+)\)", rule)
        if not m:
            raise op.fail(f"shape rule '{rule}' is unknown")
        if m[1] == "packed":
            field = next(k for k, a in enumerate(op.args) if a.name == m[2])
            lines.append(f"    TN_TRY(tni_infer_packed(inf, {field}, a->{m[2]}));")
        for i in range(len(op.outs)):
            lines.append(f"    tni_infer_same(inf, {i}, a->{m[2]});")
        lines.append("    return TN_OK;")
    return [*lines, "}", ""]


def rule_name(word: str) -> str:
    return {"same": "FIRST"}.get(word, word.upper())


def result_name(op: Op, word: str) -> str:
    names = {"compute": "COMPUTE", "bool": "BOOL", "real": "REAL", "int64": "I64"}
    if word not in names:
        raise op.fail(f"result '{word}' is none of {', '.join(names)}")
    return "TNI_RESULT_" + names[word]


def parts_of(op: Op, table: dict[str, Op]) -> list[str]:
    """The operators with kernels that an operator with kernels of its own can be made of."""
    text = op.entry.get("forward")
    if text is None or op.kind in ("composite", "view"):
        return []
    if text == "custom":
        for name in op.entry.get("parts", []):
            if name not in table or table[name].kind in ("composite", "view"):
                raise op.fail(f"parts names '{name}', which is no operator with kernels")
        return list(op.entry.get("parts", []))
    found: set[str] = set()
    open_ = {op.name: text}
    done = set()
    while open_:
        name, text = open_.popitem()
        done.add(name)
        for callee in calls_of(table[name], text, table):
            kind, forward = table[callee].kind, table[callee].entry.get("forward", "custom")
            if kind not in ("composite", "view"):
                found.add(callee)
            elif kind == "composite" and forward != "custom" and callee not in done:
                open_[callee] = forward
    return sorted(found)


def calls_of(op: Op, text: str, table: dict[str, Op]) -> set[str]:
    f = Formula(op, table, scope(op, "tni_t(a->{})"))
    f.move("rets[0]", f.value(parse(op, text)))
    return f.called


def tables(op: Op, table: dict[str, Op]) -> list[str]:
    """What a descriptor points to."""
    struct = f"tn_{op.name}_args"
    out = [f"static const tn_field fields_{op.name}[] = {{"]
    for k, a in enumerate(op.args):
        fixed = "TNI_FIXED_ANY" if k > 0 and is_apart(op, a) else a.fixed
        if a.name == op.entry.get("writes_if"):
            fixed = "TNI_FIXED_GATE"
        out.append(
            f'    {{"{a.name}", {TYPES[a.type][0]}, offsetof({struct}, {a.name}), {fixed}, '
            f"{field_flags(op, a)}, {c_string(a.default)}}},"
        )
    kind = "TN_F_OUTS" if op.list_out else "TN_F_OUT"
    for o in op.outs:
        words = ["TNI_FIELD_SAVED"] if o in op.saved else []
        words += ["TNI_FIELD_SAVED_SHAPE"] if o in op.saved_shape else []
        flags = " | ".join(words + readers(op, o)) or "0"
        out.append(f'    {{"{o}", {kind}, offsetof({struct}, {o}), 0, {flags}, NULL}},')
    out.append("};")
    parts = ", ".join(f"&tni_op_{name}" for name in parts_of(op, table))
    return [*out, f"static tn_op *const parts_{op.name}[] = {{{parts}}};"] if parts else out


def offsets(op: Op, names: list[str]) -> str:
    return ", ".join(f"offsetof(tn_{op.name}_args, {n})" for n in names) or "0"


def descriptor(op: Op, nparts: int) -> list[str]:
    e = op.entry
    tensors = [k for k, a in enumerate(op.args) if a.is_tensor]
    result = e.get("result", "compute")
    outs = ", ".join(str(len(op.args) + k) for k in range(len(op.outs))) or "0"
    formula = op.grads
    if isinstance(formula, dict):
        formula = "; ".join(f"{k}: {v}" for k, v in formula.items())
    lines = [
        f"tn_op tni_op_{op.name} = {{",
        f'    .info = {{sizeof(tn_op_info), TN_OP_{op.kind.upper()}, "{op.call_name}",',
        f"             {c_string(e['sig'])}, UINT64_C(0x{fnv1a(layout_text(op)):016x})}},",
        f"    .run = {RUN[op.kind]},",
        f"    .fields = fields_{op.name},",
        f"    .nfields = {len(op.args) + len(op.outs)},",
        f"    .args_bytes = sizeof(tn_{op.name}_args),",
        f"    .nin = {len(tensors)},",
        f"    .nout = {len(op.outs)},",
        f"    .in_field = {{{', '.join(map(str, tensors)) or '0'}}},",
        f"    .out_field = {{{outs}}},",
        f"    .in_offset = {{{offsets(op, [op.args[k].name for k in tensors])}}},",
        f"    .out_offset = {{{offsets(op, op.outs)}}},",
        f"    .flags = {op_flags(op)},",
        f"    .line = {op.line},",
        f"    .version = {op.version},",
        f'    .file = "{op.file}",',
        f"    .formula = {c_string(formula)},",
        f"    .node = {c_string(e.get('node'))},",
        f"    .doc = {c_string(e.get('doc'))},",
    ]
    if op.autocast:
        rules = [op.autocast.get(where, "none").upper() for where in ("cpu", "other")]
        lines.append(f"    .autocast = {{{', '.join('TNI_AUTOCAST_' + r for r in rules)}}},")
    if op.kind in ("pointwise", "reduction"):
        first = result[0] if isinstance(result, list) else result
        lines.append(f"    .compute_rule = TNI_COMPUTE_{rule_name(e['dtype'])},")
        lines.append(f"    .result_rule = {result_name(op, first)},")
    numbers = [a.name for a in op.args if a.type == "Scalar"]
    if op.kind in ("pointwise", "structured") and numbers:
        lines.append(f"    .nnumbers = {len(numbers)},")
        lines.append(f"    .number_offset = {{{offsets(op, numbers)}}},")
    if words := e.get("refuses", "").split():
        lines.append(f"    .refuses = {' | '.join(f'TNI_REFUSES_{w.upper()}' for w in words)},")
    if "check" in e:
        lines.append(f"    .check = tni_check_{op.name},")
    if "repeated" in e:
        lines.append(f"    .repeated = tni_repeated_{op.name},")
    if op.kind == "structured":
        lines.append(f"    .infer = infer_{op.name},")
    if rule := sparse_rule(op):
        lines.append(f"    .sparse = {rule},")
    if op.grads:
        name = {"missing": "tni_no_derivative", "custom": f"tni_grad_{op.name}"}.get(
            op.grads if isinstance(op.grads, str) else "", f"grad_{op.name}"
        )
        lines.append(f"    .grad = {name},")
    if "forward" in e or op.kind == "view":
        own = e.get("forward", "custom") == "custom"
        lines.append(f"    .composite = {'tni_' if own else ''}composite_{op.name},")
    if nparts:
        lines.append(f"    .parts = parts_{op.name},")
        lines.append(f"    .nparts = {nparts},")
    return [*lines, "};\n"]


# -- formulas ----------------------------------------------------------------------------------


def scope(op: Op, tensor: str) -> dict[str, Value]:
    """Names of the arguments and results as the formula sees them."""
    names = {}
    for a in op.args:
        if a.is_list:
            names[a.name] = Value("tensors", f"tni_tensors_of(a->{a.name})")
        elif a.is_tensor:
            names[a.name] = Value("tensor", tensor.format(a.name))
        else:
            names[a.name] = Value(KIND_OF_TYPE[a.type], f"a->{a.name}")
    return names


def input_position(op: Op, i: int) -> str:
    """Where the i-th tensor argument stands among the inputs when lists are flattened, as C."""
    before = op.tensors[:i]
    lists = [f"a->{a.name}.n" for a in before if a.is_list]
    return " + ".join([*lists, str(len(before) - len(lists))])


def formulas_c(op: Op, table: dict[str, Op]) -> list[str]:
    """The entry's formulas as C functions."""
    return [*gradient_c(op, table), *composite_c(op, table)]


def gradient_c(op: Op, table: dict[str, Op]) -> list[str]:
    grads = op.grads
    if grads == "custom":
        default = [a.name for a in op.tensors if not a.mutated]
        op.saved = set(op.entry.get("save", default))
        op.saved_shape = set(op.entry.get("save_shape", []))
    if not isinstance(grads, dict):
        return []
    f, function = gradient_function(op, table, grads, f"grad_{op.name}")
    mine = {a.name for a in op.tensors} | set(op.outs)
    op.saved = f.used & mine
    op.saved_shape = f.used_shape & mine
    op.readers = {k: v for k, v in f.readers.items() if k in mine}
    op.called |= f.called
    return [
        f"/* {op.file}:{op.line} */",
        *[f"/*   {k}: {v} */" for k, v in grads.items()],
        *function,
    ]


def gradient_function(
    op: Op, table: dict[str, Op], grads: dict[str, str], name: str
) -> tuple[Formula, list[str]]:
    """The C function `name` that computes the gradients of an operator by these formulas."""
    names = scope(op, "tni_t(a->{})")
    for o in op.outs:
        names[o] = Value("tensor", f"tni_t(a->{o})")
    for g in GRADIENTS:
        mine = {f"{g}_{o}": f"c->g[{i}]" for i, o in enumerate(op.outs)}
        if len(op.outs) == 1:
            mine[g] = "c->g[0]"
        names |= {n: Value("tensor", c) for n, c in mine.items() if n not in names}
    f = Formula(op, table, names)
    for i, a in enumerate(op.tensors):
        text = grads.get(a.name, "none")
        if text == "none":
            continue
        at = input_position(op, i)
        f.emit(f"if (TN_GNEEDS(c, {at})) {{")
        f.indent += 1
        if text == "missing":
            f.call("tni_no_derivative(c)")
            f.indent -= 1
            f.emit("}")
            continue
        seen, f.used = f.used, set()
        v = f.value(parse(op, text))
        for read in f.used:
            f.readers.setdefault(read, set()).add(i)
        f.used |= seen
        f.move(f"c->ret[{at}]", v)
        f.indent -= 1
        f.emit("}")
    out = [f"static tn_status {name}(tn_gctx *c) {{"]
    if any("a->" in line for line in f.lines):
        out.append(f"    const tn_{op.name}_args *a = c->args;")
    return f, [*out, *f.declarations(), *f.lines, *f.ending(), "}", ""]


def composite_c(op: Op, table: dict[str, Op]) -> list[str]:
    text = op.entry.get("forward")
    if text is None or text == "custom":
        return []
    f, function = composite_function(op, table, text, f"composite_{op.name}")
    op.called |= f.called
    return [f"/* {op.file}:{op.line}  {text} */", *function]


def composite_function(
    op: Op, table: dict[str, Op], text: str, name: str
) -> tuple[Formula, list[str]]:
    """The C function `name` that computes an operator by this formula."""
    f = Formula(op, table, scope(op, "tni_t(a->{})"))
    f.move("rets[0]", f.value(parse(op, text)))
    out = [f"static tn_status {name}(const void *args, tn_tensor **rets) {{"]
    if any("a->" in line for line in f.lines):
        out.append(f"    const tn_{op.name}_args *a = args;")
    else:
        out.append("    (void)args;")
    return f, [*out, *f.declarations(), *f.lines, *f.ending(), "}", ""]


def parse(op: Op, text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as err:
        raise op.fail(f"cannot read formula '{text}': {err.msg}") from err


# -- pointwise_ops.inc -------------------------------------------------------------------------

DTYPE_MACRO = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "complex128": "C128",
}  # fmt: skip


def dtype_condition(op: Op) -> str:
    """A preprocessor condition that holds in the dtypes the operator has kernels for."""
    names, parts = set(op.dtypes), []
    for word, members in DTYPE_SETS.items():
        if set(members) <= names:
            parts.append(f"TMPL_IS_{word.upper()}")
            names -= set(members)
    parts += [f"(TMPL_DTYPE == TMPL_{DTYPE_MACRO[n]})" for n in op.dtypes if n in names]
    return " || ".join(parts)


PARAM_KINDS = {"Scalar": 0, "float": 1, "int": 2, "bool": 2}


def pointwise_inc(ops: list[Op]) -> str:
    out = [HEAD]
    for op in ops:
        if op.kind != "pointwise":
            continue
        result = {"compute": 0, "bool": 1, "real": 2}[op.entry.get("result", "compute")]
        by_name = {a.name: a for a in op.args}
        names = op.entry.get("params", [])
        macros = {
            "OP": op.name, "OP_ARGS": f"tn_{op.name}_args", "OP_NIN": len(op.tensors),
            "OP_RESULT": result, "OP_NPARAMS": len(names),
        }  # fmt: skip
        for i, p in enumerate(names):
            macros[f"OP_P{i}(a)"] = f"((a)->{p})"
            macros[f"OP_P{i}_KIND"] = PARAM_KINDS[by_name[p].type]
        for i, a in enumerate(op.tensors):
            if op.entry.get("inputs", {}).get(a.name) == "bool":
                macros[f"OP_IN{i}_BOOL"] = 1
        out.append(f"#if {dtype_condition(op)}")
        out += [f"#define {name} {value}" for name, value in macros.items()]
        out.append('#include "map_tmpl.h"')
        out += [f"#undef {name.removesuffix('(a)')}" for name in macros]
        out.append("#endif\n")
    return "\n".join(out) + "\n"


def pointwise_rows(ops: list[Op]) -> str:
    out = [HEAD]
    for op in ops:
        if op.kind == "pointwise":
            out.append(f"#if {dtype_condition(op)}\nMAP_ROW({op.name})\n#endif")
    return "\n".join(out) + "\n"
