"""Minimizers of functions, with bounds and of squares."""

import torch
from report import report
from torchmin import Minimizer, least_squares, minimize, minimize_constr


def rosen(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


start = torch.tensor([1.3, 0.7, 0.8, 1.9, 1.2], dtype=torch.float64)
for method in ("bfgs", "l-bfgs", "cg", "newton-cg", "newton-exact", "trust-ncg", "trust-exact"):
    found = minimize(rosen, start, method=method, max_iter=20)
    report(method, [found.fun, found.x, found.nit], 1e-3)
found = minimize_constr(
    rosen, start, max_iter=20, constr={"fun": lambda x: x.square().sum(), "ub": 3.0}
)
report("constrained", [found.fun, found.x], 1e-3)
t = torch.linspace(0, 2, 20, dtype=torch.float64)
found = least_squares(
    lambda p: p[0] * torch.exp(-p[1] * t) - 3 * torch.exp(-0.7 * t),
    torch.tensor([1.0, 0.1], dtype=torch.float64),
)
report("squares", found.x, 1e-5)
p = torch.nn.Parameter(start.clone())
optimizer = Minimizer([p], method="bfgs", max_iter=5)


def closure():
    optimizer.zero_grad()
    return rosen(p)


report("as an optimizer", [optimizer.step(closure), p], 1e-3)
