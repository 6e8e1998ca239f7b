"""A flow of coupling layers and splines, fitted."""

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.transforms.autoregressive import (
    MaskedAffineAutoregressiveTransform,
    MaskedPiecewiseRationalQuadraticAutoregressiveTransform,
)
from nflows.transforms.base import CompositeTransform
from nflows.transforms.permutations import RandomPermutation
from report import report

torch.manual_seed(0)
flow = Flow(
    CompositeTransform(
        [
            RandomPermutation(2),
            MaskedAffineAutoregressiveTransform(2, 8),
            MaskedPiecewiseRationalQuadraticAutoregressiveTransform(2, 8, tails="linear"),
        ]
    ),
    StandardNormal([2]),
)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
x = torch.randn(32, 2) * torch.tensor([1.0, 0.3])
for _ in range(3):
    loss = -flow.log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
report("samples", flow.sample(4))
