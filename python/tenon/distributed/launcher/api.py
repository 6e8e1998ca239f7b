"""PyTorch's launcher as functions. Programs are started by `tenon launch` here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenon.distributed._absent import absent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclass
class LaunchConfig:
    """How many processes are started, and where they meet."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None


_MODULE, _INSTEAD = "torch.distributed.launcher.api", "`tenon launch` starts programs"
elastic_launch = absent(_MODULE, "elastic_launch", _INSTEAD)
launch_agent = absent(_MODULE, "launch_agent", _INSTEAD)
