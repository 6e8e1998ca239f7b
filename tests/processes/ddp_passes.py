"""Which gradients DistributedDataParallel averages in passes that use a part of a module or compute
parts again, against sums that are computed whole; `test_sharding.py` starts it."""

import copy
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()


class Paths(torch.nn.Module):
    """Layers of which a pass leaves one out, computed again in backward if `again` is set."""

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4).double() for _ in range(3))
        self.again = again

    def forward(self, x: torch.Tensor, left_out: int = -1) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            if i != left_out:
                x = torch.tanh(checkpoint(layer, x, use_reentrant=True) if self.again else layer(x))
        return x


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.sin(torch.arange(12, dtype=torch.float64) + 5 * rank + 7 * step).view(3, 4)


def averages(steps: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """What backward of these passes leaves, each rank's layer left out by pass: the sums of every
    rank, averaged after the last one."""
    total = [torch.zeros_like(p) for p in Paths().parameters()]
    for rank in range(SIZE):
        net = Paths()
        for step, left_out in enumerate(steps):
            net(batch(rank, step), left_out[rank]).square().sum().backward()
        for t, p in zip(total, net.parameters(), strict=True):
            t += (0 if p.grad is None else p.grad) / SIZE
    return total


def same(ddp: torch.nn.Module, want: list[torch.Tensor]) -> None:
    for p, w in zip(ddp.parameters(), want, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), w.numpy(), 1e-10, 1e-12)


def check_what_a_rank_did_not_use() -> None:
    """A parameter without a gradient in the last pass gives what earlier ones have left there."""
    steps = [(1, 2), (2, 0)]
    for views in (False, True):
        net = Paths()
        ddp = DistributedDataParallel(
            net, find_unused_parameters=True, gradient_as_bucket_view=views
        )
        with ddp.no_sync():
            ddp(batch(RANK, 0), steps[0][RANK]).square().sum().backward()
        ddp(batch(RANK, 1), steps[1][RANK]).square().sum().backward()
        same(ddp, averages(steps))
        # Averages of one pass are in every rank's sum of the next one, used there or not.
        before = [p.grad.clone() for p in ddp.parameters()]
        ddp(batch(RANK, 0), RANK).square().sum().backward()
        same(ddp, [a + b for a, b in zip(before, averages([(0, 1)]), strict=True)])
        # What a program lets go of between forward and backward does not count.
        loss = ddp(batch(RANK, 0), RANK).square().sum()
        ddp.zero_grad()
        loss.backward()
        same(ddp, averages([(0, 1)]))


def check_static_graphs() -> None:
    """Parts that are computed again come in passes of their own, and a layer may come twice."""
    for again in (False, True):
        for options in ({}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 1e-5}):
            ddp = DistributedDataParallel(Paths(again), static_graph=True, **options)
            for _ in range(3):
                ddp.zero_grad()
                ddp(batch(RANK, 0).requires_grad_()).square().sum().backward()
                same(ddp, averages([(-1, -1)]))
    net = Paths(True)
    net.layers.append(net.layers[0])
    ddp = DistributedDataParallel(net, static_graph=True)
    want = [torch.zeros_like(p) for p in ddp.parameters()]
    for rank in range(SIZE):
        other = copy.deepcopy(net)
        other(batch(rank, 0).requires_grad_()).square().sum().backward()
        for t, p in zip(want, other.parameters(), strict=True):
            t += p.grad / SIZE
    for _ in range(3):
        ddp.zero_grad()
        ddp(batch(RANK, 0).requires_grad_()).square().sum().backward()
        same(ddp, want)
    ddp = DistributedDataParallel(Paths(), static_graph=True)
    for left_out in (1, 1, 2):
        try:
            ddp(batch(RANK, 0), left_out).sum().backward()
        except RuntimeError as err:
            assert left_out == 2 and "training graph has changed" in str(err), err
            break
        assert ddp.module.layers[1].weight.grad is None
    else:
        raise AssertionError


def check_buffers_of_each_rank() -> None:
    norm = torch.nn.BatchNorm1d(3)
    norm.running_mean.fill_(RANK + 1.0)
    DistributedDataParallel(norm, broadcast_buffers=False)
    assert norm.running_mean[0] == RANK + 1
    DistributedDataParallel(norm)
    assert norm.running_mean[0] == 1


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
dist.destroy_process_group()
print("ok\n", end="")
