"""tenon.special: the names, ends of ranges, and the errors of float64 results in units of the last
place, against SciPy where that is exact enough and numbers that mpmath gave with 40 digits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special as sp
import tenon as tn
from tenon import special


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.max(np.abs(got - want) / np.spacing(np.abs(want))))


def grid(low: float, high: float) -> np.ndarray:
    return np.concatenate([np.linspace(low, high, 501), np.geomspace(1e-6, max(high, 1), 200)])


@pytest.mark.parametrize(
    ("name", "theirs", "low", "high", "most"),
    [
        ("i0", sp.i0, -30, 300, 8),
        ("i0e", sp.i0e, -30, 1e4, 6),
        ("i1", sp.i1, -30, 300, 8),
        ("i1e", sp.i1e, -30, 1e4, 6),
        ("modified_bessel_k0", sp.k0, 0.01, 300, 8),
        ("modified_bessel_k1", sp.k1, 0.01, 300, 8),
        ("scaled_modified_bessel_k0", sp.k0e, 0.01, 1e4, 8),
        ("scaled_modified_bessel_k1", sp.k1e, 0.01, 1e4, 8),
        ("erfcx", sp.erfcx, -20, 1e6, 12),
        ("log_ndtr", sp.log_ndtr, -1e3, 1, 12),
        ("entr", sp.entr, 0, 50, 2),
    ],
)
def test_errors_against_scipy(
    name: str, theirs: object, low: float, high: float, most: int
) -> None:
    x = grid(low, high)
    assert ulps(getattr(special, name)(tn.from_numpy(x)).numpy(), theirs(x)) <= most


# (function, arguments, value)
EXACT = [
    ("ndtr", (-30.0,), 4.906713927148187e-198),
    ("ndtr", (-1.5,), 0.06680720126885807),
    ("ndtri", (1e-20,), -9.262340089798407),
    ("ndtri", (0.75,), 0.6744897501960817),
    ("zeta", (1.5, 0.25), 10.213055360466601),
    ("zeta", (40.0, 30.0), 1.1325911456066118e-59),
    ("zeta", (3.0, -0.5), 0.41439832211716),
    ("zeta", (2.0, -1e-12), 1e24),
    ("zeta", (3.0, -1.000001), -1.0000000002467999e18),
    ("zeta", (1.5, 1.7976931348623157e308), 1.4916681462400413e-154),
    ("zeta", (2.0, 1e200), 1e-200),
    ("airy_ai", (1.5,), 0.07174949700810541),
    ("airy_ai", (-3.5,), -0.37553382314043193),
    ("airy_ai", (6.25,), 5.3058617487520814e-06),
    ("airy_ai", (-12.5,), -0.27627456138116024),
    ("gammainc", (300.0, 310.0), 0.7224887541718611),
    ("gammainc", (50000.0, 49900.0), 0.3277909932408621),
    ("gammainc", (0.5, 0.25), 0.5204998778130465),
    ("gammaincc", (1e-05, 0.1), 1.8229146276698593e-05),
    ("gammaincc", (5.0, 30.0), 3.6243009520614882e-09),
    ("gammaincc", (900.0, 950.0), 0.04969414310499233),
    ("polygamma", (2, -1.5), -0.2362040516417274),
    ("polygamma", (3, 12.25), 0.0012284305869150693),
    ("bessel_j0", (7.5,), 0.2663396578803784),
    ("bessel_j1", (7.5,), 0.1352484275797055),
    ("bessel_y0", (7.5,), 0.11731328614820863),
    ("bessel_y1", (7.5,), -0.25912851048611624),
    ("spherical_bessel_j0", (0.25,), 0.9896158370180917),
    ("spherical_bessel_j0", (9.5,), -0.007910644259137822),
]


@pytest.mark.parametrize(("name", "args", "want"), EXACT)
def test_errors_against_many_digits(name: str, args: tuple[float, ...], want: float) -> None:
    tensors = [a if isinstance(a, int) else tn.tensor([a], dtype=tn.float64) for a in args]
    got = getattr(special, name)(*tensors).numpy()
    assert ulps(got, np.array([want])) <= 16


@pytest.mark.parametrize(
    ("name", "at", "want"),
    [
        ("entr", [0.0, -1.0, math.nan], [0.0, -math.inf, math.nan]),
        ("ndtri", [0.0, 1.0, -0.1, 1.1, 0.5], [-math.inf, math.inf, math.nan, math.nan, 0.0]),
        ("ndtr", [-math.inf, math.inf, -100.0], [0.0, 1.0, 0.0]),
        ("log_ndtr", [-math.inf, math.inf], [-math.inf, 0.0]),
        ("erfcx", [-30.0, math.inf], [math.inf, 0.0]),
        ("i0", [math.inf, -math.inf, 800.0], [math.inf, math.inf, math.inf]),
        ("i1", [math.inf, -math.inf, 0.0], [math.inf, -math.inf, 0.0]),
        ("modified_bessel_k0", [0.0, -1.0, 800.0], [math.inf, math.nan, 0.0]),
        ("bessel_y0", [0.0, -1.0], [-math.inf, math.nan]),
        ("spherical_bessel_j0", [0.0, math.inf], [1.0, 0.0]),
        ("airy_ai", [math.inf, 200.0], [0.0, 0.0]),
        ("modified_bessel_i0", [0.0], [1.0]),
    ],
)
def test_ends_of_ranges(name: str, at: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(getattr(special, name)(tn.tensor(at)).numpy(), want)


def test_incomplete_gamma_functions_at_their_ends() -> None:
    a = tn.tensor([0.0, 0.0, 1.0, -1.0, 1.0, math.inf, math.inf, 1.0])
    x = tn.tensor([1.0, 0.0, 0.0, 1.0, math.inf, 1.0, math.inf, -1.0])
    nan = math.nan
    np.testing.assert_array_equal(special.gammainc(a, x).numpy(), [1, nan, 0, nan, 1, 0, nan, nan])
    np.testing.assert_array_equal(special.gammaincc(a, x).numpy(), [0, nan, 1, nan, 0, 1, nan, nan])


def test_incomplete_gamma_functions_agree_where_the_methods_meet() -> None:
    a = np.repeat(np.geomspace(0.05, 5e4, 60), 40)
    x = a * np.tile(np.linspace(0.2, 3.0, 40), 60)
    lower = special.gammainc(tn.from_numpy(a), tn.from_numpy(x)).numpy()
    upper = special.gammaincc(tn.from_numpy(a), tn.from_numpy(x)).numpy()
    np.testing.assert_allclose(lower, sp.gammainc(a, x), rtol=4e-11, atol=1e-200)
    np.testing.assert_allclose(upper, sp.gammaincc(a, x), rtol=4e-11, atol=1e-200)


def test_zeta_and_polygamma_at_poles_and_left_of_them() -> None:
    s, q = tn.tensor([1.0, 0.5, 2.0, 2.5, 3.0]), tn.tensor([2.0, 2.0, -3.0, -0.5, 0.0])
    nan, inf = math.nan, math.inf
    np.testing.assert_array_equal(special.zeta(s, q).numpy(), [inf, nan, inf, nan, inf])
    x = tn.tensor([0.0, -2.0])
    assert special.polygamma(1, x).tolist() == [inf, inf]
    assert special.polygamma(2, x).tolist() == [-inf, -inf]
    far = special.polygamma(1, tn.tensor([-1e9 + 0.5], dtype=tn.float64)).item()
    assert far == pytest.approx(math.pi**2, rel=1e-8)  # and it takes no time
    with pytest.raises(RuntimeError, match="negative n"):
        special.polygamma(-1, x)


@pytest.mark.parametrize("kind", "tuvw")
def test_chebyshev_polynomials_outside_and_at_one(kind: str) -> None:
    f = getattr(special, f"chebyshev_polynomial_{kind}")
    t = np.array([1.25, -1.5, 2.0])
    angle = np.arccosh(np.abs(t))
    sign = np.where(t < 0, -1.0, 1.0)
    flat = {"t": np.cosh, "u": np.sinh}
    n = 9
    if kind in flat:
        k = n + (kind == "u")
        want = flat[kind](k * angle) / (np.sinh(angle) if kind == "u" else 1) * sign**n
    else:  # each of v and w is the other's mirror image
        even = np.cosh((n + 0.5) * angle) / np.cosh(angle / 2)
        odd = np.sinh((n + 0.5) * angle) / np.sinh(angle / 2)
        want = np.where((t > 0) == (kind == "v"), even, odd) * sign**n
    np.testing.assert_allclose(f(tn.from_numpy(t), n).numpy(), want, rtol=1e-13)
    ends = {"t": (1, -1), "u": (10, -10), "v": (1, -19), "w": (19, -1)}[kind]
    assert f(tn.tensor([1.0, -1.0]), n).tolist() == list(ends)
    assert f(tn.tensor([0.3, 0.3, 0.3]), tn.tensor([-2.0, -1.0, -0.5])).tolist() == [0, 0, 1]
    assert f(2, tn.tensor([0.0, 1.0]))[0] == 1


def test_degrees_beyond_all_patience_end() -> None:
    for name in ("hermite_polynomial_h", "laguerre_polynomial_l", "legendre_polynomial_p",
                 "chebyshev_polynomial_t"):  # fmt: skip
        got = getattr(special, name)(tn.tensor([1.5], dtype=tn.float64), 1e18)
        assert math.isnan(got.item()), name


def test_half_precision_has_the_digits_of_its_results() -> None:
    x = tn.tensor([0.5, 3.0, 9.0], dtype=tn.bfloat16)
    for name in ("i0", "erfcx", "ndtr", "log_ndtr"):
        f = getattr(special, name)
        assert f(x).tolist() == f(x.double()).to(tn.bfloat16).tolist(), name


def test_names_are_pytorchs() -> None:
    x = tn.tensor([0.25, 0.5])
    assert special.expit(x).equal(x.sigmoid())
    assert special.psi(x).equal(tn.digamma(x))
    assert special.softmax(x, 0, dtype=tn.float64).dtype is tn.float64
    assert special.log_softmax(x, 0).equal(x.log_softmax(0))
    assert special.multigammaln(x + 3, 2).equal(tn.mvlgamma(x + 3, 2))
    assert not hasattr(tn, "special_entr")


def test_what_has_no_derivative_says_so() -> None:
    a = tn.tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="igamma"):
        tn.igamma(a, tn.tensor([2.0])).sum().backward()
    assert not special.bessel_j0(a).requires_grad
