"""Weights of whole numbers: how floats become them, and how modules keep them."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn


def whole_numbers(weight: Tensor, observer: Any) -> tuple[Tensor, Tensor]:
    """A weight as int8 on the grid that the observer finds, and the grid's scales."""
    if not observer.qscheme.symmetric or observer.dtype.low >= 0:
        raise ValueError("weights lie on symmetric grids of qint8: use default_weight_observer or "
                         "default_per_channel_weight_observer")  # fmt: skip
    if observer.qscheme.per_channel and observer.ch_axis != 0:
        raise ValueError("grids of weights are laid along their first dimension (ch_axis=0)")
    weight = weight.detach().float()
    observer(weight)
    scale, _ = observer.calculate_qparams()
    rows = scale.reshape([-1] + [1] * (weight.dim() - 1))
    numbers = tenon.round(weight * (1 / rows)).clamp(observer.quant_min, observer.quant_max)
    return numbers.to(tenon.int8), scale


class Packed(nn.Module):
    """A layer with a weight of int8. `_numbers`: attributes that files keep beside it."""

    _numbers: tuple[str, ...] = ()

    def _hold(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        self.register_buffer("weight_int8", weight)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("_bias", bias)

    def _take(self, mod: Any, observer: Any) -> None:
        """Weight and bias of a float layer."""
        self.weight_int8, self.weight_scale = whole_numbers(mod.weight, observer)
        self._bias = None if mod.bias is None else mod.bias.detach().float().clone()

    def weight(self) -> Tensor:
        """The weight's values, as floats."""
        rows = self.weight_scale.reshape([-1] + [1] * (self.weight_int8.dim() - 1))
        return self.weight_int8.float() * rows

    def bias(self) -> Tensor | None:
        return self._bias

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._numbers}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name in self._numbers:
            setattr(self, name, state[name])

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        scale = state.get(prefix + "weight_scale")
        if scale is not None:  # one, or one per channel
            self.weight_scale = tenon.empty_like(scale, device=self.weight_scale.device)
        super()._load_from_state_dict(state, prefix, *args)
