"""Whole networks: ResNet-18, an LSTM, the four networks of MLPerf Tiny."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from registry import case, fill, normal

models = partial(case, "models")


def residual(T: Any, inputs: int, outputs: int, stride: int) -> Any:
    """The basic block: two 3 x 3 convolutions and the way round them."""
    nn = T.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )  # fmt: skip
            self.way = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.way = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(self.body(x) + self.way(x))

    return Block()


def resnet18(T: Any) -> Any:
    nn = T.nn
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [residual(T, inputs, outputs, stride), residual(T, outputs, outputs, 1)]
        inputs = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return fill(T, nn.Sequential(*layers))


def infer(T: Any, model: Any, x: Any) -> Callable[[], Any]:
    model.eval()

    def run():
        with T.no_grad():
            return model(x)

    return run


@models(0.7, flops=3.6e9)
def resnet18_b1_infer(T):
    return infer(T, resnet18(T), normal(T, 1, 3, 224, 224))


@models(0.7, flops=3 * 2 * 3.6e9, rtol=1e-2)
def resnet18_b2_train_step(T):
    """Batch 2, to stay under a second."""
    model = resnet18(T)
    opt = T.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = normal(T, 2, 3, 224, 224), T.tensor([1, 2])

    def run():
        loss = T.nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return run


LSTM = 2.0 * 64 * 16 * 4 * 256 * (128 + 256)


@models(0.4, flops=LSTM)
def lstm_64x16x128_256_fwd(T):
    layer = fill(T, T.nn.LSTM(128, 256, batch_first=True))
    return infer(T, layer, normal(T, 64, 16, 128))


@models(0.4, flops=3 * LSTM)
def lstm_64x16x128_256_fwd_bwd(T):
    layer = fill(T, T.nn.LSTM(128, 256, batch_first=True))
    x, g = normal(T, 64, 16, 128), normal(T, 64, 16, 256)

    def run():
        layer.zero_grad()
        layer(x)[0].backward(g)
        return layer.weight_ih_l0.grad

    return run


# -- MLPerf Tiny, one sample -------------------------------------------------------------------


def separable(T: Any, inputs: int, outputs: int, stride: int = 1) -> list[Any]:
    """A depthwise and a pointwise convolution, each normalised."""
    nn = T.nn
    return [
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs), nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
    ]  # fmt: skip


@models(0.2, flops=5.2e6)
def tiny_dscnn_b1(T):
    """Keyword spotting."""
    nn = T.nn
    layers = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += separable(T, 64, 64)
    model = fill(
        T, nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))
    )
    return infer(T, model, normal(T, 1, 1, 49, 10))


@models(0.2, flops=25e6)
def tiny_resnet8_b1(T):
    """Image classification."""
    nn = T.nn
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        residual(T, 16, 16, 1), residual(T, 16, 32, 2), residual(T, 32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return infer(T, fill(T, model), normal(T, 1, 3, 32, 32))


@models(0.2, flops=15e6)
def tiny_mobilenet025_b1(T):
    """Visual wake words: MobileNet of a quarter of the width, on 96 x 96."""
    nn = T.nn
    layers = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    inputs = 8
    plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)]
    for outputs, stride in [*plan, *[(128, 1)] * 5, (256, 2), (256, 1)]:
        layers += separable(T, inputs, outputs, stride)
        inputs = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 2))
    return infer(T, fill(T, model, 0.2), normal(T, 1, 3, 96, 96))


@models(0.2, flops=2.0 * 264_192, quick=True)
def tiny_autoencoder_b1(T):
    """Anomaly detection."""
    nn = T.nn
    layers, inputs = [], 640
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        inputs = outputs
    model = fill(T, nn.Sequential(*layers, nn.Linear(128, 640)))
    return infer(T, model, normal(T, 1, 640))
