"""Processes that train together, by the names of torch.distributed.

Engines exchange the data (`tenon/engine.h`): Gloo and MPI where they were built. With one process
no engine is needed.
"""

from __future__ import annotations

from typing import Any

from tenon._submodules import on_demand
from tenon.distributed._collectives import (
    P2POp,
    ReduceOp,
    Work,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
    supports_complex,
)
from tenon.distributed._debug import (
    DebugLevel,
    _coalescing_manager,  # noqa: F401 - packages use it
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from tenon.distributed._errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)
from tenon.distributed._groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    ProcessGroupGloo,
    ProcessGroupMPI,
    ProcessGroupNCCL,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from tenon.distributed._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from tenon.distributed._store import FileStore, HashStore, PrefixStore, Store, TCPStore
from tenon.distributed._watch import watch
from tenon.distributed.constants import default_pg_timeout
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh

watch(globals())
group = GroupMember
reduce_op = ReduceOp
# Names of later releases, and of earlier ones.
all_gather_single = all_gather_into_tensor
reduce_scatter_single = reduce_scatter_tensor
_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor

__all__ = [
    "Backend", "DebugLevel", "DeviceMesh", "DistBackendError", "DistError", "DistNetworkError",
    "DistStoreError", "FileStore", "GroupMember", "HashStore", "P2POp", "PrefixStore",
    "ProcessGroup", "ProcessGroupGloo", "ProcessGroupMPI", "ProcessGroupNCCL",
    "QueueEmptyError", "ReduceOp", "Store", "TCPStore", "Work", "all_gather",
    "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv",
    "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather",
    "gather_object", "get_backend", "get_backend_config", "get_debug_level",
    "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank",
    "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_device_mesh", "init_process_group", "irecv", "is_available", "is_backend_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "isend",
    "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv",
    "recv_object_list", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
    "set_debug_level", "set_debug_level_from_env", "split_group", "supports_complex",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "GradBucket":  # its module needs this one
        from tenon.nn.parallel._reducer import GradBucket

        return GradBucket
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


on_demand(globals())
