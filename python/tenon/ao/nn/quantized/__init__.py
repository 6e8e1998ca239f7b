"""Layers of whole numbers. They take and give float32 tensors: an input is laid on its grid,
products are those of whole numbers and exact, results lie on the grid that was observed.

`scale` and `zero_point` are those of results, as in PyTorch; `input_grid` is the input's, as scale,
zero point, least and largest number. Weights are kept as int8 with a scale or one per channel."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon._C import _ops
from tenon._submodules import on_demand
from tenon.ao.nn.quantized import dynamic
from tenon.ao.nn.quantized._weights import Packed

__all__ = ["Conv1d", "Conv2d", "DeQuantize", "FloatFunctional", "Linear", "QFunctional",
           "Quantize", "dynamic"]  # fmt: skip

_BYTE = (0, 127)


class _Static(Packed):
    """A layer whose grids are known: what the observers of input and results have found."""

    _numbers = ("scale", "zero_point", "relu", "input_grid", "output_range")

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point, self.relu = 1.0, 0, False
        self.input_grid = (1.0, 0, *_BYTE)
        self.output_range = _BYTE

    def _grids(self) -> tuple[Any, ...]:
        low, high = self.output_range
        low = self.zero_point if self.relu else low
        return *self.input_grid, self.scale, self.zero_point, low, max(high, low + 1)

    def extra_repr(self) -> str:
        scheme = "channel" if self.weight_scale.numel() > 1 else "tensor"
        return (f"{self._sizes()}, scale={self.scale}, zero_point={self.zero_point}, "
                f"qscheme=torch.per_{scheme}_affine")  # fmt: skip

    def _get_name(self) -> str:
        return "QuantizedLinearReLU" if self.relu else "QuantizedLinear"


class Linear(_Static):
    """input @ weight.T + bias, in whole numbers."""

    def __init__(self, in_features: int, out_features: int, bias_: bool = True,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._hold(tenon.zeros(out_features, in_features, dtype=tenon.int8), tenon.ones(1),
                   tenon.zeros(out_features) if bias_ else None)  # fmt: skip

    @classmethod
    def _like(cls, mod: Any) -> Linear:
        return cls(mod.in_features, mod.out_features, mod.bias is not None)

    def forward(self, x: Tensor) -> Tensor:
        return _ops._linear_int8(x, self.weight_int8, self.weight_scale, self._bias, *self._grids())

    def _sizes(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Conv2d(_Static):
    """A convolution of images, in whole numbers."""

    _taken = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation",
              "groups")  # fmt: skip

    @classmethod
    def _like(cls, mod: Any) -> Conv2d:
        if mod.padding_mode != "zeros" or isinstance(mod.padding, str):
            raise ValueError(
                "a quantized convolution pads with zeros, as many as numbers say: padding_mode="
                f"{mod.padding_mode!r} and padding={mod.padding!r} cannot be converted"
            )
        made = cls()
        for name in cls._taken:
            setattr(made, name, getattr(mod, name))
        made._hold(tenon.zeros(mod.weight.shape, dtype=tenon.int8), tenon.ones(1),
                   None if mod.bias is None else tenon.zeros(mod.out_channels))  # fmt: skip
        return made

    def forward(self, input: Tensor) -> Tensor:
        lone = input.dim() == 3
        result = _ops._conv_int8(
            input[None] if lone else input, self.weight_int8, self.weight_scale, self._bias,
            self.stride, self.padding, self.dilation, self.groups, *self._grids(),
        )  # fmt: skip
        return result[0] if lone else result

    def extra_repr(self) -> str:
        usual = {"padding": 0, "dilation": 1}
        around = [f"{name}={getattr(self, name)}" for name, value in usual.items()
                  if any(v != value for v in getattr(self, name))]  # fmt: skip
        around += [] if self.groups == 1 else [f"groups={self.groups}"]
        around += [] if self._bias is not None else ["bias=False"]
        return ", ".join([f"{self.in_channels}, {self.out_channels}",
                          f"kernel_size={self.kernel_size}", f"stride={self.stride}",
                          f"scale={self.scale}", f"zero_point={self.zero_point}",
                          *around])  # fmt: skip

    def _get_name(self) -> str:
        return f"QuantizedConv{'ReLU' if self.relu else ''}{self.weight_int8.dim() - 2}d"


class Conv1d(Conv2d):
    """A convolution of rows: of images one pixel high."""

    def forward(self, input: Tensor) -> Tensor:
        result = _ops._conv_int8(
            input.unsqueeze(-2), self.weight_int8.unsqueeze(-2), self.weight_scale, self._bias,
            (1, *self.stride), (0, *self.padding), (1, *self.dilation), self.groups,
            *self._grids(),
        )  # fmt: skip
        return result.squeeze(-2)


class Quantize(nn.Module):
    """Lays values on a grid."""

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, low: int | None = None,
                 high: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self.dtype = dtype
        self.low = dtype.low if low is None else low
        self.high = dtype.high if high is None else high
        self.register_buffer("scale", tenon.as_tensor(scale, dtype=tenon.float32).reshape(1))
        self.register_buffer("zero_point", tenon.as_tensor(zero_point).long().reshape(1))

    def forward(self, X: Tensor) -> Tensor:
        return tenon.fake_quantize_per_tensor_affine(
            X, self.scale, self.zero_point, self.low, self.high
        )

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """The end of the part of whole numbers: values are floats already."""

    def forward(self, Xq: Tensor) -> Tensor:
        return Xq


class FloatFunctional(nn.Module):
    """Functions of two tensors whose results are observed."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the "
                           "underlying operation")  # fmt: skip

    def _seen(self, result: Tensor) -> Tensor:
        return self.activation_post_process(result)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(tenon.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return tenon.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(tenon.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return tenon.mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Tensor:
        return self._seen(tenon.cat(x, dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(tenon.relu(tenon.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(tenon.matmul(x, y))


class QFunctional(FloatFunctional):
    """The same, whose results lie on the grid."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.range = (0, 255)

    def _seen(self, result: Tensor) -> Tensor:
        laid = tenon.fake_quantize_per_tensor_affine(
            result, self.scale, self.zero_point, *self.range
        )
        return super()._seen(laid)

    def get_extra_state(self) -> dict[str, Any]:
        return {"scale": self.scale, "zero_point": self.zero_point, "range": self.range}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def _get_name(self) -> str:
        return "QFunctional"


on_demand(globals())
