"""Inception, the third: filters of several shapes side by side."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._inception import BasicConv2d, colours_as_published, start
from tenon.vision.models._weights import load_into, register

__all__ = ["Inception3", "InceptionOutputs", "_InceptionOutputs", "inception_v3"]

InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])
_InceptionOutputs = InceptionOutputs
_Conv = Callable[..., nn.Module] | None


class _Branches(nn.Module):
    """Convolutions by name, of branches that are joined."""

    def _add(self, conv: _Conv, **rows: tuple[int, int, Any, int]) -> None:
        """Each: channels before and after, kernel, stride; kernels of stride 1 keep the size."""
        for name, (before, after, kernel, stride) in rows.items():
            wide = kernel if isinstance(kernel, tuple) else (kernel, kernel)
            padding = (0, 0) if stride > 1 else (wide[0] // 2, wide[1] // 2)
            made = (conv or BasicConv2d)(
                before, after, kernel_size=kernel, stride=stride, padding=padding
            )
            setattr(self, name, made)

    def _run(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = getattr(self, name)(x)
        return x

    def _numbered(self, x: Tensor, name: str, count: int) -> Tensor:
        return self._run(x, *(f"{name}_{i + 1}" for i in range(count)))

    def _pooled(self, x: Tensor) -> Tensor:
        return self.branch_pool(nn.functional.avg_pool2d(x, 3, stride=1, padding=1))


class InceptionA(_Branches):
    """1 x 1, 5 x 5, twice 3 x 3, a pool."""

    def __init__(self, in_channels: int, pool_features: int, conv_block: _Conv = None) -> None:
        super().__init__()
        self._add(
            conv_block,
            branch1x1=(in_channels, 64, 1, 1),
            branch5x5_1=(in_channels, 48, 1, 1), branch5x5_2=(48, 64, 5, 1),
            branch3x3dbl_1=(in_channels, 64, 1, 1), branch3x3dbl_2=(64, 96, 3, 1),
            branch3x3dbl_3=(96, 96, 3, 1), branch_pool=(in_channels, pool_features, 1, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return tenon.cat([
            self.branch1x1(x), self._numbered(x, "branch5x5", 2),
            self._numbered(x, "branch3x3dbl", 3), self._pooled(x),
        ], 1)  # fmt: skip


class InceptionB(_Branches):
    """Half the size, by 3 x 3."""

    def __init__(self, in_channels: int, conv_block: _Conv = None) -> None:
        super().__init__()
        self._add(
            conv_block,
            branch3x3=(in_channels, 384, 3, 2), branch3x3dbl_1=(in_channels, 64, 1, 1),
            branch3x3dbl_2=(64, 96, 3, 1), branch3x3dbl_3=(96, 96, 3, 2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        pool = nn.functional.max_pool2d(x, kernel_size=3, stride=2)
        return tenon.cat([self.branch3x3(x), self._numbered(x, "branch3x3dbl", 3), pool], 1)


class InceptionC(_Branches):
    """7 x 7 as rows and columns."""

    def __init__(self, in_channels: int, channels_7x7: int, conv_block: _Conv = None) -> None:
        super().__init__()
        c, row, column = channels_7x7, (1, 7), (7, 1)
        self._add(
            conv_block,
            branch1x1=(in_channels, 192, 1, 1),
            branch7x7_1=(in_channels, c, 1, 1), branch7x7_2=(c, c, row, 1),
            branch7x7_3=(c, 192, column, 1),
            branch7x7dbl_1=(in_channels, c, 1, 1), branch7x7dbl_2=(c, c, column, 1),
            branch7x7dbl_3=(c, c, row, 1), branch7x7dbl_4=(c, c, column, 1),
            branch7x7dbl_5=(c, 192, row, 1), branch_pool=(in_channels, 192, 1, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return tenon.cat([
            self.branch1x1(x), self._numbered(x, "branch7x7", 3),
            self._numbered(x, "branch7x7dbl", 5), self._pooled(x),
        ], 1)  # fmt: skip


class InceptionD(_Branches):
    """Half the size, by 3 x 3 and 7 x 7."""

    def __init__(self, in_channels: int, conv_block: _Conv = None) -> None:
        super().__init__()
        self._add(
            conv_block,
            branch3x3_1=(in_channels, 192, 1, 1), branch3x3_2=(192, 320, 3, 2),
            branch7x7x3_1=(in_channels, 192, 1, 1), branch7x7x3_2=(192, 192, (1, 7), 1),
            branch7x7x3_3=(192, 192, (7, 1), 1), branch7x7x3_4=(192, 192, 3, 2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        pool = nn.functional.max_pool2d(x, kernel_size=3, stride=2)
        three, seven = self._numbered(x, "branch3x3", 2), self._numbered(x, "branch7x7x3", 4)
        return tenon.cat([three, seven, pool], 1)


class InceptionE(_Branches):
    """3 x 3 as rows beside columns."""

    def __init__(self, in_channels: int, conv_block: _Conv = None) -> None:
        super().__init__()
        row, column = (1, 3), (3, 1)
        self._add(
            conv_block,
            branch1x1=(in_channels, 320, 1, 1), branch3x3_1=(in_channels, 384, 1, 1),
            branch3x3_2a=(384, 384, row, 1), branch3x3_2b=(384, 384, column, 1),
            branch3x3dbl_1=(in_channels, 448, 1, 1), branch3x3dbl_2=(448, 384, 3, 1),
            branch3x3dbl_3a=(384, 384, row, 1), branch3x3dbl_3b=(384, 384, column, 1),
            branch_pool=(in_channels, 192, 1, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        three, twice = self.branch3x3_1(x), self._numbered(x, "branch3x3dbl", 2)
        return tenon.cat([
            self.branch1x1(x), self.branch3x3_2a(three), self.branch3x3_2b(three),
            self.branch3x3dbl_3a(twice), self.branch3x3dbl_3b(twice), self._pooled(x),
        ], 1)  # fmt: skip


class InceptionAux(nn.Module):
    """Classes from the middle of the network, while it is trained."""

    def __init__(self, in_channels: int, num_classes: int, conv_block: _Conv = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.conv0 = conv(in_channels, 128, kernel_size=1)
        self.conv1 = conv(128, 768, kernel_size=5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.conv0(nn.functional.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(tenon.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """Eleven blocks; while it is trained, classes from two places."""

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        inception_blocks: list[Callable[..., nn.Module]] | None = None,
        init_weights: bool | None = None, dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        blocks: list[Any] = inception_blocks or [
            BasicConv2d,
            InceptionA,
            InceptionB,
            InceptionC,
            InceptionD,
            InceptionE,
            InceptionAux,
        ]
        if len(blocks) != 7:
            raise ValueError(f"length of inception_blocks should be 7 instead of {len(blocks)}")
        conv, a, b, c, d, e, aux = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = conv(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b, self.Mixed_5c = a(192, pool_features=32), a(256, pool_features=64)
        self.Mixed_5d, self.Mixed_6a = a(288, pool_features=64), b(288)
        for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
            setattr(self, f"Mixed_{name}", c(768, channels_7x7=width))
        self.AuxLogits = aux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = d(768), e(1280), e(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(2048, num_classes)
        start(self, "inception_v3", init_weights, 0.1)

    def forward(self, x: Tensor) -> Any:
        if self.transform_input:
            x = colours_as_published(x)
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        ask = self.training and self.aux_logits
        aux = self.AuxLogits(x) if ask else None
        x = self.avgpool(self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))))
        x = self.fc(tenon.flatten(self.dropout(x), 1))
        return InceptionOutputs(x, aux) if ask else x


@register
def inception_v3(
    *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
) -> Inception3:
    """Inception, the third; with published weights without the classes of its middle, if not
    asked for."""
    del progress
    if not weights and not pretrained:
        return Inception3(**kwargs)
    wanted = kwargs.pop("aux_logits", True)
    options = {"transform_input": True, "init_weights": False, **kwargs}
    model = Inception3(aux_logits=True, **options)
    model = load_into(model, "inception_v3_google", weights, pretrained)
    if not wanted:
        model.aux_logits, model.AuxLogits = False, None
    return model
