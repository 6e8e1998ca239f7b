"""Nets that turn with their points."""

import torch
from egnn_pytorch import EGNN, EGNN_Network
from report import report

torch.manual_seed(0)
feats, coors = torch.randn(2, 8, 16), torch.randn(2, 8, 3, requires_grad=True)
for options in ({}, {"num_nearest_neighbors": 3}, {"norm_feats": True, "norm_coors": True}):
    torch.manual_seed(1)
    layer = EGNN(dim=16, m_dim=8, fourier_features=2, update_coors=True, **options)
    f, c = layer(feats, coors)
    coors.grad = None
    (f.pow(2).sum() + c.pow(2).sum()).backward()
    report(f"layer {sorted(options)}", [f, c, coors.grad], 1e-3)
torch.manual_seed(2)
net = EGNN_Network(
    num_tokens=10, num_positions=8, dim=16, depth=2, num_nearest_neighbors=4, norm_coors=True,
    coor_weights_clamp_value=2.0,
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
tokens, mask = torch.randint(0, 10, (2, 8)), torch.ones(2, 8, dtype=torch.bool)
for _ in range(3):
    f, c = net(tokens, coors, mask=mask)
    loss = f.pow(2).mean() + (c - coors).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-3)
