"""Bayesian layers and their divergence."""

import torch
import torchbnn as bnn
from report import report

torch.manual_seed(0)
net = torch.nn.Sequential(
    bnn.BayesConv2d(0, 0.1, 1, 4, 3),
    bnn.BayesBatchNorm2d(0, 0.1, 4),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    bnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=64, out_features=3),
)
divergence = bnn.BKLLoss(reduction="mean", last_layer_only=False)
optimizer = torch.optim.Adam(net.parameters(), 0.01)
x, y = torch.rand(6, 1, 6, 6), torch.randint(3, (6,))
for _ in range(3):
    kl = divergence(net)
    loss = torch.nn.functional.cross_entropy(net(x), y) + 0.1 * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("kl", kl)
    report("loss", loss)
bnn.utils.freeze(net)
report("frozen", net(x))
