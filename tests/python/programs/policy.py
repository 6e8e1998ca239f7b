"""Policy gradients and Q-learning on a small world, with distributions and a replay memory."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal

torch.manual_seed(6)
random.seed(6)
np.random.seed(6)
Step = namedtuple("Step", "state action reward following")


class World:
    def reset(self):
        self.state = np.random.randn(3).astype(np.float32)
        return self.state

    def move(self, action):
        noise = 0.1 * np.random.randn(3)
        self.state = (0.9 * self.state + 0.2 * (action - 0.5) + noise).astype(np.float32)
        return self.state, -np.abs(self.state).sum()


world = World()
policy = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(4):
    state, terms, rewards = world.reset(), [], []
    for _ in range(10):
        choice = Categorical(logits=policy(torch.from_numpy(state)))
        action = choice.sample()
        terms.append(choice.log_prob(action) + 0.01 * choice.entropy())
        state, reward = world.move(action.item())
        rewards.append(reward)
    returns = torch.tensor(np.cumsum(rewards[::-1])[::-1].copy(), dtype=torch.float32)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    loss = -(torch.stack(terms) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"episode {episode} loss {loss.item():.4f} return {sum(rewards):.4f}")

values, slow = nn.Linear(3, 2), nn.Linear(3, 2)
slow.load_state_dict(values.state_dict())
optimizer = torch.optim.AdamW(values.parameters(), lr=1e-2, amsgrad=True)
memory = deque(maxlen=100)
state = torch.tensor(world.reset()).unsqueeze(0)
for _ in range(40):
    if random.random() < 0.3:
        action = torch.tensor([[random.randrange(2)]])
    else:
        with torch.no_grad():
            action = values(state).max(1).indices.view(1, 1)
    following, reward = world.move(action.item())
    following = torch.tensor(following).unsqueeze(0)
    memory.append(Step(state, action, torch.tensor([reward], dtype=torch.float32), following))
    state = following
    if len(memory) < 8:
        continue
    batch = Step(*(torch.cat(column) for column in zip(*random.sample(memory, 8))))
    with torch.no_grad():
        wanted = batch.reward + 0.9 * slow(batch.following).amax(1)
    loss = F.smooth_l1_loss(values(batch.state).gather(1, batch.action).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(values.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(slow.parameters(), values.parameters()):
            old.lerp_(new, 0.05)
print(f"loss {loss.item():.4f}", slow.weight)
scale = torch.tensor([0.5, 2.0], requires_grad=True)
draw = Normal(torch.zeros(2), scale).rsample((3,))
draw.pow(2).sum().backward()
print(draw, scale.grad, np.float64(0.5) * draw.detach()[0], torch.tensor(np.float64(0.5)))
