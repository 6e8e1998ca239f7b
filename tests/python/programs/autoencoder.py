"""A variational autoencoder, with its divergence by formula and by torch.distributions."""

import torch
import torch.nn.functional as F
from torch import distributions, nn

torch.manual_seed(3)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(36, 16)
        self.mean, self.log_var = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 36))

    def forward(self, x):
        h = torch.tanh(self.encoder(x.view(-1, 36)))
        mean, log_var = self.mean(h), self.log_var(h)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(z), mean, log_var


data = torch.bernoulli(torch.rand(64, 1, 6, 6) * torch.tensor([0.1, 0.9]).repeat(3))
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    total = 0.0
    for x in data.split(16):
        logits, mean, log_var = model(x)
        target = x.view(-1, 36)
        reconstruction = F.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
        loss = reconstruction + divergence
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(data)
    print(f"epoch {epoch} loss {total:.4f}")
posterior = distributions.Normal(mean, (0.5 * log_var).exp())
prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
print(torch.allclose(distributions.kl_divergence(posterior, prior).sum(), divergence, rtol=1e-4))
with torch.no_grad():
    print(torch.sigmoid(model.decoder(torch.randn(2, 4))).view(2, 6, 6)[0, :2])
