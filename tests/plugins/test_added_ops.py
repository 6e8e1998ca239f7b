"""Operators that plugins add: the examples, built as a user would, and plugins that are wrong."""

from __future__ import annotations

import inspect
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import as_user
import memory
import numpy as np
import pytest
import tenon as tn
from added import COMPOSITE, POINTWISE, STRUCTURED, load, make, private_cache  # noqa: F401

GELU = as_user.EXAMPLES / "ops" / "gelu.c"
MIX = as_user.EXAMPLES / "ops-cpp" / "mix.cpp"
FORMULA = as_user.EXAMPLES / "formula" / "formula.c"

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")


def load_once(source: Path, folder: Path, namespace: str, name: str) -> Any:
    """The operators of a plugin, which a process loads once in whatever order tests run."""
    if not hasattr(getattr(tn.ops, namespace), name):
        tn.load_library(make(source, folder))
    return getattr(tn.ops, namespace)


@pytest.fixture(scope="module")
def gelu(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return load_once(GELU, tmp_path_factory.mktemp("gelu"), "example", "gelu").gelu


def exact_gelu(x: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf)
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


# -- the example ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(tn.float64, 1e-14), (tn.float32, 1e-6), (tn.float16, 1e-2), (tn.bfloat16, 1e-1)],
)
def test_gelu_values(gelu: Callable[..., Any], dtype: Any, error: float) -> None:
    x = tn.linspace(-4, 4, 60, dtype=tn.float64).reshape(5, 12).to(dtype)
    y = gelu(x)
    assert y.dtype == dtype
    want = exact_gelu(x.double().numpy())
    np.testing.assert_allclose(y.double().numpy(), want, atol=error)


def test_gelu_of_integers(gelu: Callable[..., Any]) -> None:
    assert gelu(tn.arange(4)).dtype == tn.get_default_dtype()


def test_gelu_layouts(gelu: Callable[..., Any]) -> None:
    x = tn.randn(4, 5, 6, dtype=tn.float64)
    want = exact_gelu(x.numpy())
    np.testing.assert_allclose(gelu(x.permute(2, 0, 1)).numpy(), want.transpose(2, 0, 1))
    np.testing.assert_allclose(gelu(x[::2, :, 1::2]).numpy(), want[::2, :, 1::2])
    np.testing.assert_allclose(gelu(x[0, 0].expand(7, 6)).numpy(), np.tile(want[0, 0], (7, 1)))
    assert gelu(tn.empty(0, 3)).shape == (0, 3)
    out = tn.empty(4, 5, 6, dtype=tn.float64)
    assert gelu(x, out=out) is out
    np.testing.assert_allclose(out.numpy(), want)


