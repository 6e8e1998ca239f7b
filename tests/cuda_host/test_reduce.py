"""Reductions on the host harness: every length, layout and cut, against NumPy in float64."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
rng = np.random.default_rng(0)
DTYPES = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2, "int8": 0,
          "uint8": 0, "int16": 0, "int32": 0, "int64": 0, "bool": 0, "complex64": 1e-5,
          "complex128": 1e-12}
FLOATS = ["float32", "float64", "float16", "bfloat16"]
def make(shape, name):
    if name == "bool":
        x = rng.random(shape) < 0.5
    elif "int" in name:
        x = rng.integers(0 if name == "uint8" else -99, 99, shape)
    elif "complex" in name:
        x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    else:
        x = rng.standard_normal(shape)
    return tn.from_numpy(np.asarray(x)).to(getattr(tn, name)).to("cuda")
def wide(t):
    t = t.cpu()
    return (t if not t.dtype.is_floating_point else t.to(tn.float64)).numpy()
def check(got, want, tolerance, what, scale=1):
    got = wide(got)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True), (
        what, np.abs(got - want).max())
def compare(x, dim, name):
    h, tolerance = wide(x), DTYPES[name]
    axis = tuple(range(x.ndim)) if dim is None else dim
    n = max(1, int(np.prod([x.shape[d] for d in np.atleast_1d(axis)])))
    what = (name, tuple(x.shape), x.stride(), dim)
    if name == "bool":
        check(x.sum(dim), h.sum(axis), 0, ("sum", *what))
        if dim is None or isinstance(dim, int):
            args = () if dim is None else (dim,)
            check(x.all(*args), h.all(axis), 0, ("all", *what))
            check(x.any(*args), h.any(axis), 0, ("any", *what))
        return
    whole = (lambda t: t.astype(np.int64)) if "int" in name else (lambda t: t)
    check(x.sum(dim), whole(h).sum(axis), tolerance, ("sum", *what), n ** 0.5)
    if "complex" not in name:
        check(x.amax(dim if dim is not None else ()), h.max(axis), 0, ("amax", *what))
        check(x.amin(dim if dim is not None else ()), h.min(axis), 0, ("amin", *what))
    if "int" not in name:
        check(x.mean(dim), h.mean(axis), tolerance, ("mean", *what))
        if n > 1:
            check(x.var(dim), h.var(axis, ddof=1), tolerance * 4, ("var", *what))
"""


@pytest.mark.parametrize("rows", [1, 2, 33])
def test_rows(rows: int) -> None:
    """Packed rows of every length, alone and as a view that begins one element further on."""
    harness.script(
        START
        + f"""
rows = {rows}
LENGTHS = [1, 3, 7, 8, 31, 33, 127, 255, 256, 1000, 1024, 1025, 4097]
for name in DTYPES:
    for n in LENGTHS + [100003] * (rows == 2 and name in ("float32", "bfloat16", "int8")):
        x = make((rows, n + 1), name)
        compare(x[:, :n].contiguous(), 1, name)
        if n in (7, 256, 1025, 100003):
            compare(x[:, 1:], 1, name)
            compare(x.flatten()[1:], None, name)
for op in ("sum", "mean", "amax", "amin", "var"):
    assert tn.cuda.fallback_count("_var" if op == "var" else op)[1] == 0, op
"""
    )


def test_columns_and_layouts() -> None:
    """Columns, middle and several dimensions, transposed, strided and expanded inputs."""
    harness.script(
        START
        + """
for name in DTYPES:
    for shape, dims in (((33, 5), (0,)), ((200, 64), (0,)), ((40, 257), (0,)), ((1, 48), (0,)),
                        ((3000, 3), (0,)), ((4, 6, 32), (1, (0, 1), (0, 2), 0)),
                        ((3, 5, 7), (1, (0, 2), (0, 1, 2))), ((2, 3, 4, 16), ((0, 2), (1, 3))),
                        ((2, 3, 2, 3, 8), ((0, 2, 4), (1, 3)))):
        x = make(shape, name)
        for dim in dims:
            compare(x, dim, name)
    x = make((36, 80), name)
    for view in (x.t(), x[:, ::2], x[::3], x[:, 1:78], x[1:, 3:], x.t()[1:, ::5]):
        for dim in (0, 1, None):
            compare(view, dim, name)
    compare(make((1, 40), name).expand(9, 40), 0, name)
    compare(make((70, 1), name).expand(70, 50), 1, name)
x = make((5000, 40), "float32")
compare(x, 0, "float32")
compare(make((2100, 272), "bfloat16"), 0, "bfloat16")
compare(make((4100, 48), "float32"), 1, "float32")
compare(make((4100, 7), "float16"), 1, "float16")
compare(make((16, 6, 784), "float32"), (0, 2), "float32")
compare(make((40, 4, 1100), "bfloat16"), (0, 2), "bfloat16")
"""
    )


