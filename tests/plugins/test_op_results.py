"""What operators of plugins return: lists, nothing (they write to an argument), reductions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import as_user
import numpy as np
import pytest
import tenon as tn
from added import (  # noqa: F401
    COMPOSITE,
    REDUCTION,
    STRUCTURED,
    load,
    make,
    private_cache,
    source,
)

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

# -- lists ----------------------------------------------------------------------------------------

PARTS = r"""
typedef struct parts_args {
    const tn_plan *plan; const tn_view *x; int64_t n; tn_views out;
} parts_args;
static tn_status count(const tn_host *h, void *c, const void *args, int64_t *ret_n) {
    int64_t n = ((const parts_args *)args)->n;
    (void)c;
    if (n < -1000) return h->fail(TN_E_VALUE, 1, "n is out of range");
    *ret_n = n;
    return TN_OK;
}
/* result i has the elements whose number leaves i when divided by n */
static tn_status infer(const tn_host *h, void *c, const void *args, tn_out_shape *outs) {
    const parts_args *a = (const parts_args *)args;
    (void)h; (void)c;
    for (int64_t i = 0; i < a->n; i++) {
        outs[i].ndim = 1;
        outs[i].shape[0] = (a->x->shape[0] - i + a->n - 1) / a->n;
    }
    if (a->n == 20) outs[13].ndim = TN_MAX_DIMS + 1;
    return TN_OK;
}
static tn_status parts(const tn_call *call, const void *args) {
    const parts_args *a = (const parts_args *)args;
    const double *x = (const double *)a->x->data;
    (void)call;
    for (int64_t i = 0; i < a->out.n; i++)
        for (int64_t k = 0; k < a->out.v[i]->numel; k++)
            ((double *)a->out.v[i]->data)[k] = x[k * a->n + i];
    return TN_OK;
}
"""


def load_parts(name: str, more: str = "") -> Any:
    fields = (
        f'{STRUCTURED}"{name}::parts(Tensor x, int n=2) -> Tensor[]", .count = count, '
        f".infer = infer, .args_bytes = sizeof(parts_args), .flags = TN_OPF_PACK{more}"
    )
    row = f'return kernel(h, t, "{name}::parts", 0, parts, TN_F64, 0);'
    return load(name, fields, row, PARTS).parts


# n = 3 here: what came for each part goes back to its place
GRADIENT = ', .gradient = "x: reshape(stack([grad[0], grad[1], grad[2]], dim=1), x.shape)"'


def test_list() -> None:
    parts = load_parts("lists")
    x = tn.arange(10, dtype=tn.float64)
    for n in (0, 1, 2, 3, 10):
        got = parts(x, n)
        assert isinstance(got, tuple) and len(got) == n
        for i, part in enumerate(got):
            np.testing.assert_array_equal(part.numpy(), np.arange(10.0)[i::n])
    np.testing.assert_array_equal(parts(x[::2], 2)[1].numpy(), [2.0, 6.0])
    assert len(parts(x)) == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        parts(x, out=x)
    with pytest.raises(NotImplementedError, match='"lists::parts" not implemented'):
        parts(x.to(tn.int32))


@pytest.mark.parametrize(
    ("n", "error", "text"),
    [
        (-1, ImportError, "plugin 'lies_list' counts -1 results"),
        (1 << 40, ImportError, "counts 1099511627776 results"),
        (-2000, ValueError, "n is out of range"),
        (20, ImportError, "gives result 13 an impossible shape"),
    ],
)
def test_list_rules_that_lie(n: int, error: type[Exception], text: str) -> None:
    parts = load_parts("lies_list")
    with pytest.raises(error, match=text):
        parts(tn.zeros(12, dtype=tn.float64), n)


def test_list_gradient() -> None:
    parts = load_parts("lists_grad", GRADIENT)
    x = tn.randn(9, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(lambda t: parts(t, 3), (x,))
    assert tn.autograd.gradgradcheck(lambda t: parts(t, 3), (x,))
    (parts(x, 3)[1] * 5).sum().backward()  # the others get zeros
    assert x.grad is not None and x.grad.tolist() == [0, 5, 0] * 3
    x.grad = None
    with pytest.raises(IndexError, match="reads tensor 2 of a list of 2"):
        parts(x, 2)[0].sum().backward()


def test_list_without_gradient() -> None:
    x = tn.randn(4, dtype=tn.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for lists_none::parts is not implemented"):
        load_parts("lists_none")(x)[0].sum().backward()


def test_list_needs_a_count() -> None:
    schema = '"nocount::f(Tensor x) -> Tensor[]"'
    with pytest.raises(ImportError, match="the result Tensor.. needs `count`"):
        load("nocount", f'{STRUCTURED}{schema}, .shape = "same(x)"')
    with pytest.raises(ImportError, match="`count` goes with the result Tensor.."):
        text = f'{STRUCTURED}"nocount::f(Tensor x) -> Tensor", .shape = "same(x)", .count = count'
        load("nocount", text, before=PARTS)


def test_list_of_one_shape() -> None:
    before = PARTS.replace("parts(const tn_call", "unused(const tn_call") + (
        "static tn_status fill(const tn_call *c, const void *args) { (void)c;"
        "const parts_args *a = (const parts_args *)args;"
        "for (int64_t i = 0; i < a->out.n; i++)"
        "for (int64_t k = 0; k < a->out.v[i]->numel; k++)"
        "((double *)a->out.v[i]->data)[k] = (double)i; return TN_OK; }"
    )
    row = 'return kernel(h, t, "alike::f", 0, fill, TN_F64, 0);'
    fields = f'{STRUCTURED}"alike::f(Tensor x, int n) -> Tensor[]", .count = count, '
    ops = load("alike", fields + '.shape = "same(x)"', row, before)
    got = ops.f(tn.zeros(2, 3, dtype=tn.float64), 4)
    assert [(g.shape, g.sum().item()) for g in got] == [((2, 3), 6.0 * i) for i in range(4)]
    half = ops.f(tn.zeros(2, dtype=tn.bfloat16).double().to(tn.float64), 1)
    assert half[0].dtype == tn.float64


def test_composite_lists() -> None:
    x = tn.randn(6, dtype=tn.float64, requires_grad=True)
    schema = '"{n}::f(Tensor x, int k=2) -> Tensor[]"'
    f = load("byformula", COMPOSITE + schema.replace("{n}", "byformula") +
             ', .formula = "split(x * x, k)"').f  # fmt: skip
    got = f(x, 4)
    want = x.detach().numpy() ** 2
    np.testing.assert_allclose(got[0].detach().numpy(), want[:4])
    np.testing.assert_allclose(got[1].detach().numpy(), want[4:])
    assert tn.autograd.gradcheck(lambda t: f(t, 4), (x,))
    f = load("byliteral", COMPOSITE + schema.replace("{n}", "byliteral") +
             ', .formula = "[x, split(x, k)[-1], 2 * x]"').f  # fmt: skip
    assert [g.numel() for g in f(x, 4)] == [6, 2, 6]
    assert tn.autograd.gradcheck(lambda t: f(t, 4), (x,))
    before = r"""
    typedef struct args_ { const tn_plan *plan; const tn_view *x; int64_t k; tn_views out; } args_;
    static tn_status count(const tn_host *h, void *c, const void *a, int64_t *ret_n) {
        (void)h; (void)c;
        *ret_n = ((const args_ *)a)->k;
        return TN_OK;
    }
    static tn_status repeat(const tn_host *h, void *c, const void *a, tn_view **rets) {
        const tn_call_iface *i = (const tn_call_iface *)h->query("tn.call/1");
        const args_ *s = (const args_ *)a;
        (void)c;
        if (s->k == 5) return h->fail(TN_E_VALUE, 1, "five is not possible");
        for (int64_t k = 0; k < s->k; k++)
            if (k != 3) rets[k] = i->retain((tn_view *)s->x);
        return TN_OK;
    }
    """
    fields = COMPOSITE + schema.replace("{n}", "byc") + ", .composite = repeat, .count = count"
    f = load("byc", fields, before=before).f
    assert [g.tolist() for g in f(x, 3)] == [x.tolist()] * 3
    with pytest.raises(ValueError, match="five is not possible"):
        f(x, 5)
    with pytest.raises(ImportError, match="plugin 'byc' returned no tensor"):
        f(x, 4)


def test_gradient_of_a_list() -> None:
    """A list of tensors gets a list of gradients, one for each."""
    fields = (
        COMPOSITE + '"joins::f(Tensor[] xs, int k) -> Tensor", .formula = "cat(xs)", '
        '.gradient = "xs: split(grad * 3, k)"'
    )
    f = load("joins", fields).f
    xs = [tn.randn(2, dtype=tn.float64, requires_grad=True) for _ in range(3)]
    got = tn.autograd.grad(f(xs, 2), xs, tn.arange(6, dtype=tn.float64))
    assert [g.tolist() for g in got] == [[0, 3], [6, 9], [12, 15]]
    with pytest.raises(RuntimeError, match="gradient of 'xs' has 2 tensors for 3"):
        f(xs, 3).sum().backward()


# -- operators that write -------------------------------------------------------------------------

AXPY = r"""
typedef struct axpy_args {
    const tn_plan *plan; tn_view *y; const tn_view *x; double a;
} axpy_args;
static tn_status axpy(const tn_call *call, const void *args) {
    const axpy_args *s = (const axpy_args *)args;
    double *y = (double *)s->y->data;
    const double *x = (const double *)s->x->data;
    (void)call;
    for (int64_t i = 0; i < s->y->shape[0]; i++)
        y[i * s->y->strides[0]] += s->a * x[i * s->x->strides[0]];
    return TN_OK;
}
"""


@pytest.fixture(scope="module", params=["kernel", "formula"])
def axpy(request: pytest.FixtureRequest) -> Any:
    """y += a * x, which returns nothing."""
    name = f"axpy_{request.param}"
    schema = f'"{name}::axpy_(Tensor! y, Tensor x, float a=1.0) -> ()"'
    if request.param == "formula":
        return load(name, f'{COMPOSITE}{schema}, .formula = "y + a * x"').axpy_
    row = f'return kernel(h, t, "{name}::axpy_", 0, axpy, TN_F64, 0);'
    fields = f'{STRUCTURED}{schema}, .gradient = "y: grad; x: a * grad", '
    return load(name, fields + ".args_bytes = sizeof(axpy_args)", row, AXPY).axpy_


def test_written_argument(axpy: Any) -> None:
    y, x = tn.ones(3, dtype=tn.float64), tn.arange(3, dtype=tn.float64)
    assert axpy(y, x, 2.0) is None
    assert y.tolist() == [1, 3, 5]
    base = tn.zeros(3, 4, dtype=tn.float64)
    version = base._version
    axpy(base[:, 1], x)
    assert base[:, 1].tolist() == [0, 1, 2] and base.sum().item() == 3
    assert base._version > version


def test_written_argument_and_autograd(axpy: Any) -> None:
    def run(y: tn.Tensor, x: tn.Tensor) -> tn.Tensor:
        y = y * 1
        axpy(y, x * x, 3.0)
        axpy(y[:2], y[1:].clone(), 0.5)
        return y * y

    y = tn.randn(3, dtype=tn.float64, requires_grad=True)
    x = tn.randn(3, dtype=tn.float64, requires_grad=True)
    b, a = y.detach().numpy().copy(), x.detach().numpy()
    b += 3 * a * a
    b[:2] += 0.5 * b[1:].copy()
    np.testing.assert_allclose(run(y, x).detach().numpy(), b * b)
    assert tn.autograd.gradcheck(run, (y, x))
    assert tn.autograd.gradgradcheck(run, (y, x))
    z = x * 1
    later = (z * z).sum()
    axpy(z, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        later.backward()


def test_what_may_not_be_written(axpy: Any) -> None:
    x = tn.ones(3, dtype=tn.float64)
    leaf = tn.ones(3, dtype=tn.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        axpy(leaf, x)
    with tn.no_grad():
        axpy(leaf, x)
    assert leaf.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="share|single memory location"):
        axpy(tn.ones(1, dtype=tn.float64).expand(3), x)
    frozen = np.ones(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        axpy(tn.from_numpy(frozen), x)
    with pytest.raises(TypeError, match="argument 'y' .position 1. must be Tensor, not float"):
        axpy(1.0, x)
    with tn.inference_mode():
        made = tn.ones(3, dtype=tn.float64)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        axpy(made, x)


def test_reading_what_is_written(axpy: Any) -> None:
    """Operands that share memory with the target are read before it changes."""
    data = tn.arange(6, dtype=tn.float64)
    axpy(data[1:4], data[:3])
    assert data.tolist() == [0, 1, 3, 5, 4, 5]
    axpy(data, data)
    assert data.tolist() == [0, 2, 6, 10, 8, 10]


def test_gradient_that_reads_the_old_value() -> None:
    before = (
        "typedef struct sq { const tn_plan *p; tn_view *x; } sq;"
        "static tn_status square(const tn_call *c, const void *a) { (void)c;"
        "tn_view *x = ((const sq *)a)->x; double *v = (double *)x->data;"
        "for (int64_t i = 0; i < x->numel; i++) v[i] *= v[i]; return TN_OK; }"
    )
    fields = f'{STRUCTURED}"squares::f_(Tensor! x) -> ()", .gradient = "x: 2 * x * grad_x"'
    f = load("squares", fields, 'return kernel(h, t, "squares::f_", 0, square, TN_F64, 0);', before)

    def run(x: tn.Tensor) -> tn.Tensor:
        y = x * 3
        f.f_(y)
        f.f_(y)
        return y

    x = tn.randn(4, dtype=tn.float64, requires_grad=True)
    np.testing.assert_allclose(run(x).detach().numpy(), (3 * x.detach().numpy()) ** 4)
    assert tn.autograd.gradcheck(run, (x,))
    assert tn.autograd.gradgradcheck(run, (x,))


SECOND = r"""
typedef struct two_args {
    const tn_plan *plan; const tn_view *x; tn_view *mean; tn_view *out;
} two_args;
static tn_status two(const tn_call *call, const void *args) {
    const two_args *a = (const two_args *)args;
    double sum = 0;
    (void)call;
    for (int64_t i = 0; i < a->x->numel; i++) sum += ((const double *)a->x->data)[i];
    *(double *)a->mean->data = sum / (double)a->x->numel;
    memcpy(a->out->data, a->x->data, sizeof(double) * (size_t)a->x->numel);
    return TN_OK;
}
"""


def test_statistics_on_the_side() -> None:
    """An argument that is written next to a result has no history."""
    row = 'return kernel(h, t, "side::f", 0, two, TN_F64, 0);'
    fields = (
        f'{STRUCTURED}"side::f(Tensor x, Tensor! mean) -> Tensor", .shape = "same(x)", '
        '.gradient = "x: grad", .flags = TN_OPF_PACK'
    )
    f = load("side", fields, row, SECOND).f
    x = tn.randn(5, dtype=tn.float64, requires_grad=True)
    mean = tn.zeros(1, dtype=tn.float64)
    assert tn.autograd.gradcheck(lambda t: f(t, mean), (x,))
    np.testing.assert_allclose(mean.item(), x.detach().numpy().mean(), rtol=1e-5)
    assert not mean.requires_grad
    with pytest.raises(RuntimeError, match="argument 'mean' is written and cannot take part"):
        f(x, (mean.clone().requires_grad_() * 1))


def test_two_that_are_written() -> None:
    fields = f'{COMPOSITE}"swap::swap_(Tensor! a, Tensor! b) -> ()", .formula = "a: b; b: a"'
    f = load("swap", fields).swap_
    a, b = tn.ones(2), tn.zeros(2)
    f(a, b)
    assert (a.tolist(), b.tolist()) == ([0, 0], [1, 1])


@pytest.mark.parametrize(
    ("schema", "more", "text"),
    [
        ("f(Tensor x) -> ()", "", "writes to an argument, Tensor!"),
        ("f(Tensor! x) -> (Tensor[] y)", "", "a result among several is a Tensor"),
        ("f(Tensor! x) -> ()", ', .shape = "same(x)"', "it takes no shape rule"),
        ("f(Tensor! x) -> ()", ', .gradient = "x: out"', "the name 'out' means nothing"),
    ],
)
def test_bad_results(schema: str, more: str, text: str) -> None:
    with pytest.raises(ImportError, match=re.escape(text)):
        load("badres", f'{STRUCTURED}"badres::{schema}"{more}')
    assert dir(tn.ops.badres) == []


def test_formula_without_a_target() -> None:
    with pytest.raises(ImportError, match="no argument is written"):
        load("idle", f'{COMPOSITE}"idle::f(Tensor! x, Tensor! y) -> ()", .formula = ""')
    with pytest.raises(ImportError, match="starts with the name that it is for"):
        load("idle", f'{COMPOSITE}"idle::f(Tensor! x, Tensor! y) -> ()", .formula = "x"')


# -- reductions -----------------------------------------------------------------------------------

LOGMEANEXP = r"""
#include <math.h>
typedef struct lme_args {
    const tn_plan *plan; const tn_view *x; tn_ints dim; int64_t keepdim; tn_view *out;
} lme_args;
#define KERNEL(T, name)                                                                       \
    static tn_status name(const tn_call *call, const void *args) {                            \
        const tn_plan *p = ((const lme_args *)args)->plan;                                    \
        tn_plan results = *p; /* each result once, also where nothing is reduced into it */   \
        double n = 1;                                                                         \
        tn_rows r;                                                                            \
        (void)call;                                                                           \
        results.numel = 1;                                                                    \
        for (int32_t d = 0; d < p->ndim; d++) {                                               \
            if (p->reduce_mask >> d & 1u) n *= (double)p->shape[d], results.shape[d] = 1;     \
            results.numel *= results.shape[d];                                                \
        }                                                                                     \
        for (tn_rows_start(&r, &results); tn_rows_next(&r);)                                  \
            for (int64_t i = 0; i < r.n; i++) *TN_ROW(T, r, 0, i) = (T)-INFINITY;             \
        for (tn_rows_start(&r, p); tn_rows_next(&r);)                                         \
            for (int64_t i = 0; i < r.n; i++) {                                               \
                double a = (double)*TN_ROW(T, r, 0, i), x = (double)*TN_ROW(const T, r, 1, i); \
                double y = x - log(n), m = a > y ? a : y;                                     \
                *TN_ROW(T, r, 0, i) = (T)(m + log(exp(a - m) + exp(y - m)));                  \
            }                                                                                 \
        return TN_OK;                                                                         \
    }
