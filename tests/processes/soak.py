"""Many operations: memory, descriptors and threads stay as they are. `test_soak.py` starts it:
ENGINE ROUNDS [DEVICE]."""

import gc
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

rounds = int(sys.argv[2])
torch.set_default_device(sys.argv[3] if len(sys.argv) > 3 else "cpu")
dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()
pair = dist.new_group([0, 1])


def used(threads: int) -> tuple[int, int, int]:
    """KiB of our own, descriptors, threads: no more than so many, after a while."""
    gc.collect()
    deadline = time.monotonic() + 20
    while len(os.listdir("/proc/self/task")) > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    memory = int(status["RssAnon"].split()[0])
    return memory, len(os.listdir("/proc/self/fd")), int(status["Threads"])


def step(i: int) -> None:
    t = torch.full((64,), 1.0)
    dist.all_reduce(t)
    later = dist.all_reduce(t, async_op=True)
    if RANK < 2:
        dist.all_reduce(t.clone(), group=pair)
    got = torch.empty(8)
    sent = dist.isend(t[:8].clone(), (RANK + 1) % SIZE)
    dist.recv(got, (RANK - 1) % SIZE)
    sent.wait()
    later.wait()
    assert t[0].item() == SIZE * SIZE
    if i % 50 == 0:
        dist.broadcast_object_list(["x" * 1000] if RANK == 0 else [None])
        dist.all_gather([torch.empty(64) for _ in range(SIZE)], t)


for i in range(rounds // 3):
    step(i)
time.sleep(0.3)  # threads that are done end
before = used(len(os.listdir("/proc/self/task")))
for i in range(rounds):
    step(i)
after = used(before[2])
assert after[0] < before[0] + 1024, (before, after)
assert after[1] <= before[1] and after[2] <= before[2], (before, after)
print("ok", flush=True)
dist.destroy_process_group()
