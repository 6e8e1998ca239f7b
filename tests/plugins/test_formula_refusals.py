"""What a formula of a plugin refuses while it runs: numbers, sizes and tensors that are not there.
One plugin has all of these operators; another one tries what cannot be registered."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import as_user
import pytest
import tenon as tn
from added import COMPOSITE, TAIL, load, make, private_cache  # noqa: F401

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

V, X, N = ValueError, IndexError, NotImplementedError
x = tn.ones(2, 3)
NOT_GIVEN = "a formula needs a number that was not given"
# The parameters, the formula, the arguments of a call that is refused, with what words, and those
# of one that is not.
CASES: list[tuple[str, str, tuple[Any, ...], type[Exception], str, tuple[Any, ...]]] = [
    ("Tensor x, int? k=None", "x * k", (x,), V, NOT_GIVEN, (x, 2)),
    ("Tensor x, int? k=None", "x * (k + 1)", (x,), V, NOT_GIVEN, (x, 2)),
    ("Tensor x, int? k=None", "x * (1 - k)", (x,), V, NOT_GIVEN, (x, 2)),
    ("Tensor x, int? k=None", "x if k else -x", (x,), V, NOT_GIVEN, (x, 2)),
    ("Tensor x, int? k=None", "sum(x, [k])", (x,), V, NOT_GIVEN, (x, 1)),
    ("Tensor x, int? k=None", "reshape(x, [3, k])", (x,), V, NOT_GIVEN, (x, 2)),
    ("Tensor x, int? k=None", "narrow(x, 0, 0, k)", (x,), V, NOT_GIVEN, (x, 1)),
    ("Tensor x, float? f=None", "leaky_relu(x, f)", (x,), V, NOT_GIVEN, (x, 0.5)),
    ("Tensor x, Scalar a", "x * (a + 1)", (x, 2j), N,
     "formulas do not compute with complex numbers", (x, 2.5)),
    ("Tensor x, Scalar a", "x * (a & 6)", (x, 2.5), V,
     "combines the bits of numbers that are not whole", (x, 3)),
    ("Tensor x, Scalar a", "x * (6 | a)", (x, 2.5), V,
     "combines the bits of numbers that are not whole", (x, True)),
    ("Tensor x", "x * x.shape[2]", (x,), X, "a formula reads size 2 of 2", (x[None],)),
    ("Tensor x", "x * x.shape[-3]", (x,), X, "a formula reads size -3 of 2", (x[None],)),
    ("Tensor x, int[] k", "x * k[1]", (x, [3]), X, "a formula reads size 1 of 1", (x, [3, 4])),
    ("Tensor x, int[]? k=None", "x * k[0]", (x,), X, "a formula reads size 0 of 0", (x, [3])),
    ("Tensor[] x", "x[2] * 1", ([x, x],), X, "a formula reads tensor 2 of a list of 2", ([x] * 3,)),
    ("Tensor[] x", "x[-3] * 1", ([x, x],), X, "reads tensor -3 of a list of 2", ([x] * 3,)),
    ("Tensor x, Tensor? y=None", "cat([x, y], dim=0)", (x,), V,
     "a formula lists a tensor that was not given", (x, x)),
    ("Tensor x, Tensor? y=None", "x * y.ndim", (x,), V,
     "a formula looks at a tensor that was not given", (x, x)),
    ("Tensor x, Tensor? y=None", "x * y.shape[0]", (x,), V,
     "a formula looks at a tensor that was not given", (x, x)),
]  # fmt: skip


@pytest.fixture(scope="module")
def ops() -> Any:
    name = "refusing"
    more = " ".join(
        f'op.schema = "{name}::f{k}({given}) -> Tensor"; op.formula = "{text}"; '
        "if ((st = h->register_op(t, &op)) != TN_OK) return st;"
        for k, (given, text, *_) in enumerate(CASES)
    )
    lists = " + ".join(f"sum(cat([{', '.join('x' * n)}], dim=0))" for n in (19, 20, 21, 22))
    more += (
        f'op.schema = "{name}::many(Tensor x) -> Tensor"; op.formula = "{lists}"; '
        "return h->register_op(t, &op);"
    )
    return load(name, f'{COMPOSITE}"{name}::none(Tensor x) -> Tensor", .formula = "x"', more)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_is_not_there_is_refused(ops: Any, number: int) -> None:
    _, _, given, kind, words, taken = CASES[number]
    call = getattr(ops, f"f{number}")
    with pytest.raises(kind, match=re.escape(words)):
        call(*given)
    assert isinstance(call(*taken), tn.Tensor)


def test_lists_of_one_formula_have_an_end(ops: Any) -> None:
    with pytest.raises(N, match="too many tensors in the lists of one formula"):
        ops.many(x)


MANY = ", ".join(f"Tensor x{k}" for k in range(70))
RESULT = "a result is a Tensor, Tensor[] or ()"
DTYPED = "column 6: a dtype goes with Tensor alone, as in Tensor(int64)"
LENGTH = "a length goes with int alone, as in int[2]"
VERSION = "column 5: a version is a number from 1 to 9999"
NAMED = "two arguments or results share a name"
COMMA = "',' or ')' is expected"
# Schemas that cannot be read, behind the operator's name a::f, and what is said of them.
TORN = {
    "(Tensor x) -> Tensor?": f"column 25: {RESULT}",
    "(Tensor x) -> Tensor!": f"column 25: {RESULT}",
    "(Tensor x) -> Tensor[2]": f"column 25: {RESULT}",
    "(Tensor x) -> ": f"column 19: {RESULT}",
    "(Tensor x) -> int": f"column 19: {RESULT}",
    "(Tensor x) -> Tensor, Tensor": "column 25: the schema goes on after its end",
    "(Tensor x) -> Tensor rest": "column 26: the schema goes on after its end",
    "(Tensor x) -> (Tensor y, Tensor y)": f"column 38: {NAMED}",
    "(Tensor x, Tensor x) -> Tensor": f"column 24: {NAMED}",
    "(Tensor x) -> (Tensor y": f"column 28: {COMMA}",
    "(Tensor x -> Tensor": f"column 15: {COMMA}",
    "(Tensor x y) -> Tensor": f"column 15: {COMMA}",
    "(Tensor x) Tensor": "column 16: '->' is expected",
    " Tensor x) -> Tensor": "column 6: '(' is expected",
    "(Tensor) -> Tensor": "column 12: the argument's name is expected",
    "(Tensor x) -> (Tensor)": "column 26: the result's name is expected",
    "( , Tensor x) -> Tensor": "column 7: a type is expected",
    "(Tensor x,) -> Tensor": "column 15: a type is expected",
    "(x) -> Tensor": "column 6: there is no such type",
    "(Nothing x) -> Tensor": "column 6: there is no such type",
    "(Tensor x, *, *, int k) -> Tensor": "column 19: there is no such type",
    "(Tensor x, int[ k) -> Tensor": "column 16: there is no such type",
    "(Tensor x, int[k] k) -> Tensor": "column 16: there is no such type",
    "(Tensor x, int k=) -> Tensor": "column 22: a default is expected",
    "(Tensor x, int k='a') -> Tensor": "the default ''a'' of argument 'k' does not fit its type",
    "(Tensor x, str s='a) -> Tensor": "of argument 's' does not fit its type",
    "(Tensor x, bool b=2) -> Tensor": "the default '2' of argument 'b' does not fit its type",
    "(Tensor x, int k=1.5) -> Tensor": "the default '1.5' of argument 'k' does not fit its type",
    "(Tensor x, int k=1, int j) -> Tensor":
        "column 30: an argument without a default follows one with a default",
    "@0(Tensor x) -> Tensor": VERSION,
    "@01(Tensor x) -> Tensor": VERSION,
    "@10000(Tensor x) -> Tensor": VERSION,
    "@(Tensor x) -> Tensor": VERSION,
    "(Tensor(int99) x) -> Tensor": "column 6: there is no dtype of that name",
    "(int(int64) x) -> Tensor": DTYPED,
    "(Tensor(int64 x) -> Tensor": DTYPED,
    "(Tensor[](int64) x) -> Tensor": DTYPED,
    "(Tensor x, int[0] k) -> Tensor": f"column 16: {LENGTH}",
    "(Tensor x, int[65] k) -> Tensor": f"column 16: {LENGTH}",
    "(Tensor x, int[2 k) -> Tensor": f"column 16: {LENGTH}",
    "(Tensor[2] x) -> Tensor": f"column 6: {LENGTH}",
    "(Tensor x) -> (Tensor[] y, Tensor z)": "column 26: a result among several is a Tensor",
    "(Tensor x) -> (int y, Tensor z)": "column 20: a result among several is a Tensor",
    "(Tensor x) -> ()": "column 21: an operator without results writes to an argument, Tensor!",
    f"({MANY}) -> Tensor": "there are too many arguments",
    f"(Tensor k) -> ({MANY})": "there are too many results",
}  # fmt: skip

# Formulas of f(Tensor x) that mean nothing, with the column where that is seen and the words.
NOT_FORMULAS: list[tuple[str, int, str]] = [
    ("g(x)", 1, "there is no operator 'g'"),
    ("normal_(x)", 1, "'normal_' cannot be called in a formula: it writes to its argument"),
    ("sum(x y)", 7, COMMA),
    ("sum(dim=0, x)", 12, "a positional argument follows a keyword"),
    ("sum(x, 0, False, None, 1)", 24, "'sum' takes only 4 positional arguments"),
    ("sum(x, 'a')", 8, "argument 'dim' of 'sum' cannot be a text"),
    ("sum(x, frexp(x))", 8, "argument 'dim' of 'sum' cannot be several results (pick one by [0])"),
    ("sum(x, 0, dim=0)", 11, "argument 'dim' of 'sum' is given twice"),
    ("pow(x)", 5, "argument 'exponent' of 'pow' is missing"),
    (f"cat([{', '.join('x' * 41)}])", 125, "the list is too long"),
    ("[x, 1]", 6, "a list holds numbers, or tensors"),
    ("[1, x]", 6, "a list holds numbers, or tensors"),
    ("['a']", 5, "a list holds numbers, or tensors"),
    ("cat([x x])", 8, "',' or ']' is expected"),
    ("(x", 3, "')' is expected"),
    ("2 .shape", 9, "a number has no attributes"),
    ("x.size", 7, "tensors have no '.size' here (shape, ndim, numel, dtype, device)"),
    ("x.shape[x]", 11, "an index is a number"),
    ("x.shape[0", 10, "']' is expected"),
    ("x[0]", 5, "a tensor has no items"),
    ("frexp(x)[2] * 1", 12, "the call has results 0 to 1"),
    ("frexp(x)[-1] * 1", 13, "the call has results 0 to 1"),
    ("frexp(x)[x.ndim] * 1", 17, "the call has results 0 to 1"),
    ("x if x is 3 else -x", 11, "'None' is expected"),
    ("x if [x] is None else -x", 17, "a list of tensors is never None"),
    ("x if x.dtype is None else x", 21, "a dtype or device is never None"),
    ("x if frexp(x) is None else x", 22, "several results (pick one by [0]) is never None"),
    ("x.shape if x.ndim else x", 25, "a condition does not choose a list of sizes"),
    ("x if x.ndim else 'a'", 21, "a condition does not choose a text"),
    ("x if x.ndim then -x", 13, "'else' is expected"),
    ("x 1 if x.ndim else x", 3, "'if' is expected"),
    ("x )", 3, "the formula ends here"),
    ("x if x.ndim else", 17, "a value is expected"),
    ("x + 'a'", 8, "there is no computing with a text"),
    ("'a' + 1", 8, "there is no computing with a text"),
    ("x.shape + 1", 12, "there is no computing with a list of sizes"),
    ("-'a'", 5, "there is no minus a text"),
    ("9223372036854775808 * x", 1, "the whole number is larger than int64 holds"),
    ("3a * x", 1, "this is no number"),
    ("1e x", 1, "this is no number"),
    ("'a", 2, "a text does not end"),
    ("x" + " + x" * 300, 263, "it has more than 64 steps"),
    (" or ".join(["x.ndim"] * 18), 170, "it has more than 16 branches"),
    ("not x", 6, "a condition is a number, not a tensor"),
    ("x and 1", 6, "a condition is a number, not a tensor"),
    ("x; out: x", 8, "it is given twice"),
    ("y: x", 3, "there is no such result"),
    ("x: x", 3, "there is no such result"),
    ("", 1, "a result has no formula"),
    ("x.shape", 8, "its value is a list of sizes, not a tensor"),
    ("None", 5, "its value is None, not a tensor"),
    ("none", 1, "the name 'none' means nothing here"),
]

P, S, R, C = "POINTWISE", "STRUCTURED", "REDUCTION", "COMPOSITE"
OF_RESULT = "the result of dtype rule 'promote -> big' is neither compute, real nor a dtype"
KINDLESS = "argument 'x' of a pointwise operator must be Tensor or Operand"
SHAPED = "follows from its arguments; it takes no shape rule"
ONLY_X = "(Tensor x) -> Tensor"
TWO = "(Tensor x) -> (Tensor y, Tensor z)"
TO_LIST = "(Tensor[] x) -> Tensor[]"
OWN = "a dtype, as of argument 'x', goes with structured operators"
# Descriptors: the kind, the schema behind the name, other fields, what is said.
NOT_DESCRIPTORS: list[tuple[str, str, str, str]] = [
    (P, ONLY_X, '.dtype = "same x"', "cannot read dtype rule 'same x'"),
    (P, ONLY_X, '.dtype = "promote -> bool x"', "cannot read dtype rule 'promote -> bool x'"),
    (P, ONLY_X, '.dtype = "same(x)"', "only the dtype rule of a structured operator names inputs"),
    (P, ONLY_X, '.dtype = "promote -> big"', OF_RESULT),
    (P, "(int k) -> Tensor", "", "a pointwise operator has a tensor argument"),
    (P, "(Tensor? x) -> Tensor", "", KINDLESS),
    (P, "(Tensor[] x) -> Tensor", "", KINDLESS),
    (P, "(Tensor(int64) x) -> Tensor", "", OWN),
    (P, "(Tensor! x) -> Tensor", "", "pointwise operator returns tensors and writes to no"),
    (P, ONLY_X, '.shape = "same(x)"', f"the shape that a pointwise operator returns {SHAPED}"),
    (P, ONLY_X, '.formula = "x"', "a pointwise operator is computed by kernels"),
    (R, ONLY_X, "", "a reduction has an argument 'Dims dim'"),
    (R, "(Tensor! x, Dims dim) -> ()", "", "a reduction returns tensors and writes to no argument"),
    (R, "(Tensor x, Tensor y, Dims dim) -> Tensor", "", "a reduction has one tensor argument"),
    (R, "(Tensor? x, Dims dim) -> Tensor", "", "a reduction has one tensor argument"),
    (R, "(Tensor x, Dims dims) -> Tensor", "", "argument 'dims' of a reduction: the reduced"),
    (R, "(Tensor x, int dim) -> Tensor", "", "of type Dims, Dim or Dim?, are called dim"),
    (R, "(Tensor x, Dims dim, int keepdim) -> Tensor", "",
     "argument 'keepdim' of a reduction is a bool"),
    (R, "(Tensor(int64) x, Dims dim) -> Tensor", "", OWN),
    (R, "(Tensor x, Dims dim) -> Tensor", '.shape = "same(x)"',
     f"the shape that a reduction returns {SHAPED}"),
    (R, "(Tensor x, Dims dim) -> Tensor", '.formula = "x"', "a reduction is computed by kernels"),
    (S, "(Tensor! x) -> ()", '.shape = "same(x)"', "it returns nothing, so it takes no shape rule"),
    (S, "(int k) -> Tensor", '.shape = "broadcast"', "a structured operator has a tensor argument"),
    (S, "(Tensor[] x) -> Tensor", '.shape = "broadcast"', "a list of tensors does not broadcast"),
    (S, "(Tensor[] x) -> Tensor", '.shape = "same(x)"', "shape rule 'same(x)' is neither"),
    (S, ONLY_X, '.shape = "same(x"', "shape rule 'same(x' is neither broadcast nor same(a tensor"),
    (S, ONLY_X, '.shape = "same x)"', "shape rule 'same x)' is neither broadcast nor same(a"),
    (S, TO_LIST, '.shape = "broadcast"', "the result Tensor[] needs `count`"),
    (C, ONLY_X, '.formula = "x", .shape = "same(x)"',
     "a composite operator takes no dtype or shape rule"),
    (C, ONLY_X, '.formula = "x", .dtype = "same"',
     "a composite operator takes no dtype or shape rule"),
    (C, ONLY_X, '.formula = "x", .autocast = "high"', "autocast 'high' is none of low, float32"),
    (C, ONLY_X, '.formula = "x", .autocast = ""', "autocast '' is none of low, float32, widest"),
    (C, ONLY_X, '.formula = "x", .vmap = "all"', "vmap 'all' is none of pointwise, batch"),
    (C, ONLY_X, '.formula = "x", .flags = 0x8', "flags 0x8 are unknown to this Tenon"),
    (C, ONLY_X, r'.formula = "x", .doc = "\xff"', "a text of it is not UTF-8"),
    (C + " + 1", ONLY_X, "", "kind 4 is none of pointwise, reduction, structured, composite"),
    (C, TWO, '.formula = "y: x"', "a result has no formula"),
    (C, TWO, '.formula = "x"', "it starts with the name that it is for, as in 'input: grad'"),
    (C, TWO, '.formula = "y: x; z: x; y: -x"', "formula of 'y', column 15: it is given twice"),
    (C, "(Tensor! x) -> ()", '.formula = ""', "no argument is written"),
    (C, TO_LIST, '.formula = "x[0]"', "its value is a tensor, not a list of tensors"),
    (C, "(Tensor[] x) -> Tensor", '.formula = "x"', "its value is a list of tensors, not a tensor"),
    (C, ONLY_X, '.formula = "x", .gradient = "x: none none"',
     "gradient of 'x', column 4: the name 'none' means nothing here"),
    (C, ONLY_X, '.formula = "x", .gradient = "grad"',
     "gradient, column 1: it starts with the name that it is for"),
    (C, ONLY_X, '.formula = "x", .gradient = "x: grad; x: none"',
     "gradient of 'x', column 12: it is given twice"),
    (C, "(Tensor x, str s) -> Tensor", '.formula = "x if s > \'a\' else x"',
     "column 14: there is no computing with a text"),
]  # fmt: skip
SPACES = {
    "f(Tensor x) -> Tensor": "column 1: an operator's name is of the form acme::gelu",
    "tn::f(Tensor x) -> Tensor": "column 1: the namespaces tn and tenon are Tenon's own",
    "tenon::f(Tensor x) -> Tensor": "column 1: the namespaces tn and tenon are Tenon's own",
    f"a::{'f' * 98}(Tensor x) -> Tensor": "column 1: the operator's name is longer than 100",
}

# The fields of dtypes. A name is looked at before the rest.
WHOLE = ".to_f32 = widen, .from_f32 = shorten"
SIZED = "a dtype needs a name and a multiple of 8 bits up to 128"
SPELT = "a dtype's name is letters, digits, '_', '-' and '.': not "
NOT_DTYPES = {
    f".bits = 8, .category = TN_CAT_FLOAT, {WHOLE}": SIZED,
    f'.name = "small", .bits = 0, .category = TN_CAT_FLOAT, {WHOLE}': SIZED,
    f'.name = "small", .bits = 12, .category = TN_CAT_FLOAT, {WHOLE}': SIZED,
    f'.name = "small", .bits = 136, .category = TN_CAT_FLOAT, {WHOLE}': SIZED,
    f'.name = "", .bits = 8, .category = TN_CAT_FLOAT, {WHOLE}': f"{SPELT}''",
    f'.name = "a b", .bits = 8, .category = TN_CAT_FLOAT, {WHOLE}': f"{SPELT}'a b'",
    f'.name = "float32", .bits = 32, .category = TN_CAT_FLOAT, {WHOLE}':
        "dtype 'float32' exists already",
    '.name = "small", .bits = 8, .category = TN_CAT_FLOAT, .to_f32 = widen':
        "dtype 'small' lacks its conversions",
    '.name = "small", .bits = 8, .category = TN_CAT_FLOAT, .from_f32 = shorten':
        "dtype 'small' lacks its conversions",
    f'.name = "small", .bits = 8, .category = TN_CAT_BOOL - 1, {WHOLE}':
        "dtype 'small' is of no category",
    f'.name = "small", .bits = 8, .category = TN_CAT_COMPLEX + 1, {WHOLE}':
        "dtype 'small' is of no category",
}  # fmt: skip

# The kind, the schema, other fields, what is said.
REFUSED: dict[str, list[tuple[str, str, str, str]]] = {
    "schemas": [(C, f"a::f{text}", '.formula = "x"', words) for text, words in TORN.items()],
    "spaces": [(C, text, '.formula = "x"', words) for text, words in SPACES.items()],
    "formulas": [
        (C, f"a::f{ONLY_X}", f'.formula = "{text}"', f"column {column}: {words}")
        for text, column, words in NOT_FORMULAS
    ],
    "descriptors": [
        (kind, f"a::f{text}", more, words) for kind, text, more, words in NOT_DESCRIPTORS
    ],
}


CONVERSIONS = """
static void widen(const void *from, float *to, int64_t n) { (void)from; (void)to; (void)n; }
static void shorten(const float *from, void *to, int64_t n) { (void)from; (void)to; (void)n; }
"""


def refusing(registrations: list[str], folder: Path, before: str = "") -> Path:
    """A plugin that runs the one of these that its environment tells."""
    tries = "\n".join(f"        case {k}: {{ {text} }}" for k, text in enumerate(registrations))
    path = folder / "refused.c"
    path.write_text(
        f"#include <stdlib.h>\n#include <tenon/plugin.h>\n{before}"
        "static tn_status activate(const tn_host *h, tn_txn *t) {\n"
        f'    switch (atoi(getenv("TENON_TEST_NUMBER"))) {{\n{tries}\n    }}\n'
        "    return TN_OK;\n}" + TAIL.replace("@NAME@", "refused"),
        encoding="utf-8",
    )
    return make(path, folder)


def check_refused(plugin: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was refused once is not opened again, so each case has a copy."""
    wrong = []
    for k, want in enumerate(words):
        monkeypatch.setenv("TENON_TEST_NUMBER", str(k))
        copy, said = shutil.copyfile(plugin, plugin.with_name(f"refused{k}.so")), "it is taken"
        try:
            tn.load_plugin(copy)
        except ImportError as e:
            said = str(e)
        if want not in said:
            wrong.append((k, want, said))
    assert not wrong


