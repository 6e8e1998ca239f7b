"""Where the part of whole numbers begins and ends."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, nn


class QuantStub(nn.Module):
    """Becomes `Quantize`: inputs are laid on a grid."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(nn.Module):
    """Becomes `DeQuantize`."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantWrapper(nn.Module):
    """A module between the two."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.module = module
        if getattr(module, "qconfig", None):
            self.quant.qconfig = self.dequant.qconfig = module.qconfig
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        return self.dequant(self.module(self.quant(X)))
