"""Which kernels compute with whole numbers: Tenon's own, whatever the engine is called."""

from __future__ import annotations

import sys
from types import ModuleType

_ENGINES = ["qnnpack", "onednn", "x86", "fbgemm"]
_chosen = ["x86"]


class _Settings(ModuleType):
    """This module: programs assign the engine."""

    @property
    def supported_engines(self) -> list[str]:
        """The names that engines may have."""
        return list(_ENGINES)

    @supported_engines.setter
    def supported_engines(self, value: object) -> None:
        raise RuntimeError("backends.quantized.supported_engines: Assignment not supported")

    @property
    def engine(self) -> str:
        """The name of the engine."""
        return _chosen[0]

    @engine.setter
    def engine(self, value: str) -> None:
        if value not in _ENGINES:
            raise RuntimeError(f"{value} is not a valid value for quantized engine: {_ENGINES}")
        _chosen[0] = value


sys.modules[__name__].__class__ = _Settings
