"""Names of torch.distributed that packages import with one process; what is not there is said at
its use."""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "_composable": "fully_shard",
    "_composable.fsdp": "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy fully_shard",
    "_functional_collectives": "AsyncCollectiveTensor all_to_all_single_autograd wait_tensor",
    "_tensor": "DTensor Replicate Shard distribute_tensor",
    "_tensor.experimental": "implicit_replication",
    "_tensor.placement_types": "Partial Replicate Shard",
    "algorithms._checkpoint.checkpoint_wrapper": "CheckpointImpl CheckpointWrapper "
    "apply_activation_checkpointing checkpoint_wrapper offload_wrapper",
    "algorithms.ddp_comm_hooks.post_localSGD_hook": "PostLocalSGDState post_localSGD_hook",
    "algorithms.model_averaging.averagers": "ModelAverager PeriodicModelAverager",
    "algorithms.model_averaging.hierarchical_model_averager": "HierarchicalModelAverager",
    "checkpoint": "FileSystemReader FileSystemWriter load load_state_dict save save_state_dict",
    "checkpoint._consolidate_hf_safetensors": "consolidate_safetensors_files",
    "checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner",
    "checkpoint.filesystem": "FileSystemReader FileSystemWriter",
    "checkpoint.format_utils": "_EmptyStateDictLoadPlanner dcp_to_torch_save",
    "checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint.optimizer": "load_sharded_optimizer_state_dict",
    "checkpoint.state_dict": "StateDictOptions get_model_state_dict get_optimizer_state_dict "
    "get_state_dict set_model_state_dict set_optimizer_state_dict set_state_dict",
    "checkpoint.state_dict_loader": "_load_state_dict load",
    "device_mesh": "DeviceMesh init_device_mesh",
    "distributed_c10d": "_get_default_group _set_pg_timeout is_xccl_available ProcessGroup",
    "elastic.multiprocessing.errors": "ChildFailedError record",
    "fsdp": "BackwardPrefetch CPUOffload CPUOffloadPolicy FSDPModule FullStateDictConfig "
    "FullyShardedDataParallel MixedPrecision MixedPrecisionPolicy OffloadPolicy OptimStateKeyType "
    "ShardingStrategy StateDictType fully_shard register_fsdp_forward_method",
    "fsdp.api": "FullOptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig",
    "fsdp.fully_sharded_data_parallel": "CPUOffload FullyShardedDataParallel MixedPrecision",
    "fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "fsdp.wrap": "ModuleWrapPolicy _or_policy enable_wrap lambda_auto_wrap_policy "
    "size_based_auto_wrap_policy transformer_auto_wrap_policy wrap",
    "launcher.api": "LaunchConfig elastic_launch",
    "optim": "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
    "pipelining": "Pipe PipelineStage Schedule1F1B ScheduleGPipe SplitPoint build_stage pipeline",
    "pipelining.schedules": "PipelineScheduleMulti PipelineScheduleSingle get_schedule_class",
    "rpc": "RRef init_rpc is_available rpc_sync",
    "tensor": "DTensor Partial Replicate Shard distribute_module distribute_tensor",
    "tensor._utils": "compute_local_shape_and_global_offset",
    "tensor.debug": "CommDebugMode",
    "tensor.experimental": "context_parallel implicit_replication register_sharding",
    "tensor.experimental._attention": "set_rotate_method",
    "tensor.parallel": "ColwiseParallel RowwiseParallel SequenceParallel parallelize_module",
    "tensor.placement_types": "Shard _StridedShard",
    "utils": "_sync_module_states",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_are_there(module: str) -> None:
    found = importlib.import_module(f"tenon.distributed.{module}")
    for name in NAMES[module].split():
        assert getattr(found, name) is not None


def test_later_names_and_those_of_other_modules() -> None:
    from tenon import distributed

    assert distributed.all_gather_single is distributed.all_gather_into_tensor
    assert distributed.reduce_scatter_single is distributed.reduce_scatter_tensor
    assert distributed.GradBucket.__name__ == "GradBucket"
    sums = distributed.ReduceOp.SUM, distributed.ReduceOp.AVG
    assert [op for op in distributed.ReduceOp if distributed.supports_complex(op)][:2] == list(sums)
    assert not distributed.supports_complex(distributed.ReduceOp.MAX)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = distributed.nonsense  # type: ignore[attr-defined]


def test_absent_names_say_so_when_they_are_used() -> None:
    from tenon.distributed import rpc

    assert not rpc.is_available()
    assert not isinstance(1, rpc.RRef)
    with pytest.raises(NotImplementedError, match=r"torch\.distributed\.rpc\.init_rpc: Tenon does"):
        rpc.init_rpc("worker", rank=0)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rpc.nonsense


def test_debug_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenon import distributed

    assert distributed.get_debug_level() is distributed.DebugLevel.OFF
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    assert distributed.get_debug_level() is distributed.DebugLevel.DETAIL
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "much")
    with pytest.raises(RuntimeError, match="OFF, INFO, DETAIL"):
        distributed.get_debug_level()
    monkeypatch.setattr("tenon.distributed._debug._level", None)
    distributed.set_debug_level(distributed.DebugLevel.INFO)
    assert distributed.get_debug_level() is distributed.DebugLevel.INFO
