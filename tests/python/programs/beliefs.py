"""Beliefs about the weights of a logistic regression: Metropolis steps, then a variational fit."""

import torch
import torch.distributions as D
from torch.nn.functional import softplus

torch.manual_seed(3)

inputs = torch.cat([torch.ones(40, 1), torch.randn(40, 2)], 1)
truth = torch.tensor([0.5, -1.0, 2.0])
labels = D.Bernoulli(logits=inputs @ truth).sample()
prior = D.Normal(0.0, 3.0).expand((3,))
print(prior, prior.batch_shape, labels.sum().item())


def log_joint(weights):
    likelihood = D.Bernoulli(logits=weights @ inputs.T).log_prob(labels).sum(-1)
    return prior.log_prob(weights).sum(-1) + likelihood


weights, taken, chain = torch.zeros(3), 0, []
for _ in range(60):
    proposal = weights + 0.3 * torch.randn(3)
    if torch.rand(()).log() < log_joint(proposal) - log_joint(weights):
        weights, taken = proposal, taken + 1
    chain.append(weights)
chain = torch.stack(chain[20:])
print("taken", taken, chain.mean(0), chain.std(0))
print(torch.quantile(chain, torch.tensor([0.05, 0.95]), 0))

place = torch.zeros(3, requires_grad=True)
width = torch.full((3,), -1.0, requires_grad=True)
optimizer = torch.optim.Adam([place, width], lr=0.05)
for step in range(30):
    guess = D.Independent(D.Normal(place, softplus(width)), 1)
    bound = log_joint(guess.rsample((8,))).mean() + guess.entropy()
    optimizer.zero_grad()
    (-bound).backward()
    optimizer.step()
    if step % 10 == 9:
        print(step, f"{bound.item():.3f}", place.detach())
print(D.kl_divergence(guess, D.Independent(prior, 1)), guess.expand((2,)).sample().shape)
print(D.Beta(torch.ones(2), 2.0), D.Binomial(10, 0.25), D.Multinomial(5, torch.ones(3)))
