"""gradcheck and its relatives, derivatives of functions, checkpoints, anomaly mode."""

from __future__ import annotations

import numpy as np
import pytest
import tenon
from tenon.autograd import Function, forward_ad, functional, gradcheck, gradgradcheck
from tenon.autograd.gradcheck import GradcheckError
from tenon.utils.checkpoint import checkpoint, checkpoint_sequential

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch to compare with")


def leaf(*shape: int, seed: int = 0, dtype=None):
    tenon.manual_seed(seed)
    return tenon.randn(*shape, dtype=dtype or tenon.float64).requires_grad_()


class WrongCube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x**2


def test_gradcheck_accepts_what_is_right():
    a, b = leaf(3, 4), leaf(4, 2, seed=1)
    assert gradcheck(lambda x, y: (x @ y).tanh(), (a, b))
    assert gradcheck(lambda x: (x.exp(), x.sum(0)), (a,))
    assert gradgradcheck(lambda x, y: ((x @ y).sigmoid() ** 2).sum(), (a, b))


def test_gradcheck_refuses_what_is_wrong():
    a = leaf(3)
    with pytest.raises(
        RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        gradcheck(WrongCube.apply, (a,))
    assert not gradcheck(WrongCube.apply, (a,), raise_exception=False)
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, (a.detach(),))


def test_gradcheck_of_complex_numbers():
    z = leaf(3, dtype=tenon.complex128)
    assert gradcheck(lambda x: x * x, (z,))
    assert gradcheck(lambda x: (x * x.conj()).real, (z,))


@pytest.mark.parametrize("alpha", [1 - 2j, 0.5j])
@pytest.mark.parametrize(
    "name", ["add", "sub", "rsub", "addmm", "baddbmm", "addbmm", "addmv", "index_add"]
)
def test_gradcheck_of_complex_factors(name, alpha):
    """Also one whose real part is that of the number 1, which is no factor."""
    shapes = {
        "addmm": ((2, 4), (2, 3), (3, 4)),
        "baddbmm": ((2, 2, 4), (2, 2, 3), (2, 3, 4)),
        "addbmm": ((2, 4), (2, 2, 3), (2, 3, 4)),
        "addmv": ((2,), (2, 3), (3,)),
        "index_add": ((2, 4), (3, 4)),
    }.get(name, ((2, 3), (2, 3)))
    leaves = tuple(leaf(*shape, seed=i, dtype=tenon.complex128) for i, shape in enumerate(shapes))
    factors = {"alpha": alpha, "beta": 1 + 1j} if len(shapes) > 2 else {"alpha": alpha}
    places = (0, tenon.tensor([1, 0, 1])) if name == "index_add" else ()

    def call(x, *rest):
        return getattr(tenon, name)(x, *places, *rest, **factors)

    assert gradcheck(call, leaves)
    assert gradgradcheck(call, leaves)


def test_inputs_are_left_as_they_were():
    a = leaf(4)
    before = a.detach().clone()
    gradcheck(lambda x: x.sin(), (a,))
    assert bool((a == before).all())


@needs_torch
@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
def test_functional(name):
    results = []
    x = np.array([0.3, -1.2, 2.0])
    for lib in (tenon, torch):

        def f(t):
            return t.sin() * t.prod()

        def scalar(t):
            return (t.sin() * t.prod()).sum()

        fn = getattr(lib.autograd.functional, name)
        t, v = lib.tensor(x.tolist(), dtype=lib.float64), lib.ones(3, dtype=lib.float64)
        if name in ("jacobian", "hessian"):
            out = fn(scalar if name == "hessian" else f, t)
        else:
            out = fn(scalar if name in ("vhp", "hvp") else f, t, v)
        out = out if isinstance(out, tuple) else (out,)
        results.append([o.detach().numpy() for o in out])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_functional_of_several_inputs():
    a, b = leaf(2).detach(), leaf(3, seed=1).detach()
    rows = functional.jacobian(lambda x, y: (x.sum() * y, x), (a, b))
    assert rows[0][0].shape == (3, 2) and rows[1][1].shape == (2, 3)
    blocks = functional.hessian(lambda x, y: (x.sum() * y.sum()) ** 2, (a, b))
    assert blocks[0][1].shape == (2, 3)
    assert bool((blocks[0][1] - blocks[1][0].t()).abs().max() < 1e-12)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_checkpoint(p):
    tenon.manual_seed(1)
    net = tenon.nn.Sequential(
        tenon.nn.Linear(4, 8), tenon.nn.Tanh(), tenon.nn.Dropout(p), tenon.nn.Linear(8, 2)
    )
    x = tenon.randn(3, 4).requires_grad_()
    grads = []
    for run in (
        lambda: net(x),
        lambda: checkpoint(net, x, use_reentrant=False),
        lambda: checkpoint_sequential(net, 2, x, use_reentrant=True),
        lambda: checkpoint(lambda: net(x.detach())),
    ):
        net.zero_grad()
        tenon.manual_seed(5)
        run().pow(2).sum().backward()
        grads.append([q.grad.clone() for q in net.parameters()])
    for other in grads[1:]:
        for a, b in zip(grads[0], other):
            assert bool((a == b).all())


def test_anomaly_mode_names_the_operator():
    x = tenon.tensor([-1.0]).requires_grad_()
    with tenon.autograd.detect_anomaly():
        with pytest.raises(RuntimeError, match="(?i)nan"):
            y = x.sqrt()
            y.sum().backward()
    assert not tenon.autograd.anomaly_mode.is_anomaly_enabled()


