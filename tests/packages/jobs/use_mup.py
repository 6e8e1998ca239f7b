"""Widths that keep their learning rates."""

import torch
from mup import MuAdam, MuReadout, MuSGD, get_shapes, init, make_base_shapes, set_base_shapes
from report import report


class Net(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = torch.nn.Linear(6, width)
        self.b = torch.nn.Linear(width, width)
        self.out = MuReadout(width, 3, output_mult=2.0)
        init.kaiming_uniform_(self.b.weight, a=1) if hasattr(self.b.weight, "infshape") else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.b(torch.relu(self.a(x)))))


torch.manual_seed(0)
shapes = make_base_shapes(get_shapes(Net(4)), get_shapes(Net(8)))
x, y = torch.rand(7, 6), torch.randint(3, (7,))
for kind in (MuAdam, MuSGD):
    torch.manual_seed(1)
    net = Net(16)
    set_base_shapes(net, shapes)
    init.normal_(net.a.weight, std=0.3)
    init.kaiming_uniform_(net.b.weight, a=1)
    optimizer = kind(net.parameters(), lr=0.01)
    report("rates", [group["lr"] for group in optimizer.param_groups])
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report("loss", loss)
