"""Save and load: nested state as flat entries, boxes of tensors, and which rank writes which."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed.checkpoint import default_planner
from tenon.distributed.checkpoint.api import CheckpointException
from tenon.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    _EmptyStateDictLoadPlanner,
)
from tenon.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from tenon.distributed.checkpoint.metadata import Metadata
from tenon.distributed.checkpoint.staging import AsyncStager, copied
from tenon.distributed.checkpoint.stateful import Stateful

__all__: list[str] = []

Path = list[Any]


# ---- Nested state --------------------------------------------------------------------------------


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return True
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(v) for v in value)
    return isinstance(value, (Tensor, Stateful))


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Tensors and objects of nested state; lists without tensors are objects."""
    if isinstance(value, Stateful) and not isinstance(value, Tensor):
        value = value.state_dict()
    if isinstance(value, dict) and value:
        for k, v in value.items():
            yield from leaves(v, [*path, k])
    elif isinstance(value, list) and _has_tensor(value):
        for i, v in enumerate(value):
            yield from leaves(v, [*path, i])
    else:
        yield path, value


def flat(state: dict[str, Any]) -> dict[str, tuple[Path, Any]]:
    """The leaves by name."""
    found: dict[str, tuple[Path, Any]] = {}
    for path, value in leaves(state, []):
        key = ".".join(map(str, path))
        if key in found:
            raise ValueError(f"the state has two entries of the name '{key}'")
        found[key] = path, value
    return found


def put(state: Any, path: Path, value: Any) -> None:
    """Writes a leaf into nested state; what is missing on the way is made."""
    for here, after in zip(path, path[1:]):
        if isinstance(state, list):
            while len(state) <= here:
                state.append(None)
            if state[here] is None:
                state[here] = [] if isinstance(after, int) else {}
        elif here not in state:
            state[here] = [] if isinstance(after, int) else {}
        state = state[here]
    if isinstance(state, list):
        while len(state) <= path[-1]:
            state.append(None)
    state[path[-1]] = value


# ---- Boxes ---------------------------------------------------------------------------------------


def box_of(t: Tensor) -> tuple[Tensor, list[int], list[int], list[int]]:
    """(the part that this rank has, its first index, its shape, the whole's shape)"""
    from tenon.distributed.tensor import DTensor

    if not isinstance(t, DTensor):
        shape = list(t.shape)
        return t.detach(), [0] * len(shape), shape, shape
    if any(p.is_partial() for p in t.placements):
        raise ValueError("a DTensor whose ranks have terms of a sum cannot be saved or loaded")
    sizes, offsets = t._spec.local
    return t._local_tensor, list(offsets), list(sizes), list(t._spec.shape)


class _Ranks:
    """Exchange between the ranks of a group, or none."""

    def __init__(self, group: Any, alone: bool) -> None:
        self.on = not alone and distributed.is_initialized()
        self.on = self.on and distributed.get_world_size(group) > 1
        self.group = group
        self.rank = distributed.get_rank(group) if self.on else 0
        self.size = distributed.get_world_size(group) if self.on else 1

    def gather(self, what: str, run: Callable[[], Any]) -> list[Any]:
        """What `run` gives on each rank; an error on one of them is one on all."""
        error, value = None, None
        try:
            value = run()
        except Exception as err:
            error = err
        told: list[Any] = [(value, error)]
        if self.on:
            told = [None] * self.size
            plain = None if error is None else _portable(error)
            distributed.all_gather_object(told, (value, plain), self.group)
        failures = {rank: e for rank, (_, e) in enumerate(told) if e is not None}
        if failures:
            failed = CheckpointException(f"{what} has failed", failures)
            raise failed from error
        return [v for v, _ in told]


