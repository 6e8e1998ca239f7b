"""tenon.array_api: what NumPy, which follows the same standard, answers to the same calls."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.array_api as xp

RNG = np.random.default_rng(11)
F = RNG.normal(size=(3, 4))
POSITIVE = np.abs(F) + 0.25
SQUARE = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
HERMITIAN = SQUARE @ SQUARE.swapaxes(-1, -2)
I = np.array([[3, -1, 2], [0, 3, -7]])  # noqa: E741
U = np.array([200, 3, 7], dtype=np.uint8)
B = np.array([[True, False], [True, True]])
C = F + 1j * F[::-1]
EDGES = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
SORTED = np.array([1.0, 2.0, 2.0, 5.0])

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((n, (F,), {}) for n in (
        "abs", "asinh", "atan", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite",
        "negative", "positive", "reciprocal", "round", "sign", "signbit", "sin", "sinh", "square",
        "tan", "tanh", "trunc", "matrix_transpose", "real",
    )),
    *((n, (POSITIVE,), {}) for n in ("log", "log10", "log1p", "log2", "sqrt")),
    *((n, (POSITIVE / 4,), {}) for n in ("acos", "asin", "atanh")),
    ("acosh", (POSITIVE + 1,), {}),
    *((n, (EDGES,), {}) for n in ("sign", "isnan", "isinf", "round", "abs", "trunc", "sqrt")),
    *((n, (C,), {}) for n in ("abs", "conj", "exp", "imag", "real", "sqrt", "square", "sum",
    "prod")),
    *((n, (EDGES[:, None], EDGES), {}) for n in (
        "add", "atan2", "copysign", "divide", "equal", "greater", "greater_equal", "hypot", "less",
        "less_equal", "maximum", "minimum", "multiply", "nextafter", "not_equal", "subtract",
    )),
    *((n, (I, 3), {}) for n in ("add", "floor_divide", "remainder", "pow", "bitwise_and",
    "maximum")),
    *((n, (I, np.abs(I) % 5), {}) for n in ("bitwise_left_shift", "bitwise_right_shift",
    "bitwise_or",
                                            "bitwise_xor", "less")),
    *((n, (B, B.T), {}) for n in ("logical_and", "logical_or", "logical_xor", "bitwise_xor")),
    ("bitwise_invert", (I,), {}), ("logical_not", (B,), {}), ("logaddexp", (F, 2 * F), {}),
    ("pow", (POSITIVE, 1.5), {}), ("clip", (F, -0.5, 0.5), {}), ("clip", (I, None, 2), {}),
    ("arange", (2, 9, 3), {}), ("arange", (5, 2), {}),
    ("linspace", (0.0, 1.0, 5), {"endpoint": False}),
    ("eye", (3, 4), {"k": 1}), ("full", ((2, 2), 7), {}), ("tril", (F,), {"k": -1}),
    ("triu", (F,), {"k": 1}), ("astype", (F, "int32"), {}), ("astype", (U, "float32"), {}),
    ("broadcast_to", (F[:1], (3, 4)), {}), ("concat", ([F, F],), {"axis": 1}),
    ("concat", ([I, F],), {"axis": None}), ("expand_dims", (F,), {"axis": (0, -1)}),
    ("flip", (F,), {}), ("flip", (F,), {"axis": -1}), ("moveaxis", (SQUARE, 0, 2), {}),
    ("permute_dims", (SQUARE, (2, 0, 1)), {}), ("repeat", (F, 2), {"axis": 1}),
    ("repeat", (I, 2), {}),
    ("reshape", (F, (2, 6)), {}), ("roll", (F, 2), {}), ("roll", (F, (1, 2)), {"axis": (0, 1)}),
    ("squeeze", (F[:1],), {"axis": 0}), ("stack", ([F, F],), {"axis": -1}),
    ("tile", (I, (2, 1)), {}),
    ("argmax", (F,), {}), ("argmin", (F,), {"axis": 1, "keepdims": True}),
    ("argmax", (F,), {"keepdims": True}), ("count_nonzero", (I,), {"axis": 1}),
    ("searchsorted", (SORTED, POSITIVE), {"side": "right"}), ("where", (B, 1.5 * B, -1.0), {}),
    ("take", (F, np.array([2, 0, -1])), {"axis": 0}),
    ("take_along_axis", (F, np.argsort(F, axis=1)), {"axis": 1}),
    ("isin", (I, np.array([3, -7])), {}),
    ("argsort", (F,), {"axis": 0}), ("sort", (F,), {"descending": True}),
    ("cumulative_sum", (I,), {"axis": 1, "include_initial": True}), ("cumulative_sum", (U,), {}),
    ("cumulative_prod", (F,), {"axis": 0}), ("max", (F,), {"axis": (0, 1)}),
    ("min", (I,), {"axis": 0}),
    ("mean", (F,), {"axis": 1, "keepdims": True}), ("prod", (U,), {}),
    ("prod", (F,), {"axis": (0, 1)}),
    ("std", (F,), {"axis": 0, "correction": 1.0}), ("var", (F,), {}), ("sum", (U,), {}),
    ("sum", (I,), {"axis": (), "keepdims": False}), ("sum", (I,), {"axis": 0, "keepdims": True}),
    ("all", (B,), {"axis": 1}), ("any", (B,), {}), ("all", (F,), {}), ("diff", (F,), {"n": 2}),
    ("matmul", (SQUARE, SQUARE), {}), ("tensordot", (F, F), {"axes": ((0, 1), (0, 1))}),
    ("vecdot", (C, C[:1]), {}),
    ("linalg.cholesky", (HERMITIAN,), {"upper": True}), ("linalg.cross", (I, I[::-1]), {}),
    ("linalg.det", (SQUARE,), {}), ("linalg.diagonal", (SQUARE,), {"offset": 1}),
    ("linalg.eigvalsh", (HERMITIAN,), {}), ("linalg.inv", (SQUARE,), {}),
    ("linalg.matrix_norm", (SQUARE,), {"ord": 1, "keepdims": True}),
    ("linalg.matrix_power", (SQUARE, 3), {}),
    ("linalg.matrix_rank", (SQUARE,), {}), ("linalg.outer", (U, U), {}), ("linalg.pinv", (F,), {}),
    ("linalg.solve", (SQUARE, SQUARE[0]), {}), ("linalg.svdvals", (F,), {}),
    ("linalg.trace", (I,), {"offset": 1}), ("linalg.vector_norm", (F,), {"axis": 0, "ord": 3}),
    ("linalg.vector_norm", (F,), {"ord": np.inf}),
    ("fft.fft", (F,), {"axis": 0}), ("fft.irfft", (C,), {"n": 6}),
    ("fft.fftn", (F,), {"norm": "ortho"}),
    ("fft.fftshift", (F,), {}),
]  # fmt: skip
FIELDS = ("unique_all", "unique_counts", "unique_inverse")
FACTORIES = ("arange", "linspace", "eye", "full")


def find(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def ours(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tn.from_numpy(value.copy())
    return [ours(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("name", "args", "options"), CALLS, ids=[f"{c[0]}-{i}" for i, c in enumerate(CALLS)]
)
def test_calls(name: str, args: Any, options: Any) -> None:
    if name == "astype":
        got = xp.astype(ours(args[0]), getattr(xp, args[1]))
        want = np.astype(args[0], np.dtype(args[1]))
    else:
        extra = {"dtype": (tn.float64, np.float64)} if name in FACTORIES else {}
        got = find(xp, name)(*map(ours, args), **options, **{k: v[0] for k, v in extra.items()})
        with np.errstate(all="ignore"):
            call = find(np, name)
            want = reference(call, args, options | {k: v[1] for k, v in extra.items()})
    got, want = got.numpy(), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype, (got.dtype, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    if name in ("copysign", "round", "trunc", "nextafter"):
        assert (np.signbit(got) == np.signbit(want)).all()


def reference(call: Any, args: Any, options: Any) -> Any:
    """NumPy's answer; its sort has no descending."""
    options = dict(options)
    if options.pop("descending", False):
        return np.flip(call(*args, **options), -1)
    return call(*args, **options)


