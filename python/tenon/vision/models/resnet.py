"""Residual networks: ResNet, ResNeXt, wide ResNet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import load_into, register

__all__ = [
    "ResNet", "resnet101", "resnet152", "resnet18", "resnet34", "resnet50", "resnext101_32x8d",
    "resnext101_64x4d", "resnext50_32x4d", "wide_resnet101_2", "wide_resnet50_2",
]  # fmt: skip


def conv3x3(
    in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Conv2d:
    """A 3 x 3 convolution that keeps the size."""
    return nn.Conv2d(
        in_planes, out_planes, 3, stride, dilation, groups=groups, bias=False, dilation=dilation
    )


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A 1 x 1 convolution."""
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        inner += x if self.downsample is None else self.downsample(x)
        return self.relu(inner)


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two of 1 x 1, beside a shortcut."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        inner = self.bn3(self.conv3(inner))
        inner += x if self.downsample is None else self.downsample(x)
        return self.relu(inner)


class ResNet(nn.Module):
    """Four stages of blocks, each half as large as the one before."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: list[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: list[bool] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes = 64
        self.dilation = 1
        dilate = replace_stride_with_dilation or [False, False, False]
        if len(dilate) != 3:
            raise ValueError(
                f"replace_stride_with_dilation should be None or a 3-element tuple, got {dilate}"
            )
        self.groups = groups
        self.base_width = width_per_group
        self.conv1 = nn.Conv2d(3, self.inplanes, 7, 2, 3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
        if zero_init_residual:
            for m in self.modules():
                if isinstance(m, (BasicBlock, Bottleneck)):
                    last = m.bn3 if isinstance(m, Bottleneck) else m.bn2
                    nn.init.constant_(last.weight, 0)

    def _make_layer(
        self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False
    ) -> nn.Sequential:
        downsample = None
        before = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                conv1x1(self.inplanes, planes * block.expansion, stride),
                self._norm_layer(planes * block.expansion),
            )
        shared = (self.groups, self.base_width)
        layers = [
            block(self.inplanes, planes, stride, downsample, *shared, before, self._norm_layer)
        ]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            rest = (1, None, *shared, self.dilation, self._norm_layer)
            layers.append(block(self.inplanes, planes, *rest))
        return nn.Sequential(*layers)

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(tenon.flatten(self.avgpool(x), 1))

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


def _builder(name: str, block: Any, layers: list[int], **fixed: Any) -> Any:
    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> ResNet:
        del progress
        model = ResNet(block, layers, **{**fixed, **kwargs})
        return load_into(model, name, weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{name}: stages of {layers} blocks."
    return register(build)


resnet18 = _builder("resnet18", BasicBlock, [2, 2, 2, 2])
resnet34 = _builder("resnet34", BasicBlock, [3, 4, 6, 3])
resnet50 = _builder("resnet50", Bottleneck, [3, 4, 6, 3])
resnet101 = _builder("resnet101", Bottleneck, [3, 4, 23, 3])
resnet152 = _builder("resnet152", Bottleneck, [3, 8, 36, 3])
resnext50_32x4d = _builder(
    "resnext50_32x4d", Bottleneck, [3, 4, 6, 3], groups=32, width_per_group=4
)
resnext101_32x8d = _builder(
    "resnext101_32x8d", Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=8
)
resnext101_64x4d = _builder(
    "resnext101_64x4d", Bottleneck, [3, 4, 23, 3], groups=64, width_per_group=4
)
wide_resnet50_2 = _builder("wide_resnet50_2", Bottleneck, [3, 4, 6, 3], width_per_group=128)
wide_resnet101_2 = _builder("wide_resnet101_2", Bottleneck, [3, 4, 23, 3], width_per_group=128)
