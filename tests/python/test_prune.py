"""Masks over parameters."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon import nn
from tenon.nn.utils import prune


def _layer() -> nn.Linear:
    layer = nn.Linear(4, 3)
    with tn.no_grad():
        layer.weight.copy_(tn.arange(1.0, 13.0).view(3, 4))
    return layer


def test_the_smallest_go_and_what_is_left_is_trained():
    layer = prune.l1_unstructured(_layer(), "weight", 5)
    assert layer.weight_mask.flatten().tolist() == [0.0] * 5 + [1.0] * 7
    assert sorted(dict(layer.named_parameters())) == ["bias", "weight_orig"]
    layer(tn.ones(1, 4)).sum().backward()
    assert tn.equal(layer.weight_orig.grad, layer.weight_mask)
    with tn.no_grad():
        layer.weight_orig.fill_(2.0)
    expected = 2.0 * layer.weight_mask.sum(1) + layer.bias
    assert tn.allclose(layer(tn.ones(1, 4))[0], expected)


def test_a_second_method_prunes_what_the_first_left():
    layer = prune.l1_unstructured(_layer(), "weight", 4)
    prune.l1_unstructured(layer, "weight", 0.5)
    assert layer.weight_mask.sum() == 4
    prune.ln_structured(layer, "weight", 1, n=2, dim=1, importance_scores=layer.weight_orig)
    assert layer.weight_mask.tolist() == [[0.0] * 4, [0.0] * 4, [0.0, 1.0, 1.0, 1.0]]
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 3


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_channels(dim):
    layer = prune.random_structured(_layer(), "weight", 2, dim=dim)
    gone = (layer.weight_mask == 0).all(dim=1 if dim == 0 else 0)
    assert gone.sum() == 2 and (layer.weight_mask == 0).sum() == 2 * (4 if dim == 0 else 3)


def test_remove_makes_it_permanent():
    layer = _layer()
    original = layer.weight
    prune.custom_from_mask(layer, "weight", tn.eye(3, 4))
    assert prune.is_pruned(nn.Sequential(layer))
    prune.remove(layer, "weight")
    assert layer.weight is original and not prune.is_pruned(layer)
    assert layer.weight.count_nonzero() == 3 and list(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(layer, "weight")


def test_several_parameters_as_one():
    small, large = _layer(), _layer()
    with tn.no_grad():
        small.weight.mul_(0.01)
    pairs = [(small, "weight"), (large, "weight")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=13)
    assert (small.weight_mask.sum(), large.weight_mask.sum()) == (0, 11)
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured(pairs, prune.LnStructured, amount=1, n=1)


def test_wrong_uses_leave_the_module_as_it_was():
    layer = _layer()
    with pytest.raises(ValueError, match="smaller than the number of parameters"):
        prune.l1_unstructured(layer, "weight", 13)
    with pytest.raises(ValueError, match=r"float in the range \[0, 1\]"):
        prune.l1_unstructured(layer, "weight", 1.5)
    with pytest.raises(TypeError, match="Invalid type of amount"):
        prune.random_unstructured(layer, "weight", "many")
    with pytest.raises(ValueError, match="multidimensional"):
        prune.ln_structured(layer, "bias", 1, n=1, dim=0)
    with pytest.raises(IndexError):
        prune.ln_structured(layer, "weight", 1, n=1, dim=2)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and not layer._buffers


def test_amounts_are_parts_or_numbers():
    count = prune._compute_nparams_toprune
    assert [count(0, 15), count(10, 15), count(1, 15), count(1.0, 15), count(0.4, 17)] == [
        0, 10, 1, 15, 7
    ]  # fmt: skip
    for amount in (0.34, 1500, 0, 1.0):
        prune._validate_pruning_amount_init(amount)
    for amount, error in (("all", TypeError), (1.1, ValueError), (-10, ValueError)):
        with pytest.raises(error, match="amount"):
            prune._validate_pruning_amount_init(amount)
    prune._validate_pruning_amount(0.3, 0)
    with pytest.raises(ValueError, match="amount=20 should be smaller"):
        prune._validate_pruning_amount(20, 19)
