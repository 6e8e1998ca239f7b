"""Losses of self-supervised learning, heads, and a few steps of training with them."""

import torch
from lightly import loss as L
from lightly.models import modules as M
from lightly.models import utils as U
from report import report
from torch import nn

torch.manual_seed(0)
a = torch.randn(8, 16, requires_grad=True)
b = torch.randn(8, 16, requires_grad=True)
for name, f in {
    "NTXent": L.NTXentLoss(), "NTXent bank": L.NTXentLoss(memory_bank_size=(16, 16)),
    "Barlow": L.BarlowTwinsLoss(), "VICReg": L.VICRegLoss(), "cosine": L.NegativeCosineSimilarity(),
    "DCL": L.DCLLoss(), "DCLW": L.DCLWLoss(), "TiCo": L.TiCoLoss(),
}.items():  # fmt: skip
    a.grad = b.grad = None
    v = f(a, b)
    v = v[0] if isinstance(v, tuple) else v
    v.backward()
    report(name, [v, a.grad])
torch.manual_seed(1)
d = L.DINOLoss(output_dim=16)
report("DINO", [d([a, b], [a, b, a * 0.5], epoch=0), d.center])
d = L.SwaVLoss(sinkhorn_iterations=3)
report("SwaV", d([a, b], [a.roll(1, 0)]))
d = L.MSNLoss()
report("MSN", d(a, b, torch.randn(6, 16)))
d = L.KoLeoLoss()
report("KoLeo", d(a))
d = L.IBOTPatchLoss(output_dim=16)
report("iBOT", d(a, b, torch.ones(2, 2, 2, dtype=torch.bool)))
d = L.EMPSSLLoss()
report("EMP", d([a, b]))
heads = {
    "SimCLR": M.SimCLRProjectionHead(16, 8, 4), "BYOL": M.BYOLProjectionHead(16, 8, 4),
    "Barlow": M.BarlowTwinsProjectionHead(16, 8, 4), "MoCo": M.MoCoProjectionHead(16, 8, 4),
    "DINO": M.DINOProjectionHead(16, 8, 4, 12), "SwaV": M.SwaVProjectionHead(16, 8, 4),
    "prototypes": M.SwaVPrototypes(16, 6), "SimSiam": M.SimSiamProjectionHead(16, 8, 4),
}  # fmt: skip
for n, h in heads.items():
    report("head " + n, h(a))
net = nn.Linear(16, 16)
m = nn.Linear(16, 16)
U.deactivate_requires_grad(m)
U.update_momentum(net, m, 0.9)
report("momentum", [m.weight, m.bias])
torch.manual_seed(2)
report("mask", U.random_token_mask((2, 10), mask_ratio=0.5)[0].float())
