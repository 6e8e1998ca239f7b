"""Checkpoints of several processes: written by one number of them and read by another; faults while
they are written. `test_checkpoints.py` starts it: ENGINE ACTION FOLDER."""

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
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
        assert future.result().world_size == SIZE
        left = [
            p.name for p in (Path(folder) / f"later-{kind}").iterdir() if p.name.startswith(".")
        ]
        assert left == [".metadata"] or SIZE > 1, left


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
        FileSystemWriter.write = lambda *args: os.kill(os.getpid(), 9)
    step(model, optimizer, 0)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)


def fail() -> None:
    """An error on one rank is one on all of them, and names it."""
    from tenon.distributed.checkpoint.filesystem import FileSystemWriter

    state = {"model": fully_shard(net()).state_dict()}
    plain = FileSystemWriter.write

    def full(self, rank, *args):
        if rank == SIZE - 1:
            raise OSError(28, "No space left on device")
        return plain(self, rank, *args)

    FileSystemWriter.write = full
    for call in (dcp.save, lambda *a, **k: dcp.async_save(*a, **k).result()):
        try:
            call(state, checkpoint_id=folder)
        except dcp.CheckpointException as err:
            assert list(err.failures) == [SIZE - 1] and "No space left" in str(err), err
        else:
            raise AssertionError("a checkpoint without a part was called one")
    assert not (Path(folder) / ".metadata").exists()


{"save": save, "load": load, "kill": kill, "fail": fail}[action]()
dist.destroy_process_group()
print("ok\n", end="")
