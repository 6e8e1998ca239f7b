"""Rearrangements inside a network that trains."""

import torch
from einops import einsum, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from report import report

torch.manual_seed(0)
net = torch.nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
    torch.nn.Linear(48, 16),
    torch.nn.GELU(),
    Reduce("b n d -> b d", "mean"),
    torch.nn.Linear(16, 3),
)
x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 3, (8,))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(5):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
report("sums", reduce(repeat(x, "b c h w -> b c h w k", k=2), "b c h w k -> b k", "sum"))
report("product", einsum(x, x, "b c h w, b d h w -> b c d"))
report("order", rearrange(x, "b c h w -> (b h) (w c)").sum(0))
