"""Agents learn in a small world: DQN with prioritized replay, PPO, REINFORCE, actor-critic."""

import logging

import numpy as np
import pfrl
import torch
from report import report
from torch import nn

logging.disable(logging.CRITICAL)


def walk(agent, steps, actions):
    world, seen = np.random.RandomState(3), []
    place = world.randn(4).astype(np.float32)
    for step in range(steps):
        action = agent.act(place)
        push = np.zeros(4, np.float32)
        push[:1] = (action - (actions - 1) / 2) if actions else action[0]
        place = (0.9 * place + push + 0.1 * world.randn(4)).astype(np.float32)
        agent.observe(place, float(-abs(place[0])), step % 20 == 19, False)
        seen.append(float(np.sum(action)))
    return seen


def seed():
    torch.manual_seed(1)
    np.random.seed(1)
    import random

    random.seed(1)


seed()
q = nn.Sequential(
    nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), pfrl.q_functions.DiscreteActionValueHead()
)
buffer = pfrl.replay_buffers.PrioritizedReplayBuffer(1000, betasteps=100)
explorer = pfrl.explorers.ConstantEpsilonGreedy(0.3, lambda: np.random.randint(3))
for kind in (pfrl.agents.DQN, pfrl.agents.DoubleDQN):
    seed()
    agent = kind(
        q,
        torch.optim.Adam(q.parameters(), 1e-2),
        buffer,
        0.95,
        explorer,
        replay_start_size=20,
        update_interval=1,
        target_update_interval=10,
        minibatch_size=8,
    )
    report(kind.__name__, walk(agent, 80, 3))
    report("statistics", [v for _, v in agent.get_statistics()], 1e-2)
seed()
policy = nn.Sequential(
    nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3), pfrl.policies.SoftmaxCategoricalHead()
)
value = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
both = pfrl.nn.Branched(policy, value)
agent = pfrl.agents.PPO(
    both,
    torch.optim.Adam(both.parameters(), 1e-2),
    gamma=0.95,
    update_interval=40,
    minibatch_size=10,
    epochs=2,
)
report("PPO", walk(agent, 120, 3))
report("statistics", [v for _, v in agent.get_statistics()], 1e-2)
seed()
both = pfrl.nn.Branched(policy, value)
report(
    "REINFORCE",
    walk(
        pfrl.agents.REINFORCE(policy, torch.optim.Adam(policy.parameters(), 1e-2), batchsize=2),
        80,
        3,
    ),
)
seed()


def squashed(x):
    mean, scale = torch.chunk(x, 2, -1)
    base = torch.distributions.Independent(
        torch.distributions.Normal(mean, scale.clamp(-5, 2).exp()), 1
    )
    return torch.distributions.TransformedDistribution(
        base, [torch.distributions.transforms.TanhTransform(cache_size=1)]
    )


actor = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), pfrl.nn.lmbda.Lambda(squashed))
critics = [
    nn.Sequential(pfrl.nn.ConcatObsAndAction(), nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    for _ in range(2)
]
agent = pfrl.agents.SoftActorCritic(
    actor,
    *critics,
    *[torch.optim.Adam(m.parameters(), 1e-2) for m in (actor, *critics)],
    pfrl.replay_buffers.ReplayBuffer(1000),
    0.95,
    replay_start_size=20,
    minibatch_size=8,
    entropy_target=-1,
    temperature_optimizer_lr=1e-2,
    burnin_action_func=lambda: np.random.uniform(-1, 1, 1).astype(np.float32),
)
report("SAC", walk(agent, 60, 0), 1e-2)
