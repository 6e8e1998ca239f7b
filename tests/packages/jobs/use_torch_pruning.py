"""Channels taken out of nets along with all that hangs on them."""

import torch
import torch_pruning as tp
from report import report
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.tanh(self.norm(self.a(x))))


torch.manual_seed(0)
x = torch.randn(2, 3, 32, 32)
for importance in (
    tp.importance.MagnitudeImportance(p=2),
    tp.importance.TaylorImportance(),
    tp.importance.LAMPImportance(),
):
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3), Block(16), nn.Conv2d(16, 32, 3, stride=2), Block(32), nn.SiLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    ).eval()  # fmt: skip
    pruner = tp.pruner.MetaPruner(
        net, x, importance=importance, pruning_ratio=0.5, iterative_steps=2,
        ignored_layers=[net[-1]],
    )  # fmt: skip
    for _ in range(2):
        net.zero_grad()
        net(x).pow(2).sum().backward()
        pruner.step()
        report("size", tp.utils.count_ops_and_params(net, x))
        report("widths", [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)])
    report(type(importance).__name__, net(x), 1e-3)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3)).eval()
graph = tp.DependencyGraph().build_dependency(net, x)
group = graph.get_pruning_group(net[0], tp.prune_conv_out_channels, idxs=[2, 6])
group.prune()
report("group", net(x))
