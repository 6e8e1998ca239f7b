"""Processes with different numbers of inputs, against the same steps in one process, and something
of a program's own that takes part. `test_training.py` starts it: ENGINE."""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    return torch.nn.Sequential(*layers).double()


def loss(net: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    x = torch.cos(torch.arange(12.0).double() * (rank + 1) + step).view(3, 4)
    return net(x).square().mean()


def in_one_process(counts: list[int], by_active: bool) -> list[torch.Tensor]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(max(counts)):
        active = [r for r in range(SIZE) if step < counts[r]]
        optimizer.zero_grad()
        total = sum(loss(net, r, step) for r in active)
        (total / (len(active) if by_active else SIZE)).backward()
        optimizer.step()
    return list(net.parameters())


def same(got: torch.nn.Module, want: list[torch.Tensor]) -> None:
    for a, b in zip(got.parameters(), want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


class Counter(Joinable):
    """How many iterations all processes had, as PyTorch's tutorial counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.last = 0, None

    def __call__(self) -> None:
        Join.notify_join_context(self)
        self.add(1.0)

    def add(self, one: float) -> None:
        t = torch.full((1,), one)
        dist.all_reduce(t)
        self.count += int(t.item())

    def join_hook(self, **kwargs: object) -> JoinHook:
        counter, start = self, kwargs.get("start", 0)
        counter.count += start

        class Hook(JoinHook):
            def main_hook(self) -> None:
                counter.add(0.0)

            def post_hook(self, is_last_joiner: bool) -> None:
                counter.last = is_last_joiner

        return Hook()

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> object:
        return dist.group.WORLD


counts = [2 + r for r in range(SIZE)]
for by_active in (False, True):
    net = model()
    ddp = DistributedDataParallel(net)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    counter = Counter()
    options = {"divide_by_initial_world_size": not by_active, "start": 100}
    with Join([ddp, optimizer, counter], **options):
        for step in range(counts[RANK]):
            optimizer.zero_grad()
            loss(ddp, RANK, step).backward()
            optimizer.step()
            counter()
    same(net, in_one_process(counts, by_active))
    assert counter.count == 100 + sum(counts) and counter.last == (RANK == SIZE - 1)
net = model()
ddp = DistributedDataParallel(net)
said, steps = "", 0
try:
    with ddp.join(throw_on_early_termination=True):
        for step in range(counts[RANK]):
            loss(ddp, RANK, step).backward()
            steps += 1
except RuntimeError as err:
    said = str(err)
mine = f"Rank {RANK} exhausted all inputs." if counts[RANK] == counts[0] else "at least one rank"
assert mine in said and steps == counts[0], (said, steps)
with ddp.join(enable=False):  # nobody waits for anybody
    pass
try:
    Join([])
except ValueError as err:
    assert "at least one joinable" in str(err)
else:
    raise AssertionError


class Counted(torch.nn.Module):
    """A layer that counts what it has seen, each rank in steps of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += RANK + 1
        return self.layer(x).sum()


# Buffers are shared in front of a pass that comes after one whose gradients were exchanged.
ddp, mine, x = DistributedDataParallel(Counted()), RANK + 1, torch.ones(3, 2)
seen = []
for exchanges, learns in ((1, 1), (0, 1), (1, 1), (1, 0), (1, 0), (1, 1), (1, 1)):
    with torch.set_grad_enabled(bool(learns)), nullcontext() if exchanges else ddp.no_sync():
        out = ddp(x)
    if learns:
        out.backward()
    seen.append(int(ddp.module.seen))
first = [mine, 1 + mine, 1 + 2 * mine, 3 + mine, 3 + 2 * mine, 3 + 3 * mine, 6 + mine]
assert seen == first, (seen, first)
# Inside join() they are those of the last rank that still has inputs.
ddp = DistributedDataParallel(Counted())
with ddp.join():
    for _ in range(2 if RANK else 1):
        ddp(x).backward()
assert ddp.module.seen == SIZE + SIZE if RANK else 2 * SIZE, ddp.module.seen
dist.barrier()
dist.destroy_process_group()
print("ok\n", end="")
