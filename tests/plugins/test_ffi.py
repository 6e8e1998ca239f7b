"""tenon.ffi: functions of C libraries by their declarations, against math, NumPy and SciPy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import as_user
import numpy as np
import pytest
import tenon as tn


def missing() -> str:
    try:
        tn._C._ffi_available()
    except ImportError as err:
        return str(err)
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "libffi is there")
LIBM = "libm.so.6"
ERF = "double erf(double x)"
ERF_SLOPE = "2/sqrt(pi)*exp(-x*x)"


def points(*shape: int, dtype: Any = tn.float64) -> tn.Tensor:
    return tn.linspace(-2, 2, math.prod(shape), dtype=tn.float64).reshape(*shape).to(dtype)


# -- operators ------------------------------------------------------------------------------------

UNARY = ["erf", "sin", "cbrt", "expm1", "tgamma", "j0"]


@pytest.mark.parametrize("name", UNARY)
def test_values_of_unary_functions(name: str) -> None:
    special = pytest.importorskip("scipy.special")
    want = {"tgamma": special.gamma}.get(name) or getattr(special, name, None) or getattr(np, name)
    f = tn.ffi.bind(LIBM, f"double {name}(double)")
    x = points(3, 7) + 0.01
    np.testing.assert_allclose(f(x).numpy(), want(x.numpy()), rtol=1e-13)
    assert f(0.7) == pytest.approx(float(want(0.7)), rel=1e-13) and type(f(0.7)) is float


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(tn.float64, 1e-15), (tn.float32, 1e-7), (tn.float16, 1e-3), (tn.bfloat16, 1e-2)],
)
def test_floating_dtypes_are_kept(dtype: Any, tolerance: float) -> None:
    x = points(40, dtype=dtype)
    for declaration in (ERF, "float erff(float x)"):
        y = tn.ffi.bind(LIBM, declaration)(x)
        assert y.dtype == dtype
        want = [math.erf(v) for v in x.double().tolist()]
        slack = max(tolerance, 3e-7) if "erff" in declaration else tolerance
        np.testing.assert_allclose(y.double().numpy(), want, atol=slack)


def test_dtype_rule() -> None:
    erf = tn.ffi.bind(LIBM, ERF)
    assert erf(tn.arange(3)).dtype == tn.get_default_dtype()
    assert erf(tn.ones(2, dtype=tn.float64)).dtype == tn.float64
    wide = tn.ffi.bind(LIBM, ERF, name="erf_wide", dtype=tn.float64)
    x = points(9, dtype=tn.float32)
    assert wide(x).dtype == tn.float64
    want = [math.erf(v) for v in x.tolist()]
    np.testing.assert_allclose(wide(x).numpy(), want, rtol=1e-15)
    ilogb = tn.ffi.bind(LIBM, "int ilogb(double)")
    assert ilogb(tn.tensor([1.0, 8.5, 0.3])).tolist() == [0, 3, -2]
    assert ilogb(tn.tensor([8.5])).dtype == tn.int32
    assert tn.ffi.bind(None, "long lround(double)")(tn.tensor([2.6])).dtype == tn.int64


def test_integer_functions() -> None:
    labs = tn.ffi.bind(None, "long labs(long x)")
    small = tn.ffi.bind(None, "int abs(int x)")
    for dtype in (tn.int8, tn.int16, tn.int32, tn.int64, tn.uint8):
        x = tn.tensor([5, 7], dtype=dtype)
        assert labs(-x.long()).tolist() == [5, 7]
        assert small(x).tolist() == [5, 7] and small(x).dtype == tn.int32
    assert small(tn.tensor([True])).tolist() == [1]
    with pytest.raises(NotImplementedError, match="Float"):
        small(tn.ones(2))
    with pytest.raises(ValueError, match="ffi::abs: argument 1 .* cannot hold"):
        small(tn.tensor([1 << 40]))
    with pytest.raises(OverflowError, match="does not fit int32_t"):
        small(1 << 40)
    jn = tn.ffi.bind(LIBM, "double jn(int n, double x)")
    with pytest.raises(ValueError, match="ffi::jn: argument 1"):
        jn(tn.tensor([0.5]), tn.ones(1))


def test_layouts_and_broadcasting() -> None:
    atan2 = tn.ffi.bind(LIBM, "double atan2(double y, double x)")
    a, b = points(4, 6), points(5, 1, 6) + 0.1
    np.testing.assert_allclose(atan2(a, b).numpy(), np.arctan2(a.numpy(), b.numpy()), rtol=1e-15)
    for view in (a.t(), a[:, ::2], a[1:3, 1:4], a.flip(0), a[0, 0], a[:0], a.expand(2, 4, 6)):
        np.testing.assert_allclose(atan2(view, 0.5).numpy(), np.arctan2(view.numpy(), 0.5))
        np.testing.assert_allclose(atan2(0.5, view).numpy(), np.arctan2(0.5, view.numpy()))
    out = tn.empty(4, 6, dtype=tn.float64)
    assert atan2(a, 2.0, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.arctan2(a.numpy(), 2.0))
    fma = tn.ffi.bind(LIBM, "double fma(double, double, double)")
    np.testing.assert_allclose(fma(a, 2.0, a).numpy(), 3 * a.numpy())
    assert atan2(x=1.0, y=0.0) == 0.0
    assert tn.equal(atan2(y=a, x=2.0), atan2(a, 2.0))


def test_is_an_operator_of_the_registry() -> None:
    tn.ffi.bind(LIBM, ERF, namespace="mathlib", name="error_function", derivative=ERF_SLOPE)
    op = tn.ops.mathlib.error_function
    assert "mathlib::error_function(Operand x) -> Tensor" in op.__doc__
    np.testing.assert_allclose(op(points(5)).numpy(), [math.erf(v) for v in points(5).tolist()])
    assert "ffi" in tn.explain("mathlib::error_function")
    tn.ffi.unbind("mathlib::error_function")
    with pytest.raises(AttributeError, match="there is no operator"):
        tn.ops.mathlib.error_function  # noqa: B018
    with pytest.raises(ValueError, match="no bound operator"):
        tn.ffi.unbind("mathlib::error_function")


# -- derivatives ----------------------------------------------------------------------------------


def derivatives() -> dict[str, Any]:
    slope = tn.ffi.bind(LIBM, "double exp(double x)", name="exp_slope", derivative="exp(x)")
    return {
        "formula": "exp(x)",
        "callable": lambda x: x.exp(),
        "bound": slope,
    }


@pytest.mark.parametrize("kind", ["formula", "callable", "bound"])
def test_derivatives(kind: str) -> None:
    f = tn.ffi.bind(
        LIBM, "double exp(double x)", name=f"exp_{kind}", derivative=derivatives()[kind]
    )
    x = points(2, 3).requires_grad_()
    assert tn.autograd.gradcheck(f, (x,)) and tn.autograd.gradgradcheck(f, (x,))
    (g,) = tn.autograd.grad(f(x).sum(), x)
    np.testing.assert_allclose(g.numpy(), np.exp(x.detach().numpy()), rtol=1e-15)


def test_constants_of_formulas_are_exact() -> None:
    f = tn.ffi.bind(LIBM, ERF, derivative=ERF_SLOPE)
    x = points(6).requires_grad_()
    f(x).sum().backward()
    v = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), 2 / math.sqrt(math.pi) * np.exp(-v * v), rtol=1e-15)


def test_derivatives_of_several_parameters() -> None:
    f = tn.ffi.bind(
        LIBM,
        "double hypot(double x, double y)",
        derivative={"x": "x / ffi::hypot(x, y)", "y": lambda x, y: y / (x * x + y * y).sqrt()},
    )
    x, y = (points(4) + 3).requires_grad_(), points(3, 1).requires_grad_()
    assert tn.autograd.gradcheck(f, (x, y)) and tn.autograd.gradgradcheck(f, (x, y))
    jn = tn.ffi.bind(
        LIBM, "double jn(int n, double x)",
        derivative={"x": lambda n, x: (jn(n - 1, x) - jn(n + 1, x)) / 2},
    )  # fmt: skip
    x = points(5).requires_grad_()
    assert tn.autograd.gradcheck(lambda x: jn(2, x), (x,))
    assert tn.autograd.gradgradcheck(lambda x: jn(2, x), (x,))


def test_missing_and_wrong_derivatives() -> None:
    x = points(3).requires_grad_()
    with pytest.raises(RuntimeError, match="derivative for ffi::cosh is not implemented"):
        tn.ffi.bind(LIBM, "double cosh(double)")(x).sum().backward()
    for derivative, error, words in [
        ("nosuch(x)", ValueError, "there is no operator 'nosuch'"),
        ("x +", ValueError, "a value is expected"),
        ({"q": "x"}, ValueError, "names 'q', which is no parameter"),
        (3, TypeError, "a derivative is a formula, a function or None, not int"),
    ]:
        with pytest.raises(error, match=words):
            tn.ffi.bind(LIBM, "double sinh(double x)", derivative=derivative)
    with pytest.raises(ValueError, match="derivative is a dict"):
        tn.ffi.bind(LIBM, "double fmax(double, double)", derivative="x")
    failing = tn.ffi.bind(LIBM, "double tanh(double)", derivative=lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing(x).sum().backward()


def test_bindings_of_one_name_live_side_by_side() -> None:
    plain = tn.ffi.bind(LIBM, "double sin(double x)", name="wave")
    sine = tn.ffi.bind(LIBM, "double sin(double x)", name="wave", derivative="cos(x)")
    assert tn.ffi.bind(LIBM, "double sin(double x)", name="wave").op.__name__ == plain.op.__name__
    cosine = tn.ffi.bind(LIBM, "double cos(double x)", name="wave", derivative=lambda x: -x.sin())
    power = tn.ffi.bind(LIBM, "double exp(double x)", name="wave", derivative=lambda x: x.exp())
    x = points(3).requires_grad_()
    v = x.detach().numpy()
    for f, value, slope in [
        (sine, np.sin, np.cos), (cosine, np.cos, lambda v: -np.sin(v)), (power, np.exp, np.exp),
        (tn.ops.ffi.wave, np.exp, np.exp),
    ]:  # fmt: skip
        np.testing.assert_allclose(f(x).detach().numpy(), value(v), rtol=1e-14)
        (g,) = tn.autograd.grad(f(x).sum(), x)
        np.testing.assert_allclose(g.numpy(), slope(v), rtol=1e-14)
    with pytest.raises(RuntimeError, match="derivative for ffi::wave is not implemented"):
        plain(x).sum().backward()
    tn.ffi.unbind(power)
    assert tn.equal(tn.ops.ffi.wave(x), cosine(x))
    tn.ffi.unbind("ffi::wave")
    with pytest.raises(AttributeError):
        tn.ops.ffi.wave  # noqa: B018


@pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")
def test_on_a_device_without_kernels(tmp_path: Path) -> None:
    source = as_user.EXAMPLES / "device"
    as_user.build(source / "acme.c", source / "tenon_acme.json", tmp_path)
    script = f"""
import math, tenon as tn
f = tn.ffi.bind({LIBM!r}, {ERF!r}, derivative={ERF_SLOPE!r})
x = tn.tensor([0.25, 1.5], device="acme", requires_grad=True)
y = f(x)
assert y.device.type == "acme", y.device
y.sum().backward()
assert x.grad.device.type == "acme"
for got, v in zip(y.tolist(), (0.25, 1.5)):
    assert abs(got - math.erf(v)) < 1e-6
"""
    done = as_user.run(tmp_path, "-c", script, TENON_FALLBACK="allow")
    assert done.returncode == 0, done.stderr
