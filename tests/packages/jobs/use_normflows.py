"""Normalizing flows."""

import normflows as nf
import torch
from report import report

torch.manual_seed(0)
base = nf.distributions.base.DiagGaussian(2)
flows = []
for _ in range(4):
    param_map = nf.nets.MLP([1, 16, 16, 2], init_zeros=False)
    flows.append(nf.flows.AffineCouplingBlock(param_map))
    flows.append(nf.flows.Permute(2, mode="swap"))
flows.append(nf.flows.ActNorm(2))
m = nf.NormalizingFlow(base, flows)
x = torch.randn(16, 2)
opt = torch.optim.Adam(m.parameters(), lr=1e-2)
for _ in range(3):
    opt.zero_grad()
    loss = m.forward_kld(x)
    loss.backward()
    opt.step()
    report("kld", loss, 1e-3)
report("sample", m.sample(4)[0], 1e-3)
fl = [
    nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 16),
    nf.flows.LULinearPermute(2),
    nf.flows.CoupledRationalQuadraticSpline(2, 1, 16),
]
m = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), fl)
report("nsf", m.log_prob(x), 1e-3)
for f in (
    nf.flows.Planar((2,)),
    nf.flows.Radial((2,)),
    nf.flows.MaskedAffineFlow(
        torch.tensor([1.0, 0.0]), nf.nets.MLP([2, 8, 2]), nf.nets.MLP([2, 8, 2])
    ),
    nf.flows.ActNorm(2),
):
    z, ld = f(x)
    report(type(f).__name__, z)
    report("ld", ld)
