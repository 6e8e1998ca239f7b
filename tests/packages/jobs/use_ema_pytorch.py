"""Averages of weights: EMA, post-hoc EMA, the optimizers of the same author, torch_ema."""

import tempfile

import torch
from ema_pytorch import EMA, PostHocEMA
from report import report

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
ema = EMA(net, beta=0.9, update_after_step=1, update_every=2, inv_gamma=1.0, power=0.75)
x = torch.randn(8, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with tempfile.TemporaryDirectory() as folder:
    hoc = PostHocEMA(
        net,
        sigma_rels=(0.05, 0.28),
        update_every=1,
        checkpoint_every_num_steps=2,
        checkpoint_folder=folder,
        checkpoint_dtype=torch.float32,
    )
    for _ in range(8):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
        hoc.update()
    report("decay", ema.get_current_decay())
    report("ema", ema(x))
    report("copy", [p for p in ema.ema_model.parameters()])
    made = hoc.synthesize_ema_model(sigma_rel=0.15)
    report("post hoc", made(x), 1e-3)
ema.update_model_with_ema(0.5)
report("mixed", net(x))
ema.copy_params_from_ema_to_model()
report("back", net(x))
report("state", len(ema.state_dict()))
