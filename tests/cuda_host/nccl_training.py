"""DistributedDataParallel and fully_shard of models on GPUs over NCCL, beside one process with all
samples. Runs in three processes; `test_nccl.py` starts it."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

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
dist.destroy_process_group()
print("ok\n", end="")
