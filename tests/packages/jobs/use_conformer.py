"""Convolutions and attention for speech."""

import torch
from conformer import Conformer, ConformerBlock, ConformerConvModule
from report import report

torch.manual_seed(0)
x = torch.randn(2, 20, 16)
net = Conformer(dim=16, depth=2, dim_head=8, heads=2, ff_mult=2, conv_kernel_size=7)
report("module", ConformerConvModule(dim=16, causal=True, kernel_size=5)(x))
block = ConformerBlock(dim=16, dim_head=8, heads=2, attn_dropout=0.1, ff_dropout=0.1)
report("block", block(x))
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for _ in range(2):
    loss = (net(x) - x.roll(1, 1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
report("slopes", [p.grad.norm() for p in net.parameters()], 1e-3)
