"""Conditional random fields."""

import torch
from report import report
from torchcrf import CRF

torch.manual_seed(0)
m = CRF(5, batch_first=True)
e = torch.randn(3, 7, 5, requires_grad=True)
t = torch.randint(0, 5, (3, 7))
mask = torch.ones(3, 7, dtype=torch.uint8)
mask[1, 5:] = 0
mask[2, 3:] = 0
ll = m(e, t, mask=mask)
ll.backward()
report("ll", ll)
report("g", e.grad)
report("gt", m.transitions.grad)
for r in m.decode(e, mask=mask):
    report("d", r)
