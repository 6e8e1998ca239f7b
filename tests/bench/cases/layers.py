"""Layers: convolution, normalisation, pooling, attention, embedding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from registry import ORDERS, case, fill, normal, whole

conv = partial(case, "conv")
norm = partial(case, "norm and pooling")
attention = partial(case, "attention")
gather = partial(case, "gather")

M26 = 4 * 32 * 64 * 56 * 56  # bytes of a 32 x 64 x 56 x 56 tensor


def convolution(
    name: str,
    goal: float,
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    backward: bool = False,
    dtype: str = "float32",
) -> None:
    """The limit is that of direct convolution; Winograd's method may halve that of a 3 x 3 one."""

    def make(T: Any) -> Callable[[], Any]:
        kind = getattr(T, dtype)
        x, w = normal(T, *image).to(kind), (normal(T, *kernel) * 0.1).to(kind)
        conv2d = T.nn.functional.conv2d
        if not backward:
            return lambda: conv2d(x, w, None, stride, padding, 1, groups)
        x, w = x.requires_grad_(), w.detach().requires_grad_()
        g = normal(T, *conv2d(x, w, None, stride, padding, 1, groups).shape).to(kind)

        def run():
            x.grad = w.grad = None
            conv2d(x, w, None, stride, padding, 1, groups).backward(g)
            return w.grad

        return run

    n, _, height, width = image
    out_channels, depth, kh, kw = kernel
    pixels = n * out_channels * (height // stride) * (width // stride)
    flops = 2.0 * pixels * depth * kh * kw * (3 if backward else 1)
    inputs = n * image[1] * height * width
    size = 4.0 if dtype == "float32" else 2.0
    conv(goal, name=name, bytes=size * (inputs + pixels), flops=flops)(make)


convolution("conv3x3_32x64x56", 0.7, (32, 64, 56, 56), (64, 64, 3, 3), padding=1)
convolution("conv3x3_32x256x14", 0.7, (32, 256, 14, 14), (256, 256, 3, 3), padding=1)
convolution("conv1x1_32x64to256x56", 0.3, (32, 64, 56, 56), (256, 64, 1, 1))
convolution("conv7x7_stem_8x3x224", 0.7, (8, 3, 224, 224), (64, 3, 7, 7), 2, 3)
convolution("conv_depthwise_32x64x56", 0.3, (32, 64, 56, 56), (64, 1, 3, 3), 1, 1, 64)
convolution(
    "conv3x3_8x64x56_fwd_bwd", 0.7, (8, 64, 56, 56), (64, 64, 3, 3), padding=1, backward=True
)
for suffix, backward in (("", False), ("_fwd_bwd", True)):
    convolution(
        "conv3x3_8x64x56_bf16" + suffix,
        0.7,
        (8, 64, 56, 56),
        (64, 64, 3, 3),
        padding=1,
        backward=backward,
        dtype="bfloat16",
    )


# -- normalisation and pooling -----------------------------------------------------------------


@norm(0.3, bytes=3.0 * M26)
def batchnorm_train_32x64x56(T):
    x, layer = normal(T, 32, 64, 56, 56), T.nn.BatchNorm2d(64)

    def run():
        with T.no_grad():
            return layer(x)

    return run


@norm(0.3, bytes=5.0 * M26 / 4)
def batchnorm_train_8x64x56_fwd_bwd(T):
    x, layer = normal(T, 8, 64, 56, 56).requires_grad_(), T.nn.BatchNorm2d(64)
    g = normal(T, 8, 64, 56, 56)

    def run():
        x.grad = layer.weight.grad = layer.bias.grad = None
        layer(x).backward(g)
        return layer.weight.grad

    return run


@norm(0.15, bytes=1.25 * M26)
def maxpool2_32x64x56(T):
    x = normal(T, 32, 64, 56, 56)
    return lambda: T.nn.functional.max_pool2d(x, 2)


@norm(0.3, bytes=1.25 * M26)
def avgpool2_32x64x56(T):
    x = normal(T, 32, 64, 56, 56)
    return lambda: T.nn.functional.avg_pool2d(x, 2)


# -- attention ---------------------------------------------------------------------------------

CAUSAL = 2.0 * 12 * 1024**2 * 64  # half of two products of (1024, 64) with (64, 1024), 12 heads


@attention(0.7, flops=CAUSAL)
def sdpa_causal_fwd(T):
    q, k, v = (normal(T, 1, 12, 1024, 64) + 0.1 * i for i in range(3))
    return lambda: T.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@attention(0.7, flops=3.5 * CAUSAL)
def sdpa_causal_fwd_bwd(T):
    q, k, v = ((normal(T, 1, 12, 1024, 64) + 0.1 * i).requires_grad_() for i in range(3))
    g = normal(T, 1, 12, 1024, 64)

    def run():
        q.grad = k.grad = v.grad = None
        T.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).backward(g)
        return k.grad

    return run


@attention(0.7, bytes=2 * 4.0 * 12 * 4096 * 64)
def sdpa_decode_kv4096(T):
    q, k, v = normal(T, 1, 12, 1, 64), normal(T, 1, 12, 4096, 64), normal(T, 1, 12, 4096, 64)
    return lambda: T.nn.functional.scaled_dot_product_attention(q, k, v)


@attention(0.5, flops=8.0 * 512 * 128**2 + 4.0 * 8 * 64**2 * 128)
def multihead_attention_8x64x128(T):
    layer = fill(T, T.nn.MultiheadAttention(128, 4, batch_first=True))
    x = normal(T, 8, 64, 128)
    return lambda: layer(x, x, x)


# -- gather and scatter ------------------------------------------------------------------------

TABLE, WIDTH, TOKENS = 50257, 768, 4096


def numpy_embedding(N, form):
    table, ids = normal(N, TABLE, WIDTH), whole(N, TOKENS, TABLE, form)
    return lambda: table[ids]


@gather(0.9, numpy=numpy_embedding, bytes=8.0 * TOKENS * WIDTH, forms=ORDERS)
def embedding_fwd(T, form):
    table, ids = normal(T, TABLE, WIDTH), whole(T, TOKENS, TABLE, form)
    return lambda: T.nn.functional.embedding(ids, table)


@gather(0.2, bytes=4.0 * (TABLE + TOKENS) * WIDTH, forms=ORDERS)
def embedding_bwd(T, form):
    """The dense gradient of the whole table."""
    table, ids = normal(T, TABLE, WIDTH).requires_grad_(), whole(T, TOKENS, TABLE, form)
    g = normal(T, TOKENS, WIDTH)
    out = T.nn.functional.embedding(ids, table)
    return lambda: T.autograd.grad(out, table, g, retain_graph=True)


def numpy_gather(N, form):
    a, index = normal(N, 1024, 1024), whole(N, 1 << 20, 1024, form).reshape(1024, 1024)
    return lambda: N.take_along_axis(a, index, 1)


@gather(0.5, numpy=numpy_gather, bytes=16.0 * (1 << 20), forms=ORDERS)
def gather_1M(T, form):
    a, index = normal(T, 1024, 1024), whole(T, 1 << 20, 1024, form).reshape(1024, 1024)
    return lambda: T.gather(a, 1, index)


def numpy_rows(N):
    a, index = normal(N, 1024, 1024), whole(N, 1024, 1024)
    return lambda: a.take(index, 0)


@gather(0.6, numpy=numpy_rows, bytes=8.0 * (1 << 20))
def index_select_rows(T):
    a, index = normal(T, 1024, 1024), whole(T, 1024, 1024)
    return lambda: T.index_select(a, 0, index)
