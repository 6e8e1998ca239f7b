"""Hogwild: processes that train one model in shared memory, without locks and without waiting.

tenon run examples/distributed/hogwild.py --processes 2 --epochs 2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from digits import TRAINED, Net, evaluate, load
from progress import Progress


def train(
    rank: int, options: argparse.Namespace, model: Net, images: torch.Tensor, labels: torch.Tensor
) -> None:
    """What one process does: its gradients are its own, the parameters those of all."""
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    for epoch in range(options.epochs):
        model.train()
        for x, y in Progress(loader, f"epoch {epoch + 1}", shown=rank == 0):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=TRAINED, help="how many are learned from")
    options = parser.parse_args()
    torch.manual_seed(1)
    images, labels = load()
    order = torch.randperm(len(images))
    images, labels = images[order], labels[order]
    model = Net()
    model.share_memory()
    learned = images[: options.images], labels[: options.images]
    mp.spawn(train, args=(options, model, *learned), nprocs=options.processes)
    right = (evaluate(model, images[TRAINED:]) == labels[TRAINED:]).float().mean().item()
    unseen = len(images) - TRAINED
    print(f"hogwild: {100 * right:.2f} % of {unseen} images never seen are right")


if __name__ == "__main__":
    main()