def _portable(error: Exception) -> Exception:
    """An error that travels, pickled."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _token(ranks: _Ranks, writer: FileSystemWriter) -> str:
    told = ranks.gather("save", lambda: writer.prepare() if ranks.rank == 0 else None)
    return told[0]


def _mine(
    ranks: _Ranks, entries: dict[str, tuple[Path, Any]], lowest: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(the boxes that this rank writes, all entries without places)"""
    parts = {}
    for key, (path, value) in entries.items():
        if isinstance(value, Tensor):
            local, offsets, sizes, shape = box_of(value)
            dtype = str(value.dtype).rpartition(".")[2]
            parts[key] = (local, {"key": key, "offsets": offsets, "sizes": sizes},
                          {"path": path, "dtype": dtype, "shape": shape})  # fmt: skip
        else:
            parts[key] = (value, {"key": key, "offsets": None, "sizes": None}, {"path": path})
    everyone = ranks.gather("save", lambda: [(b, e) for _, b, e in parts.values()])
    known: dict[str, Any] = {}
    load = [0] * ranks.size
    owner: dict[tuple[str, Any], int] = {}
    holders: dict[tuple[str, Any], list[int]] = {}
    weight: dict[tuple[str, Any], int] = {}
    for rank, told in enumerate(everyone):
        for box, entry in told:
            key = box["key"]
            before = known.setdefault(key, entry)
            if before != entry:
                raise CheckpointException(
                    "save has failed",
                    {rank: ValueError(f"'{key}' is {entry} here and {before} on another rank")},
                )
            at = (key, None if box["offsets"] is None else tuple(box["offsets"]))
            size = 1
            for n in box["sizes"] or ():
                size *= n
            if size:
                holders.setdefault(at, []).append(rank)
                weight[at] = size
    for at, some in holders.items():
        owner[at] = min(some, key=lambda r: (0 if lowest else load[r], r))
        load[owner[at]] += weight[at]
    boxes = []
    for key, (value, box, _) in parts.items():
        at = (key, None if box["offsets"] is None else tuple(box["offsets"]))
        if owner.get(at) == ranks.rank:
            boxes.append({**box, "value": value})
    return boxes, known


def _manifest(known: dict[str, Any], written: list[list[dict[str, Any]]]) -> dict[str, Any]:
    entries = {key: {**entry, "boxes": []} for key, entry in known.items()}
    for boxes in written:
        for box in boxes:
            entries[box["key"]]["boxes"].append({k: v for k, v in box.items() if k != "key"})
    return entries


def _writer(checkpoint_id: Any, writer: Any) -> FileSystemWriter:
    if writer is None:
        if checkpoint_id is None:
            raise RuntimeError("save: say where, by checkpoint_id or storage_writer")
        return FileSystemWriter(checkpoint_id)
    if not isinstance(writer, FileSystemWriter):
        raise NotImplementedError(
            f"{type(writer).__name__}: writers of one's own are not there yet; FileSystemWriter is"
        )
    writer.reset(checkpoint_id)
    return writer