KERNEL(float, lme_f32)
KERNEL(double, lme_f64)
"""
LME_GRADIENT = (
    "x: _expand_reduced(grad, x.shape, dim, keepdim) * (out.numel / x.numel) *"
    " exp(x - _expand_reduced(out, x.shape, dim, keepdim))"
)


@pytest.fixture(scope="module")
def logmeanexp() -> Any:
    fields = (
        f'{REDUCTION}"lme::logmeanexp(Tensor x, Dims dim=None, bool keepdim=False) -> Tensor", '
        f'.dtype = "float", .args_bytes = sizeof(lme_args), .gradient = "{LME_GRADIENT}"'
    )
    rows = (
        'st = kernel(h, t, "lme::logmeanexp", 0, lme_f32, TN_F32, 0);'
        'return st ? st : kernel(h, t, "lme::logmeanexp", 0, lme_f64, TN_F64, 0);'
    )
    return load("lme", fields, rows, LOGMEANEXP).logmeanexp


def want(x: np.ndarray, dim: Any = None, keepdim: bool = False) -> np.ndarray:
    axis = tuple(dim) if isinstance(dim, list) else dim
    return np.log(np.exp(x).mean(axis=axis, keepdims=keepdim))


@pytest.mark.parametrize("dim", [None, 0, -1, [0, 2], [2, 1], [0, 1, 2], [-1]])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reduction(logmeanexp: Any, dim: Any, keepdim: bool) -> None:
    x = tn.randn(3, 4, 5, dtype=tn.float64)
    layouts = [x, x.permute(2, 0, 1), x[::2, :, 1::2], x[:, :1].expand(3, 7, 5), x.flip(0)]
    for t in layouts:
        got = logmeanexp(t, dim, keepdim)
        expected = want(t.numpy(), dim, keepdim)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)
    out = tn.empty(0, dtype=tn.float64)
    assert logmeanexp(x, dim, keepdim, out=out) is out
    np.testing.assert_allclose(out.numpy(), want(x.numpy(), dim, keepdim), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dim", [None, 1, [0, 2]])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reduction_gradients(logmeanexp: Any, dim: Any, keepdim: bool) -> None:
    x = tn.randn(3, 2, 4, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(lambda t: logmeanexp(t.permute(2, 0, 1), dim, keepdim), (x,))
    assert tn.autograd.gradgradcheck(lambda t: logmeanexp(t, dim, keepdim), (x,))


def test_reduction_dtypes(logmeanexp: Any) -> None:
    x = tn.arange(12).reshape(3, 4)
    for dtype, error in [(tn.float32, 1e-5), (tn.float16, 1e-2), (tn.bfloat16, 1e-1)]:
        got = logmeanexp(x.to(dtype), 1)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.double().numpy(), want(x.numpy(), 1), atol=error)
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        logmeanexp(x)
    assert logmeanexp(tn.zeros(0, 3), 1).shape == (0,)
    assert logmeanexp(tn.zeros(3, 0), 1).tolist() == [-np.inf] * 3
    with pytest.raises(IndexError, match="Dimension out of range"):
        logmeanexp(x.double(), 2)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        logmeanexp(x.double(), [0, 0])


@pytest.mark.parametrize(
    ("schema", "more", "text"),
    [
        ("f(Tensor x) -> Tensor", "", "has an argument 'Dims dim'"),
        ("f(Tensor x, Dims axis) -> Tensor", "", "are called dim"),
        ("f(Tensor x, int dim) -> Tensor", "", "of type Dims, Dim or Dim?"),
        ("f(Tensor x, Tensor y, Dims dim) -> Tensor", "", "one tensor argument"),
        ("f(Tensor x, Dims dim, int keepdim) -> Tensor", "", "'keepdim' of a reduction is a bool"),
        ("f(Tensor x, Dims dim) -> Tensor", ', .shape = "same(x)"', "takes no shape rule"),
        ("f(Tensor x, Dims dim) -> Tensor", ', .formula = "x"', "computed by kernels"),
        ("f(Tensor! x, Dims dim) -> ()", "", "writes to no argument"),
    ],
)
def test_bad_reductions(schema: str, more: str, text: str) -> None:
    with pytest.raises(ImportError, match=re.escape(text)):
        load("badred", f'{REDUCTION}"badred::{schema}"{more}')


# -- on a device without kernels ------------------------------------------------------------------

ON_ACME = """
import sys
import tenon as tn
for library in sys.argv[1:]:
    tn.load_library(library)
