"""Times of single operators on a GPU, by its own events, beside PyTorch's on the same GPU.

    python tests/bench/events.py [WORD...]

WORDs choose cases by parts of their names. Where ./dev bench --cuda measures what the project aims
for, this goes over many operators, dtypes and layouts in about a minute: the least of four rounds
of up to ten calls, the rate in bytes read and written, the ratio to PyTorch's time, the first call
of each, and how far the beginnings of both results are apart, as a part of the largest element.
Gradients are asked for ones, so that those which sum to zero differ by rounding alone.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Run = Callable[[], Any]
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
HALF = ("bfloat16", "float16")
FLAT = (1 << 26,)
PIXELS = (64, 128, 56, 56)
TOLD = 1.1  # a ratio above it is marked
COMPARED = 100_000  # elements of a result that are compared
RANDOM = ("randn", "dropout")


@dataclass(frozen=True)
class Case:
    name: str
    moved: float  # bytes
    make: Callable[[Any], Run]


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    """Normal numbers; those of large shapes repeat."""
    some = np.random.default_rng(seed).standard_normal(1 << 20, dtype=np.float32)
    return np.resize(some, math.prod(shape)).reshape(shape)


def data(T: Any, shape: tuple[int, ...], dtype: str, last: bool = False, seed: int = 0) -> Any:
    x = T.from_numpy(numbers(shape, seed)).to("cuda").to(getattr(T, dtype))
    return x.to(memory_format=T.channels_last) if last else x


def forward(
    name: str, shape: tuple[int, ...], dtype: str, call: Callable[[Any, Any], Any], times: float = 2
) -> Case:
    """`times`: how often the input's bytes are moved."""

    def make(T: Any) -> Run:
        x = data(T, shape, dtype)
        return lambda: call(T, x)

    size = "x".join(map(str, shape))
    return Case(f"{name} {dtype} {size}", times * BYTES[dtype] * math.prod(shape), make)


def both(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    call: Callable[..., Any],
    *weights: tuple[int, ...],
    last: bool = False,
) -> Iterator[Case]:
    """A call of x and weights, forward and backward."""
    title = f"{name} {dtype}{' last' if last else ''} {'x'.join(map(str, shape))}"
    moved = float(BYTES[dtype] * math.prod(shape))

    def inputs(T: Any) -> list[Any]:
        return [data(T, shape, dtype, last), *(data(T, w, dtype, seed=1) for w in weights)]

    def make_forward(T: Any) -> Run:
        given = inputs(T)
        return lambda: call(T, *given)

    def make_backward(T: Any) -> Run:
        given = [x.requires_grad_() for x in inputs(T)]
        y = call(T, *given)
        ones = T.ones_like(y)
        return lambda: T.autograd.grad(y, given, ones, retain_graph=True)

    yield Case(title + " forward", 2 * moved, make_forward)
    yield Case(title + " backward", 3 * moved, make_backward)


def pointwise() -> Iterator[Case]:
    for dtype in BYTES:
        yield forward("mul", FLAT, dtype, lambda T, x: x * 0.5)
        for name in ("gelu", "silu", "tanh"):
            yield forward(name, FLAT, dtype, lambda T, x, n=name: getattr(T.nn.functional, n)(x))
    yield forward("to float32", FLAT, "bfloat16", lambda T, x: x.float(), 3)
    yield forward("to bfloat16", FLAT, "float32", lambda T, x: x.bfloat16(), 1.5)
    yield forward("where", FLAT, "float32", lambda T, x: T.where(x > 0, x, 0.0))
    yield forward("randn", FLAT, "float32", lambda T, x: T.randn_like(x), 1)
    yield forward("dropout", FLAT, "float32", lambda T, x: T.nn.functional.dropout(x, 0.1))


def reductions() -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], int | None]] = [(FLAT, None)]
    shapes += [((65536, n), d) for n in (1024, 1023) for d in (0, 1)]
    shapes += [((1 << 20, 64), 0), ((1 << 20, 64), 1)]
    for shape, dim in shapes:
        at = () if dim is None else (dim,)
        for name in ("sum", "amax", "var", "argmax"):
            for dtype in ("float32", "bfloat16"):
                yield forward(
                    f"{name}{at}", shape, dtype, lambda T, x, n=name, at=at: getattr(x, n)(*at), 1
                )
    for dtype in BYTES:
        for shape in ((65536, 1024), (65536, 1023), (1 << 20, 64), (16384, 4096)):
            yield from both("log_softmax", shape, dtype, lambda T, x: T.log_softmax(x, 1))
        yield from both("cumsum", (65536, 1024), dtype, lambda T, x: x.cumsum(1))


