"""Ways to exchange gradients."""

from __future__ import annotations

import importlib
from typing import Any

from tenon._submodules import on_demand

_SUBMODULES = ("ddp_comm_hooks", "join", "model_averaging")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"tenon.distributed.algorithms.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


on_demand(globals())
