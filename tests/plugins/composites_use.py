"""The program of test_composites.py: folder of the plugins, device. Kernels of composites.h run."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tenon as tn
import tenon.nn.functional as F  # noqa: N812

FOLDER, KIND = Path(sys.argv[1]), sys.argv[2]
LIBRARY = str(FOLDER / "composites.so")
KINDS = "gelu attention cat div layer_norm split put entropy dropout never".split()
rng = np.random.default_rng(0)


def new(*shape: int, dtype: Any = np.float32) -> tn.Tensor:
    return tn.from_numpy(rng.standard_normal(shape).astype(dtype)).to(KIND)


def values(t: tn.Tensor) -> np.ndarray[Any, Any]:
    return t.detach().cpu().double().numpy()


def same(a: tn.Tensor, b: Any, tol: float = 2e-6) -> None:
    b = values(b) if isinstance(b, tn.Tensor) else b
    np.testing.assert_allclose(values(a), b, rtol=tol, atol=tol)


def calls(name: str) -> int:
    return lib.calls_of(KINDS.index(name))


def ran(name: str, n: int, fn: Callable[[], Any]) -> Any:
    """What fn returns; the kernel ran n times."""
    before = calls(name)
    result = fn()
    assert calls(name) - before == n, (name, calls(name) - before, n)
    return result


if KIND != "cpu":
    tn.load_plugin(str(FOLDER / f"{KIND}.so"))
x, q, k, v = new(3, 4), new(2, 5, 8), new(2, 6, 8), new(2, 6, 3)
far = x.double()
before = tn.explain("gelu", device=KIND, dtype=tn.float32)
assert "composite" in before and "composites" not in before, before
fused = tn.compile(lambda x: F.gelu(x) * 2 + 1)
same(fused(x), F.gelu(x) * 2 + 1)  # by the parts of gelu, on the CPU as one kernel
plain = F.gelu(x), F.scaled_dot_product_attention(q, k, v)
tn.load_plugin(LIBRARY)
lib = ctypes.CDLL(LIBRARY)
lib.calls_of.restype = ctypes.c_int64

# What is said is what happens, by operator and dtype.
told = tn.explain("gelu", device=KIND, dtype=tn.float32)
assert "plugin 'composites'" in told and "then: composite of other operators" in told, told
assert "composites" not in tn.explain("gelu", device=KIND, dtype=tn.float64)
assert "composites" not in tn.explain("masked_select", device=KIND, dtype=tn.float32)
assert "composites" not in tn.explain("zeros", device=KIND, dtype=tn.float32)
same(ran("gelu", 1, lambda: F.gelu(x)), plain[0])
same(ran("gelu", 1, lambda: fused(x)), plain[0] * 2 + 1)
same(ran("gelu", 1, lambda: F.gelu(x.t())), values(plain[0]).T)
same(ran("gelu", 0, lambda: F.gelu(far)), plain[0])
same(ran("gelu", 0, lambda: F.gelu(x.half())), plain[0], 2e-3)
same(ran("gelu", 0, lambda: F.gelu(x, approximate="tanh")), plain[0], 2e-3)  # it declined
assert ran("gelu", 1, lambda: F.gelu(new(0, 3))).shape == (0, 3)
same(ran("attention", 1, lambda: F.scaled_dot_product_attention(q, k, v)), plain[1])
mask = tn.tensor(rng.random((5, 6)) > 0.3).to(KIND) | (tn.arange(6) == 0).to(KIND)
want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask)
same(ran("attention", 1, lambda: F.scaled_dot_product_attention(q, k, v, mask)), want)

# Numbers, other dtypes beside it, lists.
same(ran("div", 1, lambda: tn.div(x, 3)), values(x) / 3)
whole = tn.arange(1, 13, device=KIND).reshape(3, 4)
same(ran("div", 1, lambda: tn.div(x, whole)), values(x) / values(whole))
same(ran("div", 1, lambda: tn.div(whole, x)), values(whole) / values(x))
same(ran("div", 0, lambda: tn.div(whole, 2)), values(whole) / 2)
same(ran("div", 0, lambda: tn.div(x, 2, rounding_mode="floor")), np.floor(values(x) / 2))
if KIND != "cpu":
    same(ran("div", 1, lambda: tn.div(x, tn.tensor(4.0))), values(x) / 4)  # a number of the CPU
pieces = [new(3), new(0), tn.arange(2, device=KIND), new(4)]
want = np.concatenate([values(p) for p in pieces])
same(ran("cat", 1, lambda: tn.cat(pieces)), want)
same(
    ran("cat", 1, lambda: tn.cat([new(1)] * 100)).sum(),
    ran("cat", 0, lambda: tn.zeros(1).sum()),
    1e9,
)
parts = ran("split", 1, lambda: tn.unsafe_split(pieces[3], 3))
same(parts[0], values(pieces[3])[:3])
same(parts[1], values(pieces[3])[3:])
same(ran("layer_norm", 1, lambda: tn.layer_norm(x, (4,))), tn.layer_norm(far, (4,)))
classes = tn.tensor([1, 0, 3]).to(KIND)
same(ran("entropy", 1, lambda: F.cross_entropy(x, classes)), F.cross_entropy(far, classes))
assert tn.atleast_1d(x).data_ptr() == x.data_ptr()  # what is there already needs no kernel
same(tn.masked_select(x, x > 0), values(x)[values(x) > 0])

# Forms: out=, in place, written arguments.
out = tn.empty(0, device=KIND)
assert ran("div", 1, lambda: tn.div(x, 2, out=out)) is out
same(out, values(x) / 2)
wide = tn.empty(4, 3, device=KIND, dtype=tn.float64).t()
ran("div", 1, lambda: tn.div(x, 2, out=wide))
same(wide, values(x) / 2)
target, version = x.clone(), 0
version = target._version
assert ran("div", 1, lambda: target.div_(x.abs() + 1)) is target and target._version > version
same(target, values(x) / (abs(values(x)) + 1))
ran("div", 1, lambda: tn.div(target, 2, out=target))  # of itself
same(target, values(x) / (abs(values(x)) + 1) / 2)
line, places = new(6), tn.tensor([4, 1]).to(KIND)
want, version = values(line), line._version
want[[4, 1]] = [7, 8]
ran("put", 1, lambda: line.index_put_((places,), tn.tensor([7.0, 8.0]).to(KIND)))
same(line, want)
assert line._version > version
with tn.no_grad():
    leaf = x.clone().requires_grad_()
    assert not ran("gelu", 1, lambda: F.gelu(leaf)).requires_grad


# Gradients: by the operator's own formula, or the composite runs again.
def slope(fn: Callable[..., tn.Tensor], args: list[tn.Tensor], i: int) -> np.ndarray[Any, Any]:
    """Of the sum of fn in float64 on the CPU, where no kernel of the plugin runs."""
    at = [a.detach().cpu().double() for a in args]
    found, step = np.zeros(at[i].numel()), 1e-6
    for e in range(at[i].numel()):
        ends = []
        for way in (step, -step):
            moved = at[i].clone()
            moved.view(-1)[e] += way
            ends.append(fn(*at[:i], moved, *at[i + 1 :]).sum().item())
        found[e] = (ends[0] - ends[1]) / (2 * step)
    return found.reshape(at[i].shape)


def check(name: str, n: int, fn: Callable[..., tn.Tensor], *args: tn.Tensor) -> None:
    leaves = [a.detach().clone().requires_grad_() for a in args]
    result = ran(name, n, lambda: fn(*leaves))
    assert result.requires_grad
    result.sum().backward()
    for i, leaf in enumerate(leaves):
        same(leaf.grad, slope(fn, list(args), i), 1e-4)


check("gelu", 1, F.gelu, x)
check("attention", 1, lambda *a: F.scaled_dot_product_attention(*a) ** 2, q, k, v)
check("div", 1, tn.div, x, x.abs() + 1)
check("cat", 1, lambda a, b: tn.cat([a, b]) ** 2, new(3), new(2))
check("entropy", 1, lambda a: F.cross_entropy(a, classes.to(a.device)), x)
check("layer_norm", 1, lambda a: tn.layer_norm(a, (4,)) ** 2, x)  # it declines
where = tn.tensor([0, 2]).to(KIND)
check("put", 1, lambda a, b: (a * 1).index_put_((where.to(a.device),), b) ** 2, new(4), new(2))
check("div", 0, lambda a, b: (a * 1).div_(b), x, x.abs() + 1)  # it writes its target itself


def second(fn: Callable[[tn.Tensor], tn.Tensor], at: tn.Tensor) -> tn.Tensor:
    leaf = at.clone().requires_grad_()
    (first,) = tn.autograd.grad(fn(leaf).sum(), leaf, create_graph=True)
    (found,) = tn.autograd.grad((first**2).sum(), leaf)
    return found


def own(a: tn.Tensor) -> tn.Tensor:
    return F.scaled_dot_product_attention(a, a, a)  # one tensor as three arguments


same(ran("gelu", 1, lambda: second(F.gelu, x)), second(F.gelu, far), 1e-4)
same(ran("attention", 1, lambda: second(own, q)), second(own, q.double()), 1e-4)
check("attention", 1, own, q)

# What draws numbers is recorded through its parts; alone the kernel runs.
ran("dropout", 1, lambda: tn.dropout(x, 0.5, True))
assert ran("dropout", 0, lambda: tn.dropout(x, 0.5, False)) is not None
leaf = tn.ones(64, device=KIND, requires_grad=True)
dropped = ran("dropout", 0, lambda: tn.dropout(leaf, 0.5, True))
dropped.sum().backward()
same(leaf.grad, dropped)

# Under vmap, autocast and in a graph the values are the operator's.
same(tn.vmap(F.gelu)(x), plain[0])
same(tn.vmap(lambda a: tn.div(a, 2))(x), values(x) / 2)
with tn.autocast(KIND, dtype=tn.bfloat16):
    same(F.scaled_dot_product_attention(q, k, v), plain[1], 0.05)
    assert F.scaled_dot_product_attention(q, k, v).dtype == tn.bfloat16

# The kernels go with their plugin, and come back.
tn.retire_plugin("composites")
same(ran("gelu", 0, lambda: F.gelu(x)), plain[0])
assert "composites" not in tn.explain("gelu", device=KIND, dtype=tn.float32)
tn.load_plugin(LIBRARY)
same(ran("gelu", 1, lambda: F.gelu(x)), plain[0])