def layers() -> Iterator[Case]:
    for dtype in BYTES:
        yield from both(
            "layer_norm", (65536, 768), dtype,
            lambda T, x, w, b: T.nn.functional.layer_norm(x, (768,), w, b), (768,), (768,),
        )  # fmt: skip
        yield from both(
            "rms_norm", (16384, 4096), dtype,
            lambda T, x, w: T.nn.functional.rms_norm(x, (4096,), w), (4096,),
        )  # fmt: skip
        yield from both(
            "group_norm", PIXELS, dtype,
            lambda T, x, w, b: T.nn.functional.group_norm(x, 32, w, b), (128,), (128,),
        )  # fmt: skip
        for last in (False, True):
            yield from both(
                "batch_norm", PIXELS, dtype,
                lambda T, x, w, b: T.nn.functional.batch_norm(x, None, None, w, b, True),
                (128,), (128,), last=last,
            )  # fmt: skip
            yield from both(
                "conv 3x3", (64, 128, 28, 28), dtype,
                lambda T, x, w: T.nn.functional.conv2d(x, w, padding=1),
                (128, 128, 3, 3), last=last,
            )  # fmt: skip
        yield from both(
            "depthwise", PIXELS, dtype,
            lambda T, x, w: T.nn.functional.conv2d(x, w, padding=1, groups=128), (128, 1, 3, 3),
        )  # fmt: skip
        yield from both(
            "max_pool",
            (64, 64, 112, 112),
            dtype,
            lambda T, x: T.nn.functional.max_pool2d(x, 3, 2, 1),
        )
        yield from both(
            "bilinear", (16, 64, 64, 64), dtype,
            lambda T, x: T.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        )  # fmt: skip
        yield from both(
            "attention", (8, 16, 1024, 64), dtype,
            lambda T, x: T.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        )  # fmt: skip
        yield from both("linear", (8192, 4096), dtype, lambda T, x, w: x @ w.T, (4096, 4096))


def moves() -> Iterator[Case]:
    def places(T: Any, n: int, most: int) -> Any:
        return T.arange(n, device="cuda") * 31 % most

    for dtype in BYTES:
        yield from both(
            "embedding", (50257, 768), dtype,
            lambda T, w: T.nn.functional.embedding(places(T, 65536, 50257), w),
        )  # fmt: skip
        yield from both(
            "index_select", (65536, 1024), dtype,
            lambda T, x: x.index_select(0, places(T, 65536, 65536)),
        )  # fmt: skip
        yield from both("cat", (65536, 512), dtype, lambda T, x: T.cat([x, x], 1))
    yield forward("sort", (1 << 22,), "float32", lambda T, x: x.sort()[0])
    yield forward("sort of rows", (4096, 1024), "float32", lambda T, x: x.sort(1)[0])
    yield forward("topk", (4096, 8192), "float32", lambda T, x: x.topk(10, 1)[0], 1)
    yield forward("transpose", (8192, 8192), "float32", lambda T, x: x.t().contiguous())
    yield forward("nonzero", (1 << 24,), "float32", lambda T, x: (x > 0).nonzero(), 1)
    yield forward("mask", (1 << 24,), "float32", lambda T, x: x[x > 0], 1)


def linear_algebra() -> Iterator[Case]:
    def definite(x: Any) -> Any:
        return x @ x.mT + 0.1 * x.shape[-1] * (x * 0 + 1).diagonal(0, -2, -1).diag_embed()

    for shape in ((1024, 1024), (4096, 32, 32)):
        yield forward("solve", shape, "float32", lambda T, x: T.linalg.solve(definite(x), x))
        yield forward("cholesky", shape, "float32", lambda T, x: T.linalg.cholesky(definite(x)))
    for shape in ((64, 1024), (4, 1 << 20), (64, 1009)):
        yield forward("fft", shape, "float32", lambda T, x: T.fft.fft(x), 3)
        yield forward("rfft", shape, "float32", lambda T, x: T.fft.rfft(x))


def first_call(T: Any, run: Run) -> tuple[Any, float]:
    T.cuda.synchronize()
    begin = time.perf_counter()
    y = run()
    T.cuda.synchronize()
    return y, time.perf_counter() - begin


def least(T: Any, run: Run, calls: int) -> float:
    """Seconds of a call."""
    best = math.inf
    for _ in range(4):
        begin, end = (T.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / calls)
    return best / 1e3


def measure(T: Any, case: Case) -> tuple[float, float, list[Any]]:
    """Seconds of a call and of the first one, and beginnings of the results."""
    run = case.make(T)
    y, first = first_call(T, run)
    run()
    seconds = least(T, run, 10 if first < 0.1 else 2)
    results = y if isinstance(y, (tuple, list)) else [y]
    some = [r.detach().flatten()[:COMPARED] for r in results]
    return seconds, first, [np.asarray(r.abs().double().cpu()) for r in some]


def apart(a: list[Any], b: list[Any]) -> float:
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x.size]
    return max(
        (float(np.abs(x - y).max() / (np.abs(y).max() + 1e-30)) for x, y in pairs), default=0
    )


def line(case: Case, frameworks: tuple[Any, Any]) -> str:
    (ours, first, a), (theirs, their_first, b) = (measure(T, case) for T in frameworks)
    ratio, rate = ours / theirs, case.moved / ours / 1e9
    off = "" if case.name.startswith(RANDOM) else f"  apart {apart(a, b):.1e}"
    return (
        f"{case.name:48s} {ours * 1e6:9.1f} us {rate:6.0f} GB/s  PyTorch {theirs * 1e6:9.1f} us"
        f"  ratio {ratio:5.2f}{' over' if ratio > TOLD else ''}"
        f"  first {first * 1e3:.0f}, {their_first * 1e3:.0f} ms{off}"
    )


def main(words: list[str]) -> int:
    import tenon
    import torch

    torch.backends.cudnn.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for room in (pointwise, reductions, layers, moves, linear_algebra):
        for case in room():
            if words and not any(word in case.name for word in words):
                continue
            try:
                print(line(case, (tenon, torch)), flush=True)
            except RuntimeError as e:
                print(f"{case.name:48s} raised: {e}", flush=True)
            tenon.cuda.empty_cache()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
