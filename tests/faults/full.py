"""Work memory of kernels that cannot be had. All memory of the CPU's allocator is held and let go
of block by block, from the smallest on and from the largest on, until a call has enough. Before
that it ends in MemoryError and keeps nothing, then it gives what it gave with all memory.

    full.py [NAME ...]

is to be run with heap.c's library preloaded. NAME: of `calls`, else all."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator

import tenon as tn
import tenon.nn.functional as F
import tenon.nn.grad as nn_grad

# What the allocator's lists hold, and four steps for each power of two of what is larger.
SIZES = [*range(64, 513, 64)] + [(4 + q) << p for p in range(7, 20) for q in (1, 2, 3, 4)]
BLOCKS = 6  # of each size, at least
F16, F32, F64, BF16 = tn.float16, tn.float32, tn.float64, tn.bfloat16


def drawn(*shape: int, dtype: tn.dtype = F32) -> tn.Tensor:
    return tn.randn(*shape, generator=tn.Generator().manual_seed(sum(shape))).to(dtype)


def gradient(run: Callable[..., tn.Tensor], *operands: tn.Tensor) -> Callable[[], tn.Tensor]:
    """The gradient of the first operand."""
    leaf = operands[0].detach().requires_grad_()
    y = run(leaf, *operands[1:])
    g = tn.ones_like(y)
    return lambda: tn.autograd.grad(y, leaf, g, retain_graph=True)[0]


def calls() -> Iterator[tuple[str, Callable[[], tn.Tensor]]]:
    wide, tall, square = drawn(96, 700), drawn(700, 130), drawn(200, 200, dtype=F64)
    out = tn.empty(96, 130)
    yield "blocks", lambda: tn.mm(wide, tall, out=out)
    yield "columns", lambda: square.T @ square
    for dtype in (F16, BF16, tn.int32, tn.uint8):
        a, b = drawn(70, 90).mul(3).to(dtype), drawn(90, 80).mul(3).to(dtype)
        yield f"product of {dtype}", lambda a=a, b=b: a @ b
    for dtype in (F32, BF16):
        x = drawn(2, 4, 21, 20, dtype=dtype)
        yield f"avg_pool2d of {dtype}", lambda x=x: F.avg_pool2d(x, 3, 2, 1)
        yield f"adaptive of {dtype}", lambda x=x: F.adaptive_avg_pool2d(x, (5, 7))
        yield f"gradient of avg_pool2d of {dtype}", gradient(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
        yield f"gradient of max_pool2d of {dtype}", gradient(lambda x: F.max_pool2d(x, 3, 2, 1), x)
        yield f"softmax of {dtype}", lambda x=x: x.softmax(1)
        yield f"softmax of rows of {dtype}", lambda x=x: x.mT.softmax(-1)
        yield f"gradient of softmax of {dtype}", gradient(lambda x: x.log_softmax(1), x)
        yield f"upsample of {dtype}", lambda x=x: F.interpolate(x, size=(30, 11), mode="bilinear")
        yield (
            f"gradient of upsample of {dtype}",
            gradient(lambda x: F.interpolate(x, size=(30, 11), mode="bicubic"), x),
        )
        yield f"sum of {dtype}", lambda x=x: x.sum((0, 2))
        yield f"var of {dtype}", lambda x=x: x.var((0, 1))
        yield f"std of all of {dtype}", lambda x=x: x.std()
        yield f"layer_norm of {dtype}", lambda x=x: F.layer_norm(x, (21, 20))
        yield f"gradient of layer_norm of {dtype}", gradient(lambda x: F.layer_norm(x, (20,)), x)
        yield f"sort of {dtype}", lambda x=x: x.sort(2).values
        yield f"median of {dtype}", lambda x=x: x.median(2).values
        w = drawn(6, 4, 3, 3, dtype=dtype)
        yield f"conv2d of {dtype}", lambda x=x, w=w: F.conv2d(x, w, padding=1)
        yield f"depthwise of {dtype}", lambda x=x, w=w: F.conv2d(x, w[:4, :1], groups=4)
        yield f"pointwise of {dtype}", lambda x=x, w=w: F.conv2d(x, w[:, :, :1, :1])
        yield f"gradient of conv2d of {dtype}", gradient(lambda x, w: F.conv2d(x, w), x, w)
        yield (
            f"gradient of weights of {dtype}",
            lambda x=x, w=w: nn_grad.conv2d_weight(x, w.shape, F.conv2d(x, w)),
        )
        q = drawn(1, 2, 70, 16, dtype=dtype)
        yield f"attention of {dtype}", lambda q=q: F.scaled_dot_product_attention(q, q, q)
        yield (
            f"gradient of attention of {dtype}",
            gradient(lambda q: F.scaled_dot_product_attention(q, q, q), q),
        )
        index = tn.arange(40) % 7
        table = drawn(9, 50, dtype=dtype)
        yield (
            f"gradient of embedding of {dtype}",
            gradient(lambda t, i=index: F.embedding(i, t), table),
        )
        places = drawn(2, 9, 9, 2, dtype=dtype).tanh()
        yield (
            f"grid_sample of {dtype}",
            lambda x=x, g=places: F.grid_sample(x, g, align_corners=False),
        )
        yield f"cumsum of {dtype}", lambda x=x: x.cumsum(2)
        yield f"kthvalue of {dtype}", lambda x=x: x.kthvalue(3, dim=2).values
        yield f"group_norm of {dtype}", lambda x=x: F.group_norm(x, 2)
        yield (
            f"gradient of batch_norm of {dtype}",
            gradient(lambda x: F.batch_norm(x, None, None, training=True), x),
        )
        yield f"distances of {dtype}", lambda q=q: tn.cdist(q.float(), q.float() + 1)
    lengths = tn.tensor([30, 25])
    yield (
        "gradient of ctc_loss",
        gradient(
            lambda x: F.ctc_loss(
                x.log_softmax(2), tn.ones(2, 5, dtype=tn.int64), lengths, lengths // 6
            ),
            drawn(30, 2, 6),
        ),
    )
    numbers, series, rows = tn.arange(900) % 37, drawn(5, 7, 20), drawn(30, 40)
    gru = tn.nn.GRU(20, 30)
    yield "unique", lambda: tn.unique(numbers)
    yield "gru", gradient(lambda x: gru(x)[0], series)
    yield "sparse product", lambda: tn.sparse.mm(rows.relu().to_sparse_csr(), rows.T)
    yield "fft of columns", lambda: tn.fft.fft2(rows)
    for n in (64, 97, 1000, 1009, 4099):
        x = drawn(3, n)
        yield f"fft of {n}", lambda x=x: tn.fft.fft(x)
        yield f"rfft of {n}", lambda x=x: tn.fft.rfft(x)
    for dtype in (F32, tn.complex128):
        m = drawn(20, 20, dtype=dtype) + 9 * tn.eye(20)
        yield f"inverse of {dtype}", lambda m=m: tn.linalg.inv(m)
        yield f"svd of {dtype}", lambda m=m: tn.linalg.svdvals(m)
        yield f"eigenvalues of {dtype}", lambda m=m: tn.linalg.eigvals(m).abs().sort().values
        yield f"qr of {dtype}", lambda m=m: tn.linalg.qr(m).R


def held_blocks() -> list[tn.Tensor]:
    """All that is left, in blocks of every size, the smallest first."""
    blocks: list[tn.Tensor] = []
    for size in reversed(SIZES):
        while True:
            try:
                blocks.append(tn.empty(size, dtype=tn.uint8))
            except MemoryError:
                break
    return blocks[::-1]


def turns(blocks: list[tn.Tensor], largest_first: bool) -> Iterator[tn.Tensor]:
    """One of each size, then the next of each."""
    by_size = {size: [b for b in blocks if b.numel() == size] for size in SIZES}
    blocks.clear()
    while any(by_size.values()):
        for size in reversed(SIZES) if largest_first else SIZES:
            if by_size[size]:
                yield by_size[size].pop()


def tried(run: Callable[[], tn.Tensor], largest_first: bool) -> tuple[int, str]:
    """How often the call ended in MemoryError, and what was wrong."""
    expected = run().clone().nan_to_num()
    failed, blocks = 0, turns(held_blocks(), largest_first)
    for block in blocks:
        del block
        before = tn.cpu.memory_allocated()
        try:
            result = run()
        except MemoryError:
            failed += 1
        else:
            blocks.close()
            return failed, "" if tn.equal(result.nan_to_num(), expected) else "another result"
        if tn.cpu.memory_allocated() != before:
            return failed, f"{tn.cpu.memory_allocated() - before} bytes are kept"
    return failed, "it never has enough"


def main() -> int:
    tn.set_num_threads(1)
    chosen = [(name, run) for name, run in calls() if name in sys.argv[1:] or not sys.argv[1:]]
    for _, run in chosen:
        run()
    reserve = [tn.empty(size, dtype=tn.uint8) for size in SIZES for _ in range(BLOCKS)]
    del reserve
    ctypes.CDLL(None).heap_full(1)
    faults = total = 0
    for name, run in chosen:
        for largest_first in (False, True):
            print(name, end=": ", flush=True)
            failed, wrong = tried(run, largest_first)
            print(f"{failed} times MemoryError, then {wrong or 'right'}", flush=True)
            faults += bool(wrong)
            total += failed
    print(f"{len(chosen)} calls, {total} without memory, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
