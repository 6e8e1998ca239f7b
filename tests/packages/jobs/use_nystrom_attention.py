"""Attention by landmarks."""

import torch
from nystrom_attention import NystromAttention, Nystromformer
from report import report

torch.manual_seed(0)
x = torch.randn(2, 30, 16, requires_grad=True)
mask = torch.arange(30).expand(2, 30) < torch.tensor([[30], [22]])
layer = NystromAttention(
    dim=16, dim_head=8, heads=2, num_landmarks=8, pinv_iterations=6, residual=True
)
y, weights = layer(x, mask=mask, return_attn=True)
y.pow(2).mean().backward()
report("y", y)
report("weights", weights)
report("slope", x.grad)
model = Nystromformer(dim=16, dim_head=8, heads=2, depth=2, num_landmarks=8)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(3):
    loss = (model(x.detach(), mask=mask) - x.detach()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
