"""Programs that compute gradients: what a composite keeps for its gradient is no constant."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.export import Dim, export, load, save
from tenon.fx.experimental.proxy_tensor import make_fx
from tenon.nn import functional as F
from tenon.utils.checkpoint import checkpoint

W = tn.linspace(-1, 1, 16).reshape(4, 4)
LABELS = tn.tensor([1, 2, 0])

# Of each, the forward pass keeps what its result does not show: indices, masks, means, steps.
KEEPING = {
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True) * x,
    "cosine": lambda x: F.cosine_similarity(x, x + 1),
    "cross_entropy": lambda x: F.cross_entropy(x, LABELS),
    "layer_norm": lambda x: F.layer_norm(x @ W, (4,)) * x,
    "logsumexp": lambda x: x.logsumexp(1) ** 2,
    "margin": lambda x: F.multi_margin_loss(x, LABELS),
    "max_pool": lambda x: F.max_pool1d(x, 2) ** 2,
    "nll": lambda x: F.nll_loss(F.log_softmax(x, 1), LABELS),
    "rms_norm": lambda x: F.rms_norm(x, (4,)) * x,
    "svd": lambda x: tn.linalg.svdvals(x),
}


def _through_file(module: nn.Module, x: tn.Tensor) -> Any:
    buffer = io.BytesIO()
    save(export(module, (x,)), buffer)
    buffer.seek(0)
    return load(buffer).module()


MADE: dict[str, Callable[[nn.Module, tn.Tensor], Any]] = {
    "trace": lambda m, x: tn.jit.trace(m, (x,), check_trace=False),
    "export": lambda m, x: export(m, (x,)).module(),
    "file": _through_file,
    "make_fx": lambda m, x: make_fx(m)(x),
    "decompositions": lambda m, x: export(m, (x,)).run_decompositions().module(),
}


class Slope(nn.Module):
    """The gradient of a sum with respect to the input."""

    def __init__(self, fn: Callable[[tn.Tensor], tn.Tensor], functional: bool) -> None:
        super().__init__()
        self.fn, self.functional = fn, functional

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        if self.functional:
            return tn.func.grad(lambda v: self.fn(v).sum())(x)
        x = x.detach().requires_grad_()
        return tn.autograd.grad(self.fn(x).sum(), x)[0]


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("name", KEEPING)
def test_gradient_of_what_keeps_something(name: str, functional: bool, made: str) -> None:
    tn.manual_seed(0)
    slope = Slope(KEEPING[name], functional)
    x, other = tn.randn(3, 4), tn.randn(3, 4) * 3
    program = MADE[made](slope, x)
    assert tn.allclose(program(other), slope(other), atol=1e-4)


def _net() -> nn.Module:
    tn.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))


class Forces(nn.Module):
    """Energies and their slopes, as models of molecules have them; both of any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net()

    def forward(self, x: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        x = x.detach().requires_grad_()
        energy = self.net(x)
        (slope,) = tn.autograd.grad(energy.sum(), x, create_graph=True)
        (curve,) = tn.autograd.grad(slope[:, 0].sum(), x)
        return energy.detach(), curve


@pytest.mark.parametrize("rows", [3, 5, 11])
def test_second_gradient_of_any_number_of_rows(rows: int) -> None:
    model = Forces()
    shapes = ({0: Dim("rows", min=2, max=64)},)
    program = export(model, (tn.randn(3, 4),), dynamic_shapes=shapes).module()
    x = tn.randn(rows, 4)
    for mine, wanted in zip(program(x), model(x), strict=True):
        assert tn.allclose(mine, wanted, atol=1e-5)


class Backward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = _net()

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = x.detach().requires_grad_()
        self.net(x).sum().backward()
        for p in self.net.parameters():
            p.grad = None
        return x.grad


def test_backward_leaves_no_gradients_of_a_first_try() -> None:
    model = Backward()
    program = export(model, (tn.randn(3, 4),)).module()
    x = tn.randn(3, 4)
    assert tn.allclose(program(x), model(x), atol=1e-5)
    assert all(p.grad is None for p in model.parameters())


def test_dropout_in_a_gradient_draws_anew() -> None:
    def masked(x: tn.Tensor) -> tn.Tensor:
        x = x.detach().requires_grad_()
        return tn.autograd.grad((F.dropout(x, 0.5) ** 2).sum(), x)[0]

    program = make_fx(masked)(tn.ones(40))
    tn.manual_seed(5)
    mine = program(tn.ones(40))
    tn.manual_seed(5)
    assert tn.equal(mine, masked(tn.ones(40)))


def test_the_numbers_of_a_recording_are_drawn_once() -> None:
    """A first try that fails leaves the state of random numbers as it was."""

    def noisy(x: tn.Tensor) -> tn.Tensor:
        x = (x + tn.rand(3, 4)).detach().requires_grad_()
        return tn.autograd.grad(F.layer_norm(x, (4,)).pow(2).sum(), x)[0] + tn.rand(1)

    tn.manual_seed(3)
    make_fx(noisy)(tn.ones(3, 4))
    mine = tn.rand(1)
    tn.manual_seed(3)
    noisy(tn.ones(3, 4))
    assert tn.equal(mine, tn.rand(1))


def test_a_written_buffer_is_an_error() -> None:
    """A second try would count twice."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", tn.zeros(()))

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            self.calls.add_(1)
            x = x.detach().requires_grad_()
            return tn.autograd.grad(F.layer_norm(x, (4,)).pow(2).sum(), x)[0]

    with pytest.raises(NotImplementedError, match="a gradient reads what an operator has kept"):
        export(Counting(), (tn.randn(3, 4),))


class Written(nn.Module):
    """The tape copies what is written to and read by a gradient."""

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = x.detach().requires_grad_()
        y = x * 2
        y.mul_(x)
        return tn.autograd.grad(y.sum(), x)[0]


class Recomputed(nn.Module):
    """A checkpoint, whose forward pass runs again within the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net()

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = x.detach().requires_grad_()
        y = checkpoint(lambda v: F.dropout(self.net(v).exp(), 0.5), x, use_reentrant=False)
        return tn.autograd.grad(y.pow(2).sum(), x)[0]


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("model", [Written, Recomputed])
def test_writes_and_checkpoints_in_a_gradient(model: Callable[[], nn.Module], made: str) -> None:
    module = model()
    program = MADE[made](module, tn.randn(3, 4))
    x = tn.randn(3, 4)
    tn.manual_seed(5)
    mine = program(x)
    tn.manual_seed(5)
    assert tn.allclose(mine, module(x), atol=1e-5)


def test_rrelu_of_other_values() -> None:
    """How many values lie below zero is no part of a program."""

    def leaky(x: tn.Tensor) -> tn.Tensor:
        return F.rrelu(x, training=True)

    program = tn.jit.trace(leaky, (tn.tensor([-1.0, 2.0, -3.0, 4.0]),), check_trace=False)
    x = tn.tensor([-1.0, -2.0, -3.0, 4.0])
    tn.manual_seed(5)
    mine = program(x)
    tn.manual_seed(5)
    assert tn.equal(mine, leaky(x))
