"""What operations, stores, meshes, checkpoints and pipelines refuse in a group of one process, each
with the words that only this check says."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import distributed as dist
from tenon.distributed import _functional_collectives as functional
from tenon.distributed import _place, checkpoint, pipelining
from tenon.distributed import tensor as dt
from tenon.distributed.checkpoint import state_dict as states
from tenon.distributed.device_mesh import init_device_mesh
from tenon.distributed.distributed_c10d import _set_pg_timeout
from tenon.distributed.elastic.multiprocessing.errors import ChildFailedError
from tenon.distributed.fsdp import FullyShardedDataParallel
from tenon.distributed.tensor.experimental import local_map
from tenon.distributed.tensor.parallel import ColwiseParallel, parallelize_module

f = tn.ones(2, 2)
C = checkpoint.CheckpointException
A, R, V, E, N = AssertionError, RuntimeError, ValueError, TypeError, NotImplementedError
S, W = dt.Shard(0), dt.Replicate()


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    place = tmp_path_factory.mktemp("alone") / "place"
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def line() -> Any:
    return init_device_mesh("cpu", (1,))


def laid(placement: Any = S) -> Any:
    return dt.distribute_tensor(f, line(), [placement])


def mapped(*args: Any, out: Any = ([S],), result: Any = f, **given: Any) -> Any:
    return local_map(lambda *_: result, out, **given)(*args)


def other_mesh() -> Any:
    return dt.distribute_tensor(f, init_device_mesh("cpu", (1, 1)), [W, W])


# The class, the words, the call.
CASES: dict[str, tuple[type[BaseException], str, Callable[[], Any]]] = {
    "join twice": (V, "trying to initialize the default process group twice!",
                   lambda: dist.init_process_group("gloo")),
    "message to oneself": (V, "send(): a process does not exchange messages with itself",
                           lambda: dist.send(f, 0)),
    "message from oneself": (V, "recv(): a process does not exchange messages with itself",
                             lambda: dist.recv(f, 0)),
    "message to nobody": (V, "send(): expected a rank", lambda: dist.send(f)),
    "message to two": (V, "send(): the rank is given twice",
                       lambda: dist.send(f, 0, group_dst=0)),
    "message to a name": (E, "send(): expected a rank of type int, got 'one'",
                          lambda: dist.send(f, "one")),
    "kind of message": (V, "Expected ``op`` to be isend or irecv",
                        lambda: dist.P2POp(dist.broadcast, f, 0)),
    "sum times a number": (V, "all_reduce(): ReduceOp.PREMUL_SUM is not served",
                           lambda: dist.all_reduce(f, dist.ReduceOp.PREMUL_SUM)),
    "sum of a name": (E, "expected an operation such as ReduceOp.SUM, got 'sum'",
                      lambda: dist.all_reduce(f, "sum")),
    "parts of a reduction": (R, "reduce_scatter(): expected one tensor for each process",
                             lambda: dist.reduce_scatter(f, [f, f])),
    "parts to all": (R, "all_to_all(): expected one tensor for each process in both lists",
                     lambda: dist.all_to_all([f], [f, f])),
    "parts from all": (R, "all_to_all(): expected one tensor for each process in both lists",
                       lambda: dist.all_to_all([f, f], [f])),
    "objects of more": (V, "scatter_object_list(): expected one object for each process",
                        lambda: dist.scatter_object_list([None], [1, 2])),
    "no place for an object": (V, "to be a list of size >= 1",
                               lambda: dist.scatter_object_list([], [1])),
    "coalesced lists": (V, "all_gather_coalesced(): the lists are of different lengths",
                        lambda: dist.all_gather_coalesced([[f]], [f, f])),
    "order of nobody": (V, "permute_tensor(): [1] is no order of all processes",
                        lambda: functional.permute_tensor(f, [1], dist.group.WORLD)),
    "ranks that are not there": (V, "new_group: [1] are not different ranks of the 1 processes",
                                 lambda: dist.new_group([1])),
    "ranks below": (V, "new_group: [-1] are not different ranks", lambda: dist.new_group([-1])),
    "ranks twice": (V, "new_group: [0, 0] are not different ranks",
                    lambda: dist.new_group([0, 0])),
    "ranks of a text": (E, "new_group: expected whole numbers, got '0'",
                        lambda: dist.new_group("0")),
    "no time": (E, "_set_pg_timeout: expected a timedelta, got None",
                lambda: _set_pg_timeout(None)),
    "failure of nobody": (V, "ChildFailedError needs a failure at least",
                          lambda: ChildFailedError("x", {})),
    "store without functions": (N, "Store does not define this function",
                                lambda: dist.Store().set("a", "b")),
    "key that does not come": (R, "wait timeout after 20ms",
                               lambda: dist.HashStore().wait(["a"], timedelta(milliseconds=20))),
    "save nowhere": (R, "save: say where, by checkpoint_id or storage_writer",
                     lambda: checkpoint.save({"a": f})),
    "load from nowhere": (R, "load: say from where, by checkpoint_id or storage_reader",
                          lambda: checkpoint.load({"a": f})),
    "shared by halves": (V, "full_state_dict must be True when broadcast_from_rank0 is True.",
                         lambda: states.set_model_state_dict(
                             tn.nn.Linear(1, 1), {},
                             options=states.StateDictOptions(broadcast_from_rank0=True))),
    "mesh without names": (R, "Cannot flatten a DeviceMesh without mesh_dim_names!",
                           lambda: init_device_mesh("cpu", (1, 1))._flatten()),
    "which dimension": (R, "`mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                        lambda: init_device_mesh("cpu", (1, 1)).get_group()),
    "slice without names": (R, "Cannot slice a DeviceMesh without mesh_dim_names! 'a'",
                            lambda: line().get_group("a")),
    "made by its class": (E, "use DTensor.from_local or distribute_tensor",
                          lambda: dt.DTensor(f)),
    "laid nowhere": (R, "placements is needed for redistribute!", lambda: laid().redistribute()),
    "laid in two ways": (V, "redistribute: 2 placements for a mesh of 1 dimensions",
                         lambda: laid().redistribute(placements=[S, S])),
    "laid as a sum": (R, "Can not redistribute to Partial",
                      lambda: laid().redistribute(placements=[dt.Partial()])),
    "on another mesh": (N, "another mesh is not possible",
                        lambda: laid().redistribute(init_device_mesh("cpu", (1, 1)), [S, S])),
    "distributed again": (V, "use redistribute",
                          lambda: dt.distribute_tensor(laid(), line(), [W])),
    "of two meshes": (R, "add(): the DTensors lie on different meshes",
                      lambda: laid() + other_mesh()),
    "placed by a number": (E, "expected placements such as Shard(0), got 0",
                           lambda: dt.distribute_tensor(f, line(), [0])),
    "placed too far": (IndexError, "the tensor has 2 dimensions",
                       lambda: dt.distribute_tensor(f, line(), [dt.Shard(2)])),
    "sum of another kind": (V, "Partial: expected sum, avg, product, min or max, got 'mode'",
                            lambda: dt.Partial("mode")),
    "mapped with a layout too many": (A, "in_placements has 2 entries, there are 1 arguments",
                                      lambda: mapped(laid(), in_placements=([S], [S]))),
    "mapped with a gradient too many": (
        A, "in_grad_placements has 2 entries, there are 1 arguments",
        lambda: mapped(laid(), in_grad_placements=([S], [S]))),
    "mapped without a layout": (A, "argument 0 is a DTensor; in_placements has None",
                                lambda: mapped(laid(), in_placements=(None,))),
    "mapped to more": (A, "provided for each output value, got 2 for 1",
                       lambda: mapped(laid(), out=([S], [S]))),
    "mapped to a number": (A, "Non-tensor output expects None placements",
                           lambda: mapped(laid(), result=3)),
    "plan of a text": (E, "Expect Union[ParallelStyle, Dict[str, ParallelStyle]]",
                       lambda: parallelize_module(tn.nn.Linear(2, 2), line(), "all")),
    "columns of a convolution": (
        N, "ColwiseParallel currently only support nn.Linear and nn.Embedding!",
        lambda: parallelize_module(tn.nn.Conv1d(1, 1, 1), line(), ColwiseParallel())),
    "keys of a text": (E, "rekey_optim_state_dict: expected an OptimStateKeyType, got 'name'",
                       lambda: FullyShardedDataParallel.rekey_optim_state_dict(
                           {}, "name", tn.nn.Linear(1, 1))),
    "cut at nothing": (V, "split_spec: the model has no module 'second'",
                       lambda: pipelining.pipeline(
                           tn.nn.Linear(2, 2), (f,),
                           split_spec={"second": pipelining.SplitPoint.BEGINNING})),
    "cut by a text": (E, "split_spec: expected a SplitPoint for '0', got 'here'",
                      lambda: pipelining.pipeline(
                          tn.nn.Sequential(tn.nn.Linear(2, 2)), (f,), split_spec={"0": "here"})),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    kind, words, call = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


def test_checkpoints_that_are_not_read(tmp_path: Path) -> None:
    """A manifest with another hash; a checkpoint is not written over."""
    checkpoint.save({"a": f}, checkpoint_id=tmp_path)
    with pytest.raises(
        checkpoint.CheckpointException, match="has a checkpoint, and overwrite=False was said"
    ):
        checkpoint.save({"a": f}, storage_writer=checkpoint.FileSystemWriter(
            tmp_path, overwrite=False))  # fmt: skip
    manifest = tmp_path / ".metadata"
    whole = manifest.read_bytes()
    text, end = whole[:-77], whole[-77:]
    assert end == b"tenon.sha256:" + hashlib.sha256(text).hexdigest().encode()
    for damaged in (text + b" " + end, whole[:9] + whole[10:], whole[:-1], text[:-1]):
        manifest.write_bytes(damaged)
        with pytest.raises(checkpoint.CheckpointException, match="metadata: damaged"):
            checkpoint.load({"a": f}, checkpoint_id=tmp_path)


def test_folders_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes meet in a folder that nobody else can enter."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = _place.own_folder("127.0.0.1")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o750)
    with pytest.raises(PermissionError, match="can be entered by other users"):
        _place.own_folder("127.0.0.1")
    folder.rmdir()
    os.symlink(tmp_path, folder)
    with pytest.raises(PermissionError, match="is not a folder of this user alone"):
        _place.own_folder("127.0.0.1")
