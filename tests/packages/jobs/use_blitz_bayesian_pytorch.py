"""Layers whose weights are distributions."""

import torch
from blitz.losses import kl_divergence_from_nn
from blitz.modules import BayesianConv2d, BayesianGRU, BayesianLinear, BayesianLSTM
from blitz.utils import variational_estimator
from report import report


@variational_estimator
class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = BayesianConv2d(1, 3, (3, 3))
        self.head = BayesianLinear(3 * 16, 4, prior_sigma_1=0.5, prior_pi=0.7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
x, y = torch.rand(5, 1, 6, 6), torch.randint(4, (5,))
for _ in range(3):
    loss = net.sample_elbo(x, y, torch.nn.CrossEntropyLoss(), 3, complexity_cost_weight=0.01)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
report("kl", kl_divergence_from_nn(net))
net.freeze_()
report("frozen", net(x))
net.unfreeze_()
report("spread", net.mfvi_forward(x, sample_nbr=3)[1])
for kind in (BayesianLSTM, BayesianGRU):
    out, state = kind(3, 4)(torch.rand(2, 5, 3))
    report(kind.__name__, out)