def test_gelu_gradients(gelu: Callable[..., Any]) -> None:
    x = tn.randn(3, 4, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(gelu, (x,))
    assert tn.autograd.gradgradcheck(gelu, (x,))
    assert tn.autograd.gradgradcheck(tn.ops.example.gelu_slope, (x,))
    assert "GeluBackward0" in repr(gelu(x).grad_fn)


def test_gelu_in_a_module(gelu: Callable[..., Any]) -> None:
    class Gelu(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return gelu(x)

    def train(act: tn.nn.Module) -> list[float]:
        tn.manual_seed(3)
        net = tn.nn.Sequential(tn.nn.Linear(4, 8), act, tn.nn.Linear(8, 1))
        opt = tn.optim.SGD(net.parameters(), lr=0.1)
        x, losses = tn.randn(16, 4), []
        for _ in range(5):
            loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(train(Gelu()), train(tn.nn.GELU()), rtol=1e-5)


def test_gelu_looks_built_in(gelu: Callable[..., Any]) -> None:
    assert str(inspect.signature(gelu)) == "(input)"
    assert "example::gelu(Tensor input) -> Tensor" in (gelu.__doc__ or "")
    assert {"gelu", "gelu_slope"} <= set(dir(tn.ops.example))
    assert "plugin 'example'" in tn.explain("example::gelu")
    for call, text in [
        (lambda: gelu(), 'example::gelu() missing 1 required positional arguments: "input"'),
        (lambda: gelu(3), "example::gelu(): argument 'input' (position 1) must be Tensor, not int"),
        (lambda: gelu(tn.ones(1), beta=2), "unexpected keyword argument 'beta'"),
    ]:
        with pytest.raises(TypeError, match=re.escape(text)):
            call()
    with pytest.raises(NotImplementedError, match='"example::gelu" not implemented'):
        gelu(tn.ones(2, dtype=tn.complex64))
    with pytest.raises(AttributeError, match="no operator 'example::nope'"):
        tn.ops.example.nope  # noqa: B018


# -- plugins that are wrong -----------------------------------------------------------------------

BAD = {
    "schema": (POINTWISE + '"{n}::f(Tensr x) -> Tensor"', "column 15: there is no such type"),
    "name": (POINTWISE + '"f(Tensor x) -> Tensor"', "of the form acme::gelu"),
    "reserved": (POINTWISE + '"tn::f(Tensor x) -> Tensor"', "Tenon's own"),
    "no result": (POINTWISE + '"{n}::f(Tensor x)"', "'->' is expected"),
    "twice": (POINTWISE + '"{n}::f(Tensor x, int x) -> Tensor"', "share a name"),
    "order": (POINTWISE + '"{n}::f(int a=1, Tensor x) -> Tensor"', "without a default follows"),
    "default": (POINTWISE + '"{n}::f(Tensor x, int a=1.5) -> Tensor"', "default '1.5'"),
    "tail": (POINTWISE + '"{n}::f(Tensor x) -> Tensor, Tensor"', "goes on after its end"),
    "no schema": (".kind = TN_OP_POINTWISE", "needs a schema"),
    "kind": ('.kind = 77, .schema = "{n}::f(Tensor x) -> Tensor"', "kind 77"),
    "flags": (POINTWISE + '"{n}::f(Tensor x) -> Tensor", .flags = 0x100', "flags 0x100"),
    "args_bytes": (
        POINTWISE + '"{n}::f(Tensor x, float a) -> Tensor", .args_bytes = 24',
        "has 32 bytes, the plugin's has 24",
    ),
    "dtype rule": (POINTWISE + '"{n}::f(Tensor x) -> Tensor", .dtype = "bigger"', "'bigger'"),
    "dtype names": (
        STRUCTURED + '"{n}::f(Tensor x) -> Tensor", .dtype = "same(y)", .shape = "same(x)"',
        "names no tensor",
    ),
    "shape rule": (STRUCTURED + '"{n}::f(Tensor x) -> Tensor", .shape = "same(y)"', "same(y)"),
    "no shape": (STRUCTURED + '"{n}::f(Tensor x) -> Tensor"', "a shape rule or `infer`"),
    "no composite": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor"', "needs a formula"),
    "results": (POINTWISE + '"{n}::f(Tensor x) -> (Tensor a, Tensor b)"', "one result"),
    "unknown op": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "x + nosuch(x)"',
        "there is no operator 'nosuch'",
    ),
    "unknown name": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "y + 1"', "'y'"),
    "argument": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "sum(x, dmi=0)"',
        "no argument 'dmi'",
    ),
    "missing": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "pow(x)"', "is missing"),
    "type": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "exp(\'x\')"', "be a text"),
    "itself": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "1 + {n}::f(x)"',
        "leads back to the operator itself",
    ),
    "brackets": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "(x + 1"', "')' is"),
    "else": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "x if x.ndim"', "'else' is"),
    "condition": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "x if x else -x"',
        "a condition is a number, not a tensor",
    ),
    "rest": (COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "x 1"', "ends here"),
    "chain": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "0 < x < 1"',
        "column 8: a comparison of a comparison needs brackets",
    ),
    "column": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "x + where(x > 0, 1, b=x)"',
        "column 21: 'where' has no argument 'b'",
    ),
    "deep": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "' + "(" * 99 + '"',
        "nested too deeply",
    ),
    "target": (
        POINTWISE + '"{n}::f(Tensor x) -> Tensor", .gradient = "y: grad"',
        "no such tensor argument",
    ),
    "gradient": (
        POINTWISE + '"{n}::f(Tensor x) -> Tensor", .gradient = "x: grad * {n}::g(x)"',
        "gradient of 'x', column 11: there is no operator",
    ),
    "several": (
        COMPOSITE + '"{n}::f(Tensor x) -> Tensor", .formula = "frexp_(x)"',
        "there is no operator 'frexp_'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_plugin(what: str) -> None:
    name = "bad_" + what.replace(" ", "_")
    fields, text = BAD[what]
    with pytest.raises(ImportError, match=re.escape(text)):
        load(name, fields.replace("{n}", name))
    assert dir(getattr(tn.ops, name)) == []
    with pytest.raises(ValueError, match="there is no operator"):
        tn.explain(name + "::f")


def test_all_or_nothing() -> None:
    """A second operator that is wrong takes the first and its kernel along."""
    more = (
        'st = kernel(h, t, "half::f", 0, copy, TN_F32, 0);'
        'op.schema = "half::f(Tensor y) -> Tensor"; return h->register_op(t, &op);'
    )
    with pytest.raises(ImportError, match="'half::f' is there already"):
        load("half", POINTWISE + '"half::f(Tensor x) -> Tensor"', more)
    assert dir(tn.ops.half) == []
    more = 'return kernel(h, t, "half::f", 0, NULL, TN_F32, 0);'
    with pytest.raises(ImportError, match="lacks its operator or function"):
        load("half", POINTWISE + '"half::f(Tensor x) -> Tensor"', more)
    assert dir(tn.ops.half) == []
    load("half", POINTWISE + '"half::f(Tensor x) -> Tensor"', more.replace("NULL", "copy"))
    assert tn.ops.half.f(tn.ones(2)).tolist() == [1, 1]


PLANNED = """
static tn_status planned(const tn_call *call, const void *args) {
    const tn_plan *p = ((const unary *)args)->plan;
    (void)call;
    tn_rows r;
    for (tn_rows_start(&r, p); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = (float)(p->ndim * 10 + (p->flags & TN_PLAN_FLAT ? 1 : 0));
    return TN_OK;
}
"""


def test_plans_are_as_short_as_they_can_be() -> None:
    """Dimensions that all operands go through in one step are one; a plan is flat where that is
    all there is and no operand leaves anything out."""
    more = 'return kernel(h, t, "planned::f", 0, planned, TN_F32, 0);'
    f = load("planned", POINTWISE + '"planned::f(Tensor x) -> Tensor"', more, PLANNED).f
    x = tn.zeros(2, 3, 8)
    for given, want in [
        (x, 11), (x.permute(2, 0, 1), 11), (x[:, :, :4], 20),
        (x[:, :2], 20), (x[:, :2, :4], 30), (x[0, 0, ::2], 10), (tn.zeros(1).expand(6), 10),
        (tn.zeros(()), 11), (x[:1, :1, :1], 11), (x[:1, :, :1], 10), (tn.zeros(4, 1, 2), 11),
        (x[:, :, :1], 10), (tn.zeros(2, 1, 1, 5)[:, :, :, :3], 20),
    ]:  # fmt: skip
        assert set(f(given).reshape(-1).tolist()) == {want}, (given.shape, given.stride())


def test_name_clash_between_plugins() -> None:
    load("clash", POINTWISE + '"clash::f(Tensor x) -> Tensor"')
    with pytest.raises(ImportError, match="operator 'clash::f' is there already"):
        load("clash2", POINTWISE + '"clash::f(Tensor x) -> Tensor"')


@pytest.mark.parametrize(
    "lie", ["outs->ndim = 200", "outs->ndim = 1; outs->shape[0] = -4", "outs->dtype = 99"]
)
def test_infer_that_lies(lie: str) -> None:
    before = (
        "static tn_status infer(const tn_host *h, void *c, const void *a, tn_out_shape *outs) {"
        f"(void)h; (void)c; (void)a; {lie}; return TN_OK; }}"
    )
    more = 'return kernel(h, t, "lies::f", 0, copy, TN_F32, 0);'
    ops = load("lies", STRUCTURED + '"lies::f(Tensor x) -> Tensor", .infer = infer', more, before)
    with pytest.raises(ImportError, match="lies::f: the shape rule of plugin 'lies'"):
        ops.f(tn.ones(3))


def test_kernel_that_fails() -> None:
    before = (
        "static tn_status fails(const tn_call *c, const void *a) {(void)a;"
        'return c->host->fail(TN_E_VALUE, 0, "x is out of luck");}'
        "static tn_status odd(const tn_call *c, const void *a) {(void)a;(void)c; return 9999;}"
    )
    more = (
        'st = kernel(h, t, "failing::f", 0, fails, TN_F32, 0);'
        'return st ? st : kernel(h, t, "failing::f", 0, odd, TN_F64, 0);'
    )
    ops = load("failing", POINTWISE + '"failing::f(Tensor x) -> Tensor"', more, before)
    with pytest.raises(ValueError, match="x is out of luck") as caught:
        ops.f(tn.ones(2, 3))
    assert caught.value.op == "failing::f"
    assert "x: float32[2, 3]" in caught.value.detail
    with pytest.raises(ImportError, match="plugin 'failing' returned status 9999"):
        ops.f(tn.ones(2, dtype=tn.float64))
    with pytest.raises(NotImplementedError, match="failing::f"):
        ops.f(tn.ones(2, dtype=tn.int32))


# -- load_inline ----------------------------------------------------------------------------------


def test_inline_takes_the_place_of_the_earlier() -> None:
    """Run again after an edit, as a notebook cell is, and after the edit was undone."""

    def version(factor: str) -> Any:
        more = 'return kernel(h, t, "cell::f", 0, times, TN_F32, 0);'
        before = (
            "static tn_status times(const tn_call *c, const void *args) { (void)c;"
            "tn_rows r;"
            "for (tn_rows_start(&r, ((const unary *)args)->plan); tn_rows_next(&r);)"
            "for (int64_t i = 0; i < r.n; i++)"
            f"*TN_ROW(float, r, 0, i) = {factor} * *TN_ROW(const float, r, 1, i);"
            "return TN_OK; }"
        )
        return load("cell", POINTWISE + '"cell::f(Tensor x) -> Tensor"', more, before)

    for factor in (2, 3, 2, 2, 3):
        assert version(f"{factor}.0f").f(tn.ones(2)).tolist() == [factor, factor]


def test_inline_names_the_fault() -> None:
    with pytest.raises(RuntimeError, match=r"'broken' does not compile:\n(.|\n)*broken.c:2"):
        tn.load_inline("int a;\nint b = nonsense;\n", "broken")
    with pytest.raises(ImportError, match="exports no tn_plugin_entry_v1"):
        tn.load_inline("int a;\n", "empty")
    with pytest.raises(ValueError, match="no identifier"):
        tn.load_inline("", "../up")


def test_inline_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="no compiler 'no-such-compiler': install one"):
        tn.load_inline("int a;\n", "none")


