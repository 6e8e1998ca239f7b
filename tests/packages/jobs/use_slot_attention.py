"""Slots that compete for what they look at."""

import torch
from report import report
from slot_attention import SlotAttention

torch.manual_seed(0)
model = SlotAttention(num_slots=3, dim=16, iters=3)
x = torch.randn(2, 10, 16, requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(3):
    slots = model(x)
    optimizer.zero_grad()
    slots.square().mean().backward()
    optimizer.step()
    report("slots", slots, 1e-3)
report("gradients", [p.grad.norm() for p in model.parameters()], 2e-3)
report("input's", x.grad, 2e-3)
