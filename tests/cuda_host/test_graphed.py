"""tn.cuda.make_graphed_callables on the host harness: next to the same calls without graphs."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
from collections import namedtuple
from tenon import nn
cu = tn.cuda
def same(a, b, tol=1e-6):
    return tn.allclose(a.detach(), b.detach(), atol=tol, rtol=tol)
"""


def test_a_module_is_trained_as_without_graphs() -> None:
    """Two parts of a net, one optimizer, gradients of two batches added up; evaluation as ever."""
    harness.script(
        START
        + """
def parts():
    tn.manual_seed(0)
    first = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU()).cuda()
    return first, nn.Linear(8, 3).cuda()
def train(first, last):
    opt = tn.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1, momentum=0.9)
    generator, losses = tn.Generator().manual_seed(3), []
    for i in range(12):
        x = tn.randn(16, 6, generator=generator).cuda()
        loss = nn.functional.cross_entropy(last(first(x).relu()), (x.sum(1) > 0).long())
        loss.backward()
        losses.append(loss.item())
        if i % 2:
            opt.step()
            opt.zero_grad(set_to_none=i % 4 == 1)
    return losses
plain, graphed = parts(), parts()
want = train(*plain)
samples = ((tn.randn(16, 6, device="cuda"),), (tn.randn(16, 8, device="cuda", requires_grad=True),))
again = cu.make_graphed_callables(graphed, samples)
assert again[0] is graphed[0] and again[1] is graphed[1]
cu.reset_counters()
got = train(*again)
assert cu.counters()["graph_launches"] == 48, cu.counters()
assert max(abs(a - b) for a, b in zip(want, got)) < 1e-5 and want[-1] < want[0], (want, got)
x = tn.randn(5, 6, device="cuda")
a, b = again[0].eval()(x), plain[0].eval()(x)  # of another size, too
assert same(a, b, 1e-5) and cu.counters()["graph_launches"] == 48
"""
    )


def test_functions_of_nested_tensors() -> None:
    harness.script(
        START
        + """
Pair = namedtuple("Pair", "total place")
def f(pair, scale):
    x, y = pair
    z = (x * y).tanh() * scale
    return {"z": z, "pair": Pair(z.sum(0), z.argmax(1))}
def sample(grad):
    x, y = (tn.randn(4, 3, device="cuda").requires_grad_(grad) for _ in range(2))
    return [x, y], tn.rand(3, device="cuda")
run = cu.make_graphed_callables(f, sample(True))
for i in range(3):
    (x, y), scale = sample(True)
    made, want = run([x, y], scale), f([x, y], scale)
    assert list(made) == ["z", "pair"] and isinstance(made["pair"], Pair)
    assert same(made["z"], want["z"]) and same(made["pair"].total, want["pair"].total)
    assert tn.equal(made["pair"].place, want["pair"].place)
    assert not made["pair"].place.requires_grad
    got = tn.autograd.grad((made["z"] ** 2).sum() + made["pair"].total[0], (x, y))
    exact = tn.autograd.grad((want["z"] ** 2).sum() + want["pair"].total[0], (x, y))
    assert all(same(a, b) for a, b in zip(got, exact)), i
still = cu.make_graphed_callables(f, sample(False))
args = sample(False)
made = still(*args)
assert not made["z"].requires_grad and same(made["z"], f(*args)["z"])
"""
    )


def test_dropout_is_drawn_anew_and_its_gradient_fits() -> None:
    harness.script(
        START
        + """
drop = cu.make_graphed_callables(nn.Dropout(0.5), (tn.ones(1000, device="cuda").requires_grad_(),))
masks = []
for _ in range(2):
    x = tn.ones(1000, device="cuda").requires_grad_()
    y = drop(x)
    y.sum().backward()
    assert tn.equal(x.grad, y.detach())
    masks.append(x.grad)
assert not tn.equal(*masks) and 350 < (masks[0] > 0).sum().item() < 650
"""
    )


def test_what_does_not_fit_is_said() -> None:
    harness.script(
        START
        + """
def fails(kind, text, piece):
    try:
        piece()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
make, x = cu.make_graphed_callables, tn.ones(3, device="cuda")
run = make(lambda a: a * 2, (x,))
fails(TypeError, "takes 1 tensors, got 2", lambda: run(x, x))
fails(ValueError, "captured with (3,)", lambda: run(tn.ones(4, device="cuda")))
fails(ValueError, "captured with (3,)", lambda: run(tn.ones(3)))
fails(TypeError, "must be tensors", lambda: make(lambda a: a, (3,)))
fails(TypeError, "must be tensors", lambda: make(lambda a: 3.0, (x,)))
fails(ValueError, "1 callables and 2", lambda: make((run,), ((x,), (x,))))
hooked = nn.Linear(3, 3).cuda()
hooked.register_forward_hook(lambda *_: None)
fails(RuntimeError, "has hooks", lambda: make(hooked, (x,)))
fails(RuntimeError, "reading a value", lambda: make(lambda a: a * a.sum().item(), (x,)))
assert run(x).tolist() == [2.0] * 3
"""
    )