# -- kernels of several plugins for one operator ---------------------------------------------------

OTHER = r"""
static tn_status %s(const tn_call *call, const void *args) {
    tn_rows r;
    (void)call;
    tn_rows_start(&r, ((const unary *)args)->plan);
    if (r.n > 3) return TN_DECLINE; /* long rows are for others */
    while (tn_rows_next(&r))
        for (int64_t i = 0; i < r.n; i++) *TN_ROW(float, r, 0, i) = %s;
    return TN_OK;
}
"""


def test_priority_preference_and_decline() -> None:
    more = 'return kernel(h, t, "many::f", 0, one, TN_F32, 0);'
    before = OTHER.replace("if (r.n > 3) return TN_DECLINE;", "") % ("one", 1)
    ops = load("many", POINTWISE + '"many::f(Tensor x) -> Tensor"', more, before)
    find = (
        'const tn_call_iface *c = (const tn_call_iface *)h->query("tn.call/1");'
        'return kernel(h, t, "many::f", c->find("many::f")->sig, two, TN_F32, %d);'
    )
    own = POINTWISE + '"many_%s::unused(Tensor x) -> Tensor"'
    load("many_high", own % "high", find % 5, OTHER % ("two", 5))
    load("many_low", own % "low", find % -5, OTHER % ("two", -5))
    x, long = tn.zeros(3), tn.zeros(4)
    assert ops.f(x)[0] == 5 and ops.f(long)[0] == 1
    tn.prefer("many_low", op="many::f", device="cpu")
    assert ops.f(x)[0] == -5 and ops.f(long)[0] == 1
    assert "preferred" in tn.explain("many::f")
    tn.prefer("many")
    assert ops.f(x)[0] == 1
    tn.prefer("many_high", op="many::f")
    assert ops.f(x)[0] == 5
    tn.prefer("many_low", op="many::f")
    for _ in range(2):  # it is undone, and undone again
        tn.prefer(None, op="many::f")
        assert ops.f(x)[0] == 5 and ops.f(long)[0] == 1
        assert "preferred" not in tn.explain("many::f")
    tn.prefer("many_low", op="many::f")
    assert ops.f(x)[0] == -5
    tn.prefer(None)
    assert ops.f(x)[0] == 5
    with pytest.raises(ImportError, match="plugin 'many_low' has no kernel of 'exp'"):
        tn.prefer("many_low", op="exp")


