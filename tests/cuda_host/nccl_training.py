"""DistributedDataParallel, fully_shard, tensor and pipeline parallel modules on GPUs over NCCL,
beside one process with all samples. Runs in three processes; `test_nccl.py` starts it."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

STEPS, BATCH = 3, 4


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 9), nn.LayerNorm(9))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def copied() -> int:
    """Bytes that went from the device to the host so far, the engine's own aside."""
    return torch.cuda.counters()["bytes_out"]


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.device.type == "cuda", got.device
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.is_nccl_available() and dist.get_backend() == "nccl"
torch.manual_seed(1)
x, y = torch.randn(size * BATCH, 6).cuda(), torch.randn(size * BATCH, 9).cuda()
mine = slice(rank * BATCH, (rank + 1) * BATCH)
alone = new_model().cuda()
start = copy.deepcopy(alone)
train(alone, x, y)

ddp = nn.parallel.DistributedDataParallel(copy.deepcopy(start), gradient_as_bucket_view=True)
before = copied()
train(ddp, x[mine], y[mine])
assert copied() == before, copied() - before
for got, want in zip(ddp.module.parameters(), alone.parameters(), strict=True):
    close(got, want)

sharded = copy.deepcopy(start)
fully_shard(sharded[0])
fully_shard(sharded)
before = copied()
train(sharded, x[mine], y[mine])
assert copied() == before, copied() - before
for got, want in zip(sharded.parameters(), alone.parameters(), strict=True):
    close(got.full_tensor(), want)

whole, plan = copy.deepcopy(start), {"0": ColwiseParallel(), "2": RowwiseParallel()}
cut = parallelize_module(copy.deepcopy(start), init_device_mesh("cuda", (size,)), plan)
for model in (whole, cut):
    nn.functional.mse_loss(model(x), y).backward()
for got, want in zip(cut[:3].parameters(), whole[:3].parameters(), strict=True):
    close(got.grad.full_tensor(), want.grad)

layers = [nn.Linear(6, 6).cuda() for _ in range(size)]
goal = torch.ones(8, 6).cuda()
stage = PipelineStage(layers[rank], rank, size, torch.device("cuda"))
schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
given = [x[:8]] * (rank == 0)
schedule.step(*given, **({"target": goal, "losses": []} if rank == size - 1 else {}))
behind = copy.deepcopy(nn.Sequential(*layers)).requires_grad_()
behind.zero_grad()
nn.functional.mse_loss(behind(x[:8]), goal).backward()
close(layers[rank].weight.grad, behind[rank].weight.grad)
dist.destroy_process_group()
print("ok\n", end="")
