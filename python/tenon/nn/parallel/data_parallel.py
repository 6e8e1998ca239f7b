"""DataParallel: a module that is called on one device, or where there is no GPU as it is."""

from __future__ import annotations

from typing import Any

import tenon
from tenon.nn.modules.module import Module

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Calls its module; there is one device to call it on."""

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        if not tenon.accelerator.is_available():
            device_ids = None
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(
                "DataParallel over several devices is not there yet; give one device id"
            )
        self.dim = dim
        self.module = module
        self.device_ids = list(device_ids or [])
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
