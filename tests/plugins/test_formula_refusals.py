"""What a formula of a plugin refuses while it runs: numbers, sizes and tensors that are not there.
One plugin has all of these operators, another one tries schemas that cannot be read."""

from __future__ import annotations

import re
from typing import Any

import as_user
import pytest
import tenon as tn
from added import COMPOSITE, load, private_cache  # noqa: F401

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


TORN = [
    "(Tensor x) -> Tensor?", "(Tensor x) -> Tensor!", "(Tensor x) -> Tensor[2]", "(Tensor x) -> ",
    "(Tensor x) -> Tensor, Tensor", "(Tensor x) -> (Tensor y, Tensor y)", "(Tensor x) -> (Tensor y",
    "(Tensor x) Tensor", "(Tensor x -> Tensor", "Tensor x) -> Tensor", "(Tensor) -> Tensor",
    "(x) -> Tensor", "( , Tensor x) -> Tensor", "(Tensor x,) -> Tensor", "(Tensor x y) -> Tensor",
    "(Tensor x, Tensor x) -> Tensor", "(Tensor x, int k=) -> Tensor", "(Tensor x) -> Tensor rest",
    "(Tensor x, int k='a') -> Tensor", "(Tensor x, str s='a) -> Tensor", "(Nothing x) -> Tensor",
    "(Tensor x, *, *, int k) -> Tensor", "(Tensor x, int[ k) -> Tensor",
    "(Tensor x, int[k] k) -> Tensor", "(Tensor x, int k=1, int j) -> Tensor",
    "(Tensor x, bool b=2) -> Tensor", "(Tensor x, int k=1.5) -> Tensor", "(Tensor x) -> int",
]  # fmt: skip


def test_schemas_that_cannot_be_read() -> None:
    """No one of them is taken, and they do not keep the plugin from its other operator."""
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