@pytest.mark.parametrize("part", REFUSED)
def test_operators_that_cannot_be_registered(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        f"tn_op_desc op = {{.struct_size = sizeof op, .kind = TN_OP_{kind}, "
        f'.schema = "{text}", {more}}}; return h->register_op(t, &op);'
        for kind, text, more, _ in REFUSED[part]
    ]
    words = [words for *_, words in REFUSED[part]]
    check_refused(refusing(texts, tmp_path), words, monkeypatch)


def test_dtypes_that_cannot_be_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        f"tn_dtype_desc d = {{.struct_size = sizeof d, {fields}}}; int32_t slot; "
        "return h->register_dtype(t, &d, &slot);"
        for fields in NOT_DTYPES
    ]
    plugin = refusing(texts, tmp_path, CONVERSIONS)
    check_refused(plugin, list(NOT_DTYPES.values()), monkeypatch)


def test_what_is_refused_keeps_nothing_else_away() -> None:
    """A plugin that tries all schemas that cannot be read still has its other operator."""
    name = "torn"
    tries = " ".join(
        f'op.schema = "{name}::f{k}{text}"; if (h->register_op(t, &op) == TN_OK) taken[n++] = {k};'
        for k, text in enumerate(TORN)
    )
    more = (
        f'int taken[{len(TORN)}], n = 0; op.formula = "x"; {tries} if (n) '
        'return h->fail(TN_E_PLUGIN, -1, "%d are taken, number %d last", n, taken[n - 1]); '
        "return TN_OK;"
    )
    ops = load(name, f'{COMPOSITE}"{name}::none(Tensor x) -> Tensor", .formula = "x"', more)
    assert tn.equal(ops.none(x), x) and dir(ops) == ["none"]