# -- gradients and formulas -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("examples")
    if shutil.which("c++"):
        load_once(MIX, folder, "examplecpp", "mix")
    return load_once(FORMULA, folder, "example", "swish")


def test_mix(examples: Any) -> None:
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    mix = tn.ops.examplecpp.mix
    assert str(inspect.signature(mix)) == "(a, b, weight=0.5)"
    a = tn.randn(3, 1, dtype=tn.float64, requires_grad=True)
    b = tn.randn(4, dtype=tn.float64, requires_grad=True)
    want = a.detach().numpy() + 0.3 * (b.detach().numpy() - a.detach().numpy())
    np.testing.assert_allclose(mix(a, b, 0.3).detach().numpy(), want)
    assert tn.autograd.gradcheck(lambda x, y: mix(x, y, weight=0.3), (a, b))
    assert tn.autograd.gradgradcheck(mix, (a, b))
    assert mix(tn.ones(2), tn.ones(2, dtype=tn.float64)).dtype == tn.float64
    half = mix(tn.zeros(2, dtype=tn.float16), tn.ones(2, dtype=tn.float16), 0.25)
    assert half.dtype == tn.float16 and half.tolist() == [0.25, 0.25]


def test_one_backward_call_for_two_gradients(examples: Any) -> None:
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    grads = []
    a, b = tn.ones(3, requires_grad=True), tn.ones(3, requires_grad=True)
    for needs in ((a, b), (a,), (b,)):
        grads.append(tn.autograd.grad(tn.ops.examplecpp.mix(a, b, 0.25).sum(), needs))
    assert [[g.tolist() for g in row] for row in grads] == [
        [[0.75] * 3, [0.25] * 3], [[0.75] * 3], [[0.25] * 3],
    ]  # fmt: skip


