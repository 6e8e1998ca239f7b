"""A small training in several processes, each with its part of the batch; prints a digest of the
weights, which all ranks share, and their sums. Options: delays (in backward, at random), unused
(parts of the module), views (gradients as parts of buckets), join, batchnorm, copied (goes on with
copies of the wrapped module)."""

import copy
import hashlib
import pickle
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

options = sys.argv[2:]
dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # rank 0 decides


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 16)
        self.norm = torch.nn.BatchNorm1d(16) if "batchnorm" in options else torch.nn.Identity()
        self.left, self.right = torch.nn.Linear(16, 3), torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, left: bool, both: bool) -> torch.Tensor:
        h = torch.tanh(self.norm(self.first(x)))
        if both:
            return self.left(h) + self.right(h)
        return self.left(h) if left else self.right(h)


net = Net().double()
if "batchnorm" in options:
    net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
unused = "unused" in options
ddp = DistributedDataParallel(
    net, bucket_cap_mb=0.0004, find_unused_parameters=unused,
    gradient_as_bucket_view="views" in options,
)  # fmt: skip
with torch.no_grad():  # the same start for any number of processes
    numbers = torch.Generator().manual_seed(3)
    for p in net.parameters():
        p.copy_(torch.randn(p.shape, generator=numbers, dtype=torch.float64) * 0.3)
if "delays" in options:
    wait = random.Random(rank)
    for p in net.parameters():
        p.register_hook(lambda g: time.sleep(wait.random() * 0.003))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2, momentum=0.9)
numbers = torch.Generator().manual_seed(7)
inputs = torch.randn(8, 12, 6, generator=numbers, dtype=torch.float64)
targets = torch.randint(0, 3, (8, 12), generator=numbers)


def step(x: torch.Tensor, y: torch.Tensor, i: int) -> None:
    optimizer.zero_grad()
    F.cross_entropy(ddp(x, i % 2 == 0, not unused), y).backward()
    optimizer.step()


if "join" in options:
    with Join([ddp]):
        for i in range(3 + rank):  # ranks have different numbers of inputs
            step(inputs[i][rank * 2 : rank * 2 + 2], targets[i][rank * 2 : rank * 2 + 2], i)
else:
    for i in range(8):
        if "copied" in options and i in (3, 6):
            held = optimizer.state_dict()
            ddp = copy.deepcopy(ddp) if i == 3 else pickle.loads(pickle.dumps(ddp))
            assert ddp.process_group is dist.group.WORLD
            net = ddp.module
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2, momentum=0.9)
            optimizer.load_state_dict(held)
        part = slice(rank * 12 // size, (rank + 1) * 12 // size)
        step(inputs[i][part], targets[i][part], i)
    left = set(map(id, net.left.parameters()))
    for p in net.parameters():  # the last pass used the right part alone, in every process
        assert (p.grad is None) == (unused and id(p) in left)
data = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
digests = [None] * size
dist.all_gather_object(digests, hashlib.sha256(data).hexdigest())
assert len(set(digests)) == 1, "the ranks have different weights"
if rank == 0:
    print(digests[0], " ".join(f"{p.sum().item():.12f}" for p in net.parameters()))
dist.destroy_process_group()
