"""Functionals with gradients: roots, minima, equations, integrals, eigenpairs, interpolation."""

import torch
from report import report
from xitorch import LinearOperator
from xitorch.integrate import quad, solve_ivp
from xitorch.interpolate import Interp1D
from xitorch.linalg import solve, svd, symeig
from xitorch.optimize import equilibrium, minimize, rootfinder

numbers = torch.Generator().manual_seed(3)
kind = torch.float64
a = torch.randn(4, 4, generator=numbers, dtype=kind).requires_grad_()
report(
    "root",
    rootfinder(
        lambda y, a: torch.tanh(a @ y) + 0.1 * y - 0.3,
        torch.zeros(4, 1, dtype=kind),
        (a,),
        method="broyden1",
    ),
    1e-6,
)
y = equilibrium(lambda y, a: torch.tanh(0.2 * a @ y) + 0.5, torch.zeros(4, 1, dtype=kind), (a,))
report("equilibrium", y, 1e-6)
report("equilibrium slope", torch.autograd.grad(y.sum(), a)[0], 1e-5)
low = minimize(
    lambda y, a: ((a @ a.T + torch.eye(4, dtype=kind)) @ y - 1).pow(2).sum(),
    torch.zeros(4, 1, dtype=kind),
    (a,),
    maxiter=2000,
    method="gd",
    step=1e-3,
)
report("minimum", low, 1e-5)
symmetric = a @ a.T + torch.eye(4, dtype=kind)
op = LinearOperator.m(symmetric, is_hermitian=True)
values, vectors = symeig(op, neig=3)
report("eigenvalues", values, 1e-8)
report(
    "eigen slope",
    torch.autograd.grad(values.prod() + vectors.abs().sum(), a, retain_graph=True)[0],
    1e-6,
)
right = torch.randn(4, 2, generator=numbers, dtype=kind)
for method in ("cg", "bicgstab", "exactsolve"):
    x = solve(op, right, method=method)
    report(f"solve {method}", x, 1e-6)
    report(
        f"solve slope {method}", torch.autograd.grad(x.pow(2).sum(), a, retain_graph=True)[0], 1e-5
    )
u, s, v = svd(LinearOperator.m(a, is_hermitian=False), k=3)
report("svd", s, 1e-8)
k = torch.tensor(0.7, dtype=kind, requires_grad=True)
times = torch.linspace(0, 2, 7, dtype=kind)
for method in ("rk4", "rk45", "rk23", "euler", "rk38"):
    path = solve_ivp(
        lambda t, y, k: torch.stack([y[1], -k * y[0]]),
        times,
        torch.tensor([1.0, 0], dtype=kind),
        (k,),
        method=method,
    )
    report(f"path {method}", path, 1e-6)
    report(f"path slope {method}", torch.autograd.grad(path.sum(), k)[0], 1e-5)
area = quad(
    lambda x, k: torch.exp(-k * x * x),
    torch.tensor(0.0, dtype=kind),
    torch.tensor(2.0, dtype=kind),
    (k,),
)
report("area", [area, *torch.autograd.grad(area, k)], 1e-8)
x = torch.linspace(0, 1, 9, dtype=kind)
v = torch.sin(5 * x).requires_grad_()
for method in ("linear", "cspline"):
    found = Interp1D(x, v, method=method)(torch.rand(6, generator=numbers, dtype=kind))
    report(f"between {method}", found, 1e-8)
    report(f"between slope {method}", torch.autograd.grad(found.pow(2).sum(), v)[0], 1e-8)
