"""Optimizers with sharded states, layers that compute again, pipelines of micro-batches."""

import os
import tempfile

import torch
from fairscale.nn import Pipe
from fairscale.nn.checkpoint import checkpoint_wrapper
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.nn.misc import FlattenParamsWrapper
from fairscale.nn.model_parallel import initialize_model_parallel, layers
from fairscale.optim import AdaScale
from fairscale.optim.oss import OSS
from report import report
from torch import nn

place = os.path.join(tempfile.mkdtemp(), "met")
torch.distributed.init_process_group("gloo", f"file://{place}", rank=0, world_size=1)
data = torch.Generator().manual_seed(1)
batches = [(torch.randn(6, 5, generator=data), torch.randint(0, 3, (6,), generator=data))
           for _ in range(4)]  # fmt: skip


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Linear(8, 3)
    )


def train(name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    losses = []
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    report(name, losses)
    report(f"{name}, parameters", list(model.parameters()))


model = net()
optimizer = OSS(model.parameters(), torch.optim.AdamW, lr=0.05)
train("sharded", ShardedDataParallel(model, optimizer), optimizer)
optimizer.consolidate_state_dict()
report("state", [v for s in optimizer.state_dict()["state"].values() for v in s.values()])
model = net()
model[0], model[2] = checkpoint_wrapper(model[0]), checkpoint_wrapper(model[2])
train("again", model, torch.optim.SGD(model.parameters(), 0.1))
model = FlattenParamsWrapper(net())
train("flat", model, torch.optim.SGD(model.parameters(), 0.1, 0.9))
model = nn.parallel.DistributedDataParallel(net())
optimizer = AdaScale(torch.optim.SGD(model.parameters(), 0.1), num_gradients_to_accumulate=2)
for x, y in batches:
    for half in (slice(0, 3), slice(3, 6)):
        nn.functional.cross_entropy(model(x[half]), y[half]).backward()
    optimizer.step()
    optimizer.zero_grad()
report("scaled", [optimizer.gain(), *model.parameters()])
for mode in ("always", "except_last", "never"):
    model = Pipe(net(), balance=[2, 3, 1], devices=["cpu"] * 3, chunks=3, checkpoint=mode)
    train(f"pipe, {mode}", model, torch.optim.SGD(model.parameters(), 0.1))
initialize_model_parallel(1)
torch.manual_seed(0)
model = nn.Sequential(layers.ColumnParallelLinear(5, 8), layers.RowParallelLinear(8, 3))
train("parallel", model, torch.optim.SGD(model.parameters(), 0.1))
