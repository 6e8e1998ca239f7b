"""PowerSGD beside plain averages, in two processes: `test_power.py` starts it and knows what
PyTorch's parameters come to."""

import pickle
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(sys.argv[1])
RANK = dist.get_rank()
CASES = (
    {}, {"matrix_approximation_rank": 2}, {"matrix_approximation_rank": 3},
    {"use_error_feedback": False, "warm_start": False, "start_powerSGD_iter": 1},
    {"batch_tensors_with_same_shape": True, "matrix_approximation_rank": 2},
    {"orthogonalization_epsilon": 1e-3}, {"random_seed": 77, "matrix_approximation_rank": 4},
)  # fmt: skip


def trained(state, hook, steps=8, kept_at=None):
    torch.manual_seed(0)
    layers = [nn.Linear(20, 30), *(nn.Linear(30, 30) for _ in range(2)), nn.Linear(30, 5)]
    net = nn.Sequential(*[m for layer in layers for m in (layer, nn.Tanh())][:-1])
    ddp = DistributedDataParallel(net)
    if state is not None:
        ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(RANK + 5)
    for step in range(steps):
        x, y = (torch.randn(16, n, generator=draw) for n in (20, 5))
        optimizer.zero_grad()
        ((ddp(x) - y) ** 2).mean().backward()
        optimizer.step()
        if step == kept_at:
            vars(state).update(vars(pickle.loads(pickle.dumps(state))))
    return [p.detach() for p in net.parameters()]


def state_of(**options):
    return power.PowerSGDState(None, **{"start_powerSGD_iter": 2, **options})


for options in CASES:
    state = state_of(**options)
    parameters = trained(state, power.powerSGD_hook)
    if RANK == 0:
        total = sum(float(p.double().sum()) for p in parameters)
        print("case", f"{total:.6f}", state.iter, *state.compression_stats()[1:], flush=True)

plain = trained(None, None)
for hook in (power.powerSGD_hook, power.batched_powerSGD_hook):
    exact = trained(state_of(matrix_approximation_rank=1000, min_compression_rate=0), hook)
    for a, b in zip(plain, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    coarse = trained(state_of(), hook)
    assert any((a - b).abs().max() > 1e-4 for a, b in zip(plain, coarse, strict=True))
    for cold in (False, True):
        own = {"warm_start": not cold, "start_powerSGD_iter": 2}
        once, again = (trained(state_of(**own), hook, kept_at=at) for at in (None, 4))
        for a, b in zip(once, again, strict=True):
            assert torch.equal(a, b)
print("ok", flush=True)
dist.destroy_process_group()
