"""What the project aims for on a GPU. These cases are there only under --cuda, where all data is
made on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from registry import Run, case, normal

from cases.training import digits_mlp_step, gpt, optimizer, stepper

gpu = partial(case, "cuda")


@dataclass(frozen=True)
class Sizes:
    """How much work the cases do: GPT-2's batch, tokens, layers, width and words; elements of
    pointwise operators and reductions; tensors of the optimizer."""

    batch: int = 64
    tokens: int = 1024
    layers: int = 12
    width: int = 768
    words: int = 50257
    elements: int = 1 << 26
    tensors: int = 1000


SMALL = Sizes(2, 16, 1, 48, 65, 1 << 14, 50)
HEADS = 12
COLUMNS = 1024


def add_8(T: Any) -> Run:
    a, b = normal(T, 8), normal(T, 8)
    return lambda: a + b


def warm_step(T: Any) -> Run:
    """The digits' step after a few on another stream, so that nothing is made while one is
    captured."""
    step = digits_mlp_step(T)
    side = T.cuda.Stream()
    side.wait_stream(T.cuda.current_stream())
    with T.cuda.stream(side):
        for _ in range(3):
            step()
    T.cuda.current_stream().wait_stream(side)
    return step


def captured(T: Any) -> Run:
    """A step that is launched as one graph."""
    step = warm_step(T)
    graph = T.cuda.CUDAGraph()
    with T.cuda.graph(graph):
        loss = step()

    def run() -> Any:
        graph.replay()
        return loss

    return run


def captured_or_eager(T: Any) -> Run:
    """PyTorch's steps go operator by operator, which is its default."""
    return captured(T) if T.__name__ == "tenon" else warm_step(T)


def gpt2(sizes: Sizes) -> Callable[[Any], Run]:
    def make(T: Any) -> Run:
        model = gpt(T, sizes.layers, HEADS, sizes.width, sizes.tokens, sizes.words)
        model.head.weight = model.token.weight
        opt = T.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        ids = (T.arange(sizes.batch * sizes.tokens) * 31 % sizes.words).reshape(sizes.batch, -1)
        target = ids.roll(-1, 1).reshape(-1)

        def loss() -> Any:
            with T.autocast("cuda", dtype=T.bfloat16):
                scores = model(ids).view(-1, sizes.words)
                return T.nn.functional.cross_entropy(scores, target)

        return stepper(opt, loss)

    return make


def stream(name: str, shape: tuple[int, ...], bytes_: int, call: Callable[[Any, Any], Any]) -> None:
    """A case whose goal is a share of the rate of a copy; `bytes_` are moved for each element."""

    def make(T: Any) -> Run:
        x = normal(T, *shape)
        if name.endswith("bf16"):
            x = x.to(T.bfloat16)
        return lambda: call(T, x)

    rtol = 2e-2 if name.endswith("bf16") else 1e-3
    gpu(name=name, bytes=float(bytes_ * math.prod(shape)), share=0.85, rtol=rtol)(make)


def add(sizes: Sizes) -> None:
    """Adds the cases of these sizes to the list."""
    gpu(0.6, name="launch_add_8", host=True)(add_8)
    gpu(0.2, name="digits_step_captured_to_eager")(captured_or_eager)
    gpu(1.0, name="digits_step_captured")(captured)
    gpu(1.0, name="gpt2_bf16_step", rtol=2e-2)(gpt2(sizes))
    optimizer(
        "cuda_adamw_fused", [(128, 128)] * sizes.tensors,
        lambda T, p: T.optim.AdamW(p, lr=1e-3, fused=True), 0.9, 7, group="cuda",
    )  # fmt: skip
    flat, rows = (sizes.elements,), (sizes.elements // COLUMNS, COLUMNS)
    stream("cuda_add_row_f32", rows, 8, lambda T, x: x + x[0])
    stream("cuda_mul_bf16", flat, 4, lambda T, x: x * 0.5)
    stream("cuda_exp_f32", flat, 8, lambda T, x: x.exp())
    stream("cuda_gelu_f32", flat, 8, lambda T, x: T.nn.functional.gelu(x))
    stream("cuda_sum_f32", flat, 4, lambda T, x: x.sum())
    stream("cuda_sum_rows_f32", rows, 4, lambda T, x: x.sum(1))
    stream("cuda_sum_columns_f32", rows, 4, lambda T, x: x.sum(0))
    stream("cuda_amax_bf16", flat, 2, lambda T, x: x.amax())
    stream("cuda_softmax_rows_f32", rows, 8, lambda T, x: T.softmax(x, 1))
