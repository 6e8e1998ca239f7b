"""Parametrised weights, and modules called with other parameters than their own."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tenon
from tenon import nn
from tenon.func import functional_call
from tenon.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


class Exp(nn.Module):
    def forward(self, x):
        return x.exp()

    def right_inverse(self, x):
        return x.log()


def test_a_weight_follows_its_original():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    assert tenon.equal(layer.weight, layer.weight.T)
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    layer(tenon.ones(1, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    twin = copy.deepcopy(layer)
    value = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and tenon.equal(layer.weight, value)
    assert [n for n, _ in layer.named_parameters()] == ["bias", "weight"]
    assert tenon.equal(twin.weight, value) and parametrize.is_parametrized(twin, "weight")


def test_assignment_goes_back_through_the_functions():
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 4.0)
    parametrize.register_parametrization(layer, "weight", Exp())
    np.testing.assert_allclose(layer.weight.detach().numpy(), 4.0, rtol=1e-6)
    layer.weight = tenon.full((2, 2), 9.0)
    original = layer.parametrizations.weight.original
    np.testing.assert_allclose(original.detach().numpy(), np.log(9.0), rtol=1e-6)
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "nothing", Exp())


def test_weight_norm():
    layer = nn.Conv1d(2, 3, 2)
    before = layer.weight.detach().clone()
    parametrizations.weight_norm(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), before.numpy(), rtol=1e-5)
    parts = layer.parametrizations.weight
    assert parts.original0.shape == (3, 1, 1) and parts.original1.shape == (3, 2, 2)
    with tenon.no_grad():
        parts.original0.fill_(2.0)
    np.testing.assert_allclose(layer.weight.detach().flatten(1).norm(dim=1), 2.0, rtol=1e-6)


@pytest.mark.parametrize("make", [lambda: nn.Linear(5, 4), lambda: nn.ConvTranspose2d(3, 4, 2)])
def test_spectral_norm(make):
    tenon.manual_seed(0)
    layer = parametrizations.spectral_norm(make(), n_power_iterations=30)
    dim = 1 if isinstance(layer, nn.ConvTranspose2d) else 0
    matrix = layer.weight.detach().movedim(dim, 0).flatten(1).numpy()
    np.testing.assert_allclose(np.linalg.svd(matrix)[1][0], 1.0, rtol=1e-4)
    layer.weight.sum().backward()
    layer.eval()
    assert tenon.equal(layer.weight, layer.weight)


def test_functional_call():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    own = [p.detach().clone() for p in net.parameters()]
    w = tenon.eye(2, requires_grad=True)
    zeros = tenon.zeros(2)
    given = {"0.weight": w, "0.bias": zeros, "1.bias": zeros}
    x = tenon.tensor([[1.0, 2.0]])
    y = functional_call(net, given, (x,))
    assert y.tolist() == x.tolist()
    y.sum().backward()
    assert w.grad is not None and net[0].weight.grad is None
    assert all(tenon.equal(a, b) for a, b in zip(own, net.parameters()))
    with pytest.raises(AttributeError, match="no attribute `2`"):
        functional_call(net, {"2.weight": w}, x)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        functional_call(net, {**given, "2.weight": w}, x, strict=True)
    with pytest.raises(RuntimeError, match="Missing key"):
        functional_call(net, {"0.weight": w}, x, strict=True)
    assert isinstance(net[0].weight, nn.Parameter)


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


class Shifted(nn.Module):
    def forward(self, x):
        return x + 1

    def right_inverse(self, x):
        raise NotImplementedError


def test_a_further_function_leaves_the_original_as_it_is():
    layer = nn.Linear(2, 2).eval()
    nn.init.constant_(layer.weight, 6.0)
    parametrize.register_parametrization(layer, "weight", Doubled())
    functions = layer.parametrizations.weight
    assert functions.original.flatten().tolist() == [3.0] * 4
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert functions.original.flatten().tolist() == [3.0] * 4
    assert layer.weight.flatten().tolist() == [12.0] * 4
    layer.weight = tenon.full((2, 2), 4.0)
    assert functions.original.flatten().tolist() == [1.0] * 4
    assert not any(f.training for f in functions)


def test_a_function_that_cannot_go_back_takes_the_tensor_as_it_is():
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, 6.0)
    parametrize.register_parametrization(layer, "weight", Shifted())
    assert layer.weight.flatten().tolist() == [7.0] * 4
    with pytest.raises(NotImplementedError):
        layer.weight = tenon.ones(2, 2)
    parametrize.register_parametrization(layer, "bias", Symmetric(), unsafe=True)
    with pytest.raises(RuntimeError, match="Symmetric does not implement right_inverse"):
        layer.bias = tenon.ones(2)


def _function(forward, back):
    module = nn.Module()
    module.forward = forward
    module.right_inverse = back
    return module


WRONG = {
    "must return a Tensor or a Sequence of tensors.*Got NoneType": (None, lambda w: None),
    "Got element 0 of the sequence with type NoneType": (lambda x, y: y, lambda w: (None, w)),
    "outputs one tensor, it may not change the dtype": (lambda x: x.float(), lambda w: w.bool()),
    "A parametrization must return a tensor. Got int": (lambda x: 2, lambda w: w),
    "may not change the dtype of the tensor": (lambda x: x.bool(), lambda w: w),
    "may not change the shape of the tensor": (lambda x, y: x[:1], lambda w: (w, w)),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_leaves_the_module_alone(words):
    layer = nn.Linear(3, 2)
    weight, before = layer.weight, layer.weight.detach().clone()
    with pytest.raises(ValueError, match=words):
        parametrize.register_parametrization(layer, "weight", _function(*WRONG[words]))
    assert not parametrize.is_parametrized(layer) and layer.weight is weight
    assert tenon.equal(weight, before)


WRONG_LATER = {
    "A parametrization must return a tensor. Got tuple": (lambda x: (x, x), lambda w: w),
    "right_inverse must return a tensor. Got: tuple": (lambda x: x, lambda w: (w, w)),
    "must have the same dtype": (lambda x: x, lambda w: w.bool()),
    "must have the same shape": (lambda x: x, lambda w: w[:1]),
}


@pytest.mark.parametrize("words", WRONG_LATER)
def test_what_does_not_fit_behind_others_is_not_added(words):
    layer = parametrize.register_parametrization(nn.Linear(3, 2), "weight", Doubled())
    with pytest.raises(ValueError, match=words):
        parametrize.register_parametrization(layer, "weight", _function(*WRONG_LATER[words]))
    assert len(layer.parametrizations.weight) == 1


def test_parametrized_modules_are_copied_but_not_pickled():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Doubled())
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)
    twin = copy.deepcopy(nn.Sequential(layer, layer))
    assert twin[0] is twin[1] and tenon.equal(twin[0].weight, layer.weight)
    assert twin[0].parametrizations.weight.original is not layer.parametrizations.weight.original


def test_files_of_the_older_weight_norm_are_read():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    g, v = tenon.tensor([[2.0], [3.0]]), tenon.eye(2, 3)
    old = {"0.bias": tenon.zeros(2), "0.weight_g": g, "0.weight_v": v}
    net = nn.Sequential(layer)
    net.load_state_dict(old)
    assert layer.weight.tolist() == [[2, 0, 0], [0, 3, 0]]
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    assert twin[0].weight.tolist() == [[2, 0, 0], [0, 3, 0]]


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (2, 4, 3)])
def test_reflections_begin_at_the_weight_without_a_base(shape):
    """Q of the weight's decomposition whose R has a positive diagonal; an assigned value too."""
    layer = nn.Module()
    layer.weight = nn.Parameter(tenon.randn(shape, dtype=tenon.float64))
    start = layer.weight.detach().clone()
    parametrizations.orthogonal(
        layer, "weight", orthogonal_map="householder", use_trivialization=False
    )
    for value in (start, tenon.randn(shape, dtype=tenon.float64), tenon.eye(*shape[-2:]).double()):
        if value is not start:
            layer.weight = value.expand(shape)
        tall = value.shape[-2] >= value.shape[-1]
        q, r = tenon.linalg.qr(value if tall else value.mT)
        want = q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
        got = layer.weight if tall else layer.weight.mT
        np.testing.assert_allclose(got.detach(), want.expand(got.shape), atol=1e-12)
