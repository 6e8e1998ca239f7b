"""autograd.grad inside vmap: every element's own gradients. Passes into .grad are refused."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon.autograd import backward, grad


@pytest.fixture
def x():
    return tn.tensor([1.0, 2.0, 3.0], requires_grad=True)


def test_rows_of_a_jacobian(x):
    y = x**2 + x.flip(0)
    want = tn.diag(2 * x.detach()) + tn.eye(3).flip(1)
    seeds = tn.eye(3)
    for chunk in (None, 2):
        rows = tn.vmap(lambda v: grad(y, x, v, retain_graph=True)[0], chunk_size=chunk)(seeds)
        assert rows.equal(want)
    both = tn.vmap(lambda v: grad([y, y.sum()], x, [v, tn.ones(())], retain_graph=True)[0])
    assert both(seeds).equal(want + want.sum(0))
    twice = tn.vmap(tn.vmap(lambda v: grad(y, x, v, retain_graph=True)[0]))
    assert twice(tn.stack([seeds, 2 * seeds])).equal(tn.stack([want, 2 * want]))
    many = tn.vmap(
        lambda v: grad(y, x, v.diag(), retain_graph=True, is_grads_batched=True)[0]
    )  # fmt: skip
    assert many(seeds).equal(tn.stack([s.diag() @ want for s in seeds]))
    assert tn.vmap(lambda v: grad(y, x, v)[0])(seeds[:0]).shape == (0, 3)


def test_the_graph_is_freed_after_the_last_element(x):
    y = x.exp()
    assert tn.vmap(lambda v: grad(y, x, v)[0])(tn.eye(3)).equal(y.detach().diag())
    with pytest.raises(RuntimeError, match="a second time"):
        grad(y, x, tn.ones(3))


def test_rows_of_a_hessian_are_differentiable(x):
    (g,) = grad((x**4).sum(), x, create_graph=True)
    h = tn.vmap(lambda v: grad(g, x, v, create_graph=True)[0])(tn.eye(3))
    assert h.allclose(tn.diag(12 * x.detach() ** 2))
    assert grad(h.sum(), x)[0].allclose(24 * x.detach())


def test_mapped_inputs_and_shared_ones():
    a = tn.arange(6.0).view(2, 3).requires_grad_()
    w = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    own = tn.vmap(lambda v, s: grad((v**3).sum() * s, v)[0])(a, tn.tensor([1.0, 2.0]))
    assert own.allclose(3 * a.detach() ** 2 * tn.tensor([[1.0], [2.0]]))
    of_w, of_a = tn.vmap(lambda v: grad((v**2 * w).sum(), (w, v)))(a)
    assert of_w.equal(a.detach() ** 2) and of_a.equal(2 * a.detach() * w.detach())
    with pytest.raises(RuntimeError, match="implicitly created only for scalar outputs"):
        tn.vmap(lambda v: grad(v * 2, v)[0])(a)


def test_what_an_output_does_not_use(x):
    u, y = tn.ones(2, requires_grad=True), x * 2
    seen = []
    tn.vmap(lambda v: seen.append(grad(y, (x, u), v, True, allow_unused=True)) or v)(tn.eye(3))
    assert seen[0][1] is None and seen[0][0].shape == (3,)
    zeros = tn.vmap(lambda v: grad(y, u, v, True, materialize_grads=True)[0])(tn.eye(3))
    assert zeros.equal(tn.zeros(3, 2))
    with pytest.raises(RuntimeError, match="not have been used"):
        tn.vmap(lambda v: grad(y, u, v)[0])(tn.eye(3))


def test_passes_into_grad_are_refused(x):
    y = x * 2
    for act in (
        lambda v: y.backward(v), lambda v: backward(y, v), lambda v: (y * v).sum().backward(),
        lambda v: backward([(y * v).sum()]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="inside a functorch transform"):
            tn.vmap(act)(tn.eye(3))
    assert x.grad is None