@pytest.mark.parametrize("name", FIELDS)
def test_unique(name: str) -> None:
    got, want = getattr(xp, name)(ours(I)), getattr(np, name)(I)
    assert got._fields == want._fields
    assert xp.unique_values(ours(I)).equal(got.values)
    for field in got._fields:
        assert np.array_equal(getattr(got, field).numpy(), getattr(want, field)), field


def test_promotion_is_the_standards() -> None:
    """NumPy's, where the standard defines it; arrays without dimensions count."""
    kinds = xp.__array_namespace_info__().dtypes()
    for (a, x), (b, y) in itertools.product(kinds.items(), repeat=2):
        both = {a, b}
        if "bool" in both and a != b or "uint64" in both and any(k.startswith("int") for k in both):
            continue
        if any("int" in k for k in both) and any("float" in k or "complex" in k for k in both):
            continue
        want = str(np.result_type(np.dtype(a), np.dtype(b)))
        assert xp.result_type(x, y) is kinds[want], (a, b)
        assert xp.can_cast(x, y) == (want == b), (a, b)
    with pytest.raises(TypeError, match="no integer dtype holds"):
        xp.result_type(tn.int8, tn.uint64)
    assert xp.add(tn.ones(2), tn.tensor(1.0, dtype=tn.float64)).dtype is tn.float64
    assert xp.add(tn.ones(2, dtype=tn.uint8), tn.ones((), dtype=tn.int8)).dtype is tn.int16
    assert xp.result_type(tn.int8, 3) is tn.int8 and xp.result_type(tn.float32, 1j) is tn.complex64
    assert xp.multiply(2, tn.ones(2, dtype=tn.int16)).dtype is tn.int16


