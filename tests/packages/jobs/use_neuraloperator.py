"""Operators learnt in the frequencies: their layers, models and losses."""

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.losses import H1Loss, LpLoss
from neuralop.models import FNO, TFNO, UNO
from report import report

torch.manual_seed(0)
x, y = torch.randn(2, 3, 16, 16), torch.randn(2, 1, 16, 16)
models = {
    "fno": FNO(n_modes=(6, 6), in_channels=3, out_channels=1, hidden_channels=8, n_layers=2),
    "fno norm": FNO(
        n_modes=(6, 6), in_channels=3, out_channels=1, hidden_channels=8, n_layers=2,
        norm="group_norm", domain_padding=0.2, use_channel_mlp=True,
    ),
    "tfno": TFNO(
        n_modes=(6, 6), in_channels=3, out_channels=1, hidden_channels=8, n_layers=2,
        factorization="tucker", rank=0.4,
    ),
    "uno": UNO(
        in_channels=3, out_channels=1, hidden_channels=8, uno_out_channels=[8, 8, 8], n_layers=3,
        uno_n_modes=[[5, 5], [5, 5], [5, 5]],
        uno_scalings=[[1.0, 1.0], [0.5, 0.5], [2, 2]],
        channel_mlp_skip="linear",
    ),
}  # fmt: skip
losses = {"l2": LpLoss(d=2, p=2), "h1": H1Loss(d=2)}
for name, model in models.items():
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for loss in losses.values():
        for _ in range(2):
            value = loss(model(x), y)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            report(name, value, 1e-3)
    report(name, model(x), 2e-3)
for modes, shape in (((4,), (2, 3, 12)), ((4, 4, 4), (1, 3, 8, 8, 8))):
    conv = SpectralConv(3, 5, modes)
    v = torch.randn(shape, requires_grad=True)
    conv(v).pow(2).sum().backward()
    report(f"conv {len(modes)}", v.grad, 1e-3)
