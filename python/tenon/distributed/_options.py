"""What PyTorch's options of engines hold."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tenon.distributed.constants import DEFAULT_TIMEOUT


class Options:
    """What PyTorch's options of an engine hold, which are hints here and kept. The timeout is an
    argument of init_process_group."""

    _engine = ""

    def __init__(self, backend: str | None = None, timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self.backend = self._engine if backend is None else backend
        self._timeout = timeout
        self.group_name, self.global_ranks_in_group = "", list[int]()


class NCCLConfig:
    """NCCL's own settings; without a value, NCCL chooses."""

    def __init__(self) -> None:
        unset = -(2**31)
        self.blocking = self.cga_cluster_size = self.min_ctas = self.max_ctas = unset
        self.split_share = unset
        self.net_name: str | None = None


class NCCLOptions(Options):
    """Options of NCCL."""

    _engine = "nccl"

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        super().__init__()
        self.is_high_priority_stream = is_high_priority_stream
        self.config = NCCLConfig()
        self.split_from, self.split_color = None, 0


class GlooOptions(Options):
    """Options of Gloo."""

    _engine = "gloo"

    def __init__(self) -> None:
        super().__init__()
        self._devices, self._threads = list[Any](), 2
