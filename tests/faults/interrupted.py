"""Programs for test_interrupts_anywhere.py: each goes on for ever, is interrupted at a random
moment, and must then find everything as it was.

    python tests/faults/interrupted.py NAME SEED ROUNDS LONGEST
"""

from __future__ import annotations

import copy
import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenon as tn
import tenon.multiprocessing as mp
from tenon.io import npy, safetensors

F, nn = tn.nn.functional, tn.nn
Program = tuple[Callable[[], None], Callable[[], None]]  # a step, and what holds after it


def training() -> Program:
    x, y = tn.rand(64, 32), tn.randint(0, 4, (64,))
    model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
    optimizers = [tn.optim.Adam(model.parameters(), lr=1e-3),
                  tn.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)]  # fmt: skip

    def loss() -> Any:
        with tn.autocast("cpu", dtype=tn.bfloat16):
            return F.cross_entropy(model(x), y)

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        with tn.no_grad(), tn.autograd.detect_anomaly():
            model(x)
        with tn.inference_mode():
            model(x)
        tn.utils.checkpoint.checkpoint(loss, use_reentrant=False).backward()
        tn.vmap(tn.func.grad(lambda row: row.sin().sum()))(x)
        tn.func.jvp(tn.sin, (x,), (x,))

    def after() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        for p in model.parameters():
            assert p.grad.shape == p.shape and bool(p.isfinite().all())
        model.eval()
        assert tn.equal(copy.deepcopy(model)(x), model(x))
        model.train()

    return step, after


def saving() -> Program:
    folder = Path(tempfile.mkdtemp())
    data = tn.arange(1 << 14)
    count = [0, 0]  # the last that was begun, the last that was seen
    tn.save({"w": data, "n": 0}, folder / "a.pt")

    def step() -> None:
        count[0] += 1
        tn.save({"w": data, "n": count[0]}, folder / "a.pt")
        assert tn.load(folder / "a.pt")["n"] == count[0]
        safetensors.save_file({"w": data}, folder / "a.safetensors")
        npy.save(folder / "a.npy", data)

    def after() -> None:
        kept = tn.load(folder / "a.pt")
        assert tn.equal(kept["w"], data) and count[1] <= kept["n"] <= count[0]
        count[1] = kept["n"]
        for name, read in (("a.npy", npy.load), ("a.safetensors", safetensors.load_file)):
            if (folder / name).exists():
                read(folder / name)
        assert set(os.listdir(folder)) <= {"a.pt", "a.safetensors", "a.npy"}

    return step, after


def compiling() -> Program:
    @tn.compile
    def kept(x: Any, n: int) -> Any:
        return x * n + 1

    def step() -> None:
        @tn.compile
        def fresh(x: Any, n: int) -> Any:
            for _ in range(n):
                x = (x * 2).sin() + x.mean()
            return x

        fresh(tn.ones(4), 3)
        fresh(tn.ones(5, requires_grad=True), 2).sum().backward()
        tn.jit.trace(lambda x: x * 2 + 1, tn.ones(3))(tn.ones(3))
        tn.export.export(nn.Linear(4, 4), (tn.ones(2, 4),)).module()(tn.ones(2, 4))
        kept(tn.ones(7), 2)

    def after() -> None:
        assert kept(tn.ones(2), 3).tolist() == [4, 4] and kept(tn.ones(3), 2).tolist() == [3] * 3
        assert tn.jit.trace(lambda x: x * 2, tn.ones(3))(tn.ones(2)).tolist() == [2, 2]
        tn.export.export(nn.Linear(4, 4), (tn.ones(2, 4),))
        assert not tn.compiler.is_compiling()

    return step, after


class Doubled(tn.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 2 + 0 * x


def hooks() -> Program:
    w = tn.rand(20, 20, requires_grad=True)
    w.register_hook(lambda grad: grad * 1.0)
    w.register_post_accumulate_grad_hook(lambda _: None)

    def step() -> None:
        w.grad = None
        y = w
        with tn.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            for _ in range(20):
                y = Doubled.apply(y) * 0.5
                y.register_hook(lambda grad: grad + 0)
        y.grad_fn.register_prehook(lambda grads: grads)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        (grad,) = tn.autograd.grad((w**3).sum(), w, create_graph=True)
        grad.sum().backward()

    def after() -> None:
        w.grad, y = None, w
        for _ in range(5):
            y = Doubled.apply(y) * 0.5
        y.sum().backward()
        assert tn.equal(w.grad, tn.ones(20, 20))

    return step, after


def threads() -> Program:
    bad: list[int] = []

    def other() -> None:
        x = tn.rand(100, 100, requires_grad=True)
        while True:
            x.grad = None
            (x @ x).sum().backward()
            if not bool(x.grad.isfinite().all()):
                bad.append(1)

    others = [threading.Thread(target=other, daemon=True) for _ in range(2)]
    for thread in others:
        thread.start()

    def step() -> None:
        x = tn.rand(200, 200)
        (x @ x).sort()
        tn.linalg.svd(x[:20])
        tn.fft.fft(x)
        nn.LSTM(8, 8)(tn.rand(30, 2, 8))[0].sum().backward()
        repr(tn.tensor(x.tolist()))

    def after() -> None:
        assert not bad and all(thread.is_alive() for thread in others)

    return step, after


def serve(asked: Any, answers: Any) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        answers.put(asked.get())


def queues() -> Program:
    context = mp.get_context("fork")
    now: list[Any] = []

    def begin() -> None:
        asked, answers = context.Queue(), context.Queue()
        server = context.Process(target=serve, args=(asked, answers), daemon=True)
        server.start()
        now[:] = [asked, answers, server]

    def there_and_back(n: int) -> None:
        now[0].put(tn.full((n,), float(n)))
        assert bool((now[1].get(timeout=30) == n).all())

    def step() -> None:
        for n in (1, 900, 60_000):
            there_and_back(n)
            tn.ones(n).share_memory_()

    def after() -> None:  # Python's own queues are not what they were
        now[2].kill()
        now[2].join()
        begin()
        for n in (3, 70_000):
            there_and_back(n)

    begin()
    return step, after


def computes() -> None:
    """What every program expects of its surroundings."""
    assert tn.is_grad_enabled() and not tn.is_inference_mode_enabled()
    assert not tn.is_autocast_enabled("cpu") and not tn.is_anomaly_enabled()
    x = tn.arange(6.0).reshape(2, 3).requires_grad_()
    (x @ x.T).sum().backward()
    assert x.grad.tolist() == [[6.0, 10.0, 14.0]] * 2
    assert float(tn.ones(1 << 16).exp().sum()) > 0


def main(name: str, seed: int, rounds: int, longest: float) -> None:
    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    step, after = globals()[name]()
    for _ in range(rounds):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.random() * longest + 1e-4)
                end = time.monotonic() + 10  # Python drops what is raised in a __del__
                while time.monotonic() < end:
                    step()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        faulthandler.dump_traceback_later(60, exit=True)
        computes()
        after()
        faulthandler.cancel_dump_traceback_later()
    print("good", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
