"""Data on its way: own datasets, streams, samplers, collation, workers; numbers by index."""

import math

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)


class Rows(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return {"row": torch.arange(i % 3 + 1.0) + i, "label": i % 2, "value": np.float64(i) / 3}


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        count, first = (1, 0) if info is None else (info.num_workers, info.id)
        return iter(range(first, 10, count))


class Noise(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i, torch.rand(2)


def padded(samples):
    rows = pad_sequence([s["row"] for s in samples], batch_first=True, padding_value=-1.0)
    return rows, torch.tensor([s["label"] for s in samples])


def main():
    torch.manual_seed(12)
    for workers in (0, 2):
        for rows, labels in DataLoader(
            Rows(), 4, shuffle=True, collate_fn=padded, num_workers=workers
        ):
            print(rows, labels)
        print(list(DataLoader(Stream(), batch_size=3, num_workers=workers)))
        print(list(DataLoader(Noise(), batch_size=2, num_workers=workers)))
    same = Subset(Rows(), [0, 3, 6])
    print(next(iter(DataLoader(same, batch_size=3))), len(ConcatDataset([same, Rows()])))
    sampler = WeightedRandomSampler([0.1, 2.0, 0.5], 8)
    print(list(sampler), torch.initial_seed())

    groups = torch.randint(0, 3, (20,))
    values = torch.randn(20, 2)
    sums = torch.zeros(3, 2).index_add_(0, groups, values)
    counts = torch.bincount(groups, minlength=3)
    print(sums / counts.unsqueeze(1), torch.unique(groups, return_counts=True))
    best, place = values.norm(dim=1).topk(3)
    print(best, place, torch.where(values[:, 0] > 1)[0], values.std(0), values[groups == 1].sum())
    ranks = torch.empty(20, dtype=torch.long).scatter_(0, values[:, 0].argsort(), torch.arange(20))
    print(ranks, values.cumsum(0)[-1], math.floor(values.abs().max().item()))


if __name__ == "__main__":
    main()