def test_special_values() -> None:
    """NaN wins in amax and amin wherever it stands; nothing at all gives the neutral element."""
    harness.script(
        START
        + """
for name in FLOATS:
    for n in (3, 64, 1025):
        for at in (0, n // 2, n - 1):
            x = make((5, n), name)
            x[2, at] = float("nan")
            for t, dim in ((x, 1), (x.t().contiguous(), 0)):
                for got in (t.amax(dim), t.amin(dim), t.sum(dim), t.mean(dim)):
                    assert wide(got.isnan()).tolist() == [False, False, True, False, False]
            assert x.amax().isnan().item()
    x = tn.full((70, 40), float("-inf"), dtype=getattr(tn, name), device="cuda")
    assert (wide(x.amax(0)) == -np.inf).all() and (wide(x.amax(1)) == -np.inf).all()
    for t, dim in ((tn.ones(0, 5, device="cuda"), 0), (tn.ones(5, 0, device="cuda"), 1)):
        assert wide(t.to(getattr(tn, name)).sum(dim)).tolist() == [0.0] * 5
        assert wide(t.to(getattr(tn, name)).prod(dim)).tolist() == [1.0] * 5
assert tn.ones(0, device="cuda").mean().isnan().item()
"""
    )


def test_products_and_norms() -> None:
    harness.script(
        START
        + """
for name in ("float32", "float64", "int64", "complex64"):
    for shape, dim in (((9, 40), 1), ((40, 36), 0), ((3, 1030), 1), ((2, 6, 5), 1)):
        x = make(shape, name)
        if name == "int64":
            x = x.remainder(2) * 2 - 1
        else:
            x = x / x.abs()
        check(x.prod(dim), wide(x).prod(dim), DTYPES[name] * 40, (name, shape, dim))
for name in FLOATS:
    for shape, dim in (((9, 40), 1), ((40, 36), 0), ((3, 1030), 1), ((70000,), 0)):
        x = make(shape, name)
        check(tn.linalg.vector_norm(x, 2, dim), np.linalg.norm(wide(x), 2, dim), DTYPES[name] * 4,
              (name, shape, dim))
"""
    )


def test_bits_do_not_depend_on_alignment() -> None:
    """The same numbers give the same bits wherever they lie, and in every row of a tensor."""
    harness.script(
        START
        + """
for name in FLOATS:
    for n in (7, 64, 1000, 1025, 70001):
        room = make((n + 9,), name)
        x, sums = room[:n].clone(), set()
        for at in range(8):
            room[at : at + n] = x
            sums.add(room[at : at + n].sum().item())
        assert len(sums) == 1, (name, n, sums)
    x = make((1, 1027), name).expand(6, 1027).contiguous()
    assert len(set(x.sum(1).tolist())) == 1
    x = make((300, 1), name).expand(300, 136).contiguous()
    assert len(set(x.sum(0).tolist())) == 1
    assert len(set(x[:, 1:].sum(0).tolist())) == 1
"""
    )


def test_variances_in_one_pass() -> None:
    """Far from 0, with infinities and NaN, of few elements, and in every layout: next to NumPy in
    float64; the same bits wherever rows lie."""
    harness.script(
        START
        + """
for name, mean, tolerance in (("float64", 1e6, 1e-9), ("float32", 1e4, 1e-5), ("float32", -3, 3e-6),
                              ("float16", 100, 1e-3), ("bfloat16", 10, 8e-3)):
    for shape in ((3, 37), (2, 1031), (70, 64), (5, 1024), (1, 70001), (9, 4, 7, 16)):
        x = (make(shape, "float64") + mean).to(getattr(tn, name))
        for view in (x, x[..., 1:], x[..., 3:-2], x.transpose(0, -1), x[..., ::3]):
            h = wide(view)
            for dim in (None, *range(x.ndim), (0, x.ndim - 1)):
                axis = tuple(range(x.ndim)) if dim is None else dim
                n = h.size // max(1, h.var(axis).size)
                for correction in (0, 1):
                    if n > correction:
                        got = view.var(dim, correction=correction, keepdim=True)
                        want = h.var(axis, ddof=correction, keepdims=True)
                        check(got, want, tolerance, (name, shape, view.stride(), dim))
for name in FLOATS:
    x = make((6, 133), name)
    x[1, 5], x[2, 100], x[3, 0] = float("inf"), float("nan"), float("-inf")
    x[4] = 2.0
    for view in (x, x[:, 1:], x.t().contiguous().t()):
        h = wide(view)
        lost = ~np.isfinite(h)
        got = wide(view.var(1))
        assert (np.isnan(got) == lost.any(1)).all() and got[4] == 0, (name, got)
    one = wide(x[:, :1].contiguous().var(1, correction=1))
    assert np.isnan(one).all() and (wide(x[4:5, :1].var(1, correction=0)) == 0).all()
    row, seen = make((1027,), name), set()
    room = tn.zeros(1040, device="cuda", dtype=row.dtype)
    for at in range(8):
        room[at : at + 1027] = row
        seen.add(room[at : at + 1027].reshape(1, -1).var(1).item())
    assert len(seen) == 1, (name, seen)
assert wide(tn.full((4, 700), 1e25, device="cuda").var(1)).max() == 0  # its square is no float32
assert tn.cuda.fallback_count("_var") == (0, 0)
"""
    )


