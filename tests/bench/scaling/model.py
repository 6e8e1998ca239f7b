"""Times of exchanges and of training steps by the alpha-beta model: a message of S bytes takes
alpha + S / B seconds. Nothing is late and nothing collides: what follows is the best case.

All sizes are bytes, all times seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Link:
    alpha: float  # seconds until a message begins to arrive
    bytes_per_second: float

    def rounds(self, count: float, size: float) -> float:
        """`count` messages one after the other, of `size` bytes together."""
        return count * self.alpha + size / self.bytes_per_second


@dataclass(frozen=True)
class Cluster:
    """Machines of `width` devices, each of which has a link of its own to the other machines."""

    inside: Link
    across: Link
    width: int = 8


# What an exchange of that many bytes takes among that many devices.
Exchange = Callable[[int, float], float]


def ring_part(link: Link, devices: int, size: float) -> float:
    """A reduce-scatter or an all-gather of `size` bytes: each sends all but its own part on."""
    return link.rounds(devices - 1, size * (devices - 1) / devices)


def ring(link: Link, devices: int, size: float) -> float:
    """All-reduce: a reduce-scatter, then an all-gather."""
    return 2 * ring_part(link, devices, size)


def tree(link: Link, devices: int, size: float) -> float:
    """All-reduce over two binary trees with half of the data each, in pieces: up, then down."""
    return link.rounds(2 * math.ceil(math.log2(devices)), 2 * size if devices > 1 else 0)


def flat_ring(cluster: Cluster) -> Exchange:
    """One ring through all devices: it is as slow as the links across."""

    def time(devices: int, size: float) -> float:
        return ring(cluster.across if devices > cluster.width else cluster.inside, devices, size)

    return time


def two_level(cluster: Cluster, across: Callable[[Link, int, float], float]) -> Exchange:
    """Parts are summed in each machine, then across machines by `across`, then gathered again."""

    def time(devices: int, size: float) -> float:
        width = min(cluster.width, devices)
        machines = devices // width
        return 2 * ring_part(cluster.inside, width, size) + across(
            cluster.across, machines, size / width
        )

    return time


def two_level_part(cluster: Cluster) -> Exchange:
    """A reduce-scatter or an all-gather, across machines and within them."""

    def time(devices: int, size: float) -> float:
        width = min(cluster.width, devices)
        across = ring_part(cluster.across, devices // width, size / width)
        return ring_part(cluster.inside, width, size) + across

    return time


@dataclass(frozen=True)
class Work:
    """A step of one device: the sizes of what is exchanged at once, in the order of backward, and
    what forward and backward take. Time is spent on each part in proportion to its size."""

    sizes: tuple[float, ...]
    forward: float
    backward: float

    @property
    def ready(self) -> list[float]:
        """When the gradients of each part are there, from the start of the step."""
        total = sum(self.sizes)
        return [self.forward + self.backward * s / total for s in accumulate(self.sizes)]


def one_by_one(ready: list[float], times: list[float]) -> float:
    """When the last of some exchanges ends that are made in order, each when it is ready."""
    end = 0.0
    for at, time in zip(ready, times, strict=True):
        end = max(end, at) + time
    return end


def ddp(work: Work, devices: int, reduce: Exchange) -> float:
    """A step of data-parallel training: buckets are summed while backward goes on."""
    times = [reduce(devices, size) for size in work.sizes]
    return one_by_one(work.ready, times)


def fsdp(work: Work, devices: int, part: Exchange, waits: bool) -> float:
    """A step of sharded training. A unit is gathered for its forward and for its backward, while
    the one before it computes. Its gradients are reduced and scattered after its backward;
    `waits`: the next unit's backward begins after that."""
    total = sum(work.sizes)
    units = [(s, work.forward * s / total, 0) for s in reversed(work.sizes)]
    units += [(s, work.backward * s / total, 1) for s in work.sizes]
    times = [part(devices, size) for size, _, _ in units]
    link = gathered = times[0]  # when the link is free, when the next unit is there
    computed = 0.0
    for i, (_, seconds, reduced) in enumerate(units):
        start = max(computed, gathered)
        computed = start + seconds
        if i + 1 < len(units):
            link = gathered = max(link, start) + times[i + 1]
        if reduced:
            link = max(link, computed) + times[i]
            computed = link if waits else computed
    return max(link, computed)