def test_grad_and_backward():
    x = tenon.ones(2).requires_grad_()
    y = x * 3
    (g,) = tenon.autograd.grad(y.sum(), x)
    assert g.tolist() == [3.0, 3.0] and x.grad is None
    z = tenon.ones(2).requires_grad_()
    with pytest.raises(RuntimeError):
        tenon.autograd.grad((x * 3).sum(), (x, z))
    a, b = tenon.autograd.grad((x * 3).sum(), (x, z), materialize_grads=True)
    assert b.tolist() == [0.0, 0.0]
    tenon.autograd.backward([x * 2, x * 3], [tenon.ones(2), tenon.ones(2)])
    assert x.grad.tolist() == [5.0, 5.0]


def test_gradients_of_several_seeds_at_once():
    class Tired(Function):
        """Its backward is right as often as a check without batches asks: 3 rows, twice, zeros."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            calls.append(1)
            return g * max(1, len(calls) - 6)

    calls = []
    x = tenon.rand(3, dtype=tenon.float64, requires_grad=True)
    assert gradcheck(lambda x: (x.sin(), x.cumsum(0)), (x,), check_batched_grad=True)
    assert gradgradcheck(lambda x: x.exp() * x, (x,), check_batched_grad=True)
    assert gradcheck(Tired.apply, (x,), check_undefined_grad=False)
    calls = []
    with pytest.raises(GradcheckError, match="failed while testing batched gradient computation"):
        gradcheck(Tired.apply, (x,), check_undefined_grad=False, check_batched_grad=True)


def test_outputs_without_a_gradient():
    class Stiff(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if g is None:
                raise RuntimeError("no gradient came")
            return g

    x = tenon.rand(2, dtype=tenon.float64, requires_grad=True)
    with pytest.raises(GradcheckError, match="Expected backward function to handle undefined"):
        gradcheck(Stiff.apply, (x,))
    assert gradcheck(Stiff.apply, (x,), check_undefined_grad=False)


def test_what_depends_on_values_has_no_difference():
    x = tenon.ones(1, dtype=tenon.float64, requires_grad=True)
    for fn, what in (
        (lambda x: tenon.cat([x, x]) if float(x) >= 1 else x, "shape"),
        (lambda x: x.float() if float(x) >= 1 else x, "dtype"),
    ):
        with pytest.raises(AssertionError, match=f"outputs with the same {what}"):
            gradcheck(fn, (x,))


def test_forward_mode_gives_a_tangent_to_every_input():
    def bad(x, y):
        if forward_ad._current_level >= 0:
            value, tangent = forward_ad.unpack_dual(y)
            y = forward_ad.make_dual(value, tangent * 1.1)
        return x + y

    x, y = (tenon.rand(2, dtype=tenon.float64, requires_grad=True) for _ in range(2))
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output 0 wi"):
        gradcheck(bad, (x, y), check_forward_ad=True)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_inputs_by_their_values(layout):
    dense = leaf(3, 4).detach() * (leaf(3, 4, seed=1).detach() > 0)
    x = getattr(dense, f"to_sparse_{layout}")().requires_grad_()
    mat = leaf(4, 2, seed=2)
    assert gradcheck(lambda x, m: (x @ m).exp(), (x, mat), masked=True)
    assert gradcheck(lambda x: x.sin(), (x,), masked=True)  # a sparse result
    assert gradgradcheck(lambda x, m: (x @ m).exp(), (x, mat), masked=True)
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: x.to_dense().detach() * 1 + x.to_dense(), (x,), masked=True)
    for check in (gradcheck, gradgradcheck):
        with pytest.raises(NotImplementedError, match="masked=True"):
            check(lambda x: x.sin(), (x,))


def test_something_has_to_be_checked() -> None:
    x = tenon.ones(2, dtype=tenon.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward"):
        gradcheck(lambda t: t * 2, x, check_backward_ad=False)


def test_inputs_that_are_no_rows():
    turned = tenon.randn(3, 4, dtype=tenon.float64).t().requires_grad_()
    assert gradcheck(lambda x: (x * x).sum(1), turned)
    apart = tenon.randn(3, 2, 4, dtype=tenon.complex128).permute(2, 0, 1)[::2].requires_grad_()
    assert gradcheck(tenon.sin, apart)
    repeated = tenon.randn(1, dtype=tenon.float64).expand(3).requires_grad_()
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(tenon.sin, repeated)


class WrongSecond(WrongCube):
    """A cube whose gradient is right and has none itself."""

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0].detach() ** 2


def test_gradgradcheck_looks_at_tangents_of_gradients():
    a, w = leaf(2, 3), leaf(2, 3, seed=1)
    assert gradgradcheck(lambda x, y: (x * y).tanh(), (a, w), check_fwd_over_rev=True)
    forward = {"check_fwd_over_rev": True, "check_rev_over_rev": False}
    assert gradgradcheck(lambda x: tenon.nn.functional.gelu(x).sum(), (a,), **forward)

    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradgradcheck(WrongSecond.apply, (a,))
    with pytest.raises(GradcheckError, match="forward mode"):
        gradgradcheck(WrongSecond.apply, (a,), **forward)
    with pytest.raises(AssertionError, match="at least one of check_fwd_over_rev"):
        gradgradcheck(tenon.sin, (a,), check_rev_over_rev=False)