def test_composites(examples: Any) -> None:
    x = tn.randn(5, dtype=tn.float64, requires_grad=True)
    v = x.detach().numpy()
    np.testing.assert_allclose(examples.swish(x, beta=2).detach().numpy(), v / (1 + np.exp(-2 * v)))
    assert tn.autograd.gradgradcheck(lambda t: examples.swish(t, beta=2.0), (x,))
    np.testing.assert_allclose(examples.repeated(x, 4).detach().numpy(), 4 * v)
    assert tn.autograd.gradcheck(lambda t: examples.repeated(t, 3), (x,))
    with pytest.raises(ValueError, match="times must be at least 1"):
        examples.repeated(x, 0)


FORMULAS = {
    "2 * x ** 2 - x / 3": lambda x: 2 * x**2 - x / 3,
    "-x ** 2 + 2 ** -1": lambda x: -(x**2) + 0.5,
    "(x - -1) * (k + 1) / n": lambda x: (x + 1) * 4 / 0.5,
    "x - mean(x, [0], True)": lambda x: x - x.mean(0, keepdims=True),
    "sum(x, dim=[x.ndim - 1])": lambda x: x.sum(-1),
    "expand(sum(x), x.shape) / x.numel": lambda x: np.full_like(x, x.sum() / x.size),
    "x.shape[0] * x + x.shape[-1]": lambda x: x.shape[0] * x + x.shape[1],
    "aminmax(x)[1] - aminmax(x)[0]": lambda x: x.max() - x.min(),
    "softmax(x, dim=1)": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "1 - exp(x)": lambda x: 1 - np.exp(x),
    "pow(2.0, x)": lambda x: 2.0**x,
    "x": lambda x: x,
    "add(x, 1, alpha=k)": lambda x: x + 3,
    "where(x > 0, x, 0.1 * x)": lambda x: np.where(x > 0, x, 0.1 * x),
    "where((x > 0) & (x <= 1) | ~(x < 9), x, -x)": lambda x: np.where((x > 0) & (x <= 1), x, -x),
    "x * (x != 0.0)": lambda x: x,
    "where(x >= n, x, other=k)": lambda x: np.where(x >= 0.5, x, 3),
    "x * (k // 2) + 7 % 4 * x + x * (-7 // 2) - x * (k >= 3) + x * (n == 0.5)": lambda x: x * 0,
    "max(x, dim=1)[0]": lambda x: x.max(1),
    "max(x, 2 * x)": lambda x: np.maximum(x, 2 * x),
    "max(x) * sum(x, 0)": lambda x: x.max() * x.sum(0),
    "cat([x, split(x, 2)[0]], dim=0)": lambda x: np.concatenate([x, x[:2]]),
    "x if k == 3 else nonzero(x)": lambda x: x,
    "nonzero(x) if k > 3 else 2 * x if n < 1 else x": lambda x: 2 * x,
    "x * (2 if x.ndim == 2 and x.shape[1] == 4 else 3)": lambda x: 2 * x,
    "x if not x.is_complex or x.shape[9] == 1 else -x": lambda x: x,
    "(x * 2 if x.ndim == 3 and x.shape[2] == 4 else x) + (x if k is not None else 0)": (
        lambda x: 2 * x
    ),
    "(exp(x) if k > 3 else x) * (1 if n < 1 else 0) + (exp(x) if k == 3 else x)": (
        lambda x: x + np.exp(x)
    ),
    "x * sqrt(4.0) + real(x + 1j)": lambda x: 3 * x,
    "sinh(x) if k == 3 else x": np.sinh,
    "tanh(x) if k > 3 else sinh(x) if k > 2 else x": np.sinh,
    "real((x + 1) * -2j * 1j) + x * -1.5 + x * -True": lambda x: 2 * (x + 1) - 2.5 * x,
}


