"""Where the part of whole numbers begins and ends."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, nn


class _Stub(nn.Module):
    """Changes nothing until it is converted; a qconfig of its own goes before its module's."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantStub(_Stub):
    """Becomes `Quantize`: inputs are laid on a grid."""


class DeQuantStub(_Stub):
    """Becomes `DeQuantize`."""


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
