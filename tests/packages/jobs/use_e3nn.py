"""Equivariant layers."""

import torch
from e3nn import o3
from e3nn.nn import FullyConnectedNet, Gate
from report import report

torch.manual_seed(0)
kinds = o3.Irreps("2x0e + 1x1o")
product = o3.FullyConnectedTensorProduct(kinds, o3.Irreps("1x0e + 1x1o"), kinds)
x, y = torch.randn(3, kinds.dim), torch.randn(3, 4)
report("product", product(x, y))
report("harmonics", o3.spherical_harmonics([0, 1, 2], torch.randn(4, 3), normalize=True))
report("wigner", o3.Irrep("2e").D_from_angles(*torch.tensor([0.1, 0.2, 0.3])))
report("linear", o3.Linear(kinds, "1x0e + 2x1o")(x))
gate = Gate("2x0e", [torch.relu], "1x0e", [torch.sigmoid], "1x1o")
report("gate", gate(torch.randn(2, gate.irreps_in.dim)))
report("net", FullyConnectedNet([3, 8, 2], torch.tanh)(torch.randn(2, 3)))
