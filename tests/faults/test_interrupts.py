"""Ctrl-C while a long operator runs: KeyboardInterrupt comes soon, and the process computes on.

Kernels hear of it between chunks, and in rows that are long, between stretches: a family that does
not is found by the longest time in which no signal was answered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn

pytestmark = pytest.mark.skipif("TENON_TEST_SANITIZE" in os.environ, reason="takes its time")

# What makes the call, of a size that takes longer than BOUND where nothing looks for the signal.
CALLS = {
    "sort": "x = tn.rand(1 << 26); call = lambda: tn.sort(x)",
    "topk": "x = tn.rand(1 << 26); call = lambda: tn.topk(x, 1 << 24)",
    "kthvalue": "x = tn.rand(1 << 26); call = lambda: tn.kthvalue(x, 1 << 24)",
    "median": "x = tn.rand(1 << 26); call = lambda: tn.median(x)",
    "cumsum": "x = tn.rand(1, 1).expand(1 << 14, 1 << 14); call = lambda: tn.cumsum(x, 0)",
    "gemm": "x = tn.rand(3500, 3500).to(tn.complex128); call = lambda: x @ x",
    "cat": "x = tn.rand(1 << 26); call = lambda: tn.cat([x] * 8)",
    "tolist": "x = tn.rand(1 << 14, 1 << 13); call = lambda: x.tolist()",
    "lists": "x = [[0.5, 1] * (1 << 12)] * (1 << 15); call = lambda: tn.tensor(x)",
    "cdist": "x = tn.rand(6000, 64); call = lambda: tn.cdist(x, x, p=1.5)",
}
BOUND = 3.0 * len(os.sched_getaffinity(0))  # seconds of all threads: others may use the machine

CODE = """
import sys, time
import tenon as tn

{make}
try:
    print("ready", flush=True)
    call()
    print("finished", time.process_time(), flush=True)
except KeyboardInterrupt:
    print("interrupted", time.process_time(), flush=True)
assert float((tn.ones(50, 50) @ tn.ones(50, 50)).sum()) == 125000.0
assert tn.tensor([3, 1, 2]).sort()[0].tolist() == [1, 2, 3]
"""


def worked(pid: int) -> float:
    """The seconds for which a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("name", CALLS)
def test_a_long_call_ends_soon(name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE.format(make=CALLS[name])], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        sent = worked(child.pid)
        child.send_signal(signal.SIGINT)
        said, _, at = child.stdout.readline().strip().partition(" ")
        assert child.wait(60) == 0
    took = float(at) - sent
    if said == "finished" and took < BOUND:
        pytest.skip("this machine is too fast for the size")
    assert said == "interrupted" and took < BOUND, f"{said}: {took:.1f} s of work"


# ---- Every family of kernels ---------------------------------------------------------------------

F = tn.nn.functional
M = 1 << 20


def ints(n: int, end: int) -> tn.Tensor:
    return tn.randint(0, end, (n,))


def plane(side: int) -> tn.Tensor:
    return tn.rand(1, 1, side, side)


def heads(length: int, needs_grad: bool) -> tuple[tn.Tensor, ...]:
    return tuple(tn.rand(1, 1, length, 64).requires_grad_(needs_grad) for _ in range(3))


def long_chain(length: int) -> tn.Tensor:
    y = tn.ones(1, requires_grad=True)
    for _ in range(length):
        y = y + 1
    return y


