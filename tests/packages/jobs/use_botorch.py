"""A surrogate, its fit, and the point that promises most."""

import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood
from report import report

x = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
y = torch.sin(5 * x) + 0.1 * torch.cos(31 * x)
model = SingleTaskGP(x, y, outcome_transform=Standardize(m=1))
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
at = torch.linspace(0, 1, 5, dtype=torch.float64).view(-1, 1, 1)
posterior = model.posterior(at.squeeze(-1))
report("mean", posterior.mean, 1e-3)
report("bound", UpperConfidenceBound(model, beta=0.2)(at), 1e-3)
report("improvement", LogExpectedImprovement(model, best_f=y.max())(at), 1e-2)
