"""Scattering of signals and pictures, its gradient and a classifier on top."""

import torch
from kymatio.scattering1d.frontend.torch_frontend import ScatteringTorch1D as Scattering1D
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D as Scattering2D
from report import report

numbers = torch.Generator().manual_seed(3)
signal = torch.randn(2, 256, generator=numbers, requires_grad=True)
for options in ({}, {"max_order": 1}, {"average": False, "out_type": "list"}, {"oversampling": 2}):
    scatter = Scattering1D(J=4, shape=256, Q=4, **options)
    result = scatter(signal)
    if isinstance(result, list):
        report("paths", [path["coef"].sum() for path in result])
        result = sum(path["coef"].pow(2).sum() for path in result)
    report(f"line {options}", result)
    report(f"line slope {options}", torch.autograd.grad(result.pow(2).sum(), signal)[0], 1e-3)
picture = torch.randn(2, 3, 32, 32, generator=numbers, requires_grad=True)
for options in ({}, {"L": 4, "max_order": 1}, {"pre_pad": True}):
    scatter = Scattering2D(J=2, shape=(32, 32), **options)
    given = torch.nn.functional.pad(picture, (4, 4, 4, 4)) if options.get("pre_pad") else picture
    result = scatter(given)
    report(f"plane {options}", result)
    report(f"plane slope {options}", torch.autograd.grad(result.pow(2).sum(), picture)[0], 1e-3)
torch.manual_seed(1)
scatter = Scattering2D(J=2, shape=(32, 32))
head = torch.nn.Sequential(torch.nn.BatchNorm2d(81), torch.nn.Flatten(), torch.nn.LazyLinear(5))
data, target = torch.randn(8, 32, 32, generator=numbers), torch.arange(8) % 5
head(scatter(data))
optimizer = torch.optim.SGD(head.parameters(), 0.01, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(head(scatter(data)), target)
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-3)
