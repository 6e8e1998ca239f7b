"""Layers fused with the batch norm behind them give what both gave."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon import nn
from tenon.nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval

CASES = [
    (lambda: nn.Conv2d(3, 4, 3, bias=False), lambda: nn.BatchNorm2d(4), (2, 3, 6, 6), {}),
    (lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4, affine=False), (2, 3, 6, 6), {}),
    (lambda: nn.ConvTranspose2d(3, 4, 3), lambda: nn.BatchNorm2d(4), (2, 3, 6, 6),
     {"transpose": True}),
    (lambda: nn.Linear(5, 4), lambda: nn.BatchNorm1d(4), (7, 5), None),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "norm", "shape", "options"), CASES)
def test_one_layer_does_both(layer, norm, shape, options):
    tn.manual_seed(0)
    first, second = layer().eval(), norm().eval()
    second.running_mean.uniform_(-1, 1)
    second.running_var.uniform_(0.5, 2)
    if second.affine:
        nn.init.uniform_(second.weight)
        nn.init.uniform_(second.bias)
    x = tn.randn(shape)
    fuse = fuse_linear_bn_eval if options is None else fuse_conv_bn_eval
    fused = fuse(first, second, **(options or {}))
    assert tn.allclose(fused(x), second(first(x)), atol=1e-5) and fused is not first
    with pytest.raises(AssertionError, match="eval"):
        fuse(first.train(), second)


@pytest.mark.parametrize("of_weight", [True, False])
@pytest.mark.parametrize("of_bias", [True, False, None])
def test_what_was_trained_is_trained_behind_the_norm(of_weight, of_bias):
    pairs = (nn.Conv1d(2, 3, 1), fuse_conv_bn_eval), (nn.Linear(2, 3), fuse_linear_bn_eval)
    for layer, fuse in pairs:
        layer.weight.requires_grad_(of_weight)
        layer.bias = None if of_bias is None else layer.bias.requires_grad_(of_bias)
        fused = fuse(layer.eval(), nn.BatchNorm1d(3).eval())
        assert fused.weight.requires_grad is of_weight
        assert fused.bias.requires_grad is (of_bias is True)  # as PyTorch has it
