"""The part of a dataset that one process of several visits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tenon
from tenon.utils.data.sampler import Sampler

_UNEVEN = ("pad", "drop", "exact")


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th index, in an order that all processes share.

    uneven: what becomes of a dataset that cannot be divided. "pad" visits some samples twice,
    so that all processes get as many (PyTorch's way), "drop" leaves some out (`drop_last=True`);
    "exact" visits each once, and some processes get one more (`DistributedDataParallel.join`).

    `state_dict` says where in its epoch the sampler is, and `load_state_dict` goes on from there,
    with any number of processes: what is left of the epoch is divided among them.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: str | None = None,
    ) -> None:
        num_replicas = tenon.distributed.get_world_size() if num_replicas is None else num_replicas
        rank = tenon.distributed.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        if uneven is None:
            uneven = "drop" if drop_last else "pad"
        if uneven not in _UNEVEN:
            raise ValueError(f"uneven must be one of {', '.join(_UNEVEN)}, not {uneven!r}")
        if drop_last and uneven != "drop":
            raise ValueError(f"drop_last=True and uneven={uneven!r} contradict each other")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.uneven = uneven
        self.drop_last = uneven == "drop"
        self.shuffle = shuffle
        self.seed = seed
        self._first = 0  # samples of the epoch that all processes had visited before this pass
        self._given = 0  # to this process, in this pass

    @property
    def num_samples(self) -> int:
        """How many indices this process gets in a pass."""
        left = len(self.dataset) - self._first
        each, more = divmod(left, self.num_replicas)
        if self.uneven == "exact":
            return each + (self.rank < more)
        return each + (self.uneven == "pad" and more > 0)

    @property
    def total_size(self) -> int:
        """How many all processes get."""
        if self.uneven == "exact":
            return len(self.dataset) - self._first
        return self.num_samples * self.num_replicas

    def _order(self) -> list[int]:
        """The indices of a pass, each once."""
        size = len(self.dataset)
        if self.shuffle:
            generator = tenon.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order: list[int] = tenon.randperm(size, generator=generator).tolist()
        else:
            order = list(range(size))
        return order

    def __iter__(self) -> Iterator[int]:
        self._given = 0
        order = self._order()
        for place in range(self.rank, self.total_size, self.num_replicas):
            self._given += 1
            yield order[self._place(place, len(order))]
        self._first = self._given = 0

    def _place(self, place: int, size: int) -> int:
        """What is left of the pass; then it begins again from its first index."""
        left = size - self._first
        return self._first + place if place < left else (place - left) % size

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass. The epoch of a state that was loaded goes on."""
        if epoch != self.epoch:
            self._first = self._given = 0
        self.epoch = epoch

    def state_dict(self, visited: int | None = None) -> dict[str, Any]:
        """Epoch and place in it, the same on all processes.

        visited: how many samples of this pass the process has done. Unless it is said: as many as
        were taken, which a DataLoader with workers does ahead of those that it gives.
        """
        done = self._given if visited is None else visited
        offset = min(self._first + done * self.num_replicas, len(self.dataset))
        return {
            "epoch": self.epoch, "offset": offset, "size": len(self.dataset), "seed": self.seed,
            "shuffle": self.shuffle,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where the state was taken: the next pass is what was left of its epoch."""
        mine = {"size": len(self.dataset), "seed": self.seed, "shuffle": self.shuffle}
        for name, value in mine.items():
            if state_dict[name] != value:
                raise ValueError(
                    f"the state is that of a sampler with {name} {state_dict[name]}, this one has "
                    f"{value}: its order is another"
                )
        self.epoch = state_dict["epoch"]
        self._first, self._given = state_dict["offset"], 0
