"""GoogLeNet: filters of several sizes side by side."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._inception import BasicConv2d, colours_as_published, start
from tenon.vision.models._weights import load_into, register

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "_GoogLeNetOutputs", "googlenet"]

GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
_GoogLeNetOutputs = GoogLeNetOutputs
# Channels before, of 1 x 1, before and after 3 x 3, before and after the second, of the pool.
_BLOCKS = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64), "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64), "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128), "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}  # fmt: skip


class Inception(nn.Module):
    """Four branches."""

    def __init__(
        self, in_channels: int, ch1x1: int, ch3x3red: int, ch3x3: int, ch5x5red: int, ch5x5: int,
        pool_proj: int, conv_block: Callable[..., nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1 = conv(in_channels, ch1x1, kernel_size=1)
        for name, few, many in (("branch2", ch3x3red, ch3x3), ("branch3", ch5x5red, ch5x5)):
            first = conv(in_channels, few, kernel_size=1)
            setattr(self, name, nn.Sequential(first, conv(few, many, kernel_size=3, padding=1)))
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=True),
            conv(in_channels, pool_proj, kernel_size=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return tenon.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    """Classes from the middle of the network, while it is trained."""

    def __init__(
        self, in_channels: int, num_classes: int,
        conv_block: Callable[..., nn.Module] | None = None, dropout: float = 0.7,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv = (conv_block or BasicConv2d)(in_channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = tenon.flatten(self.conv(nn.functional.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(nn.functional.relu(self.fc1(x), inplace=True)))


class GoogLeNet(nn.Module):
    """Nine blocks; while it is trained, classes from three places."""

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        init_weights: bool | None = None, blocks: list[Callable[..., nn.Module]] | None = None,
        dropout: float = 0.2, dropout_aux: float = 0.7,
    ) -> None:  # fmt: skip
        super().__init__()
        blocks = blocks or [BasicConv2d, Inception, InceptionAux]
        if len(blocks) != 3:
            raise ValueError(f"blocks length should be 3 instead of {len(blocks)}")
        conv, block, aux = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = conv(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = conv(64, 64, kernel_size=1)
        self.conv3 = conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        for name, row in _BLOCKS.items():
            setattr(self, f"inception{name}", block(*row))
            if name == "3b":
                self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
            elif name == "4e":
                self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.aux1 = aux(512, num_classes, dropout=dropout_aux) if aux_logits else None
        self.aux2 = aux(528, num_classes, dropout=dropout_aux) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(1024, num_classes)
        start(self, "GoogleNet", init_weights, 0.01)

    def forward(self, x: Tensor) -> Any:
        if self.transform_input:
            x = colours_as_published(x)
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(x)))))
        x = self.inception4a(self.maxpool3(self.inception3b(self.inception3a(x))))
        ask = self.training and self.aux_logits
        first = self.aux1(x) if ask else None
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        second = self.aux2(x) if ask else None
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(x))))
        x = self.fc(self.dropout(tenon.flatten(self.avgpool(x), 1)))
        return GoogLeNetOutputs(x, second, first) if ask else x


@register
def googlenet(
    *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
) -> GoogLeNet:
    """GoogLeNet; with published weights without the classes of its middle, if not asked for."""
    del progress
    if not weights and not pretrained:
        return GoogLeNet(**kwargs)
    wanted = kwargs.pop("aux_logits", False)
    options = {"transform_input": True, "init_weights": False, **kwargs}
    model = load_into(GoogLeNet(aux_logits=True, **options), "googlenet", weights, pretrained)
    if not wanted:
        model.aux_logits, model.aux1, model.aux2 = False, None, None
    return model
