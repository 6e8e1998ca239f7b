"""Denoising diffusion: schedules of noise, time embeddings, group norm, draws step by step."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(8)
STEPS = 12
place = torch.linspace(0, STEPS, STEPS + 1, dtype=torch.float64) / STEPS
kept = torch.cos((place + 0.008) / 1.008 * math.pi / 2) ** 2
betas = torch.clip(1 - kept[1:] / kept[:-1], 0, 0.999)
alphas = torch.cumprod(1 - betas, dim=0)
print(betas[:3], alphas[-2:])


def at(values, t):
    return values.gather(0, t).float().view(-1, 1, 1, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.down = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 8)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.out = nn.Conv2d(9, 1, 3, padding=1)

    def forward(self, x, t):
        rates = torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        angles = t[:, None] * rates[None]
        hidden = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        scale, shift = hidden[..., None, None].chunk(2, 1)
        h = F.silu(self.norm(self.down(x)) * (1 + scale) + shift)
        return self.out(torch.cat([self.up(h), x], 1))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
data = torch.randn(16, 1, 8, 8).cumsum(-1).tanh()
for step in range(6):
    x = data[torch.randperm(16)[:8]]
    t = torch.randint(0, STEPS, (8,))
    noise = torch.randn_like(x)
    loss = F.mse_loss(net(at(alphas.sqrt(), t) * x + at((1 - alphas).sqrt(), t) * noise, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f}")


@torch.inference_mode()
def draw(count):
    x = torch.randn(count, 1, 8, 8)
    for i in reversed(range(STEPS)):
        t = torch.full((count,), i)
        x = (x - at(betas / (1 - alphas).sqrt(), t) * net(x, t)) / at((1 - betas).sqrt(), t)
        if i:
            x += at(betas.sqrt(), t) * torch.randn_like(x)
    return x.clamp(-3, 3)


print(draw(2)[0, 0, :2])
