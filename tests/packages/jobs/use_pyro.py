"""Variational inference and a sampler on a small regression."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from report import report

pyro.set_rng_seed(0)
x = torch.linspace(-1, 1, 20)
y = 2 * x + 0.5


def model(x, y=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 3.0))
    start = pyro.sample("start", dist.Normal(0.0, 3.0))
    spread = pyro.sample("spread", dist.LogNormal(-1.0, 0.5))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(slope * x + start, spread), obs=y)


guide = AutoDiagonalNormal(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
for step in range(20):
    loss = svi.step(x, y)
    if step % 5 == 0:
        report("loss", loss)
report("median", [float(v) for v in guide.median(x, y).values()])
kernel = pyro.infer.NUTS(model)
mcmc = pyro.infer.MCMC(kernel, num_samples=20, warmup_steps=20, disable_progbar=True)
mcmc.run(x, y)
report("slope is near 2", [abs(float(mcmc.get_samples()["slope"].mean()) - 2) < 0.5])
