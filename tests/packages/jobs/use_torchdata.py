"""Loaders that go on where a state says, and nodes."""

import torch
import torchdata.nodes as nodes
from report import report
from torch.utils.data import RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

data = [torch.tensor([float(i), i * 2.0]) for i in range(20)]
for workers in (0, 2):
    torch.manual_seed(0)
    loader = StatefulDataLoader(data, batch_size=3, shuffle=True, num_workers=workers)
    batches = iter(loader)
    for _ in range(3):
        report("batch", next(batches))
    state = loader.state_dict()
    rest = list(batches)
    again = StatefulDataLoader(data, batch_size=3, shuffle=True, num_workers=workers)
    again.load_state_dict(state)
    for left, right in zip(rest, again, strict=True):
        report("rest", left)
        report("again", right)
sampler = RandomSampler(range(20), generator=torch.Generator().manual_seed(1))
node = nodes.SamplerWrapper(sampler)
node = nodes.ParallelMapper(node, lambda i: data[i], num_workers=2, method="thread")
node = nodes.Mapper(nodes.Batcher(node, 4), torch.stack)
for batch in nodes.Loader(nodes.Prefetcher(node, 2)):
    report("node", batch)