@pytest.mark.parametrize("number", range(len(FORMULAS)))
def test_formula_language(number: int) -> None:
    text, want = list(FORMULAS.items())[number]
    name = f"language{number}"
    schema = f'"{name}::f(Tensor x, int k=3, float n=0.5) -> Tensor"'
    ops = load(name, f'{COMPOSITE}{schema}, .formula = "{text}"')
    x = tn.randn(3, 4, dtype=tn.float64, requires_grad=True)
    np.testing.assert_allclose(ops.f(x).detach().numpy(), want(x.detach().numpy()))
    assert tn.autograd.gradcheck(lambda t: ops.f(t).sum(), (x,))


def test_gradients_of_lists() -> None:
    ops = load(
        "lists",
        f'{COMPOSITE}"lists::f(Tensor[] x) -> Tensor[]", .formula = "split(cat(x, dim=0) * 2, 2)", '
        '.gradient = "x: split(cat(grad, dim=0) * 2, 2)"',
    )
    x = [tn.randn(2, 3, dtype=tn.float64, requires_grad=True) for _ in range(3)]
    got = ops.f(x)
    assert [tuple(t.shape) for t in got] == [(2, 3)] * 3
    assert all(tn.equal(t, 2 * s) for t, s in zip(got, x, strict=True))
    assert tn.autograd.gradcheck(lambda *t: ops.f(list(t)), tuple(x))


def test_what_a_formula_made_is_given_back() -> None:
    name = "given_back"
    ops = load(
        name,
        f'{COMPOSITE}"{name}::f(Tensor x) -> Tensor", '
        '.formula = "exp(x) + frexp(x)[0] + split(x, 1)[0] + (sin(x) if x.ndim else x)"',
    )
    x = tn.zeros(1, 1 << 18)
    before = memory.resident()
    for _ in range(60):  # 1 MB each step
        assert ops.f(x).shape == x.shape
    assert memory.resident() - before < 24 << 20


def test_numbers_in_formulas() -> None:
    schema = '"numbers::f(Tensor x, Scalar a, Scalar b) -> Tensor"'
    texts = ["a < b", "a <= b", "a == b", "a != b", "a >= b", "a > b", "a // b", "a % b", "a * b"]
    for text in texts:
        f = load("numbers", f'{COMPOSITE}{schema}, .formula = "x * ({text})"').f
        for a in (7, -7, 2.5, -2.5, 3, True):
            for b in (2, -2, 3, 0.75, 7):
                got = f(tn.ones(1, dtype=tn.float64), a, b).item()
                assert got == eval(text, {"a": a, "b": b}), (text, a, b)
    f = load("numbers", f'{COMPOSITE}{schema}, .formula = "x * (a // b)"').f
    with pytest.raises(ValueError, match="divides a whole number by zero"):
        f(tn.ones(1), 1, 0)
    with pytest.raises(ValueError, match="larger than int64 holds"):
        f(tn.ones(1), -(2**63), -1)


def test_every_operator_in_a_formula() -> None:
    """By its public name, with its arguments by keyword."""
    name, lines = "everyop", []
    table = json.loads((Path(tn.__file__).parent / "ops.json").read_text(encoding="utf-8"))
    for i, op in enumerate(table):
        types = [a["type"] for a in op["args"]]
        if not op["outs"] or "Tensor?[]" in types or any("!" in t for t in types):
            continue
        if sum("Tensor" in t for t in types) > 7:  # a plugin's operator has 8 with its result
            continue
        given = ", ".join(f"{t} v{k}" for k, t in enumerate(types))
        call = ", ".join(f"{a['name']}=v{k}" for k, a in enumerate(op["args"]))
        pick = "[0]" if len(op["outs"]) > 1 else ""
        result = "Tensor[]" if op["list_out"] else "Tensor"
        first = f"{op['py_name']}({call}){pick}"
        lines.append(f'{{"{name}::f{i}({given}) -> {result}", "{first}"}},')
    before = "static const char *const all[][2] = {" + "\n".join(lines) + "};"
    more = (
        "for (size_t i = 0; i < sizeof all / sizeof all[0] && st == TN_OK; i++) {"
        "op.schema = all[i][0]; op.formula = all[i][1]; st = h->register_op(t, &op); } return st;"
    )
    load(name, f'{COMPOSITE}"{name}::none(Tensor x) -> Tensor", .formula = "x"', more, before)
    assert len(dir(tn.ops.everyop)) == len(lines) + 1 > 300
    x = tn.randn(2, 3)
    number = next(i for i, op in enumerate(table) if op["name"] == "sin")
    np.testing.assert_allclose(getattr(tn.ops.everyop, f"f{number}")(x).numpy(), np.sin(x.numpy()))


