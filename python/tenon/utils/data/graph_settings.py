"""What a loader sets in all the pipes that its own is made of: order, seeds, shares."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import tenon
from tenon.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES, _ShardingIterDataPipe
from tenon.utils.data.graph import DataPipeGraph, traverse_dps

__all__ = [
    "apply_random_seed", "apply_sharding", "apply_shuffle_seed", "apply_shuffle_settings",
    "get_all_graph_pipes",
]  # fmt: skip


def get_all_graph_pipes(graph: DataPipeGraph) -> list[Any]:
    """The pipes of a graph, each once."""
    found: dict[int, Any] = {}

    def add(part: DataPipeGraph) -> None:
        for key, (pipe, below) in part.items():
            if key not in found:
                found[key] = pipe
                add(below)

    add(graph)
    return list(found.values())


def _has(pipe: Any, *names: str) -> bool:
    """Whether its class has these methods; pipes have others by name, which make new pipes."""
    return all(inspect.ismethod(getattr(pipe, name, None)) for name in names)


def _share_out(graph: DataPipeGraph, how: tuple[Any, ...], above: Any) -> None:
    for pipe, below in graph.values():
        applied = above
        if isinstance(pipe, _ShardingIterDataPipe) or _has(pipe, "apply_sharding"):
            if above is not None:
                raise RuntimeError(
                    "Sharding twice on a single pipeline is likely unintended and will cause data "
                    f"loss. Sharding already applied to {above} while trying to apply to {pipe}"
                )
            if len(inspect.signature(pipe.apply_sharding).parameters) < 3:
                pipe.apply_sharding(*how[:2])
            else:
                pipe.apply_sharding(*how[:2], sharding_group=how[2])
            applied = pipe
        _share_out(below, how, applied)


def apply_sharding(
    datapipe: Any,
    num_of_instances: int,
    instance_id: int,
    sharding_group: SHARDING_PRIORITIES = SHARDING_PRIORITIES.DEFAULT,
) -> Any:
    """Tells every sharding_filter how many share its elements, and which of them this is."""
    _share_out(traverse_dps(datapipe), (num_of_instances, instance_id, sharding_group), None)
    return datapipe


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Tells every shuffle whether to; with True and none there, one is added at the end."""
    if shuffle is None:
        return datapipe
    pipes = get_all_graph_pipes(traverse_dps(datapipe))
    shufflers = [pipe for pipe in pipes if _has(pipe, "set_shuffle", "set_seed")]
    if not shufflers and shuffle:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at "
            "the end. Be aware that the default buffer size might not be sufficient for your task.",
            stacklevel=2,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for shuffler in shufflers:
        shuffler.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Gives every pipe that has a set_seed a seed that is drawn from the generator."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if _has(pipe, "set_seed"):
            pipe.set_seed(int(tenon.empty((), dtype=tenon.int64).random_(generator=rng).item()))
    return datapipe


def apply_shuffle_seed(datapipe: Any, rng: Any) -> Any:
    """apply_random_seed by its older name."""
    warnings.warn(
        "`apply_shuffle_seed` is deprecated since 1.12 and will be removed in the future releases. "
        "Please use `apply_random_seed` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return apply_random_seed(datapipe, rng)