# What makes the arguments, and a call that takes some tenths of a second in one row or item.
ROWS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "multinomial": (lambda: [tn.rand(M)], lambda x: tn.multinomial(x, M // 2)),
    "multinomial, again": (
        lambda: [tn.rand(M)], lambda x: tn.multinomial(x, 2 * M, replacement=True)),
    "randperm": (lambda: [8 * M], tn.randperm),
    "index_put": (
        lambda: [tn.zeros(9), ints(8 * M, 9), tn.rand(8 * M)],
        lambda x, i, v: x.index_put_((i,), v, accumulate=True)),
    "index_add": (
        lambda: [tn.zeros(9), ints(8 * M, 9), tn.rand(8 * M)],
        lambda x, i, v: x.index_add_(0, i, v)),
    "index_copy": (
        lambda: [tn.zeros(8 * M, 2), tn.arange(8 * M), tn.rand(8 * M, 2)],
        lambda x, i, v: x.index_copy_(0, i, v)),
    "scatter_add": (
        lambda: [tn.zeros(9), ints(32 * M, 9), tn.rand(32 * M)],
        lambda x, i, v: x.scatter_add_(0, i, v)),
    "scatter_reduce": (
        lambda: [tn.zeros(9), ints(32 * M, 9), tn.rand(32 * M)],
        lambda x, i, v: x.scatter_reduce_(0, i, v, "amax")),
    "gather": (lambda: [tn.rand(16 * M), ints(16 * M, 16 * M)], lambda x, i: x.gather(0, i)),
    "cummax": (lambda: [tn.rand(32 * M)], lambda x: tn.cummax(x, 0)),
    "logcumsumexp": (lambda: [tn.rand(8 * M)], lambda x: tn.logcumsumexp(x, 0)),
    "logcumsumexp, abreast": (lambda: [tn.rand(M, 8)], lambda x: tn.logcumsumexp(x, 0)),
    "argmax, abreast": (lambda: [tn.rand(8 * M, 8)], lambda x: tn.argmax(x, 0)),
    "sort, abreast": (lambda: [tn.rand(2 * M, 2)], lambda x: tn.sort(x, 0)),
    "mode": (lambda: [ints(8 * M, 9)], tn.mode),
    "unique_consecutive": (lambda: [ints(16 * M, 3)], tn.unique_consecutive),
    "softmax": (lambda: [tn.rand(32 * M)], lambda x: tn.softmax(x, 0)),
    "softmax, abreast": (lambda: [tn.rand(M, 16)], lambda x: tn.softmax(x, 0)),
    "softmax, its gradient": (
        lambda: [tn.rand(M, 16).requires_grad_()], lambda x: tn.softmax(x, 0).sum().backward()),
    "attention": (lambda: heads(4000, False), F.scaled_dot_product_attention),
    "attention, its gradient": (
        lambda: heads(3000, True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v).sum().backward()),
    "fft of a prime length": (lambda: [tn.rand(8000009).to(tn.complex64)], tn.fft.fft),
    "matrix_exp": (lambda: [tn.rand(700, 700)], tn.matrix_exp),
    "matrix_exp of many": (lambda: [tn.rand(M // 4, 4, 4)], tn.matrix_exp),
    "matmul of integers": (lambda: [ints(8 * M, 9).reshape(1, -1), ints(32 * M, 9).reshape(-1, 4)],
                           tn.matmul),
    "matmul of halves": (lambda: [tn.rand(4, 8 * M).half(), tn.rand(8 * M, 4).half()], tn.matmul),
    "max_pool1d": (lambda: [tn.rand(1, 1, 8 * M)], lambda x: F.max_pool1d(x, 9, 1)),
    "max_pool2d": (lambda: [plane(2000)], lambda x: F.max_pool2d(x, 9, 1)),
    "max_pool2d, two by two": (lambda: [plane(9000)], lambda x: F.max_pool2d(x, 2)),
    "max_unpool2d": (lambda: F.max_pool2d(plane(8000), 2, return_indices=True),
                     lambda x, i: F.max_unpool2d(x, i, 2)),
    "avg_pool2d": (lambda: [plane(2000)], lambda x: F.avg_pool2d(x, 9, 1)),
    "avg_pool2d, side by side": (lambda: [plane(9000)], lambda x: F.avg_pool2d(x, 3)),
    "avg_pool2d, its gradient": (
        lambda: [plane(1500).requires_grad_()], lambda x: F.avg_pool2d(x, 9, 1).sum().backward()),
    "interpolate": (lambda: [plane(4000)], lambda x: F.interpolate(x, scale_factor=2)),
    "interpolate, its gradient": (
        lambda: [plane(2500).requires_grad_()],
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear").sum().backward()),
    "pad": (lambda: [plane(8000)], lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect")),
    "pad, its gradient": (
        lambda: [plane(6000).requires_grad_()],
        lambda x: F.pad(x, (3, 3, 3, 3), mode="circular").sum().backward()),
    "grid_sample, its gradient": (
        lambda: [plane(500).requires_grad_(), tn.rand(1, 1500, 1500, 2)],
        lambda x, g: F.grid_sample(x, g, align_corners=False).sum().backward()),
    "conv2d, its gradients": (
        lambda: [plane(800).requires_grad_(), tn.rand(2, 1, 21, 21).requires_grad_()],
        lambda x, w: F.conv2d(x, w).sum().backward()),
    "conv2d, depthwise": (
        lambda: [tn.rand(1, 2, 1400, 1400).requires_grad_(),
                 tn.rand(2, 1, 21, 21).requires_grad_()],
        lambda x, w: F.conv2d(x, w, groups=2).sum().backward()),
    "nll_loss": (
        lambda: [tn.rand(1, 2, 8 * M), tn.randint(0, 2, (1, 8 * M))], F.nll_loss),
    "cross_entropy": (
        lambda: [tn.rand(1, 2, 4 * M).requires_grad_(), tn.randint(0, 2, (1, 4 * M))],
        lambda x, t: F.cross_entropy(x, t).backward()),
    "embedding, its gradient": (
        lambda: [ints(16 * M, 2), tn.rand(2, 1).requires_grad_()],
        lambda i, w: F.embedding(i, w).sum().backward()),
    "steps of a recurrent network": (
        lambda: [tn.nn.LSTM(32, 32), tn.rand(8000, 4, 32)], lambda m, x: m(x)[0].sum().backward()),
    "nodes of a graph": (lambda: [long_chain(200000)], lambda y: y.backward()),
    "tril_indices": (lambda: [5000, 5000], tn.tril_indices),
    "the permutation of lu": (
        lambda: [tn.ones(1, dtype=tn.int32), 32 * M], tn._C._ops._lu_permutation),
}  # fmt: skip


def longest_silence(call: Callable[..., Any], args: list[Any]) -> tuple[float, float]:
    """The seconds of work between two answers to a signal that comes every few milliseconds, and
    those of the whole call."""
    heard = [time.process_time()]
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(time.process_time()))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        call(*args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        heard.append(time.process_time())
        signal.signal(signal.SIGALRM, before)
    return max(b - a for a, b in zip(heard, heard[1:], strict=False)), heard[-1] - heard[0]


@pytest.mark.parametrize("name", ROWS)
def test_a_long_row_is_no_silence(name: str) -> None:
    make, call = ROWS[name]
    for _ in range(4):  # a busy machine delays signals now and then; a silent row is always silent
        args = make()
        silence, whole = longest_silence(call, args)
        if silence < max(whole / 2, 0.05):
            return
    pytest.fail(f"{silence:.2f} s of {whole:.2f} s")