def save(
    state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_writer: Any = None,
    planner: Any = None, process_group: Any = None, no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:  # fmt: skip
    """Writes nested state of all ranks into a folder. A DTensor is written by parts; what several
    ranks have is written by one of them."""
    plan = default_planner.check(planner, DefaultSavePlanner)
    ranks, writer = _Ranks(process_group, no_dist), _writer(checkpoint_id, storage_writer)
    token = _token(ranks, writer)
    boxes, known = _mine(ranks, flat(state_dict), plan.dedup_save_to_lowest_rank)
    written = ranks.gather("save", lambda: writer.write(ranks.rank, token, boxes))
    ranks.gather("save", lambda: writer.finish(_manifest(known, written), ranks.size)
                 if ranks.rank == 0 else None)  # fmt: skip
    return FileSystemReader(writer.path).read_metadata()


# ---- In the background ---------------------------------------------------------------------------

_PATIENCE_SECONDS = 1800.0


@dataclass
class AsyncSaveResponse:
    """Of a save whose state was copied by a thread: when it is copied, and when it is saved."""

    staging_completion: Future[Any]
    upload_completion: Future[Any]


def _told(state: Any) -> Any:
    """The state with that of its objects in their place."""
    state = state.state_dict() if isinstance(state, Stateful) else state
    if isinstance(state, dict):
        return {k: _told(v) for k, v in state.items()}
    return type(state)(map(_told, state)) if type(state) in (list, tuple) else state


def async_save(
    state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_writer: Any = None,
    planner: Any = None, process_group: Any = None, async_checkpointer_type: Any = None,
    async_stager: AsyncStager | None = None, no_dist: bool = False, use_collectives: bool = True,
) -> Future[Any] | AsyncSaveResponse:  # fmt: skip
    """save whose files are written by a thread, from a copy. Ranks then tell each other by files,
    so that training may exchange what it likes meanwhile.

    async_stager copies the state; one that returns a Future is waited for, and the result has both
    Futures."""
    if async_stager is None and isinstance(storage_writer, AsyncStager):
        async_stager = storage_writer
    if async_stager is None:
        return _save_copy(state_dict, checkpoint_id, storage_writer, planner, process_group,
                          no_dist, copied)  # fmt: skip
    staged = async_stager.stage(_told(state_dict))
    state = staged.result() if isinstance(staged, Future) else staged
    saved = _save_copy(state, checkpoint_id, storage_writer, planner, process_group, no_dist)
    if isinstance(staged, Future):
        return AsyncSaveResponse(staged, saved)
    if async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return saved


def _save_copy(
    state: dict[str, Any], checkpoint_id: Any, storage_writer: Any, planner: Any,
    process_group: Any, no_dist: bool, copy: Callable[[Any], Any] = lambda value: value,
) -> Future[Any]:  # fmt: skip
    """`copy` makes of each part one that nobody writes to."""
    plan = default_planner.check(planner, DefaultSavePlanner)
    ranks, writer = _Ranks(process_group, no_dist), _writer(checkpoint_id, storage_writer)
    token = _token(ranks, writer)
    boxes, known = _mine(ranks, flat(state), plan.dedup_save_to_lowest_rank)
    for box in boxes:
        box["value"] = copy(box["value"])
    pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def told(what: str) -> Any:
        return writer.path / f".{token}-{what}"

    def run() -> Metadata:
        try:
            answer: dict[str, Any] = {"boxes": writer.write(ranks.rank, token, boxes)}
        except Exception as err:
            answer = {"error": f"{type(err).__name__}: {err}"}
        if ranks.rank != 0:
            _tell(told(str(ranks.rank)), answer)
            end = _hear(told(f"end-{ranks.rank}"))
            failures: dict[int, Any] = {int(r): RuntimeError(e) for r, e in end.items()}
            return _ended(failures, writer)
        answers = [answer, *(_hear(told(str(r))) for r in range(1, ranks.size))]
        failures = {r: RuntimeError(a["error"]) for r, a in enumerate(answers) if "error" in a}
        if not failures:
            writer.finish(_manifest(known, [a["boxes"] for a in answers]), ranks.size)
        for r in range(1, ranks.size):
            _tell(told(f"end-{r}"), {str(n): str(e) for n, e in failures.items()})
        return _ended(failures, writer)

    future = pool.submit(run)
    pool.shutdown(wait=False)
    return future


def _tell(path: Any, answer: dict[str, Any]) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(answer))
    os.replace(beside, path)


def _hear(path: Any) -> dict[str, Any]:
    """What another rank has told by a file, which is removed."""
    deadline, pause = time.monotonic() + _PATIENCE_SECONDS, 0.001
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"async_save: {path} has not come within {_PATIENCE_SECONDS} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    answer = json.loads(path.read_text())
    path.unlink()
    return answer


def _ended(failures: dict[int, Any], writer: FileSystemWriter) -> Metadata:
    if failures:
        raise CheckpointException("async_save has failed", failures)
    return FileSystemReader(writer.path).read_metadata()


# ---- Load ----------------------------------------------------------------------------------------