def test_gradients_that_are_not_there() -> None:
    """None at all, one of two, and one that is declared to be none."""
    kernel_row = 'return kernel(h, t, "partial::f", 0, copy, TN_F32, 0);'
    two = '"partial::f(Tensor x, Tensor y) -> Tensor"'
    x, y = tn.ones(2, requires_grad=True), tn.ones(2, requires_grad=True)
    f = load("partial", POINTWISE + two, kernel_row).f
    with pytest.raises(RuntimeError, match="derivative for partial::f is not implemented"):
        f(x, y).sum().backward()
    f = load("partial", POINTWISE + two + ', .gradient = "x: grad"', kernel_row).f
    f(x, y.detach()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="partial::f with respect to 'y' is not implemented"):
        f(x, y).sum().backward()
    f = load("partial", POINTWISE + two + ', .gradient = "x: grad; y: none"', kernel_row).f
    y.grad = None
    f(x, y).sum().backward()
    assert y.grad is None
    f = load("partial", POINTWISE + two + ', .gradient = "none"', kernel_row).f
    assert not f(x, y).requires_grad


def test_only_what_is_read_is_saved() -> None:
    """A gradient that reads the shape alone lets the values change."""
    schema = '"saves::f(Tensor x, Tensor y) -> Tensor"'
    fields = POINTWISE + schema + ', .gradient = "x: grad * y; y: %s"'
    row = 'return kernel(h, t, "saves::f", 0, copy, TN_F32, 0);'
    x, y = tn.ones(2, requires_grad=True), tn.ones(2, requires_grad=True)
    f = load("saves", fields % "expand(grad, x.shape)", row).f
    a, b = x * 1, y * 1
    out = f(a, b)
    a.add_(1)
    out.sum().backward()
    out = f(a, b)
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# -- on a device without kernels ------------------------------------------------------------------

ON_ACME = """
import sys, tenon as tn
for library in sys.argv[1:]:
    tn.load_library(library)
def result(device):
    tn.manual_seed(0)
    x = tn.randn(5, 7).to(device).requires_grad_()
    y = tn.ops.example.gelu(x.t()) * tn.ops.example.swish(x, beta=0.5).t()
    (first,) = tn.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = tn.autograd.grad(first.square().sum(), x)
    assert y.device == second.device == x.device
    return [t.detach().cpu() for t in (y, first, second)]
for a, b in zip(result("cpu"), result("acme")):
    assert tn.allclose(a, b, rtol=1e-6), (a, b)
text = tn.explain("example::gelu", device="acme")
assert "runs: on the CPU, with copies both ways" in text, text
assert "composite" in tn.explain("example::swish", device="acme")
"""


def test_on_a_device(tmp_path: Path) -> None:
    """The operators, forward and backward, on a device whose plugin knows nothing of them."""
    device = as_user.EXAMPLES / "device"
    as_user.build(device / "acme.c", device / "tenon_acme.json", tmp_path)
    libraries = [str(make(source, tmp_path)) for source in (GELU, FORMULA)]
    done = as_user.run(tmp_path, "-c", ON_ACME, *libraries, TENON_FALLBACK="allow")
    assert done.returncode == 0, done.stderr


# -- loading again --------------------------------------------------------------------------------


