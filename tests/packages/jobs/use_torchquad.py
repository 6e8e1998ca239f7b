"""Integrals by rules and by chance, and their gradients."""

import torch
from report import report
from torchquad import (
    VEGAS,
    Boole,
    GaussLegendre,
    MonteCarlo,
    Simpson,
    Trapezoid,
    set_log_level,
    set_up_backend,
)

set_log_level("ERROR")
set_up_backend("torch", data_type="float64")
torch.set_default_device("cpu")


def hill(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-(x**2).sum(-1)) * torch.cos(x[:, 0])


domain = [[-1.0, 2.0], [0.0, 1.5]]
for rule in (Trapezoid, Simpson, Boole, GaussLegendre):
    report(rule.__name__, rule().integrate(hill, 2, 400, domain, backend="torch"))
report("monte carlo", MonteCarlo().integrate(hill, 2, 500, domain, seed=3, backend="torch"))
report("vegas", VEGAS().integrate(hill, 2, 2000, domain, seed=3, backend="torch"))
scale = torch.tensor(0.7, requires_grad=True)
ends = torch.tensor([[0.0, 1.0], [0.5, 2.0]], requires_grad=True)
for rule in (Simpson(), MonteCarlo()):
    scale.grad = ends.grad = None
    options = {"seed": 1} if isinstance(rule, MonteCarlo) else {}
    total = rule.integrate(lambda x: torch.sin(x * scale).prod(-1), 2, 225, ends, **options)
    total.backward()
    report(type(rule).__name__, [total, scale.grad, ends.grad])
