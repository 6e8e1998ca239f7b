"""Layers with weights of whole numbers whose inputs are laid on a grid when they come."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon._C import _ops
from tenon.ao.nn.quantized._weights import Packed
from tenon.ao.nn.quantized.dynamic.rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from tenon.nn import functional as F

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "Linear", "RNNCell"]


class Linear(Packed):
    """input @ weight.T + bias. An input's numbers go from 0 to 127, over its range."""

    def __init__(self, in_features: int, out_features: int, bias_: bool = True,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        self.in_features, self.out_features, self.relu = in_features, out_features, False
        self._hold(tenon.zeros(out_features, in_features, dtype=tenon.int8), tenon.ones(1),
                   tenon.zeros(out_features) if bias_ else None)  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        if mod.qconfig.weight().dtype is tenon.float16:
            return HalfLinear(mod)
        made = cls(mod.in_features, mod.out_features, mod.bias is not None)
        made._take(mod, mod.qconfig.weight())
        return made

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self._product(x)) if self.relu else self._product(x)

    def _product(self, x: Tensor) -> Tensor:
        scale, bias, dtype = self.weight_scale, self._bias, x.dtype
        if dtype == scale.dtype == tenon.float32:
            return _ops._linear_int8(x, self.weight_int8, scale, bias, 0.0, 0, 0, 127)
        bias = bias if bias is None else bias.float()
        y = _ops._linear_int8(x.float(), self.weight_int8, scale.float(), bias, 0.0, 0, 0, 127)
        return y.to(dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU" if self.relu else "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        scheme = "channel" if self.weight_scale.numel() > 1 else "tensor"
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"dtype=torch.qint8, qscheme=torch.per_{scheme}_affine")  # fmt: skip


class HalfLinear(nn.Module):
    """input @ weight.T + bias, with a weight of float16."""

    def __init__(self, mod: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = mod.in_features, mod.out_features
        top = tenon.finfo(tenon.float16).max
        self.register_buffer("weight_half", mod.weight.detach().clamp(-top, top).half())
        self.register_buffer("_bias", None if mod.bias is None else mod.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight().to(x.dtype), self._bias)

    def weight(self) -> Tensor:
        """The weight's values."""
        return self.weight_half.float()

    def bias(self) -> Tensor | None:
        return self._bias

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                "dtype=torch.float16")  # fmt: skip


class Int8WeightLinear(nn.Module):
    """A weight of int8 with a scale per row; inputs stay floats."""

    def __init__(self, mod: Any) -> None:
        super().__init__()
        from tenon.ao.nn.quantized._weights import whole_numbers
        from tenon.ao.quantization.observer import default_per_channel_weight_observer

        numbers, scale = whole_numbers(mod.weight, default_per_channel_weight_observer())
        self.in_features, self.out_features = mod.in_features, mod.out_features
        self.register_buffer("weight_int8", numbers)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", None if mod.bias is None else mod.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        y = _ops._weight_int8pack_mm(x, self.weight_int8, self.weight_scale)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, int8 weight"


class Int4WeightLinear(nn.Module):
    """A weight of four bits, with a scale and a zero point for each group along a row."""

    def __init__(self, mod: Any, group_size: int) -> None:
        super().__init__()
        rows, columns = mod.weight.shape
        if columns % group_size or group_size % 2:
            raise ValueError(f"{columns} columns are not of groups of {group_size}, an even number")
        groups = mod.weight.detach().float().reshape(rows, -1, group_size)
        low, high = groups.amin(-1).clamp(max=0.0), groups.amax(-1).clamp(min=0.0)
        scale = ((high - low) / 15).clamp(min=1e-9)
        zero = tenon.round(-low / scale)
        numbers = tenon.round(groups / scale[..., None]) + zero[..., None]
        numbers = numbers.clamp(0, 15).to(tenon.uint8).reshape(rows, columns)
        self.in_features, self.out_features = columns, rows
        self.group_size = group_size
        self.register_buffer("weight_int4", numbers[:, 0::2] + numbers[:, 1::2] * 16)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("weight_zero", zero)
        self.register_buffer("bias", None if mod.bias is None else mod.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        y = _ops._linear_int4(x, self.weight_int4, self.weight_scale, self.weight_zero)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"group_size={self.group_size}, int4 weight")  # fmt: skip
