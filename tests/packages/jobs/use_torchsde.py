"""A stochastic differential equation with given noise."""

import torch
import torchsde
from report import report


class Walk(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.pull = torch.nn.Parameter(torch.tensor(0.5))

    def f(self, t, y):
        return -self.pull * y

    def g(self, t, y):
        return 0.1 * torch.ones_like(y)


sde = Walk()
ts = torch.linspace(0, 1, 5)
noise = torchsde.BrownianInterval(t0=0.0, t1=1.0, size=(3, 2), entropy=7)
for method in ("euler", "milstein"):
    y = torchsde.sdeint(sde, torch.ones(3, 2), ts, bm=noise, method=method, dt=0.05)
    report(method, y)
y.sum().backward()
report("gradient", sde.pull.grad)
