"""What operations, stores, meshes, checkpoints and pipelines refuse in a group of one process, each
with the words that only this check says."""

from __future__ import annotations

import copy
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
from tenon.distributed import _engine, _place, checkpoint, pipelining
from tenon.distributed import _functional_collectives as functional
from tenon.distributed import nn as exchanges
from tenon.distributed import tensor as dt
from tenon.distributed.algorithms.model_averaging.utils import get_params_to_average
from tenon.distributed.checkpoint import state_dict as states
from tenon.distributed.checkpoint.default_planner import create_default_global_save_plan
from tenon.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from tenon.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from tenon.distributed.checkpoint.planner_helpers import _create_read_items
from tenon.distributed.checkpoint.utils import find_state_dict_object
from tenon.distributed.device_mesh import _mesh_resources, init_device_mesh
from tenon.distributed.distributed_c10d import _set_pg_timeout
from tenon.distributed.elastic.multiprocessing.errors import ChildFailedError
from tenon.distributed.fsdp import (
    FullyShardedDataParallel,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from tenon.distributed.tensor import _saved
from tenon.distributed.tensor.experimental import _context_parallel as parallel
from tenon.distributed.tensor.experimental import local_map
from tenon.distributed.tensor.parallel import ColwiseParallel, parallelize_module

f, row = tn.ones(2, 2), tn.ones(1, 2, 2)
needs = tn.ones(2, 2, requires_grad=True)
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


def wrapped(
    group: Any = None, strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD, mesh: Any = None
) -> Any:
    return FullyShardedDataParallel(
        tn.nn.Linear(1, 1), process_group=group, sharding_strategy=strategy, device_mesh=mesh
    )


def of_saved(**given: Any) -> Any:
    """A layout of a file, one process beside which something else is said."""
    whole = {"device_type": "cpu", "ranks": [0], "sizes": [1], "names": None, "coordinate": None,
             "placements": [["replicate"]], "shape": [2, 2]}  # fmt: skip
    return _saved.spec_of(**{**whole, **given})


def by_ring(*tensors: Any, **given: Any) -> Any:
    parallel.set_rotate_method("alltoall")
    try:
        return parallel._ring.attention(line(), *tensors, **given)
    finally:
        parallel.set_rotate_method("allgather")


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
    "copied operation": (
        E, "an operation of a process group cannot be copied or pickled",
        lambda: copy.copy(_engine.Operation.__new__(_engine.Operation))),
    "schedule of no name": (V, "Unknown schedule name: 2F2B. The valid options are",
                            lambda: pipelining.schedules.get_schedule_class("2F2B")),
    "gathered without a list": (
        V, "Argument ``gather_list`` must be specified on destination rank.",
        lambda: dist.gather(f)),
    "scattered without a list": (
        V, "Argument ``scatter_list`` must be specified on source rank.", lambda: dist.scatter(f)),
    "two tensors of a group": (V, "expected one tensor, got 2",
                               lambda: dist.group.WORLD.broadcast([f, f])),
    "objects in a tuple": (
        E, "broadcast_object_list(): expected `object_list` to be a list, got tuple",
        lambda: dist.broadcast_object_list((1,))),
    "average of a number": (
        E, "Parameter input of type <class 'int'> is not supported; expected parameters",
        lambda: get_params_to_average([3])),
    "plan without bounds": (
        A, "Cannot create MD for tensor without bounds. FQN: a",
        lambda: create_default_global_save_plan(
            [SavePlan([WriteItem(MetadataIndex("a"), WriteItemType.SHARD)])])),
    "properties of a strange format": (
        R, "Invalid torch.memory_format: tenon.channels_last_3d",
        lambda: TensorProperties(memory_format=tn.channels_last_3d).__getstate__()),
    "format of a strange code": (
        R, "Invalid torch.memory_format encoding: 9",
        lambda: TensorProperties().__setstate__((tn.float32, tn.strided, False, 9, False))),
    "entry that is not there": (
        V, "Could not find FQN: 'a'",
        lambda: find_state_dict_object({}, MetadataIndex("a"))),
    "number read as a tensor": (
        V, "Invalid checkpoint metadata for a, expected BytesStorageMetadata but found",
        lambda: _create_read_items("a", None, 3)),
    "no mesh entered": (R, "No device mesh is currently active!",
                        lambda: _mesh_resources.get_current_mesh()),
    "dimension without names": (KeyError, "No `mesh_dim_names` found.",
                                lambda: line()._get_mesh_dim_by_name("a")),
    "parts over two dimensions": (
        V, "Expected device_mesh to have ndim=1 but got 2",
        lambda: wrapped(mesh=init_device_mesh("cpu", (1, 1)))),
    "hybrid over one dimension": (
        V, "Expected device_mesh to have ndim=2 but got 1",
        lambda: wrapped(None, ShardingStrategy.HYBRID_SHARD, line())),
    "hybrid of one group": (
        V, "either None or Tuple[dist.ProcessGroup, dist.ProcessGroup] but got",
        lambda: wrapped(dist.group.WORLD, ShardingStrategy.HYBRID_SHARD)),
    "hybrid of three groups": (
        V, "either None or Tuple[dist.ProcessGroup, dist.ProcessGroup] but got",
        lambda: wrapped((dist.group.WORLD,) * 3, ShardingStrategy.HYBRID_SHARD)),
    "config of another kind": (
        R, "Expected state_dict_config of type",
        lambda: FullyShardedDataParallel.set_state_dict_type(
            tn.nn.Linear(1, 1), StateDictType.FULL_STATE_DICT, ShardedStateDictConfig())),
    "config of another optimizer": (
        R, "Expected state_dict_config of type",
        lambda: FullyShardedDataParallel.set_state_dict_type(
            tn.nn.Linear(1, 1), StateDictType.FULL_STATE_DICT, None,
            ShardedOptimStateDictConfig())),
    "gradient of a largest": (N, "all_reduce: ReduceOp.MAX has no gradient; SUM and AVG have",
                              lambda: exchanges.all_reduce(needs, dist.ReduceOp.MAX)),
    "gradient of a largest in one": (N, "reduce: ReduceOp.MAX has no gradient; SUM has",
                                     lambda: exchanges.reduce(needs, 0, dist.ReduceOp.MAX)),
    "gradient of largest parts": (
        N, "reduce_scatter: ReduceOp.MAX has no gradient; SUM has",
        lambda: exchanges.reduce_scatter(f, [f], dist.ReduceOp.MAX)),
    "distributed otherwise": (V, "Cannot distribute a DTensor with (Shard(dim=0),) to",
                              lambda: dt.distribute_tensor(laid(), line(), [W])),
    "what is computed": (R, "should be used to distribute leaf tensors! but found non-leaf tensor!",
                         lambda: dt.distribute_tensor(needs * 2, line(), [W])),
    "placement of no kind": (V, "a placement 'odd'", lambda: of_saved(placements=[["odd"]])),
    "placement of too much": (V, "a placement 'replicate'",
                              lambda: of_saved(placements=[["replicate", 1]])),
    "ranks below 0": (V, "expected numbers from 0, got [-1]", lambda: of_saved(ranks=[-1])),
    "ranks of a number": (V, "expected numbers from 0, got 3", lambda: of_saved(ranks=3)),
    "ranks of truth": (V, "expected numbers from 0, got [True]", lambda: of_saved(ranks=[True])),
    "mesh that is not full": (V, "a mesh whose ranks do not fill it",
                              lambda: of_saved(sizes=[2])),
    "mesh of no kind": (V, "a mesh whose ranks do not fill it",
                        lambda: of_saved(device_type=3)),
    "rank twice": (V, "a mesh that has a rank twice",
                   lambda: of_saved(ranks=[0, 0], sizes=[2])),
    "names of more": (V, "a mesh with other names than dimensions",
                      lambda: of_saved(names=["a", "b"])),
    "names of numbers": (V, "a mesh with other names than dimensions",
                         lambda: of_saved(names=[1])),
    "place outside": (V, "a place outside of the mesh", lambda: of_saved(coordinate=[1])),
    "place of two": (V, "a place outside of the mesh", lambda: of_saved(coordinate=[0, 0])),
    "placements of more": (V, "another number of placements than of the mesh's dimensions",
                           lambda: of_saved(placements=[["replicate"], ["replicate"]])),
    "causal of another length": (
        N, "is_causal requires the same query and context sequence lengths",
        lambda: by_ring(row[:, :1], row, row, is_causal=True)),
    "masked parts": (N, "attn_mask is not there, is_causal is",
                     lambda: by_ring(row, row, row, f)),
    "dropped by a ring": (N, "dropout_p needs set_rotate_method('allgather')",
                          lambda: by_ring(row, row, row, dropout_p=0.5)),
    "heads of another number": (R, "query, key and value have [1, 2, 2] heads",
                                lambda: by_ring(row, row.expand(2, 2, 2), row.expand(2, 2, 2))),
    "heads of keys alone": (R, "query, key and value have [1, 1, 2] heads",
                            lambda: by_ring(row, row, row.expand(2, 2, 2))),
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
