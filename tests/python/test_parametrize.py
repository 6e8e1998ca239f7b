"""Parametrised weights, and modules called with other parameters than their own."""

from __future__ import annotations

import copy

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
    with pytest.raises(RuntimeError, match="Unexpected key"):
        functional_call(net, {"2.weight": w}, x)
    with pytest.raises(RuntimeError, match="Missing key"):
        functional_call(net, {"0.weight": w}, x, strict=True)
    assert isinstance(net[0].weight, nn.Parameter)
