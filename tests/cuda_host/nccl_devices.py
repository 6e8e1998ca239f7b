"""Which GPU a process has. Runs in two processes with two devices; `test_nccl.py` starts it."""

import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

how = sys.argv[1]
if how == "set":  # not those of LOCAL_RANK
    import os

    torch.cuda.set_device(1 - int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank = dist.get_rank()
own, other = (1 - rank, rank) if how == "set" else (rank, 1 - rank)
if how == "mesh":
    init_device_mesh("cuda", (2,))
    assert torch.cuda.current_device() == rank
t = torch.ones(3, device=f"cuda:{own}")
before = torch.cuda.counters(own)["bytes_out"]
dist.all_reduce(t)
assert torch.cuda.counters(own)["bytes_out"] == before
assert t.tolist() == [2] * 3
t = torch.ones(3, device=f"cuda:{other}")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.all_reduce(t)
    dist.all_reduce(t)
assert t.tolist() == [4] * 3
assert len(caught) == 1 and f"tensors of cuda:{other} go through" in str(caught[0].message), caught
dist.destroy_process_group()
print("ok\n", end="")
