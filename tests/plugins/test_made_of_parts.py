"""Layers and steps of optimizers on a device without kernels for them, where they are made of other
operators: they leave no memory behind, and gradients are on again when they end, or fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import HAVE_CC, ROOT, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")

HEAD = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "tests/ops")!r}]
import gc
from tenon import nn
F = nn.functional

def there(*shape):
    return tn.ones(*shape, device="sim").requires_grad_()

"""
LAYERS = """
from test_nothing_leaks import OWN, grows
plain = there(2, 4, 3)
images, line = there(2, 4, 6, 6), there(2, 4, 6)
scores, classes = there(3, 5), tn.tensor([0, 4, 2], device="sim")
pair, odd, table = there(3, 5), tn.ones(3, 5, device="sim"), there(5, 3)
packed = nn.utils.rnn.pack_padded_sequence(plain, [4, 2], batch_first=True)

def layer(made, *inputs):
    made = made.to("sim")
    return lambda: made(*inputs)

STEPS = {
    "LSTM": layer(nn.LSTM(3, 5, 2, bidirectional=True), plain),
    "LSTM with projections": layer(nn.LSTM(3, 5, proj_size=2), plain),
    "LSTM of packed rows": layer(nn.LSTM(3, 5, batch_first=True), packed),
    "GRU": layer(nn.GRU(3, 5), plain),
    "RNN": layer(nn.RNN(3, 5, bias=False), plain),
    "cells": lambda: cells(),
    "group norm": layer(nn.GroupNorm(2, 4), images),
    "instance norm": layer(nn.InstanceNorm2d(4, affine=True, track_running_stats=True), images),
    "batch norm": layer(nn.BatchNorm2d(4), images),
    "layer norm": layer(nn.LayerNorm(6), images),
    "RMS norm": layer(nn.RMSNorm(6), images),
    "attention": layer(nn.MultiheadAttention(3, 1), plain, plain, plain),
    "encoder": layer(nn.TransformerEncoderLayer(3, 1, 8, batch_first=True), plain),
    "convolutions": lambda: F.conv_transpose2d(F.conv2d(images, weight), weight),
    "pools of lines": lambda: (F.avg_pool1d(line, 2), F.max_pool1d(line, 2),
                               F.adaptive_avg_pool1d(line, 3)),
    "pools": lambda: (F.max_pool2d(images, 2), F.lp_pool2d(images, 2, 2),
                      F.adaptive_max_pool2d(images, 2)),
    "resizing": lambda: (F.interpolate(images, 3), F.interpolate(images, 9, mode="bilinear")),
    "patches": lambda: F.fold(F.unfold(images, 2), 6, 2),
    "grids": lambda: F.grid_sample(images, F.affine_grid(there(2, 2, 3), (2, 4, 3, 3), False),
                                   align_corners=False),
    "losses of classes": lambda: (F.cross_entropy(scores, classes, label_smoothing=0.1),
                                  F.multi_margin_loss(scores, classes)),
    "losses": lambda: (F.huber_loss(pair, odd), F.smooth_l1_loss(pair, odd), F.l1_loss(pair, odd),
                       F.kl_div(pair, odd, reduction="sum"),
                       F.binary_cross_entropy_with_logits(pair, odd)),
    "distances": lambda: (tn.cdist(pair, odd), F.pairwise_distance(pair, odd),
                          F.cosine_similarity(pair, odd), F.pdist(pair)),
    "tables": lambda: (F.embedding(classes, table), F.embedding_bag(classes[None], table)),
}
weight = there(4, 4, 3, 3)
lstm, gru = nn.LSTMCell(3, 5).to("sim"), nn.GRUCell(3, 5).to("sim")

def cells():
    return lstm(plain[0])[0], gru(plain[0])

def tensors(found):
    if isinstance(found, tn.Tensor):
        return [found] if found.requires_grad else []
    return [t for part in found or () for t in tensors(part)] if isinstance(found, tuple) else []

def passed(step):
    def run():
        tn.autograd.grad([t.sum() for t in tensors(step())], leaves, allow_unused=True)
        tn.sim.synchronize()
    return run

leaves = [plain, images, line, scores, pair, table]
gc.collect()
gc.freeze()
bad = {}
for name, step in STEPS.items():
    if OWN and (found := grows(passed(step))):
        bad[name] = found
assert not bad, bad
assert tn.is_grad_enabled()
"""
OPTIMIZERS = """
from test_nothing_leaks import OWN, grows
KINDS = [(tn.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
         (tn.optim.Adam, {"amsgrad": True}), (tn.optim.AdamW, {"capturable": True}),
         (tn.optim.Adam, {"weight_decay": 0.1}), (tn.optim.RMSprop, {"momentum": 0.9}),
         (tn.optim.RMSprop, {"centered": True}), (tn.optim.Adagrad, {}), (tn.optim.Adadelta, {}),
         (tn.optim.Adamax, {}), (tn.optim.NAdam, {}), (tn.optim.RAdam, {}), (tn.optim.ASGD, {}),
         (tn.optim.Rprop, {}), (tn.optim.Adafactor, {})]
gc.collect()
gc.freeze()
bad = {}
for kind, options in KINDS:
    params = [there(3, 4), there(5)]
    opt = kind(params, lr=0.01, **options)
    for p in params:
        p.grad = tn.ones_like(p)
    def step():
        opt.step()
        tn.sim.synchronize()
    if OWN and (found := grows(step)):
        bad[kind.__name__] = found
    assert tn.is_grad_enabled(), kind
    with tn.no_grad():
        opt.step()
        assert not tn.is_grad_enabled(), kind
    assert tn.is_grad_enabled(), kind
params = [there(3, 4), there(5)]
for p in params:
    p.grad = tn.ones_like(p)
def clip():
    nn.utils.clip_grad_norm_(params, 1.0)
    nn.utils.clip_grad_value_(params, 0.5)
    tn.sim.synchronize()
if OWN and (found := grows(clip)):
    bad["clip"] = found
assert not bad, bad
"""


@pytest.mark.parametrize("what", ["LAYERS", "OPTIMIZERS"])
def test_nothing_is_left_behind(folder: Path, what: str) -> None:
    script(folder, HEAD + globals()[what], DELAY=0)
