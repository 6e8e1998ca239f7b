"""Writing of checkpoints."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tenon.distributed.checkpoint._ranks import Ranks
from tenon.distributed.checkpoint.default_planner import DefaultSavePlanner
from tenon.distributed.checkpoint.filesystem import FileSystemWriter
from tenon.distributed.checkpoint.metadata import Metadata
from tenon.distributed.checkpoint.planner import SavePlan, SavePlanner
from tenon.distributed.checkpoint.staging import AsyncStager, copied
from tenon.distributed.checkpoint.stateful import Stateful
from tenon.distributed.checkpoint.storage import StorageWriter

__all__ = [
    "AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict",
]  # fmt: skip


class AsyncCheckpointerType(Enum):
    """What writes in the background: a thread, whichever is asked for."""

    THREAD = "thread"
    PROCESS = "process"


def _told(state: Any) -> Any:
    """The state with that of its objects in their place."""
    state = state.state_dict() if isinstance(state, Stateful) else state
    if isinstance(state, dict):
        return {k: _told(v) for k, v in state.items()}
    return type(state)(map(_told, state)) if type(state) in (list, tuple) else state


def storage_at(checkpoint_id: Any, given: Any, made: Callable[[Any], Any], missing: str) -> Any:
    """The writer or reader that is given, of this checkpoint; without one that of a folder."""
    if given is None:
        if checkpoint_id is None:
            raise RuntimeError(missing)
        return made(checkpoint_id)
    if checkpoint_id is not None:
        given.reset(checkpoint_id)
    return given


def _storage(checkpoint_id: Any, writer: StorageWriter | None) -> StorageWriter:
    missing = "save: say where, by checkpoint_id or storage_writer"
    found: StorageWriter = storage_at(checkpoint_id, writer, FileSystemWriter, missing)
    return found


# ---- Steps ---------------------------------------------------------------------------------------


def takes(call: Any, name: str) -> bool:
    """Whether a function of a program has an argument of this name."""
    return name in inspect.signature(call).parameters


def _planned(
    state: dict[str, Any], writer: StorageWriter, planner: SavePlanner, ranks: Ranks
) -> tuple[SavePlan, Metadata | None]:
    """(what this rank writes, on the coordinator what the checkpoint says of itself)"""

    def local() -> SavePlan:
        meta = {}
        if takes(planner.set_up_planner, "storage_meta"):
            meta["storage_meta"] = writer.storage_meta()
        planner.set_up_planner(state, is_coordinator=ranks.leads, **meta)
        more = {}
        if takes(writer.set_up_storage_writer, "kwargs"):
            more = {"rank": ranks.rank, "use_collectives": True}
        writer.set_up_storage_writer(ranks.leads, **more)
        return writer.prepare_local_plan(planner.create_local_plan())

    told: list[Metadata] = []

    def together(plans: list[SavePlan]) -> list[SavePlan]:
        plans, metadata = planner.create_global_plan(plans)
        told.append(metadata)
        return writer.prepare_global_plan(plans)

    plans = ranks.gather("save", local)
    plans = ranks.lead("save", lambda: together(plans))
    return planner.finish_plan(plans[ranks.rank]), told[0] if told else None


def _wrote(
    plan: SavePlan, metadata: Metadata | None, writer: StorageWriter, planner: SavePlanner,
    ranks: Ranks,
) -> Metadata:  # fmt: skip
    results = ranks.gather("save", lambda: writer.write_data(plan, planner).wait())

    def finished() -> Metadata:
        assert metadata is not None
        writer.finish(metadata, results)
        return metadata

    return ranks.lead("save", finished)


def _save_state_dict(
    state_dict: dict[str, Any], storage_writer: StorageWriter, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: SavePlanner | None = None,
    use_collectives: bool = True,
) -> Metadata:  # fmt: skip
    """save whose storage is set up, of state without objects."""
    ranks, chosen = Ranks(process_group, no_dist, coordinator_rank), planner or DefaultSavePlanner()
    plan, metadata = _planned(state_dict, storage_writer, chosen, ranks)
    return _wrote(plan, metadata, storage_writer, chosen, ranks)


def save(
    state_dict: dict[str, Any], *, checkpoint_id: Any = None,
    storage_writer: StorageWriter | None = None, planner: SavePlanner | None = None,
    process_group: Any = None, no_dist: bool = False, use_collectives: bool = True,
) -> Metadata:  # fmt: skip
    """Writes nested state of all ranks: into a folder, or where storage_writer says. A DTensor is
    written by parts; what several ranks have is written by one of them."""
    return _save_state_dict(_told(state_dict), _storage(checkpoint_id, storage_writer),
                            process_group, 0, no_dist, planner)  # fmt: skip


def save_state_dict(
    state_dict: dict[str, Any], storage_writer: StorageWriter, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: SavePlanner | None = None,
) -> Metadata:  # fmt: skip
    """The earlier form of save."""
    storage_writer.reset()
    return _save_state_dict(
        _told(state_dict), storage_writer, process_group, coordinator_rank, no_dist, planner
    )


# ---- In the background ---------------------------------------------------------------------------


@dataclass
class AsyncSaveResponse:
    """Of a save whose state was copied by a thread: when it is copied, and when it is saved."""

    staging_completion: Future[Any]
    upload_completion: Future[Any]


def async_save(
    state_dict: dict[str, Any], *, checkpoint_id: Any = None,
    storage_writer: StorageWriter | None = None, planner: SavePlanner | None = None,
    process_group: Any = None, async_checkpointer_type: Any = None,
    async_stager: AsyncStager | None = None, no_dist: bool = False, use_collectives: bool = True,
) -> Future[Any] | AsyncSaveResponse:  # fmt: skip
    """save whose files are written by a thread, from a copy. The ranks exchange over a group of its
    own, so that training may exchange what it likes meanwhile.

    async_stager copies the state; one that returns a Future is waited for, and the result has both
    Futures."""
    if async_stager is None and isinstance(storage_writer, AsyncStager):
        async_stager = storage_writer
    told = _told(state_dict)
    staged = copied(told) if async_stager is None else async_stager.stage(told)
    state = staged.result() if isinstance(staged, Future) else staged
    writer, chosen = _storage(checkpoint_id, storage_writer), planner or DefaultSavePlanner()
    ranks = Ranks(process_group, no_dist)
    plan, metadata = _planned(state, writer, chosen, ranks)
    beside = ranks.beside()
    pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    saved = pool.submit(_wrote, plan, metadata, writer, chosen, beside)
    pool.shutdown(wait=False)
    if isinstance(staged, Future):
        return AsyncSaveResponse(staged, saved)
    if async_stager is not None and async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return saved
