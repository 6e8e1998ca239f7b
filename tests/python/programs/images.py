"""A small network for masks whose images lie channels last, and what that does to strides."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Masks(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inside = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, padding_mode="reflect")
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        first = F.relu(self.norm(self.inside(x)))
        deep = self.drop(F.gelu(self.down(first)))
        back = self.up(deep)
        return self.out(torch.cat([back, F.max_pool2d(first, 3, 1, 1)], 1))


net = Masks().to(memory_format=torch.channels_last)
images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
masks = (images.mean(1, keepdim=True) > 0).float()
seen = {}
for name, child in net.named_children():
    child.register_forward_hook(
        lambda module, args, out, name=name: seen.update({name: out.stride()})
    )
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)
for step in range(6):
    logits = net(images)
    probs = logits.sigmoid().flatten(1)
    overlap = 2 * (probs * masks.flatten(1)).sum(1) / (probs.sum(1) + masks.flatten(1).sum(1))
    loss = F.binary_cross_entropy_with_logits(logits, masks) + 1 - overlap.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.5f}")
for name, strides in seen.items():
    print(name, strides)
print(F.interpolate(images, scale_factor=2).is_contiguous(memory_format=torch.channels_last))
print(net.down.weight.stride(), net.down.weight.grad.stride())
