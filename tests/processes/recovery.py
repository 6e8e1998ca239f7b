"""A training that goes on from its last checkpoint; prints a digest of its end. `test_recovery.py`
starts it: ENGINE FOLDER KILLS, where KILLS are STEP.RANK.PLACE or STEP.RANK.PLACE.stop of each run,
with commas between. A rank that is killed or stopped has started a process that sleeps."""

import hashlib
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

folder = Path(sys.argv[2])
again = int(os.environ.get("TENON_RESTART_COUNT", "0"))
kills = [k.split(".") for k in sys.argv[3].split(",")]
dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=15))
RANK = dist.get_rank()
STEPS, EVERY, BATCH = 12, 3, 4


def die(step: int, place: str) -> None:
    where, how = (kills[again][:3], kills[again][3:]) if again < len(kills) else ([], [])
    if where == [str(step), str(RANK), place]:
        child = subprocess.Popen(["sleep", "600"])
        (folder.parent / f"{folder.name}.{again}").write_text(f"{os.getpid()} {child.pid}")
        os.kill(os.getpid(), signal.SIGSTOP if how else signal.SIGKILL)


torch.manual_seed(RANK)
net = DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(16),
    torch.nn.Linear(16, 3),
))  # fmt: skip
optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
numbers = torch.Generator().manual_seed(7)
inputs, targets = (
    torch.randn(200, 6, generator=numbers), torch.randint(0, 3, (200,), generator=numbers)
)  # fmt: skip
sampler = DistributedSampler(range(200), seed=5)
step = 0


def state() -> dict:
    weights, moments = get_state_dict(net, optimizer)
    return {
        "model": weights, "optimizer": moments, "step": step,
        "sampler": sampler.state_dict(), f"random{RANK}": torch.get_rng_state(),
        f"buffers{RANK}": dict(net.module.named_buffers()),
    }  # fmt: skip


if (folder / ".metadata").exists():
    saved = state()
    dcp.load(saved, checkpoint_id=folder)
    set_state_dict(net, optimizer, model_state_dict=saved["model"],
                   optim_state_dict=saved["optimizer"])  # fmt: skip
    net.module.load_state_dict(saved[f"buffers{RANK}"], strict=False)
    sampler.load_state_dict(saved["sampler"])
    torch.set_rng_state(saved[f"random{RANK}"])
    step = saved["step"]
    assert step % EVERY == 0 and step > 0
order = iter(sampler)
for hooked in net.parameters():
    hooked.register_hook(lambda g: die(step, "backward"))
while step < STEPS:
    mine = [next(order) for _ in range(BATCH)]
    optimizer.zero_grad()
    die(step, "forward")
    F.cross_entropy(net(inputs[mine]), targets[mine]).backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0:
        written = dcp.async_save(state(), checkpoint_id=folder)
        die(step, "save")
        written.result()
parts = [net.module.state_dict(), optimizer.state_dict()["state"], {"r": {"r": torch.rand(3)}}]
flat = [t for d in parts for v in d.values() for t in (v.values() if isinstance(v, dict) else [v])]
digest = hashlib.sha256(b"".join(torch.as_tensor(t).numpy().tobytes() for t in flat)).hexdigest()
digests = [None] * dist.get_world_size()
dist.all_gather_object(digests, digest)
if RANK == 0:
    print(again, *digests)
dist.destroy_process_group()
