"""Residual blocks: initial values by hand, averaged models, hooks, frozen parts, distillation."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(10)


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Identity()
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        y += self.skip(x)
        return F.relu(y, inplace=True)


class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.Conv2d(3, width, 3, padding=1),
            Block(width, width),
            Block(width, 2 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LazyLinear(5),
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, Block):
                nn.init.zeros_(m.bn2.weight)


x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))
teacher, student = Net(8), Net(4)
teacher(x), student(x)
nn.init.orthogonal_(student[-1].weight, gain=0.5)
print(student, student[0].weight.flatten()[:4], student[-1].weight[0, :3])
teacher.eval().requires_grad_(False)
seen = {}
student[2].register_forward_hook(lambda m, args, out: seen.update(shape=out.shape))
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=4)
average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.8))
before = copy.deepcopy(student.state_dict())
for step in range(5):
    logits = student(x)
    wanted = F.softmax(teacher(x) / 2, 1)
    soft = F.kl_div(F.log_softmax(logits / 2, 1), wanted, reduction="batchmean")
    loss = F.cross_entropy(logits, y) + 4 * soft
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    average.update_parameters(student)
    print(f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.4f}")
update_bn([x], average)
moved = sum((before[k] - v).abs().sum().item() for k, v in student.state_dict().items())
print(seen, average.n_averaged, f"{moved:.3f}", average.eval()(x).argmax(1))