def _fill(
    reader: FileSystemReader, key: str, entry: dict[str, Any], target: Tensor, cache: dict[Any, Any]
) -> None:
    """Copies what the boxes of an entry have of this rank's part."""
    local, offsets, sizes, shape = box_of(target)
    if shape != entry["shape"]:
        raise ValueError(
            f"Size mismatch between saved {entry['shape']} and current: {shape} for {key}"
        )
    missing = 1
    for n in sizes:
        missing *= n
    for box in entry["boxes"]:
        low = [max(a, b) for a, b in zip(offsets, box["offsets"], strict=True)]
        high = [
            min(a + n, b + m)
            for a, n, b, m in zip(offsets, sizes, box["offsets"], box["sizes"], strict=True)
        ]
        if any(a >= b for a, b in zip(low, high, strict=True)):
            continue
        at = (box["file"], box["offset"])
        if at not in cache:
            cache[at] = reader.read(key, entry, box)
        source = cache[at][tuple(slice(a - o, b - o) for a, b, o in
                                 zip(low, high, box["offsets"], strict=True))]  # fmt: skip
        goal = local[tuple(slice(a - o, b - o) for a, b, o in
                           zip(low, high, offsets, strict=True))]  # fmt: skip
        with tenon.no_grad():
            goal.copy_(source)
        count = 1
        for a, b in zip(low, high, strict=True):
            count *= b - a
        missing -= count
    if missing:
        raise ValueError(f"'{key}': the checkpoint lacks {missing} elements of this rank's part")


def _read_all(reader: FileSystemReader, key: str, entry: dict[str, Any]) -> Any:
    if "dtype" not in entry:
        return reader.read(key, entry, entry["boxes"][0])
    whole = tenon.empty(entry["shape"], dtype=getattr(tenon, entry["dtype"]), device="cpu")
    _fill(reader, key, entry, whole, {})
    return whole


def load_into(
    state_dict: dict[str, Any], reader: FileSystemReader, planner: Any, ranks: _Ranks
) -> None:
    """Fills the tensors of nested state, and replaces its other leaves."""

    def run() -> None:
        entries, _ = reader.entries()
        if isinstance(planner, _EmptyStateDictLoadPlanner):
            for key, entry in entries.items():
                if planner.wants(key, entry["path"]):
                    put(state_dict, entry["path"], _read_all(reader, key, entry))
            return
        plain = {
            k: v.state_dict() if isinstance(v, Stateful) and not isinstance(v, Tensor) else v
            for k, v in state_dict.items()
        }
        wanted = flat(plain)
        missing = [k for k in wanted if k not in entries]
        if missing and not planner.allow_partial_load:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {missing[0]}.")
        for key, (path, value) in wanted.items():
            if key in missing:
                continue
            entry = entries[key]
            if isinstance(value, Tensor) and "dtype" in entry:
                _fill(reader, key, entry, value, {})
            else:
                put(plain, path, _read_all(reader, key, entry))
        for k, v in state_dict.items():
            if isinstance(v, Stateful) and not isinstance(v, Tensor):
                v.load_state_dict(plain[k])
            else:
                state_dict[k] = plain[k]

    ranks.gather("load", run)


def _reader(checkpoint_id: Any, reader: Any) -> FileSystemReader:
    if reader is None:
        if checkpoint_id is None:
            raise RuntimeError("load: say from where, by checkpoint_id or storage_reader")
        return FileSystemReader(checkpoint_id)
    if not isinstance(reader, FileSystemReader):
        raise NotImplementedError(
            f"{type(reader).__name__}: readers of one's own are not there yet; FileSystemReader is"
        )
    reader.reset(checkpoint_id)
    return reader


def load(
    state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_reader: Any = None,
    planner: Any = None, process_group: Any = None, no_dist: bool = False,
) -> None:  # fmt: skip
    """Reads a checkpoint into nested state, in place: tensors and DTensors get their numbers,
    whatever the number of ranks that have written them, and other leaves are replaced."""
    plan = default_planner.check(planner, DefaultLoadPlanner)
    reader = _reader(checkpoint_id, storage_reader)
    load_into(state_dict, reader, plan, _Ranks(process_group, no_dist))