def run(device):
    tn.manual_seed(0)
    x = tn.randn(6, dtype=tn.float64).to(device).requires_grad_()
    y = x * 2
    assert tn.ops.away.axpy_(y, x * x, 3.0) is None
    parts = tn.ops.away.parts(y, 2)
    assert all(p.device == x.device for p in parts)
    loss = (parts[0] * parts[1]).sum()
    loss.backward()
    return loss.cpu(), x.grad.cpu(), y.detach().cpu()
for a, b in zip(run("cpu"), run("acme")):
    assert tn.allclose(a, b), (a, b)
"""


def test_on_a_device(tmp_path: Path) -> None:
    device = as_user.EXAMPLES / "device"
    as_user.build(device / "acme.c", device / "tenon_acme.json", tmp_path)
    parts = (
        STRUCTURED + '"away::parts(Tensor x, int n=2) -> Tensor[]", .count = count, '
        ".infer = infer, .flags = TN_OPF_PACK, "
        '.gradient = "x: reshape(stack([grad[0], grad[1]], dim=1), x.shape)"'
    )
    more = (
        "op = (tn_op_desc){.struct_size = sizeof op, .kind = TN_OP_STRUCTURED, "
        '.schema = "away::axpy_(Tensor! y, Tensor x, float a=1.0) -> ()", '
        '.gradient = "y: grad; x: a * grad"};'
        "st = h->register_op(t, &op); if (st != TN_OK) return st;"
        'st = kernel(h, t, "away::parts", 0, parts, TN_F64, 0);'
        'return st ? st : kernel(h, t, "away::axpy_", 0, axpy, TN_F64, 0);'
    )
    code = tmp_path / "away.c"
    code.write_text(
        source("away", parts, more, PARTS + AXPY).replace(
            "static tn_status copy", "static inline tn_status copy"
        )
    )
    done = as_user.run(tmp_path, "-c", ON_ACME, str(make(code, tmp_path)), TENON_FALLBACK="allow")
    assert done.returncode == 0, done.stderr


SHORTER = (
    "static tn_status shorter(const tn_call *call, const void *args) {"
    "int64_t shape[1] = {1};"
    "return call->host->resize_output(call, ((const unary *)args)->out, 1, shape); }"
)
WRITES = (
    "static tn_status writes(const tn_call *call, const void *args) { (void)call;"
    "((float *)((const unary *)args)->x->data)[0] += 1; return TN_OK; }"
)


@pytest.mark.parametrize(
    ("name", "before", "fields", "words"),
    [
        ("checked_good", "", 'COMPOSITE "(Tensor x, int[] d=[0, 1], *, float s=2.0) -> Tensor", '
         '.formula = "sum(x, d) * s"', ""),
        ("checked_lists", "", 'COMPOSITE "(Tensor[] x) -> Tensor", .formula = "cat(x, 0)"', ""),
        ("checked_same", "", 'COMPOSITE "(Tensor x) -> Tensor", .formula = "x"',
         "test_schema of .*: a result shares memory with argument 'x'"),
        ("checked_writes", WRITES, 'STRUCTURED "(Tensor x) -> Tensor", .shape = "broadcast"',
         "test_schema of .*: argument 'x' was written to"),
        ("checked_shorter", SHORTER, 'STRUCTURED "(Tensor x) -> Tensor", .shape = "broadcast"',
         r"test_faketensor of .*: the operator makes \[\(\(1,\).* meta \[\(\(3, 4\)"),
    ],
)  # fmt: skip
def test_opcheck(name: str, before: str, fields: str, words: str) -> None:
    """An operator in C is tried by its function and by its name."""
    kind, text = fields.split(" ", 1)
    text = text.replace('"(', f'"{name}::f(', 1)
    row = f'return kernel(h, t, "{name}::f", 0, {name.split("_")[1]}, TN_F32, 0);'
    more = row if before else "return TN_OK;"
    f = load(name, {"COMPOSITE": COMPOSITE, "STRUCTURED": STRUCTURED}[kind] + text, more, before).f
    x = tn.rand(3, 4, requires_grad=not before)
    args = ([x, x] if name == "checked_lists" else x,)
    for op in (f, f"{name}::f"):
        if words:
            with pytest.raises(Exception, match=words):
                tn.library.opcheck(op, args)
        else:
            assert set(tn.library.opcheck(op, args).values()) == {"SUCCESS"}
