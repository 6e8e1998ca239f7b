"""An oscillator and a network as differential equations, with gradients by the adjoint."""

import torch
from report import report
from torchdiffeq import odeint, odeint_adjoint

t = torch.linspace(0, 3, 7)
for method in ("dopri5", "rk4", "implicit_adams", "bosh3"):
    y = odeint(lambda t, y: torch.stack([y[1], -y[0]]), torch.tensor([1.0, 0.0]), t, method=method)
    report(method, y)


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def forward(self, t, y):
        return self.net(y)


torch.manual_seed(0)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
for _ in range(3):
    loss = odeint_adjoint(flow, torch.ones(3, 2), t)[-1].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
