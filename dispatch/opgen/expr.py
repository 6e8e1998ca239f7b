"""Turns formulas of the op table into C: one call per line, every temporary released at `out:`.

A formula is a Python expression. Its values are tensors (C variables of type tn_tensor *), numbers
(C expressions of type tn_scalar, double or int64_t), lists of sizes (tn_ints) and texts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from language import ATTRIBUTES, COMPARE, CONSTANTS, FUNCTIONS, SIGNS
from table import Arg, Op

BINARY = {s.node: s.op for s in SIGNS if s.level != COMPARE}
OF_TENSORS = {s.node: s.op for s in SIGNS if s.level == COMPARE}
C_BINARY = {s.node: s.c for s in SIGNS if s.level != COMPARE and s.c}
C_COMPARE = {s.node: s.c for s in SIGNS if s.level == COMPARE}

NUMBERS = ("scalar", "float", "int", "bool")


@dataclass
class Value:
    """kind: tensor, tensors, scalar, float, int, bool, ints, optint, str, dtype, none."""

    kind: str
    c: str
    temp: bool = False  # a tensor that this function owns


KIND_OF_TYPE = {
    "int": "int", "int?": "optint", "Dim?": "optint", "int[]": "ints", "int[]?": "ints",
    "Dim": "int", "Dims": "ints", "bool": "bool", "float": "float", "float?": "optfloat",
    "Scalar": "scalar", "Scalar?": "scalar", "DType": "dtype", "DType?": "dtype",
    "Device?": "device", "Format": "int", "str": "str", "str?": "str", "Generator?": "generator",
}  # fmt: skip


FORMATS = {
    "contiguous_format": "TN_FORMAT_CONTIGUOUS", "preserve_format": "TN_FORMAT_PRESERVE",
    "channels_last": "TN_FORMAT_CHANNELS_LAST", "channels_last_3d": "TN_FORMAT_CHANNELS_LAST_3D",
}  # fmt: skip


def is_constant(e: ast.expr) -> bool:
    """Whether it is made of numbers alone."""
    parts = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context)
    return all(
        isinstance(x, parts) or (isinstance(x, ast.Name) and x.id in CONSTANTS) for x in ast.walk(e)
    )


class Formula:
    """Compiles formulas of one operator into the body of one C function."""

    def __init__(self, op: Op, ops: dict[str, Op], names: dict[str, Value]) -> None:
        self.op, self.ops, self.names = op, ops, names
        self.lines: list[str] = []
        self.temps = 0
        self.made: dict[tuple[str, ...], list[str]] = {}  # what calls of several results made
        self.boxes = 0
        self.indent = 1
        self.used: set[str] = set()  # names read as tensors
        self.used_shape: set[str] = set()  # names of which only the geometry is read
        self.readers: dict[str, set[int]] = {}  # names and the inputs whose gradients read them
        self.called: set[str] = set()  # operators
        self.can_fail = False

    def fail(self, text: str) -> Exception:
        return self.op.fail(text)

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def call(self, c: str) -> None:
        self.can_fail = True
        self.emit(f"if ((st = {c})) goto out;")

    def temp(self) -> str:
        self.temps += 1
        return f"t{self.temps}"

    # -- values --------------------------------------------------------------------------------

    def as_tensor(self, v: Value) -> str:
        """A tn_tensor * expression; numbers become 0-d tensors on the stack."""
        if v.kind == "tensor":
            return v.c
        if v.kind == "none":
            return "NULL"
        if v.kind in NUMBERS:
            self.boxes += 1
            return f"tn_scalar_box_init(&b{self.boxes}, {self.as_scalar(v)})"
        raise self.fail(f"a {v.kind} stands where a tensor is needed")

    def as_scalar(self, v: Value) -> str:
        wrap = {"scalar": "{}", "float": "tn_scalar_float({})", "int": "tn_scalar_int({})",
                "bool": "tn_scalar_bool((int)({}))"}  # fmt: skip
        if v.kind not in wrap:
            raise self.fail(f"a {v.kind} stands where a number is needed")
        return wrap[v.kind].format(v.c)

    def as_number(self, v: Value) -> str:
        """A C arithmetic expression."""
        if v.kind == "scalar":
            return f"({v.c}).re"
        if v.kind in NUMBERS:
            return v.c
        raise self.fail(f"a {v.kind} stands where a number is needed")

    def convert(self, v: Value, a: Arg) -> str:
        """v as the C argument for parameter a of an operator."""
        if a.is_list:
            if v.kind != "tensors":
                raise self.fail(f"argument '{a.name}' needs a list of tensors")
            return v.c
        if a.is_tensor:
            return self.as_tensor(v)
        want = KIND_OF_TYPE[a.type]
        if want in ("int", "bool"):
            return f"(int64_t)({self.as_number(v)})"
        if want == "float":
            return f"(double)({self.as_number(v)})"
        if want == "scalar":
            return "tn_scalar_none()" if v.kind == "none" else self.as_scalar(v)
        if want == "ints":
            if v.kind == "none":
                return "tn_ints_none()"
            if v.kind == "optint":
                return f"TNI_OPT_DIMS({v.c})"
            return v.c if v.kind == "ints" else f"TN_INTS({self.as_number(v)})"
        if want == "optint":
            if v.kind == "none":
                return "tn_no_int()"
            return v.c if v.kind == "optint" else f"tn_some_int({self.as_number(v)})"
        if want == "optfloat":
            if v.kind == "none":
                return "tn_no_float()"
            return v.c if v.kind == "optfloat" else f"tn_some_float({self.as_number(v)})"
        if v.kind == "none":
            return "-1" if want in ("dtype", "device") else "NULL"
        if v.kind != want:
            raise self.fail(f"argument '{a.name}' needs a {want}, not a {v.kind}")
        return v.c

    def default(self, a: Arg) -> Value:
        if a.default is None:
            raise self.fail(f"argument '{a.name}' is missing")
        if a.type == "Format":
            return Value("int", FORMATS[a.default])
        return self.value(ast.parse(a.default, mode="eval").body)

    # -- expressions ---------------------------------------------------------------------------

    def value(self, e: ast.expr) -> Value:
        match e:
            case ast.Constant(value=None):
                return Value("none", "NULL")
            case ast.Constant(value=bool(b)):
                return Value("bool", "1" if b else "0")
            case ast.Constant(value=int(i)):
                return Value("int", str(i))
            case ast.Constant(value=float(f)):
                return Value("float", repr(f))
            case ast.Constant(value=complex() as z):
                return Value("scalar", f"tn_scalar_complex({z.real!r}, {z.imag!r})")
            case ast.Constant(value=str(s)):
                return Value("str", '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"')
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=base, attr=attr):
                return self.attribute(base, attr)
            case ast.Subscript(value=ast.Attribute(value=base, attr="shape"), slice=index):
                t = self.shape_of(base)
                i = self.as_number(self.value(index))
                return Value("int", f"tni_size_at({t}, {i})")
            case ast.UnaryOp(op=ast.USub(), operand=x):
                v = self.value(x)
                if v.kind == "tensor":
                    return self.op_call("neg", [v], {})
                kind = "float" if v.kind == "scalar" else v.kind
                return Value(kind, f"(-{self.as_number(v)})")
            case ast.UnaryOp(op=ast.Invert(), operand=x):
                return self.op_call("bitwise_not", [self.value(x)], {})
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return Value("bool", f"!({self.as_number(self.value(x))})")
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(type(op), self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compare(type(op), self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=values):
                word = " && " if isinstance(op, ast.And) else " || "
                parts = [f"({self.as_number(self.value(v))})" for v in values]
                return Value("bool", word.join(parts))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.condition(test, body, orelse)
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                items = [self.as_number(self.value(x)) for x in elts]
                return Value("ints", f"TN_INTS({', '.join(items)})")
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(i))):
                return self.call_of(call, i)
            case ast.Call(func=ast.Name(id=name), args=[x], keywords=[]) if (
                name in FUNCTIONS and is_constant(x)
            ):
                return Value("float", f"{name}({self.as_number(self.value(x))})")
            case ast.Call() as call:
                return self.call_of(call)
        raise self.fail(f"the formula language has no '{ast.unparse(e)}'")

    def call_of(self, e: ast.Call, pick: int | None = None) -> Value:
        """A call, or result `pick` of one that has several."""
        if not isinstance(e.func, ast.Name):
            raise self.fail(f"the formula language has no '{ast.unparse(e)}'")
        args = [self.value(a) for a in e.args]
        kws = {k.arg or "": self.value(k.value) for k in e.keywords}
        return self.op_call(e.func.id, args, kws, pick)

    def name(self, name: str) -> Value:
        if name in CONSTANTS and name not in self.names:
            return Value("float", CONSTANTS[name])
        if name not in self.names:
            raise self.fail(f"the formula names '{name}', which is not in scope")
        v = self.names[name]
        if v.kind in ("tensor", "tensors"):
            self.used.add(name)
        return v

    def shape_of(self, base: ast.expr) -> str:
        if isinstance(base, ast.Name) and base.id in self.names:
            self.used_shape.add(base.id)
            return self.names[base.id].c
        return self.value(base).c

    def attribute(self, base: ast.expr, attr: str) -> Value:
        if isinstance(base, ast.Name) and self.names.get(base.id, Value("", "")).kind == "none":
            raise self.fail(f"'{base.id}' has no attributes")
        t = self.shape_of(base)
        known = {a.name: Value(a.kind, a.c.format(t)) for a in ATTRIBUTES}
        if attr not in known:
            raise self.fail(f"the formula language has no attribute '.{attr}'")
        return known[attr]

    def binary(self, op: type, x: Value, y: Value) -> Value:
        if "tensor" in (x.kind, y.kind):
            if op not in BINARY:
                raise self.fail("the formula language has no such operator on tensors")
            return self.op_call(BINARY[op], [x, y], {})
        a, b = self.as_number(x), self.as_number(y)
        if op is ast.Pow:
            return Value("float", f"pow({a}, {b})")
        if op not in C_BINARY:
            raise self.fail("the formula language has no such operator on numbers")
        ints = x.kind in ("int", "bool") and y.kind in ("int", "bool") and op is not ast.Div
        if op is ast.Div:
            a, b = f"(double){a}", f"(double){b}"
        return Value("int" if ints else "float", f"({a} {C_BINARY[op]} {b})")

    def compare(self, op: type, x: Value, y: Value) -> Value:
        if "tensor" in (x.kind, y.kind) and op in OF_TENSORS:
            return self.op_call(OF_TENSORS[op], [x, y], {})
        if op in (ast.Is, ast.IsNot) and y.kind == "none":
            sign = "==" if op is ast.Is else "!="
            if x.kind in ("optint", "optfloat"):
                return Value("bool", f"({x.c}.has {sign} 0)")
            if x.kind == "scalar":
                return Value("bool", f"({x.c}.kind {sign} TN_SCALAR_NONE)")
            return Value("bool", f"({x.c} {sign} NULL)")
        if x.kind == "str" and y.kind == "str":
            return Value("bool", f"(strcmp({x.c}, {y.c}) {C_COMPARE[op]} 0)")
        if op not in C_COMPARE:
            raise self.fail("the formula language has no such comparison")
        if x.kind == "scalar" and op in (ast.Eq, ast.NotEq):
            sign = "" if op is ast.Eq else "!"
            return Value("bool", f"{sign}tni_scalar_is({x.c}, (double)({self.as_number(y)}))")
        return Value("bool", f"({self.as_number(x)} {C_COMPARE[op]} {self.as_number(y)})")

    def condition(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
        cond = self.as_number(self.value(test))
        first = Formula.branch(self, body)
        second = Formula.branch(self, orelse)
        if first[0].kind in NUMBERS and second[0].kind in NUMBERS:
            kinds = {first[0].kind, second[0].kind}
            kind = "int" if kinds <= {"int", "bool"} else "float"
            a, b = self.as_number(first[0]), self.as_number(second[0])
            return Value(kind, f"({cond} ? {a} : {b})")
        t = self.temp()
        self.emit(f"if ({cond}) {{")
        self.finish_branch(t, *first)
        self.emit("} else {")
        self.finish_branch(t, *second)
        self.emit("}")
        return Value("tensor", t, True)

    def branch(self, e: ast.expr) -> tuple[Value, list[str]]:
        """Compiles e aside; returns its value and its lines, indented one level deeper."""
        saved, self.lines = self.lines, []
        before, self.made = self.made, dict(self.made)
        self.indent += 1
        v = self.value(e)
        self.indent -= 1
        lines, self.lines = self.lines, saved
        self.made = before
        return v, lines

    def finish_branch(self, t: str, v: Value, lines: list[str]) -> None:
        self.lines += lines
        self.indent += 1
        self.move(t, v)
        self.indent -= 1

    def move(self, target: str, v: Value) -> None:
        """target = v, as a reference that the target owns."""
        if v.temp:
            self.emit(f"{target} = {v.c};")
            self.emit(f"{v.c} = NULL;")
        elif v.kind in NUMBERS:
            self.call(f"tni_scalar_heap({self.as_scalar(v)}, &{target})")
        elif v.kind == "none":
            self.emit(f"{target} = NULL;")
        else:
            self.emit(f"{target} = tn_tensor_ref({v.c});")

    def op_call(
        self, name: str, args: list[Value], kws: dict[str, Value], pick: int | None = None
    ) -> Value:
        op = self.ops.get(name)
        if op is None:
            raise self.fail(f"the formula calls '{name}', which is no operator of the table")
        several = len(op.outs) > 1
        if op.list_out or several != (pick is not None) or (pick or 0) >= max(len(op.outs), 1):
            raise self.fail(f"the formula calls '{name}', which has {len(op.outs)} results")
        params = op.args
        if len(args) > len(params):
            raise self.fail(f"'{name}' takes {len(params)} arguments")
        self.called.add(name)
        chosen = dict(zip([p.name for p in params], args, strict=False))
        for k, v in kws.items():
            if k not in {p.name for p in params} or k in chosen:
                raise self.fail(f"'{name}' has no further argument '{k}'")
            chosen[k] = v
        c = [
            self.convert(chosen[p.name] if p.name in chosen else self.default(p), p) for p in params
        ]
        inputs = (name, *c)
        if pick is not None and inputs in self.made:
            return Value("tensor", self.made[inputs][pick], False)
        made = [self.temp() for _ in range(len(op.outs) if several else 1)]
        self.call(f"tn_{name}({', '.join([*c, *('&' + t for t in made)])})")
        if several:
            self.made[inputs] = made
        return Value("tensor", made[pick or 0], not several)

    # -- whole functions -----------------------------------------------------------------------

    def declarations(self) -> list[str]:
        out = []
        if self.temps:
            names = ", ".join(f"*t{i} = NULL" for i in range(1, self.temps + 1))
            out.append(f"    tn_tensor {names};")
        if self.boxes:
            out.append(f"    tn_scalar_box {', '.join(f'b{i}' for i in range(1, self.boxes + 1))};")
        out.append("    tn_status st = TN_OK;")
        return out

    def ending(self) -> list[str]:
        out = ["out:"] if self.can_fail else []
        out += [f"    tn_tensor_unref(&t{i});" for i in range(1, self.temps + 1)]
        return [*out, "    return st;"]
