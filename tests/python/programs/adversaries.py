"""Two networks against each other, with transposed convolutions and a gradient penalty."""

import torch
from torch import nn

torch.manual_seed(5)


def init(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.05)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


maker = nn.Sequential(
    nn.ConvTranspose2d(4, 6, 3, bias=False),
    nn.BatchNorm2d(6),
    nn.ReLU(True),
    nn.ConvTranspose2d(6, 1, 4, 2, 1),
    nn.Tanh(),
).apply(init)
critic = nn.Sequential(
    nn.Conv2d(1, 6, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(6, 1, 3), nn.Flatten()
).apply(init)
print(maker, critic)
optimizers = [torch.optim.Adam(m.parameters(), 2e-3, betas=(0.5, 0.9)) for m in (maker, critic)]
real = torch.rand(12, 1, 6, 6)
for step in range(4):
    fake = maker(torch.randn(12, 4, 1, 1))
    mix = torch.rand(12, 1, 1, 1)
    between = (mix * real + (1 - mix) * fake.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    loss_critic = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
    optimizers[1].zero_grad()
    loss_critic.backward()
    optimizers[1].step()
    loss_maker = -critic(fake).mean()
    optimizers[0].zero_grad()
    loss_maker.backward()
    optimizers[0].step()
    print(f"step {step} critic {loss_critic.item():.4f} maker {loss_maker.item():.4f}")
