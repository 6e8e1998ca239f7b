"""Neurons of activation_based step by step and over time, surrogates, a trained net."""

import torch
from report import report
from spikingjelly.activation_based import encoding, functional, layer, neuron, surrogate

numbers = torch.Generator().manual_seed(3)
drive = torch.randn(12, 3, 5, generator=numbers)
for make in (
    neuron.IFNode,
    neuron.LIFNode,
    neuron.ParametricLIFNode,
    neuron.QIFNode,
    neuron.EIFNode,
    neuron.IzhikevichNode,
):
    for mode in ("s", "m"):
        cell = make(step_mode=mode)
        given = drive.clone().requires_grad_()
        out = cell(given) if mode == "m" else torch.stack([cell(x) for x in given])
        report(f"{make.__name__} {mode}", out)
        slope = torch.autograd.grad((out * drive.cos()).sum(), given)[0]
        report(f"{make.__name__} {mode} slope", slope, 1e-3)
        functional.reset_net(cell)
for function in (
    surrogate.ATan,
    surrogate.Sigmoid,
    surrogate.PiecewiseQuadratic,
    surrogate.PiecewiseExp,
    surrogate.SoftSign,
    surrogate.Erf,
    surrogate.LeakyKReLU,
    surrogate.FakeNumericalGradient,
    surrogate.LogTailedReLU,
    surrogate.SquarewaveFourierSeries,
    surrogate.S2NN,
    surrogate.QPseudoSpike,
):
    given = drive.clone().requires_grad_()
    out = function()(given)
    report(function.__name__, [out.sum(), *torch.autograd.grad(out.sum(), given)[0].flatten()[:20]])
torch.manual_seed(5)
report("poisson", encoding.PoissonEncoder()(torch.rand(4, 5, generator=numbers)))
latency = encoding.LatencyEncoder(8)
report("latency", [latency(torch.rand(3, generator=numbers)).sum() for _ in range(8)])
torch.manual_seed(1)
net = torch.nn.Sequential(
    layer.Conv2d(2, 8, 3, padding=1),
    layer.BatchNorm2d(8),
    neuron.LIFNode(tau=1.5),
    layer.MaxPool2d(2),
    layer.Dropout(0.2),
    layer.Flatten(),
    layer.Linear(8 * 16, 3),
    neuron.IFNode(),
)
functional.set_step_mode(net, "m")
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
pictures, target = torch.rand(5, 6, 2, 8, 8, generator=numbers), torch.arange(6) % 3
for step in range(6):
    optimizer.zero_grad()
    torch.manual_seed(step)
    rate = net(pictures).mean(0)
    loss = torch.nn.functional.mse_loss(rate, torch.nn.functional.one_hot(target, 3).float())
    loss.backward()
    optimizer.step()
    functional.reset_net(net)
    report("loss", loss, 1e-3)
