"""Gradients of each sample, noise, accounting, layers, private training."""

import torch
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
from opacus.layers import DPGRU, DPLSTM, DPMultiheadAttention
from opacus.schedulers import ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.validators import ModuleValidator
from report import report
from torch import nn

torch.manual_seed(0)
for name, net, x in (
    ("linear", nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(4, 6)),
    (
        "conv",
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, stride=2, groups=1),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 2, groups=2, dilation=2),
            nn.Flatten(),
            nn.Linear(16, 2),
        ),
        torch.randn(4, 3, 8, 8),
    ),
    (
        "conv1d",
        nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.InstanceNorm1d(4, affine=True)),
        torch.randn(4, 3, 9),
    ),
    ("conv3d", nn.Conv3d(2, 3, 2, padding="same"), torch.randn(3, 2, 3, 4, 4)),
    ("norm", nn.LayerNorm(7), torch.randn(4, 5, 7)),
    ("rms", nn.RMSNorm(7), torch.randn(4, 5, 7)),
    ("embedding", nn.Embedding(6, 4), torch.randint(0, 6, (4, 5))),
):
    for mode in ("hooks", "functorch", "ew"):
        if mode == "ew" and name in ("rms", "embedding"):
            continue
        if mode == "ew":
            module = GradSampleModuleExpandedWeights(net)
        else:
            module = GradSampleModule(net, force_functorch=mode == "functorch")
        module(x).pow(3).sum().backward()
        for p in module.parameters():
            report(f"{name} {mode}", p.grad_sample.flatten(1)[:, :20], 1e-3)
            p.grad_sample = p.grad = None
        if mode != "ew":
            module.remove_hooks()
        for p in net.parameters():
            for gone in ("grad_sample", "_forward_counter"):
                if hasattr(p, gone):
                    delattr(p, gone)
torch.manual_seed(1)
x = torch.randn(4, 5, 6)
lstm = DPLSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
report("lstm", lstm(x)[0])
report("gru", DPGRU(6, 4, batch_first=True)(x)[0])
report("attention", DPMultiheadAttention(6, 2)(x, x, x)[0])
report("valid", [len(ModuleValidator.validate(nn.BatchNorm2d(4))), ModuleValidator.is_valid(lstm)])
fixed = ModuleValidator.fix(nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32)))
report("fixed", fixed(torch.randn(1, 3, 4, 4)))
for name, mode, clipping in (
    ("flat", "hooks", "flat"),
    ("layers", "hooks", "per_layer"),
    ("ghost", "ghost", "flat"),
    ("functorch", "functorch", "flat"),
):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    data = torch.utils.data.TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    engine = PrivacyEngine()
    criterion = nn.CrossEntropyLoss()
    bound = [1.0] * 4 if clipping == "per_layer" else 1.0
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.1,
        max_grad_norm=bound,
        clipping=clipping,
        grad_sample_mode=mode,
        criterion=criterion,
        noise_generator=torch.Generator().manual_seed(4),
        poisson_sampling=True,
    )
    model, optimizer, *rest = made
    if mode == "ghost":
        criterion, loader = rest
    else:
        (loader,) = rest
    noise = ExponentialNoise(optimizer, gamma=0.9)
    for _ in range(2):
        for a, b in loader:
            optimizer.zero_grad()
            loss = criterion(model(a), b)
            loss.backward()
            optimizer.step()
            report(name, loss.item() if hasattr(loss, "item") else loss, 1e-3)
        noise.step()
    report("weights", torch.cat([p.detach().flatten() for p in model.parameters()]), 1e-3)
    report("epsilon", engine.get_epsilon(1e-5))
with BatchMemoryManager(
    data_loader=loader, max_physical_batch_size=4, optimizer=optimizer
) as small:
    report("physical", [len(b) for _, b in small])
report(
    "multiplier",
    get_noise_multiplier(target_epsilon=3, target_delta=1e-5, sample_rate=0.1, epochs=2),
)
for kind in ("rdp", "gdp", "prv"):
    accountant = create_accountant(kind)
    for _ in range(5):
        accountant.step(noise_multiplier=1.2, sample_rate=0.05)
    report(kind, accountant.get_epsilon(delta=1e-5), 1e-3)
