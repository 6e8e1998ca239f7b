"""Neural controlled differential equations."""

import torch
import torchcde
from report import report

torch.manual_seed(0)
x = torch.randn(2, 8, 3)
x[0, 3, 1] = float("nan")


class F(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 12)

    def forward(self, t, z):
        return self.linear(z).tanh().view(*z.shape[:-1], 4, 3)


f = F()
for name, path in (
    (
        "hermite",
        torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x)),
    ),
    ("natural", torchcde.CubicSpline(torchcde.natural_cubic_coeffs(x))),
    (
        "linear",
        torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(x, rectilinear=None)),
    ),
):
    report(name, path.evaluate(torch.tensor(2.3)))
    report(name, path.derivative(torch.tensor(2.3)))
    f.zero_grad()
    z = torchcde.cdeint(
        X=path,
        func=f,
        z0=torch.ones(2, 4),
        t=path.interval,
        method="rk4",
        options={"step_size": 0.5},
        adjoint=name == "hermite",
    )
    z[:, -1].sum().backward()
    report("z", z)
    report("gradient", f.linear.weight.grad, 1e-3)
