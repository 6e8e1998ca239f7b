"""Layers that models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor, nn


class FrozenBatchNorm2d(nn.Module):
    """Batch norm whose statistics and weights stay as they are: all of them are buffers."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", tenon.ones(num_features))
        self.register_buffer("bias", tenon.zeros(num_features))
        self.register_buffer("running_mean", tenon.zeros(num_features))
        self.register_buffer("running_var", tenon.ones(num_features))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


def _each(value: Any, count: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,) * count


class ConvNormActivation(nn.Sequential):
    """A convolution, a norm and an activation."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: Any = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
        conv_layer: Callable[..., nn.Module] = nn.Conv2d,
    ) -> None:
        if padding is None:
            if isinstance(kernel_size, int) and isinstance(dilation, int):
                padding = (kernel_size - 1) // 2 * dilation
            else:
                dims = len(kernel_size) if isinstance(kernel_size, Sequence) else len(dilation)
                pairs = zip(_each(kernel_size, dims), _each(dilation, dims), strict=True)
                padding = tuple((k - 1) // 2 * d for k, d in pairs)
        layers = [
            conv_layer(
                in_channels, out_channels, kernel_size, stride, padding, dilation=dilation,
                groups=groups, bias=norm_layer is None if bias is None else bias,
            )
        ]  # fmt: skip
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class Conv2dNormActivation(ConvNormActivation):
    """ConvNormActivation of pictures."""


class Conv3dNormActivation(ConvNormActivation):
    """ConvNormActivation of volumes."""

    def __init__(self, in_channels: int, out_channels: int, *args: Any, **kwargs: Any) -> None:
        if len(args) < 5:
            kwargs.setdefault("norm_layer", nn.BatchNorm3d)
        super().__init__(in_channels, out_channels, *args, conv_layer=nn.Conv3d, **kwargs)


class SqueezeExcitation(nn.Module):
    """Scales channels by what their means say."""

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable[..., nn.Module] = nn.ReLU,
        scale_activation: Callable[..., nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        inner = self.activation(self.fc1(self.avgpool(input)))
        return self.scale_activation(self.fc2(inner)) * input


class MLP(nn.Sequential):
    """Linear layers with activations and dropout between them."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Sequence[int],
        norm_layer: Callable[..., nn.Module] | None = None,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        size = in_channels
        for hidden in hidden_channels[:-1]:
            layers.append(nn.Linear(size, hidden, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(hidden))
            if activation_layer is not None:
                layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            size = hidden
        layers.append(nn.Linear(size, hidden_channels[-1], bias=bias))
        layers.append(nn.Dropout(dropout, **options))
        super().__init__(*layers)


class Permute(nn.Module):
    """Dimensions in another order."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.dims)