def test_odd_rows_at_the_ends_of_their_memory() -> None:
    """Nothing in front of an operand and behind it is read, where its memory begins and ends."""
    harness.script(
        START
        + """
for name in ("float32", "float64", "bfloat16", "int8", "complex64"):
    for shape in ((1, 3), (2, 5), (3, 37), (5, 1031), (40, 63), (1, 70001)):
        for first in (0, 1):
            x = make(shape, name)
            view = x.reshape(-1)[first:]
            compare(view, 0, name)
            compare(x[:, first:], 1, name)
            if shape[0] > 1 and name != "complex64":
                h = wide(x[:, first:])
                check(x[:, first:].argmax(1), h.argmax(1), 0, ("argmax", name, shape, first))
""",
        TENON_MEMORY_CACHE="0",
    )


def test_places_of_extremes() -> None:
    """The first of equal elements and the first NaN, in rows of every length and alignment."""
    harness.script(
        START
        + """
for name in ("float32", "float64", "bfloat16", "uint8", "int16", "int64"):
    for rows in (1, 5, 40):
        for n in (1, 3, 7, 8, 33, 256, 1025) + (20001,) * (rows == 1):
            x = make((rows, n + 1), name)
            x = x.remainder(7) if "int" in name else x
            if "float" in name and rows > 1:
                x[1, n // 2 :] = float("nan")
                x[2] = float("-inf")
            for view in (x[:, :n].contiguous(), x[:, 1:], x.t().contiguous().t()[:, 1:]):
                for tensor, dim in ((view, 1), (view.t(), 0)):
                    h = wide(tensor)
                    what = (name, tuple(tensor.shape), tensor.stride())
                    check(tensor.argmax(dim), h.argmax(dim), 0, ("argmax", *what))
                    check(tensor.argmin(dim), h.argmin(dim), 0, ("argmin", *what))
                    values, at = tensor.max(dim)
                    check(values, h.max(dim), 0, ("max", *what))
                    check(at, h.argmax(dim), 0, ("max", *what))
                check(view.argmax(), np.asarray(wide(view).argmax()), 0, what)
x = make((4100, 65), "float32")
check(x.argmax(1), wide(x).argmax(1), 0, "many rows")
check(x.argmin(0), wide(x).argmin(0), 0, "many columns")
for name in ("float32", "float64", "float16", "int8", "uint8", "int64"):  # rows side by side
    for shape in ((4100, 64), (3, 50, 24), (2, 700, 3, 8), (5, 1, 16), (2, 33, 7), (3, 9, 1000)):
        x = make(shape, name)
        x = x.remainder(5) if "int" in name else x.round()  # many of them equal
        if "float" in name:
            x[..., x.shape[-2] // 3 :, 2] = float("nan")
            x[..., 4] = float("-inf")
        dim = 0 if len(shape) == 2 else 1
        for view in (x, x[..., 1:], x[..., 8:]):
            values, at = view.min(dim)
            check(at, wide(view).argmin(dim), 0, ("min", name, shape, view.shape))
            check(values, wide(view).min(dim), 0, ("min", name, shape, view.shape))
            what = ("argmax", name, shape, view.shape)
            check(view.argmax(dim), wide(view).argmax(dim), 0, what)
x = make((300000,), "bfloat16")
check(x.argmin(), np.asarray(wide(x).argmin()), 0, "parts")
assert tn.cuda.fallback_count("argmax")[1] == 0 and tn.cuda.fallback_count("max_dim")[1] == 0
"""
    )


def test_of_nothing_along_several_dimensions() -> None:
    """One of several dimensions that go has no elements: values and gradients as on the CPU."""
    harness.script("""
import itertools
for shape in ((0, 3), (3, 0), (2, 0, 5), (0, 2, 4), (2, 4, 0), (2, 0, 3, 3)):
    n = len(shape)
    dims = [None, *range(n), *itertools.combinations(range(n), 2)]
    ops = ("sum", "mean", "var", "any", "logsumexp")
    for op, dim, turn in itertools.product(ops, dims, (0, 1)):
        if op == "logsumexp" and dim is None:
            continue
        found = []
        for device in ("cpu", "cuda"):
            x = tn.ones(shape, device=device, requires_grad=op != "any")
            t = x.transpose(0, -1) if turn else x
            y = getattr(t, op)() if dim is None else getattr(t, op)(dim)
            if y.requires_grad:
                y.sum().backward()
                found.append((repr(y.detach().cpu()), repr(x.grad.cpu())))
            else:
                found.append(repr(y.cpu()))
        assert found[0] == found[1], (op, shape, dim, turn, found)
""")
