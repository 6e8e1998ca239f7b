"""What FullyShardedDataParallel and fully_shard are told: strategies, dtypes, state dicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import tenon
from tenon.nn.modules.batchnorm import _BatchNorm

__all__ = [
    "BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FullOptimStateDictConfig",
    "FullStateDictConfig", "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision",
    "MixedPrecisionPolicy", "OffloadPolicy", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig",
    "StateDictSettings", "StateDictType",
]  # fmt: skip


class ShardingStrategy(Enum):
    """What is cut among the ranks: parameters, gradients and the optimizer's state (FULL_SHARD),
    all but the parameters between forward and backward (SHARD_GRAD_OP), nothing (NO_SHARD)."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the parameters of the next unit of backward are gathered."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Dtypes of the parameters and buffers in forward and backward, and of reductions."""

    param_dtype: tenon.dtype | None = None
    reduce_dtype: tenon.dtype | None = None
    buffer_dtype: tenon.dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type[Any]] = (_BatchNorm,)


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of the parameters in forward and backward, of reductions, and of outputs."""

    param_dtype: tenon.dtype | None = None
    reduce_dtype: tenon.dtype | None = None
    output_dtype: tenon.dtype | None = None
    cast_forward_inputs: bool = True


@dataclass
class CPUOffload:
    """Whether parameters lie on the CPU between their uses."""

    offload_params: bool = False


@dataclass
class OffloadPolicy:
    """Parameters stay on the device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters, gradients and the optimizer's state lie on the CPU."""

    pin_memory: bool = True


class StateDictType(Enum):
    """What a state dict holds: whole tensors, what this rank has, or DTensors."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """How a model's state dict is made."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """rank0_only: the other ranks get an empty one."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """What this rank has, as it lies in memory."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """DTensors, whether or not they are asked for."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """How an optimizer's state dict is made."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """rank0_only: the other ranks get an empty one."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """What this rank has, as it lies in memory."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """DTensors, whether or not they are asked for."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """What a module and those inside it do when they are asked for their state."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=FullStateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(default_factory=FullOptimStateDictConfig)


class OptimStateKeyType(Enum):
    """What an optimizer's state is keyed by."""

    PARAM_NAME = auto()
    PARAM_ID = auto()
