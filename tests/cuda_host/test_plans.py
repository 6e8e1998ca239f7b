"""How pointwise kernels walk: by groups of elements, rows of strided operands, single elements."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_rows_of_every_width() -> None:
    """Operands that are packed, broadcast, cut out or turned, in lengths about those of groups."""
    harness.script("""
import itertools
names = ("bool", "int16", "bfloat16", "float32", "int64", "complex128")
def views(t, n):
    yield t[:, :n]                      # rows with gaps
    yield t[:, 1:n + 1]                 # ... that begin beside a group's place
    yield t[:1, :n].expand(5, n)        # one row
    yield t[:, :1].expand(5, n)         # one element for each row
    yield t[:, :n].flip(1)
    yield t[:, :n].contiguous()
    yield t[:, :n].t().contiguous().t() # columns
for name, n in itertools.product(names, (1, 3, 4, 8, 12, 16, 17, 40)):
    x = (tn.arange(5 * 48) % 11 - 5).reshape(5, 48).to(getattr(tn, name))
    d = x.to("cuda")
    for (a, da), (b, db) in itertools.product(*[list(zip(views(x, n), views(d, n)))] * 2):
        if name == "bool":
            assert tn.equal((da ^ db).cpu(), a ^ b), (name, n)
            continue
        assert tn.equal((da + db).cpu(), a + b), (name, n, a.stride(), b.stride())
        assert tn.equal((da == db).cpu(), a == b), (name, n)
        assert tn.equal(tn.where(da == db, da, 1).cpu(), tn.where(a == b, a, 1)), (name, n)
        out = tn.zeros(5, 2 * n, dtype=x.dtype, device="cuda")[:, ::2]
        tn.mul(da, db, out=out)
        assert tn.equal(out.cpu(), a * b), (name, n)
    for to in names[1:5]:
        if name == "complex128":
            continue
        for a, da in zip(views(x, n), views(d, n)):
            to_dtype = getattr(tn, to)
            assert tn.equal(da.to(to_dtype).cpu(), a.to(to_dtype)), (name, to, n)
    big, of_big = x[:, :n].expand(3, 5, n), d[:, :n].expand(3, 5, n)
    if name != "bool":
        assert tn.equal((of_big * of_big[:, 1:2]).cpu(), big * big[:, 1:2]), (name, n)
""")


def test_short_formulas_are_right_to_few_places() -> None:
    """Functions that GPUs compute with less care: beside float64, also in the tails."""
    harness.script("""
import numpy as np
from scipy import special as sp
x = np.concatenate([np.linspace(-14.2, 14.2, 40001), np.geomspace(1e-30, 80, 3000),
                    -np.geomspace(1e-30, 14, 3000), [0.0, -0.0]]).astype(np.float32)
d, w = tn.from_numpy(x).to("cuda"), x.astype(np.float64)
phi = np.exp(-w * w / 2) / np.sqrt(2 * np.pi)
with np.errstate(over="ignore"):
    wanted = {
        "gelu": w * sp.ndtr(w), "exp": np.exp(w), "sigmoid": sp.expit(w), "tanh": np.tanh(w),
        "erf": sp.erf(w), "erfc": sp.erfc(w), "slope": sp.ndtr(w) + w * phi,
    }
r = tn.from_numpy(x).to("cuda").requires_grad_()
tn.nn.functional.gelu(r).sum().backward()
made = {"gelu": tn.nn.functional.gelu(d), "slope": r.grad}
for name, want in wanted.items():
    got = made[name] if name in made else getattr(tn, name)(d)
    got = got.cpu().numpy().astype(np.float64)
    fine = (np.abs(want) > 1e-37) & (np.abs(want) < 3e38)
    ulp = np.spacing(np.abs(want[fine]).astype(np.float32)).astype(np.float64)
    off = np.abs(got - want)[fine] / ulp
    if name == "slope": # near its zero the sum of both terms has the error of one
        off = np.minimum(off, np.abs(got - want)[fine] / 1e-7)
    assert off.max() <= 8, (name, off.max(), x[fine][off.argmax()])
for bad, want in ((np.inf, np.inf), (-np.inf, 0.0)):
    got = float(tn.nn.functional.gelu(tn.tensor([bad], device="cuda")))
    assert got == want, (bad, got)
assert tn.nn.functional.gelu(tn.tensor([np.nan], device="cuda")).isnan().all()
""")
