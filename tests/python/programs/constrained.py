"""Weights under constraints: pruned, of bounded singular values, orthogonal; classes in clusters;
a graph whose edges are learned; points of Sobol's sequence."""

import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm
from torch.nn.utils.parametrizations import orthogonal
from torch.quasirandom import SobolEngine

torch.manual_seed(0)
points = SobolEngine(6, scramble=True, seed=2).draw(32)
print("points", points[:2].tolist(), points.sum().item())
print("plain", SobolEngine(3).draw(5).tolist())

net = nn.Sequential(
    spectral_norm(nn.Linear(6, 8)), nn.Tanh(), orthogonal(nn.Linear(8, 8)), nn.ReLU(),
    orthogonal(nn.Linear(8, 5)),
)  # fmt: skip
loss_of = nn.AdaptiveLogSoftmaxWithLoss(5, 12, [3, 7], div_value=2.0)
targets = torch.arange(32) % 12
optimizer = torch.optim.Adam([*net.parameters(), *loss_of.parameters()], lr=0.02)
for step in range(4):
    optimizer.zero_grad()
    loss = loss_of(net(points), targets).loss
    loss.backward()
    optimizer.step()
    print("loss", step, loss.item())
print("columns", (net[4].weight @ net[4].weight.T).trace().item())
print("predicted", loss_of.predict(net(points)).tolist())

layer = nn.Linear(6, 4)
prune.random_unstructured(layer, "weight", amount=0.25)
prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
prune.l1_unstructured(layer, "bias", amount=1)
print("kept", layer.weight_mask.sum().item(), sorted(layer.state_dict()))
layer(points).pow(2).mean().backward()
print("gradient", layer.weight_orig.grad.abs().sum().item())
prune.remove(layer, "weight")
print("removed", prune.is_pruned(layer), (layer.weight == 0).sum().item())

edges = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
strength = torch.ones(4, requires_grad=True)
nodes = torch.arange(6.0).view(3, 2)
for _ in range(3):
    graph = torch.sparse_coo_tensor(edges, strength, (3, 3))
    error = (torch.spmm(graph, nodes) - nodes).pow(2).mean()
    (gradient,) = torch.autograd.grad(error, strength)
    strength = (strength - 0.01 * gradient).detach().requires_grad_()
    print("edges", error.item(), gradient.tolist())
