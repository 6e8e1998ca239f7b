"""PPO and DQN on a pole, for a few steps."""

import torch
from report import report
from stable_baselines3 import DQN, PPO

for cls, options in (
    (PPO, {"n_steps": 64, "batch_size": 32, "n_epochs": 2}),
    (DQN, {"learning_starts": 20, "buffer_size": 200, "batch_size": 16}),
):
    model = cls("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **options)
    model.learn(128)
    report(cls.__name__, torch.cat([p.flatten() for p in model.policy.parameters()])[::97], 1e-3)