def test_retired_and_loaded_again(tmp_path: Path) -> None:
    """Operators go with their plugin and come back; what was recorded stays valid."""
    library = make(FORMULA, tmp_path)
    script = f"""
import tenon as tn
x = tn.ones(3, requires_grad=True)
for i in range(200):
    tn.load_library({str(library)!r})
    y = tn.ops.example.swish(x)
    tn.retire_plugin("example_formula")
    assert not hasattr(tn.ops.example, "swish")
    y.sum().backward()
try:
    tn.explain("example::swish")
except ValueError:
    pass
else:
    raise AssertionError("a retired operator is still there")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- every type of argument -----------------------------------------------------------------------

EVERY_TYPE = r"""
#include <math.h>
typedef struct all_args {
    const tn_plan *plan;
    const tn_view *x; const tn_view *w; tn_views list; int64_t i; tn_opt_int oi; tn_ints pair;
    tn_ints dims; int64_t dim; int64_t flag; double f; tn_opt_float of; tn_scalar s;
    const char *text; int64_t dtype;
    tn_view *out;
} all_args;
static tn_status all(const tn_call *call, const void *args) {
    const all_args *a = (const all_args *)args;
    float *o = (float *)a->out->data;
    (void)call;
    o[0] = a->w ? 1 : 0; o[1] = (float)a->list.n; o[2] = (float)a->i;
    o[3] = a->oi.has ? (float)a->oi.value : -1;
    o[4] = (float)(a->pair.v[0] * 10 + a->pair.v[1]); o[5] = (float)a->dims.n; o[6] = (float)a->dim;
    o[7] = (float)a->flag; o[8] = (float)a->f; o[9] = a->of.has ? (float)a->of.value : -1;
    o[10] = (float)a->s.re; o[11] = a->text ? (float)strlen(a->text) : -1; o[12] = (float)a->dtype;
    return TN_OK;
}
static tn_status infer(const tn_host *h, void *c, const void *a, tn_out_shape *outs) {
    (void)h; (void)c; (void)a;
    outs->ndim = 1; outs->shape[0] = 13;
    return TN_OK;
}
"""


def test_every_type_of_argument() -> None:
    schema = (
        '"every::f(Tensor x, Tensor? w, Tensor[] list, int i=3, int? oi=None, '
        "int[2] pair=7, Dims dims=None, *, Dim dim=-1, bool flag=True, float f=0.5, "
        "float? of=None, Scalar s=2, str text='abc', DType? dtype=None) -> Tensor\""
    )
    fields = (
        STRUCTURED
        + schema
        + (", .args_bytes = sizeof(all_args), .infer = infer, .flags = TN_OPF_PACK")
    )
    row = 'return kernel(h, t, "every::f", 0, all, TN_F32, 0);'
    f = load("every", fields, row, EVERY_TYPE).f
    x = tn.ones(2, 3)
    assert f(x, None, [x, x]).tolist() == [0, 2, 3, -1, 77, -1, 1, 1, 0.5, -1, 2, 3, -1]
    some = {"dim": 0, "flag": False, "f": 1, "of": 0.25, "s": 1.5, "text": "", "dtype": tn.int8}
    got = f(x, x, (), 4, 5, (1, 2), [0], **some)
    assert got.tolist() == [1, 0, 4, 5, 12, 1, 0, 0, 1, 0.25, 1.5, 0, 2]
    with pytest.raises(IndexError, match="Dimension out of range"):
        f(x, None, [], dim=2)


OFFERED = """
import tenon as tn
assert not any(p["name"].startswith("example") and p["active"] for p in tn.plugins())
x = tn.ones(3, dtype=tn.float64)
assert tn.allclose(tn.ops.example.gelu(x), tn.nn.functional.gelu(x))
try:
    tn.ops.example.other
except AttributeError as err:
    assert "example::other" in str(err), err
else:
    raise AssertionError
"""


def test_named_operator_loads_its_plugin(tmp_path: Path) -> None:
    as_user.build(GELU, GELU.with_name("tenon_example.json"), tmp_path)
    done = as_user.run(tmp_path, "-c", OFFERED)
    assert done.returncode == 0, done.stderr


# -- constants and named results ------------------------------------------------------------------


def test_constants_of_formulas_are_computed_in_double() -> None:
    formula = '"constants::f(Tensor x) -> Tensor", .formula = "x * sqrt(2 / pi) * exp(1)"'
    ops = load("constants", COMPOSITE + formula)
    got = ops.f(tn.ones(1, dtype=tn.float64)).item()
    assert got == pytest.approx(math.sqrt(2 / math.pi) * math.e, rel=1e-15)


def test_a_dtype_rule_may_name_the_dtype_of_the_result() -> None:
    before = """static tn_status whole(const tn_call *call, const void *args) {
        (void)call;
        tn_rows r;
        for (tn_rows_start(&r, ((const unary *)args)->plan); tn_rows_next(&r);)
            for (int64_t i = 0; i < r.n; i++)
                *TN_ROW(int32_t, r, 0, i) = (int32_t)*TN_ROW(const float, r, 1, i);
        return TN_OK;
    }"""
    fields = POINTWISE + '"whole::f(Tensor x) -> Tensor", .dtype = "float -> int32"'
    ops = load("whole", fields, 'return kernel(h, t, "whole::f", 0, whole, TN_F32, 0);', before)
    x = tn.tensor([[1.5, -2.5], [3.0, 4.0]], requires_grad=True)
    for view in (x, x.t(), x[:, 1]):
        assert ops.f(view).dtype == tn.int32 and not ops.f(view).requires_grad
        np.testing.assert_array_equal(ops.f(view).numpy(), view.detach().numpy().astype(np.int32))
    out = tn.empty(2, 2, dtype=tn.int64)
    assert ops.f(x.detach(), out=out).tolist() == [[1, -2], [3, 4]]
