"""Spiking neurons, trained through surrogate gradients."""

import snntorch as snn
import torch
from report import report
from snntorch import functional as SF
from snntorch import spikegen, surrogate

torch.manual_seed(0)
x = torch.rand(8, 10)
report("rate", spikegen.rate(x, num_steps=6))
report("latency", spikegen.latency(x, num_steps=6, normalize=True, linear=True))
report("delta", spikegen.delta(x.cumsum(1), threshold=0.4))
for grad in (
    surrogate.fast_sigmoid(slope=25),
    surrogate.atan(),
    surrogate.sigmoid(),
    surrogate.triangular() if hasattr(surrogate, "triangular") else surrogate.atan(),
    surrogate.spike_rate_escape(),
    surrogate.straight_through_estimator(),
):
    torch.manual_seed(1)
    f1, f2 = torch.nn.Linear(10, 12), torch.nn.Linear(12, 4)
    l1, l2 = (
        snn.Leaky(beta=0.9, spike_grad=grad, learn_beta=True),
        snn.Synaptic(alpha=0.8, beta=0.9, spike_grad=grad),
    )
    optimizer = torch.optim.Adam([*f1.parameters(), *f2.parameters(), *l1.parameters()], lr=1e-2)
    for _ in range(2):
        m1 = l1.init_leaky()
        s2, m2 = l2.init_synaptic()
        spikes = []
        for _ in range(5):
            a, m1 = l1(f1(x), m1)
            out, s2, m2 = l2(f2(a), s2, m2)
            spikes.append(out)
        spikes = torch.stack(spikes)
        loss = SF.ce_rate_loss()(spikes, torch.arange(8) % 4) + m2.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report("loss", loss)
    report("accuracy", SF.accuracy_rate(spikes, torch.arange(8) % 4))
    report("gradient", f1.weight.grad)
for cell in (
    snn.RLeaky(beta=0.7, linear_features=10),
    snn.Lapicque(beta=0.5),
    snn.Alpha(alpha=0.9, beta=0.8),
    snn.SLSTM(10, 6),
    snn.RSynaptic(alpha=0.9, beta=0.8, linear_features=10),
):
    state = cell.reset_mem() if hasattr(cell, "reset_mem") else None
    out = cell(x, *(state if isinstance(state, tuple) else (state,) if state is not None else ()))
    for o in out:
        report(type(cell).__name__, o)
