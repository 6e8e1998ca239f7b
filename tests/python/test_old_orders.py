"""Numbers before the tensors that they scale, as PyTorch once had it; numbers of the wrong kind."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import stored
import tenon

OLD = """
p.add(2, q)
p.add_(-0.5, q)
lib.add(p, 2, q)
lib.add(p, 2, other=q)
lib.add(3, 2, q)
p.add(2, 3)
p.add(lib.tensor(2.0), q)
lib.add(p, 2, q, out=lib.empty(2))
lib.add(p, 2, q, alpha=3)
p.add(2, q, 3)
p.add(q, 2, q)
p.add(lib.tensor([2.0]), q)
p.add(lib.tensor(2.0, requires_grad=True), q)
p.add('a', q)
p.sub(2, q)
p.sub_(0.5, q)
lib.sub(p, 2, q)
p.addcmul(2, q, r)
p.addcmul_(-0.5, q, r)
lib.addcmul(p, 2, q, r)
p.addcmul(2, q, tensor2=r)
p.addcmul(q, r, 2)
p.addcmul(2, q)
p.addcdiv(2, q, r)
p.addcdiv_(-0.5, q, r)
lib.addcdiv(p, 2, q, r, out=lib.empty(2))
lib.addmm(2, m, 3, n, o)
lib.addmm(2, m, n, o)
m.addmm(3, n, o)
m.addmm_(2, 3, n, o)
lib.addmm(m, n, o, 2, 3)
lib.addmv(2, p, 3, m, q)
lib.addmv(2, p, m, q)
p.addmv_(2, m, q)
lib.addr(2, m, 3, p, q)
m.addr(2, p, q)
lib.baddbmm(2, m[None], 3, n[None], o[None])
m[None].baddbmm(2, n[None], o[None])
lib.addbmm(2, m, 3, n[None], o[None])
m.addbmm_(2, n[None], o[None])
""".strip().split("\n")

KINDS = """
p.add(q, alpha=2j)
p.add(q, alpha=True)
p.clone().add_(q, alpha=2j)
p.sub(q, alpha=2j)
p[::2].add(q[::2], alpha=2j)
(p + 0j).add(q, alpha=2j)
(p > 0).add(q > 0, alpha=True)
p.int().add(q.int(), alpha=2.5)
p.int().add(q.int(), alpha=True)
p.addcmul(q, r, value=2j)
p.addcmul(q, r, value=True)
p.addcdiv(q, r, value=2j)
(p + 0j).addcmul(q, r, value=2j)
lib.addmm(m, n, o, alpha=2j)
lib.addmm(m, n, o, beta=2j)
lib.addmm(m.int(), n.int(), o.int(), alpha=2j)
lib.addmm(m + 0j, n + 0j, o + 0j, alpha=2j, beta=1j)
lib.addmv(p, m, q, alpha=2j)
lib.baddbmm(m[None], n[None], o[None], beta=2j)
p.index_add(0, lib.tensor([0, 1]), q, alpha=2j)
lib.addr(m, p, q, alpha=2j)
lib.addr(m, p, q, beta=True)
lib.addr(m.int(), p.int(), q.int(), alpha=2.5)
lib.addr(m.int(), p.int(), q.int(), beta=2.5)
lib.addr(m + 0j, p, q, alpha=2j)
p.norm(2j)
p.dist(q, 2j)
lib.linalg.vector_norm(p, 2j)
lib.trapezoid(p, dx=2j)
lib.cumulative_trapezoid(p, dx=2j)
lib.nn.functional.elu(p, True)
lib.nn.functional.elu(p, 2j)
lib.nn.functional.softplus(p, 2j)
lib.nn.functional.threshold(p, 1j, 2)
lib.nn.functional.hardshrink(p, 1j)
""".strip().split("\n")


def answer(lib, text):
    names = {"lib": lib, "p": lib.tensor([1.0, -2.0]), "q": lib.tensor([3.0, 0.5])}
    names["r"] = lib.tensor([-4.0, 8.0])
    for i, name in enumerate("mno"):
        names[name] = lib.tensor([[1.0, 2.0], [3.0, -4.0]]) + i
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = eval(text, names)
        except Exception as err:
            return [type(err).__name__]
    kept = names["p"].tolist() if ".add_(" in text or "_(" in text else []
    return [str(result.dtype).rpartition(".")[2], result.resolve_conj(), kept]


@pytest.mark.parametrize("text", OLD + KINDS)
def test_as_pytorch(text):
    mine, theirs = answer(tenon, text), stored.of_torch(lambda lib: answer(lib, text))
    assert mine[0] == theirs[0]
    stored.same(mine, theirs, 1e-6)


def test_the_warning_comes_once():
    program = (
        "import warnings, tenon\n"
        "p = tenon.ones(2)\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    p.add(p, alpha=2); p.add_(2, p); p.sub(2, p)\n"
        "text = str(told[0].message)\n"
        "print(len(told), told[0].category.__name__, 'add_ is deprecated' in text)\n"
        "print('input alpha other' in text)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout.split() == ["1", "UserWarning", "True", "True"], out.stderr


def test_a_warning_that_is_an_error_leaves_the_tensor():
    program = (
        "import warnings, tenon\n"
        "warnings.simplefilter('error')\n"
        "p = tenon.ones(2)\n"
        "try: p.add_(2, p)\n"
        "except UserWarning: print(p.tolist())\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout.strip() == "[1.0, 1.0]", out.stderr


def test_gradients_go_through():
    x, y = (tenon.ones(2, requires_grad=True) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.add(3, y).sum().backward()
    assert y.grad.tolist() == [3.0, 3.0] and x.grad.tolist() == [1.0, 1.0]
