"""Checkpoints of several processes: written by one number of them and read by another; faults while
they are written. `test_checkpoints.py` starts it: ENGINE ACTION FOLDER."""

import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.format_utils import (
    BroadcastingTorchSaveReader,
    DynamicMetaLoadPlanner,
)
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

action, folder = sys.argv[2], sys.argv[3]
dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def net() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3)
    ).double()


def batch(i: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(i)
    return torch.randn(4, 5, generator=numbers).double(), torch.randint(
        0, 3, (4,), generator=numbers
    )


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, i: int) -> None:
    x, y = batch(i)  # every rank has the same: any number of them computes the same
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


KINDS = {
    "plain": lambda: net(),
    "ddp": lambda: DistributedDataParallel(net()),
    "shard": lambda: fully_shard(net()),
    "flat": lambda: FSDP(net()),
    "named": lambda: FSDP(net(), use_orig_params=True),
}


class Counter:
    """Something with a state."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict:
        return {"count": self.count}

    def load_state_dict(self, state: dict) -> None:
        self.count = state["count"]


def make(kind: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = KINDS[kind]()
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def same(a: torch.nn.Module, b: torch.nn.Module) -> None:
    full = StateDictOptions(full_state_dict=True)
    left, right = (get_model_state_dict(m, options=full) for m in (a, b))
    assert left.keys() == right.keys() == net().state_dict().keys(), (list(left), list(right))
    for k, v in left.items():
        np.testing.assert_allclose(right[k].numpy(), v.numpy(), 1e-9, 1e-11, err_msg=k)


def save() -> None:
    for kind in KINDS:
        model, optimizer = make(kind)
        for i in range(2):
            step(model, optimizer, i)
        states = get_state_dict(model, optimizer)
        counter = Counter()
        counter.count = 41
        cut = distribute_tensor(torch.arange(10.0), init_device_mesh("cpu", (SIZE,)), [Shard(0)])
        whole = {"model": states[0], "optim": states[1], "counter": counter, "note": {"epoch": 3},
                 "list": [torch.ones(2), "x"], "cut": cut}  # fmt: skip
        path = Path(folder) / kind
        for _ in range(2):  # over the one before, whose files go
            dcp.save(whole, checkpoint_id=path)
        names = sorted(p.name for p in path.iterdir())
        assert names[0] == ".metadata" and 2 <= len(names) <= 1 + SIZE, names
        future = dcp.async_save(whole, checkpoint_id=Path(folder) / f"later-{kind}")
        step(model, optimizer, 2)  # what is written is what was
        assert len(future.result().state_dict_metadata["cut"].chunks) == SIZE
        left = [
            p.name for p in (Path(folder) / f"later-{kind}").iterdir() if p.name.startswith(".")
        ]
        assert left == [".metadata"], left


def load() -> None:
    """With another number of ranks, into another kind of model."""
    alone, plain = make("plain")
    for i in range(2):
        step(alone, plain, i)
    kinds = list(KINDS)
    for n, kind in enumerate(kinds):
        for source in (kinds[(n + 2) % len(kinds)], f"later-{kinds[(n + 3) % len(kinds)]}"):
            model, optimizer = make(kind)
            with torch.no_grad():
                x, _ = batch(9)
                model(x)  # changes the running averages
            states = get_state_dict(model, optimizer)
            counter, mesh = Counter(), init_device_mesh("cpu", (SIZE,))
            cut = distribute_tensor(torch.zeros(10), mesh, [Shard(0)])
            whole = {"model": states[0], "optim": states[1], "counter": counter,
                     "note": {"epoch": 0}, "list": [torch.zeros(2), ""], "cut": cut}  # fmt: skip
            dcp.load(whole, checkpoint_id=Path(folder) / source)
            set_state_dict(model, optimizer, model_state_dict=whole["model"],
                           optim_state_dict=whole["optim"])  # fmt: skip
            same(alone, model)
            assert (counter.count, whole["note"], whole["list"][1]) == (41, {"epoch": 3}, "x")
            assert cut.full_tensor().tolist() == list(range(10))
            again, fresh = make("plain")
            set_model_state_dict(again, get_model_state_dict(
                alone, options=StateDictOptions(full_state_dict=True)))  # fmt: skip
            set_optimizer_state_dict(again, fresh, get_optimizer_state_dict(alone, plain))
            step(model, optimizer, 5)
            step(again, fresh, 5)
            same(again, model)
    full = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    first = get_model_state_dict(alone) if RANK == 0 else {}
    other = fully_shard(net())
    set_model_state_dict(other, first, options=full)
    same(alone, other)


def kill() -> None:
    """A rank dies before its file has its name; the checkpoint before is whole."""
    from tenon.distributed.checkpoint.filesystem import FileSystemWriter

    model, optimizer = make("shard")
    for name in (folder, f"{folder}-before"):
        dcp.save({"model": model.state_dict()}, checkpoint_id=name)
    if RANK == SIZE - 1:
        FileSystemWriter.write_data = lambda *args: os.kill(os.getpid(), 9)
    step(model, optimizer, 0)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)


def fail() -> None:
    """An error on one rank is one on all of them, and names it."""
    from tenon.distributed.checkpoint.filesystem import FileSystemWriter

    state = {"model": fully_shard(net()).state_dict()}
    plain = FileSystemWriter.write_data

    def full(self, *args):
        if RANK == SIZE - 1:
            raise OSError(28, "No space left on device")
        return plain(self, *args)

    FileSystemWriter.write_data = full
    for call in (dcp.save, lambda *a, **k: dcp.async_save(*a, **k).result()):
        try:
            call(state, checkpoint_id=folder)
        except dcp.CheckpointException as err:
            assert list(err.failures) == [SIZE - 1] and "No space left" in str(err), err
        else:
            raise AssertionError("a checkpoint without a part was called one")
    assert not (Path(folder) / ".metadata").exists()


class Halves(DefaultSavePlanner):
    """Writes float64 as float32, and says of each rank how much it wrote."""

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        for item in plan.items:
            if item.tensor_data is not None:
                item.tensor_data.properties.dtype = torch.float32
        return plan

    def create_global_plan(self, all_plans: list) -> tuple:
        plans, told = super().create_global_plan(all_plans)
        return plans, replace(told, planner_data=[len(p.items) for p in plans])

    def resolve_data(self, write_item: object) -> object:
        value = super().resolve_data(write_item)
        return value.float() if isinstance(value, torch.Tensor) else value


class Renaming(DefaultLoadPlanner):
    """Reads what was written under names with another beginning."""

    def set_up_planner(self, state_dict: dict, metadata: object = None, is_coordinator=False):
        assert is_coordinator == (RANK == 0)
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self.state_dict = {f"model.{k}": v for k, v in self.state_dict.items()}

    def commit_tensor(self, read_item: object, tensor: torch.Tensor) -> None:
        seen.append(read_item.dest_index.fqn)


seen: list[str] = []


class Memory(dcp.StorageWriter, dcp.StorageReader):
    """A storage of a program: rank 0 keeps all results, which it sends to who reads."""

    def __init__(self) -> None:
        self.steps, self.kept, self.told = [], {}, None

    def reset(self, checkpoint_id: object = None) -> None:
        raise AssertionError("no name was given")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:
        return True

    def set_up_storage_writer(self, is_coordinator: bool) -> None:
        self.steps.append("set up")

    def prepare_local_plan(self, plan: object) -> object:
        return plan

    def prepare_global_plan(self, plans: list) -> list:
        assert RANK == 0 and len(plans) == SIZE
        self.steps.append("global")
        return plans

    def write_data(self, plan: object, planner: object) -> object:
        done = torch.futures.Future()
        results = []
        for item in plan.items:
            value = planner.resolve_data(item)
            value = value.clone() if isinstance(value, torch.Tensor) else value.getvalue()
            results.append(WriteResult(item.index, 1, value))
        done.set_result(results)
        return done

    def finish(self, metadata: object, results: list) -> None:
        self.steps.append("finish")
        self.kept = {r.index: r.storage_data for some in results for r in some}
        self.told = metadata

    def read_metadata(self) -> object:
        box = [(self.told, self.kept)]
        dist.broadcast_object_list(box)
        self.told, self.kept = box[0]
        return self.told

    def set_up_storage_reader(self, metadata: object, is_coordinator: bool) -> None:
        assert metadata is self.told

    def read_data(self, plan: object, planner: object) -> object:
        for item in plan.items:
            value = self.kept[item.storage_index]
            if isinstance(value, bytes):
                planner.load_bytes(item, io.BytesIO(value))
                continue
            for d, (a, n) in enumerate(zip(item.storage_offsets, item.lengths)):
                value = value.narrow(d, a, n)
            target = planner.resolve_tensor(item)
            target.copy_(value)
            planner.commit_tensor(item, target)
        done = torch.futures.Future()
        done.set_result(None)
        return done


def own() -> None:
    """Planners and a storage of the program."""
    mesh = init_device_mesh("cpu", (SIZE,))
    numbers = torch.arange(10.0).double()
    cut = distribute_tensor(numbers, mesh, [Shard(0)])
    state = {"model": {"w": cut, "b": torch.ones(3)}, "n": 3}
    told = dcp.save(state, checkpoint_id=folder, planner=Halves())
    assert sum(told.planner_data) == SIZE + 2 and len(told.planner_data) == SIZE
    assert told.state_dict_metadata["model.w"].properties.dtype is torch.float32
    whole = distribute_tensor(torch.zeros(10).double(), mesh, [Replicate()])
    into = {"w": whole, "b": torch.zeros(3)}
    dcp.load(into, checkpoint_id=folder, planner=Renaming())
    assert into["w"].full_tensor().tolist() == numbers.tolist() and into["b"].tolist() == [1.0] * 3
    assert set(seen) == {"model.w", "model.b"} and len(seen) == SIZE + 1
    memory = Memory()
    dcp.save(state, storage_writer=memory)
    assert memory.steps == ["set up", *(["global", "finish"] if RANK == 0 else [])]
    into = {"model": {"w": torch.zeros(10), "b": torch.zeros(3)}, "n": 0}
    dcp.load(into, storage_reader=memory)
    assert into["model"]["w"].tolist() == numbers.tolist() and into["n"] == 3
    later = dcp.async_save(state, storage_writer=memory)
    total = torch.ones(1)
    dist.all_reduce(total)  # beside the exchanges of the save
    assert total.item() == SIZE
    assert set(later.result().state_dict_metadata) == {"model.w", "model.b", "n"}
    for planner, words in ((Gaps(), "invalid fill"), (Doubles(), "overlapping")):
        try:
            dcp.save(state, checkpoint_id=folder, planner=planner)
        except dcp.CheckpointException as err:
            assert list(err.failures) == [0] and words in str(err), err
        else:
            raise AssertionError(f"a plan with {words} parts was carried out")
    one = Path(folder) / "one.pt"
    if RANK == 0:
        torch.save({"model": {"w": numbers, "b": torch.ones(3)}}, one)
    dist.barrier()
    cut = distribute_tensor(torch.zeros(10), mesh, [Shard(0)])
    into = {"model": {"w": cut, "b": torch.zeros(3)}}
    dcp.load(into, checkpoint_id=one, storage_reader=BroadcastingTorchSaveReader(),
             planner=DynamicMetaLoadPlanner())  # fmt: skip
    assert into["model"]["w"].full_tensor().tolist() == numbers.tolist()
    assert into["model"]["b"].tolist() == [1.0] * 3


class Gaps(DefaultSavePlanner):
    """Forgets the part of the last rank."""

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        return replace(plan, items=[i for i in plan.items if RANK < SIZE - 1 or i.index.fqn == "n"])


class Doubles(DefaultSavePlanner):
    """All ranks say that they have the first elements, at places of their own."""

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        items = [i for i in plan.items if i.index.fqn == "model.w"]
        box = replace(items[0].tensor_data.chunk, offsets=torch.Size([RANK]))
        data = replace(items[0].tensor_data, chunk=box)
        return replace(plan, items=[replace(items[0], tensor_data=data)])


{"save": save, "load": load, "kill": kill, "fail": fail, "own": own}[action]()
dist.destroy_process_group()
print("ok\n", end="")
