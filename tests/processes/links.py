"""A rank of `test_links.py`, on a host of its own: FOLDER RANK SIZE STEPS TIMEOUT. It sums tensors
of several sizes and says after each step that it was right; the first error ends it."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

folder, rank, size, steps, seconds = sys.argv[1], *map(int, sys.argv[2:])
dist.init_process_group(
    "gloo", f"file://{folder}/met", timedelta(seconds=seconds), rank=rank, world_size=size
)
for step in range(steps):
    numbers = torch.arange(1 << (step % 5 * 4), dtype=torch.float64)
    mine = numbers * (rank + 1) + step
    began = time.monotonic()
    try:
        dist.all_reduce(mine)
    except RuntimeError as err:
        print(f"error after {time.monotonic() - began:.1f} s: {err}", flush=True)
        sys.exit(3)
    assert torch.equal(mine, numbers * (size * (size + 1) // 2) + size * step), step
    print(f"step {step}", flush=True)
dist.destroy_process_group()
