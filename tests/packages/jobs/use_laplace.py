"""Laplace approximations: kinds of Hessians, predictions, marginal likelihoods."""

import torch
from laplace import Laplace
from report import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(40, 2)
y = (x[:, 0] * x[:, 1] > 0).long()
z = torch.sin(x.sum(1, keepdim=True))


def fit(net, target, loss):
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        value = loss(net(x), target)
        value.backward()
        optimizer.step()
    return value


for what, target, loss, out in (
    ("classification", y, nn.CrossEntropyLoss(), 2),
    ("regression", z, nn.MSELoss(), 1),
):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, out))
    report(what, fit(net, target, loss))
    loader = DataLoader(TensorDataset(x, target), batch_size=10)
    for subset in ("all", "last_layer"):
        for structure in ("full", "kron", "diag"):
            la = Laplace(net, what, subset_of_weights=subset, hessian_structure=structure)
            la.fit(loader)
            la.optimize_prior_precision(method="marglik", n_steps=5)
            report(
                f"{what} {subset} {structure} evidence",
                [la.log_marginal_likelihood(), la.prior_precision],
                1e-3,
            )
            if what == "regression":
                report("predicted", [*la(x[:4])], 1e-3)
            else:
                for link in ("probit", "bridge", "mc"):
                    torch.manual_seed(2)
                    report(link, la(x[:4], link_approx=link), 1e-3)
            torch.manual_seed(3)
            report("sampled", la.sample(2), 1e-2)
