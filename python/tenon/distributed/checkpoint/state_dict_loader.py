"""Reading of checkpoints."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon.distributed.checkpoint._ranks import Ranks
from tenon.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from tenon.distributed.checkpoint.filesystem import FileSystemReader
from tenon.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from tenon.distributed.checkpoint.state_dict_saver import storage_at, takes
from tenon.distributed.checkpoint.stateful import Stateful
from tenon.distributed.checkpoint.storage import StorageReader

__all__ = ["load", "load_state_dict"]


def _storage(checkpoint_id: Any, reader: StorageReader | None) -> StorageReader:
    missing = "load: say from where, by checkpoint_id or storage_reader"
    found: StorageReader = storage_at(checkpoint_id, reader, FileSystemReader, missing)
    return found


def _load_state_dict(
    state_dict: dict[str, Any], storage_reader: StorageReader, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: LoadPlanner | None = None,
) -> None:  # fmt: skip
    """load whose storage is set up, into state without objects."""
    ranks, chosen = Ranks(process_group, no_dist, coordinator_rank), planner or DefaultLoadPlanner()

    def local() -> LoadPlan:
        told = storage_reader.read_metadata()
        chosen.set_up_planner(state_dict, told, ranks.leads)
        more = {}
        if takes(storage_reader.set_up_storage_reader, "kwargs"):
            more = {"rank": ranks.rank, "use_collectives": True}
        storage_reader.set_up_storage_reader(told, ranks.leads, **more)
        return storage_reader.prepare_local_plan(chosen.create_local_plan())

    def together(plans: list[LoadPlan]) -> list[LoadPlan]:
        return storage_reader.prepare_global_plan(chosen.create_global_plan(plans))

    plans = ranks.gather("load", local)
    plans = ranks.lead("load", lambda: together(plans))
    plan = chosen.finish_plan(plans[ranks.rank])
    ranks.gather("load", lambda: storage_reader.read_data(plan, chosen).wait())


def load(
    state_dict: dict[str, Any], *, checkpoint_id: Any = None,
    storage_reader: StorageReader | None = None, planner: LoadPlanner | None = None,
    process_group: Any = None, no_dist: bool = False,
) -> None:  # fmt: skip
    """Reads a checkpoint into nested state, in place: tensors and DTensors get their numbers,
    whatever the number of ranks that have written them, and other leaves are replaced."""
    reader = _storage(checkpoint_id, storage_reader)
    objects = {k: v for k, v in state_dict.items()
               if isinstance(v, Stateful) and not isinstance(v, Tensor)}  # fmt: skip
    plain = {k: objects[k].state_dict() if k in objects else v for k, v in state_dict.items()}
    _load_state_dict(plain, reader, process_group, 0, no_dist, planner)
    for k, v in plain.items():
        if k in objects:
            objects[k].load_state_dict(v)
        else:
            state_dict[k] = v


def load_state_dict(
    state_dict: dict[str, Any], storage_reader: StorageReader, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: LoadPlanner | None = None,
) -> None:  # fmt: skip
    """The earlier form of load."""
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None, *, checkpoint_id: Any = None,
    storage_reader: StorageReader | None = None, process_group: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What a checkpoint has of these names, or all of it."""
    state: dict[str, Any] = {}
    chosen = {keys} if isinstance(keys, str) else keys
    _load_state_dict(state, _storage(checkpoint_id, storage_reader), process_group,
                     planner=_EmptyStateDictLoadPlanner(chosen))  # fmt: skip
    return state