def test_division_of_infinities_and_zeros() -> None:
    a, b = tn.tensor([np.inf, -np.inf, 1.0, -1.0, 7.5]), tn.tensor([2.0, 2.0, -np.inf, np.inf, 2.0])
    got = xp.floor_divide(a, b)
    assert got.tolist() == [np.inf, -np.inf, 0.0, 0.0, 3.0]
    assert xp.signbit(got).tolist() == [False, True, True, True, False]
    left = xp.remainder(tn.tensor([-0.0, 0.0, -7.0]), tn.tensor([2.0, -2.0, 4.0]))
    assert left.tolist() == [0.0, 0.0, 1.0] and xp.signbit(left).tolist() == [False, True, False]


def test_facts() -> None:
    assert xp.finfo(tn.complex64) == xp.finfo(tn.ones(1)) and xp.finfo(tn.float64).bits == 64
    assert xp.finfo(tn.float32).dtype is tn.float32
    assert xp.iinfo(tn.uint16)[:3] == (16, 65535, 0)
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["complex floating"] is tn.complex64
    assert info.dtypes(kind=("bool", "unsigned integer")).keys() == {
        "bool", "uint8", "uint16", "uint32", "uint64",
    }  # fmt: skip
    assert tn.device("cpu") in info.devices() and info.capabilities()["boolean indexing"]
    assert xp.isdtype(tn.int8, ("bool", "integral")) and not xp.isdtype(tn.int8, "real floating")
    for wrong in (lambda: xp.isdtype(tn.int8, "whole"), lambda: info.dtypes(kind="whole")):
        with pytest.raises(ValueError, match="whole"):
            wrong()
    assert all(getattr(xp, name) is not None for name in xp.__all__ if name != "newaxis")


def test_arrays_know_their_namespace() -> None:
    x = tn.ones(2)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2022.12") is xp
    with pytest.raises(ValueError, match=r"2099\.01"):
        x.__array_namespace__(api_version="2099.01")
    assert x.to_device("cpu").device == tn.device("cpu")
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)
    assert list(inspect.signature(xp.add).parameters) == ["x1", "x2"]
    assert list(inspect.signature(x.__dlpack__).parameters) == [
        "stream", "max_version", "dl_device", "copy",
    ]  # fmt: skip
    assert inspect.signature(xp.sin).parameters["x"].kind is inspect.Parameter.POSITIONAL_ONLY


def test_narrow_and_wide_integers() -> None:
    large = tn.tensor([2**64 - 2], dtype=tn.uint64)
    assert xp.abs(large).tolist() == [2**64 - 2] and xp.abs(tn.tensor([-3])).tolist() == [3]
    assert xp.vecdot(ours(U), ours(U)).dtype is tn.uint8
    assert (
        xp.repeat(ours(I), tn.tensor([2, 0], dtype=tn.int8), axis=0).tolist() == [I[0].tolist()] * 2
    )
    with pytest.raises(ValueError, match="one length"):
        xp.vecdot(tn.ones(2, 1), tn.ones(2, 3))


WIDE = [
    0, 1, 2, 3, 63, 64, 65, 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2,
    2**64 - 1, 12345678901234567890,
]  # fmt: skip


