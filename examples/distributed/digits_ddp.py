"""The digits of examples/digits.py, learned by several processes: each has a part of every batch,
and gradients are averaged.

    tenon launch -n 2 examples/distributed/digits_ddp.py --epochs 2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from digits import TRAINED, Net, evaluate, load
from progress import Progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=TRAINED, help="how many are learned from")
    options = parser.parse_args()
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    images, labels = load()
    order = torch.randperm(len(images))
    images, labels = images[order], labels[order]
    learned = TensorDataset(images[: options.images], labels[: options.images])
    sampler = DistributedSampler(learned, seed=1)
    loader = DataLoader(learned, batch_size=64 // size, sampler=sampler)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in Progress(loader, f"epoch {epoch + 1}", shown=rank == 0):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    # Each process looks at a part of the images that were not learned from.
    mine = torch.arange(TRAINED + rank, len(images), size)
    right = (evaluate(model.module, images[mine]) == labels[mine]).sum()
    counts = torch.tensor([int(right), len(mine)])
    dist.all_reduce(counts)
    if rank == 0:
        share = 100 * counts[0].item() / counts[1].item()
        print(f"digits: {share:.2f} % of {counts[1].item()} images never seen are right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
