"""Calls every family of the CUDA device's kernels once or twice, with few elements: short enough to
run under compute-sanitizer.

    python tests/cuda_host/families.py [--own]

A family is a file backends/cuda/kernels/*.cu; one that no function here serves is a failure. What
cuDNN may do in place of our kernels is called with it and without it; with --own only without: the
tools' reports are about our kernels then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import tenon as tn

F = tn.nn.functional
KERNELS = Path(__file__).resolve().parents[2] / "backends" / "cuda" / "kernels"
FAMILIES: dict[str, Callable[[], Any]] = {}

randn = partial(tn.randn, device="cuda")


def family(call: Callable[[], Any]) -> Callable[[], Any]:
    FAMILIES[call.__name__.removeprefix("call_")] = call
    return call


def by_both(call: Callable[[], Any]) -> Callable[[], Any]:
    """With cuDNN, unless only our own kernels are asked for, and without."""

    @wraps(call)
    def calls() -> None:
        for library in (False,) if "--own" in sys.argv[1:] else (True, False):
            with tn.backends.cudnn.flags(enabled=library):
                call()
                tn.cuda.synchronize()

    return calls


def backward(result: Any) -> Any:
    result.backward(tn.ones_like(result))
    return result


@family
@by_both
def call_attention() -> Any:
    for dtype in (tn.float32, tn.bfloat16):
        q, k, v = (randn(1, 2, 70, 16).to(dtype).requires_grad_() for _ in range(3))
        backward(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@family
def call_cast() -> Any:
    return randn(5, 7).to(tn.float16), randn(7, 5).t().to(tn.int64)


@family
@by_both
def call_conv() -> Any:
    for dtype in (tn.float32, tn.bfloat16):
        x, w = randn(2, 4, 9, 9).to(dtype).requires_grad_(), randn(4, 1, 3, 3).to(dtype)
        backward(F.conv2d(x, w.requires_grad_(), padding=1, groups=4))
        w = randn(6, 4, 3, 3).to(dtype).requires_grad_()
        backward(F.conv2d(x, w, padding=1, stride=2))


@family
def call_copy() -> Any:
    return randn(33, 65).t().contiguous(), randn(3, 5).clone()


@family
def call_element_loss() -> Any:
    x, y = randn(70, 33).requires_grad_(), randn(70, 33)
    return backward(F.mse_loss(x, y)), backward(F.smooth_l1_loss(x, y, reduction="sum"))


@family
def call_extreme() -> Any:
    return randn(3, 4000).max(1), randn(40, 3).argmin(0)


@family
def call_counts() -> Any:
    x = tn.rand(300, device="cuda")
    return tn.poisson(x * 30), tn.binomial((x * 50).floor(), x), tn._standard_gamma(x)


@family
def call_ctc() -> Any:
    x, labels = randn(9, 3, 5).requires_grad_(), tn.tensor([[1, 2, 2], [3, 0, 0], [4, 1, 0]])
    return backward(F.ctc_loss(x.log_softmax(2), labels.to("cuda"), (9, 7, 8), (3, 1, 2)))


@family
def call_factor() -> Any:
    x, b = randn(2, 40, 40) + 9 * tn.eye(40, device="cuda"), randn(2, 40, 3)
    for dtype in (tn.float32, tn.complex64):
        a = x.to(dtype)
        tn.linalg.cholesky(a @ a.mH), tn.linalg.lu(a), tn.linalg.slogdet(a)
        tn.linalg.inv(a), tn.linalg.solve_triangular(a.tril(), b.to(dtype), upper=False)
    return tn.linalg.solve(x, b)


@family
def call_fft() -> Any:
    for n in (60, 77, 4096):
        x = randn(3, n).requires_grad_()
        y = tn.fft.irfft(tn.fft.rfft(x), n)
        backward(tn.fft.fft(x, dim=0).abs() + y)
    return tn.fft.fft2(randn(2, 5, 6))


@family
def call_gemm_int() -> Any:
    x = tn.arange(70 * 33, device="cuda").reshape(70, 33)
    return x @ x.t(), x.t() @ x, x.to(tn.int8).mv(tn.ones(33, dtype=tn.int8, device="cuda"))


@family
def call_graph() -> Any:
    graph = tn.cuda.CUDAGraph()
    with tn.cuda.graph(graph):
        drawn = tn.rand(100, device="cuda") + 1
    graph.replay()
    return drawn.cpu()


@family
def call_grid() -> Any:
    for mode, sides in (("bilinear", 2), ("bilinear", 3), ("nearest", 2), ("bicubic", 2)):
        x = randn(2, 5, *(4, 5, 6)[:sides]).requires_grad_()
        at = randn(2, *(3, 4, 2)[:sides], sides).requires_grad_()
        y = F.grid_sample(x, at, mode, "reflection", align_corners=False)
        slopes = tn.autograd.grad(y, (x, at), tn.ones_like(y), create_graph=True)
        tn.autograd.backward(slopes, [tn.ones_like(slope) for slope in slopes])
    return slopes


@family
def call_index() -> Any:
    at = tn.tensor([2, 0, 2], device="cuda")
    for ordered in (False, True):
        tn.use_deterministic_algorithms(ordered)
        randn(4, 5).index_add_(0, at, randn(3, 5))
    tn.use_deterministic_algorithms(False)


@family
def call_join() -> Any:
    x = randn(3, 5)
    return tn.cat([x, randn(4, 5)]), tn.stack([x, x.t().reshape(3, 5)], 2)


@family
def call_loss() -> Any:
    classes = tn.tensor([3, 0, 9], device="cuda")
    for n in (10, 1031, 9001):
        backward(F.cross_entropy(randn(3, n).requires_grad_(), classes))
    x, classes = randn(3, 10, 2).requires_grad_(), classes.view(3, 1).repeat(1, 2)
    return backward(F.cross_entropy(x, classes))


@family
def call_map() -> Any:
    return randn(1031) + randn(1031), randn(5, 7).t() * randn(5), randn(300).exp()


@family
def call_moments() -> Any:
    x = randn(5, 2000)
    return x.var(), x.var(1), x.var(0), x[:, 1:].var(1), x[:, ::2].var(1), x[::2, ::3].var(0)


@family
@by_both
def call_norm() -> Any:
    x = randn(4, 6, 50).requires_grad_()
    w, b = randn(50).requires_grad_(), randn(50).requires_grad_()
    backward(F.layer_norm(x, (50,), w, b))
    backward(F.rms_norm(x, (50,), w))
    for width in (64, 9000):
        leaves = [randn(*shape).requires_grad_() for shape in ((3, width), (width,), (width,))]
        backward(F.layer_norm(leaves[0], (width,), *leaves[1:]))
    w, b = randn(6).requires_grad_(), randn(6).requires_grad_()
    backward(F.batch_norm(x, None, None, w, b, training=True))
    x = randn(2, 8, 5, 6).to(memory_format=tn.channels_last).requires_grad_()
    w, b = randn(8).requires_grad_(), randn(8).requires_grad_()
    return backward(F.batch_norm(x, None, None, w, b, training=True))


@family
def call_norm_last() -> Any:
    """In a type that cuDNN does not take: one part of the pixels, and several."""
    for size in ((2, 8, 5, 6), (2, 8, 40, 41)):
        x = randn(*size).to(tn.bfloat16, memory_format=tn.channels_last).requires_grad_()
        w, b = (randn(8).to(tn.bfloat16).requires_grad_() for _ in range(2))
        y = backward(F.batch_norm(x, None, None, w, b, training=True))
        F.batch_norm(x.detach(), w.detach(), b.detach() ** 2, training=False)
    return y


@family
def call_optim() -> Any:
    params = [tn.nn.Parameter(randn(n)) for n in (3, 100, 5000)]
    for make in (tn.optim.SGD, tn.optim.AdamW, tn.optim.NAdam):
        for p in params:
            p.grad = randn(*p.shape)
        tn.nn.utils.clip_grad_norm_(params, 1.0)
        make(params, lr=0.1).step()


@family
def call_order() -> Any:
    return randn(2, 5000).sort(1), randn(3, 300).topk(5), randn(9).sort()


@family
def call_pad() -> Any:
    return F.pad(randn(2, 3, 5), (1, 2)), F.pad(randn(2, 3, 5), (1, 2), mode="reflect")


@family
def call_pad_backward() -> Any:
    return backward(F.pad(randn(2, 3, 5).requires_grad_(), (1, 2), mode="reflect"))


@family
def call_permute() -> Any:
    return tn.randperm(3000, device="cuda")


@family
def call_pool() -> Any:
    x = randn(2, 3, 9, 9).requires_grad_()
    return backward(F.max_pool2d(x, 3, 2)), backward(F.avg_pool2d(x, 2))


@family
def call_random() -> Any:
    x = randn(1000)
    return x.exponential_(), tn.randint(0, 9, (50,), device="cuda"), F.dropout(x, 0.5)


@family
def call_range() -> Any:
    return tn.arange(1000, device="cuda"), tn.linspace(0, 1, 33, device="cuda")


@family
def call_reduce() -> Any:
    x = randn(5, 6, 64)
    inner = [x.sum(2), x[:, :, 1:].var(2), x[:, :, ::2].amax(2), x.to(tn.bfloat16).sum((0, 2))]
    outer = [
        x.mean(0),
        x.to(tn.float16).var((0, 1)),
        x[:, 1:, 3:].sum(1),
        x.transpose(0, 2).amin(2),
    ]
    cut = [randn(3, 40000).sum(1), randn(40000, 3).mean(0), randn(257, 300).amax()]
    return inner, outer, cut


@family
@by_both
def call_rnn() -> Any:
    for kind in (tn.nn.LSTM, tn.nn.GRU):
        module = kind(5, 7).to("cuda")
        backward(module(randn(3, 2, 5))[0])


@family
def call_runs() -> Any:
    x = tn.arange(3000, device="cuda") % 7
    return x.unique(return_counts=True), x.nonzero()


@family
def call_sample() -> Any:
    return tn.multinomial(tn.rand(3, 50, device="cuda"), 4)


@family
def call_scan() -> Any:
    return randn(2, 9000).cumsum(1), randn(7, 5).cummax(0), randn(30).logcumsumexp(0)


@family
def call_softmax() -> Any:
    for n in (7, 300, 1031, 9001):
        x = randn(5, n).requires_grad_()
        backward(tn.softmax(x, 1))
        backward(tn.log_softmax(x, 0))
        backward(tn.log_softmax(randn(5 * n + 1)[1:].view(5, n).requires_grad_(), 1))
    return x


@family
def call_take() -> Any:
    at = tn.tensor([[1, 0, 3]], device="cuda")
    x = randn(4, 3)
    return x.gather(0, at), x[at[0]], x.scatter(0, at, 0.5)


@family
def call_triangle() -> Any:
    return randn(5, 7).tril(), randn(5, 7).triu(1)


@family
def call_upsample() -> Any:
    x = randn(1, 2, 5, 6).requires_grad_()
    return backward(F.interpolate(x, scale_factor=2, mode="bilinear"))


def kernels() -> set[str]:
    return {path.stem for path in KERNELS.glob("*.cu")}


def main() -> int:
    os.environ["TENON_CUDNN_NORM_LEAST"] = "0"  # before the plugin is loaded
    wrong = [f"{name}: nothing here calls it" for name in sorted(kernels() - set(FAMILIES))]
    for name, call in FAMILIES.items():
        before = tn.cuda.counters()["launches"]
        call()
        tn.cuda.synchronize()
        if tn.cuda.counters()["launches"] == before:
            wrong.append(f"{name}: nothing was launched")
    print("\n".join(wrong))
    print(f"{len(FAMILIES) - len(wrong)} passed, {len(wrong)} failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
