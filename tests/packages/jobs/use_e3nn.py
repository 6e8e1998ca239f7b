"""Irreps, spherical harmonics, tensor products, gates, equivariance, training."""

import torch
from e3nn import o3
from e3nn.io import CartesianTensor
from e3nn.math import soft_one_hot_linspace, soft_unit_step
from e3nn.nn import BatchNorm, Dropout, FullyConnectedNet, Gate, NormActivation
from report import report

torch.manual_seed(0)
x = torch.randn(5, 3)
report("harmonics", o3.spherical_harmonics([0, 1, 2, 3, 4], x, True, "component"))
report("integral", o3.SphericalHarmonics("1o + 2e", normalize=True, normalization="integral")(x))
a, b, c = torch.rand(3)
for degree in range(4):
    report("wigner", o3.wigner_D(degree, a, b, c))
report("3j", o3.wigner_3j(2, 1, 3))
matrix = o3.rand_matrix()
report("angles", torch.stack(o3.matrix_to_angles(matrix)))
report("quaternion", o3.matrix_to_quaternion(matrix))
report("axis", torch.cat([t.reshape(-1) for t in o3.matrix_to_axis_angle(matrix)]))
irreps = o3.Irreps("4x0e + 3x1o + 2x2e")
report("D", irreps.D_from_matrix(matrix))
torch.manual_seed(1)
product = o3.FullyConnectedTensorProduct(
    irreps, "0e + 1o + 2e", "2x0e + 2x1o + 1x2e", compile_right=True
)
u, v = irreps.randn(5, -1), o3.Irreps("0e + 1o + 2e").randn(5, -1)
report("product", product(u, v), 1e-3)
report("right", product.right(v), 1e-3)
torch.manual_seed(2)
linear = o3.Linear(irreps, "3x0e + 2x1o", biases=True)
report("linear", linear(u))
report("norm", o3.Norm(irreps)(u))
report("elementwise", o3.ElementwiseTensorProduct(irreps, irreps)(u, u), 1e-3)
report("square", o3.TensorSquare("2x0e + 1o")(torch.randn(3, 5)), 1e-3)
report("activation", NormActivation(irreps, torch.sigmoid)(u))
gate = Gate("4x0e", [torch.tanh], "3x0e", [torch.sigmoid], "2x1o + 1x2e")
report("gate", gate(gate.irreps_in.randn(3, -1)))
norm = BatchNorm(irreps)
for _ in range(2):
    report("batch norm", norm(u))
report("eval", norm.eval()(u))
report("drop", Dropout(irreps, 0.5)(u))
report(
    "one hot", soft_one_hot_linspace(torch.rand(4), 0.0, 1.0, 5, basis="smooth_finite", cutoff=True)
)
report("step", soft_unit_step(torch.linspace(-1, 2, 6)))
report("tensor", CartesianTensor("ij=-ji").from_cartesian(torch.randn(3, 3)))
report("basis", o3.ReducedTensorProducts("ij=ji", i="1o").change_of_basis, 1e-3)


class Convolution(torch.nn.Module):
    """A convolution on points."""

    def __init__(self, inputs, harmonics, outputs):
        super().__init__()
        self.harmonics = o3.Irreps(harmonics)
        self.product = o3.FullyConnectedTensorProduct(
            inputs, harmonics, outputs, shared_weights=False
        )
        self.net = FullyConnectedNet([5, 8, self.product.weight_numel], torch.nn.functional.silu)

    def forward(self, features, source, target, places):
        """Messages along edges, summed."""
        edge = places[target] - places[source]
        radial = soft_one_hot_linspace(
            edge.norm(dim=1), 0.0, 3.0, 5, basis="gaussian", cutoff=False
        )
        angles = o3.spherical_harmonics(self.harmonics, edge, True, "component")
        messages = self.product(features[source], angles, self.net(radial))
        return torch.zeros(len(places), messages.shape[1]).index_add(0, target, messages)


torch.manual_seed(3)
layer = Convolution("2x0e + 1o", "0e + 1o + 2e", "3x0e + 2x1o")
optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
points = torch.randn(6, 3)
source, target = (torch.cdist(points, points) + 9 * torch.eye(6) < 2.5).nonzero().T
features = torch.randn(6, 5)
for _ in range(3):
    out = layer(features, source, target, points)
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report("loss", loss, 1e-3)
turn = o3.Irreps("2x0e + 1o").D_from_matrix(matrix)
back = o3.Irreps("3x0e + 2x1o").D_from_matrix(matrix)
turned = layer(features @ turn.T, source, target, points @ matrix.T)
report(
    "equivariant", (turned - layer(features, source, target, points) @ back.T).abs().max() < 1e-4
)
points.requires_grad_(True)
(force,) = torch.autograd.grad(
    layer(features, source, target, points)[:, :3].sum(), points, create_graph=True
)
report("force", force, 1e-3)
report("second", torch.autograd.grad(force.square().sum(), points)[0], 1e-3)
