"""Groups over another engine than the default group's, and their names. Runs in three processes;
`test_nccl.py` starts it with the two backends."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

first, second = sys.argv[1:3]
options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
assert options.backend == "nccl" and options._timeout == timedelta(minutes=30)
assert options.config.min_ctas == -(2**31)
try:
    dist.init_process_group("nccl", pg_options=dist.ProcessGroupGloo.Options())
    raise AssertionError("options of Gloo were taken for NCCL's")
except TypeError as err:
    assert "ProcessGroupNCCL.Options" in str(err), err
dist.init_process_group(first, pg_options=options if first == "nccl" else None)
rank, size = dist.get_rank(), dist.get_world_size()
other = dist.new_group(backend=second)
own = {"gloo": dist.ProcessGroupGloo, "nccl": dist.ProcessGroupNCCL}
assert type(dist.group.WORLD) is own.get(first, dist.ProcessGroup)
assert type(other) is own.get(second, dist.ProcessGroup) and dist.get_backend(other) == second
engines = {"cpu": second, "cuda": second}
if ":" in second:
    assert dist.get_backend_config(other) == second
    engines = dict(part.split(":") for part in second.split(","))
for device, engine in engines.items():
    part = other._get_backend(torch.device(device))
    assert isinstance(part, own[engine]) and part.name() == engine and part.size() == size
    part.allreduce([torch.ones(2, device=device)]).wait()
for group, backend in ((None, None), (other, second)):
    for device in ("cpu", "cuda"):
        t = torch.full((4,), rank + 1.0, device=device)
        dist.all_reduce(t, group=group)
        assert t.tolist() == [6] * 4
        pair = dist.new_group([0, 2], backend=backend)
        if rank != 1:
            dist.all_reduce(t, group=pair)
            assert t.tolist() == [12] * 4
dist.destroy_process_group(other)
t = torch.ones(1, device="cuda")
dist.all_reduce(t)
assert t.item() == size
dist.barrier()
dist.destroy_process_group()
print("ok\n", end="")
