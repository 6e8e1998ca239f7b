"""`torch.multiprocessing.spawn`, which is a module and a function of the same name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tenon.multiprocessing import (
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
    start_processes,
)

__all__ = [
    "ProcessException", "ProcessExitedException", "ProcessRaisedException", "spawn",
    "start_processes",
]  # fmt: skip


class _Callable(ModuleType):
    """Importing the module puts it where the function was."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return spawn(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