def test_uint64_divided_shifted_and_to_powers() -> None:
    """Against Python's integers, which end nowhere."""
    rows, others, whole = tn.tensor(WIDE, dtype=tn.uint64)[:, None], WIDE[1:], 2**64
    columns = tn.tensor(others, dtype=tn.uint64)
    for name, exact in (
        ("floor_divide", lambda a, b: a // b), ("remainder", lambda a, b: a % b),
        ("pow", lambda a, b: pow(a, b, whole)),
        ("bitwise_right_shift", lambda a, b: a >> b if b < 64 else 0),
        ("bitwise_left_shift", lambda a, b: (a << b) % whole if b < 64 else 0),
    ):  # fmt: skip
        got = getattr(xp, name)(rows, columns)
        assert got.dtype is tn.uint64, name
        assert got.tolist() == [[exact(a, b) for b in others] for a in WIDE], name
        for number in (7, 2**63 + 5):
            got = getattr(xp, name)(rows[:, 0], number)
            assert got.tolist() == [exact(a, number) for a in WIDE], (name, number)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        xp.floor_divide(columns, columns - 1)


def test_uint64_beyond_int64_as_numbers() -> None:
    large = 2**64 - 3
    x = tn.tensor(WIDE, dtype=tn.uint64)
    assert xp.full((2,), large, dtype=xp.uint64).tolist() == [large] * 2
    assert xp.full_like(x[:2], large).tolist() == [large] * 2
    assert xp.clip(x, 5, large).tolist() == [min(max(v, 5), large) for v in WIDE]
    assert xp.add(x, large).tolist() == [(v + large) % 2**64 for v in WIDE]
    for name in ("floor", "ceil", "trunc", "round"):
        assert getattr(xp, name)(x).tolist() == WIDE, name
    assert xp.sign(x).tolist() == [0] + [1] * (len(WIDE) - 1)


def test_round_of_complex_numbers() -> None:
    z = np.array([1.5 - 2.5j, complex(-0.2, np.inf), complex(0.5, np.nan), complex(-3.7, -0.4)])
    got, want = xp.round(ours(z)).numpy(), np.round(z)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got.real) == np.signbit(want.real)).all()
    assert (np.signbit(got.imag) == np.signbit(want.imag)).all()


def test_unique_complex_numbers() -> None:
    """In any order by the standard; every NaN for itself, zeros of both signs alike."""
    z = np.array([[2 + 1j, complex(-0.0, 0.0), -1j], [2 + 1j, 0j, 2 - 1j], [5, -1j, 1j]])
    got, want = xp.unique_all(ours(z)), np.unique_all(z)
    for field in got._fields:
        np.testing.assert_array_equal(getattr(got, field).numpy(), getattr(want, field), field)
    assert xp.unique_values(ours(z)).equal(got.values)
    nans = tn.tensor([complex(np.nan, 1), 1 + 1j, complex(1, np.nan), complex(np.nan, 1), 1 + 1j])
    got = xp.unique_all(nans)
    assert (
        sorted(got.counts.tolist()) == [1, 1, 1, 2] and len(set(got.inverse_indices.tolist())) == 4
    )
    assert xp.unique_counts(nans[:0]).counts.tolist() == []


def test_frequencies() -> None:
    got = xp.fft.rfftfreq(5, d=0.5, dtype=tn.float64)
    np.testing.assert_allclose(got.numpy(), np.fft.rfftfreq(5, 0.5))
    assert xp.fft.fftfreq(4).dtype is tn.float32


def test_copies() -> None:
    x = tn.arange(6.0).reshape(2, 3)
    assert xp.reshape(x, (6,), copy=False).data_ptr() == x.data_ptr()
    assert xp.reshape(x, (6,), copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="takes a copy"):
        xp.reshape(x.T, (6,), copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        xp.asarray([1, 2], copy=False)
    a = np.zeros(3)
    assert xp.from_dlpack(a).data_ptr() == a.ctypes.data
    assert xp.from_dlpack(a, copy=True).data_ptr() != a.ctypes.data


def test_refused() -> None:
    x = tn.ones(2, 3)
    for call, kind in (
        (lambda: xp.squeeze(x, 0), ValueError), (lambda: xp.expand_dims(x, axis=4), IndexError),
        (lambda: xp.expand_dims(x, axis=(0, 0)), ValueError),
        (lambda: xp.sum(x, axis=2), IndexError),
        (lambda: xp.nonzero(tn.tensor(1)), ValueError), (lambda: xp.arange(0, 1, 0), ValueError),
        (lambda: xp.take(x, tn.tensor([0])), ValueError),
        (lambda: xp.broadcast_shapes((2,), (3,)), ValueError),
        (lambda: xp.astype(x + 0j, tn.float32), TypeError),
        (lambda: xp.linalg.cross(tn.ones(2), tn.ones(2)), ValueError),
        (lambda: xp.cumulative_sum(x), ValueError), (lambda: xp.vecdot(x, x, axis=0), ValueError),
    ):  # fmt: skip
        with pytest.raises(kind):
            call()
