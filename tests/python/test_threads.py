"""Several threads at once: first use, computing, gradients, random numbers, loading of data. The
values must be those of one thread; under the thread sanitizer the same tests look for races."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import at_once
import memory
import numpy as np
import pytest
import tenon as tn

THREADS = 8


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """work(i) in THREADS threads that start together; what they returned. A failure is raised."""
    results: list[Any] = [None] * THREADS
    failures: list[BaseException] = []
    gate = threading.Barrier(THREADS)

    def body(i: int) -> None:
        try:
            gate.wait()
            results[i] = work(i)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results


FIRST_USE = """
import threading
import time
import tenon as tn
gate = threading.Barrier(8)
wrong = []

def work(i):
    gate.wait()
    total = tn.ones(64, 64).mul(i).sum().item()
    if total != 4096 * i or not tn._C.plugins():
        wrong.append(i)

threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong, wrong
"""


def test_first_use_from_several_threads() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


FIRST_NAMES = """
import os
import signal
import sys
import threading
import time
import tenon as tn
sys.setswitchinterval(1e-4)
uses = [
    lambda: tn.nn.Linear, lambda: tn.nn.functional.relu, lambda: tn.optim.SGD,
    lambda: tn.distributions.Normal, lambda: tn.vmap, lambda: tn.func.grad, lambda: tn.jit.script,
    lambda: tn.compile, lambda: tn.utils.data.DataLoader, lambda: tn.autocast,
    lambda: tn.fx.symbolic_trace, lambda: tn.linalg.norm, lambda: tn.export.export,
]
gate = threading.Barrier(len(uses) + 1)
failed = []

def work(use):
    gate.wait()
    try:
        use()
    except Exception as e:
        failed.append(repr(e))

threads = [threading.Thread(target=work, args=(use,)) for use in uses]
[t.start() for t in threads]
gate.wait()
while "tenon.nn" not in sys.modules:
    time.sleep(0)
pid = os.fork()  # while one of them imports
if pid == 0:
    signal.alarm(90)
    os._exit(len([use() for use in uses]) != len(uses))
[t.join() for t in threads]
assert not failed, failed
assert os.waitpid(pid, 0)[1] == 0
"""


def test_names_that_several_threads_are_the_first_to_use() -> None:
    """Modules that need each other are imported by one thread at a time, whoever asks first."""
    done = subprocess.run([sys.executable, "-c", FIRST_NAMES], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


def test_computing() -> None:
    """Sizes on both sides of the point from which the interpreter's lock is released."""
    rng = np.random.default_rng(0)
    small, large = rng.standard_normal((16, 16)), rng.standard_normal((256, 256))
    shared = tn.from_numpy(large)

    def work(i: int) -> list[np.ndarray]:
        out = []
        for a in (small, large):
            x = tn.from_numpy(a) + i
            y = (x @ x.t()).relu().softmax(-1)
            out += [y.numpy(), y.sum(0).numpy(), tn.sort(x, 1).values.numpy()]
        return [*out, (shared * i).cumsum(0).numpy()]

    for i, results in enumerate(in_threads(work)):
        for mine, alone in zip(results, work(i), strict=True):
            np.testing.assert_array_equal(mine, alone)


def test_backward() -> None:
    rng = np.random.default_rng(1)
    data = rng.standard_normal((64, 32)).astype(np.float32)
    weight = tn.from_numpy(rng.standard_normal((32, 8)).astype(np.float32))

    def work(i: int) -> np.ndarray:
        w = weight.clone().requires_grad_()
        for _ in range(3):
            loss = tn.nn.functional.gelu(tn.from_numpy(data) @ w + i).square().mean()
            loss.backward()
        assert w.grad is not None
        return w.grad.numpy()

    for i, grad in enumerate(in_threads(work)):
        np.testing.assert_array_equal(grad, work(i))


def test_backward_into_one_leaf() -> None:
    """Every thread's share arrives; whole numbers add up exactly in any order."""
    w = tn.ones(300, 300, requires_grad=True)

    def work(i: int) -> None:
        for _ in range(10):
            (w * (i + 1)).sum().backward()

    in_threads(work)
    assert w.grad is not None
    assert (w.grad == 10 * sum(range(1, THREADS + 1))).all().item()


def test_gradients_are_taken_away_while_others_add() -> None:
    """Whoever sets .grad lets go of it: a pass that adds to it meanwhile has its own hold."""
    net = tn.nn.Linear(10, 10)

    def work(i: int) -> None:
        draw = random.Random(i)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            if draw.randrange(2):
                net.zero_grad()
            else:
                net(tn.ones(2, 10)).sum().backward()
            seen = net.weight.grad
            assert seen is None or seen.shape == (10, 10)

    in_threads(work)


def test_modes_belong_to_their_thread() -> None:
    def work(i: int) -> bool:
        x = tn.ones(3, requires_grad=True)
        for _ in range(20):
            if i % 2:
                with tn.no_grad():
                    if (x * 2).requires_grad:
                        return False
            elif not (x * 2).requires_grad:
                return False
        return True

    assert all(in_threads(work))


def test_generators() -> None:
    """One generator in all threads loses no state; one each gives the thread's own numbers."""

    def own(i: int) -> np.ndarray:
        g = tn.Generator()
        g.manual_seed(i)
        return tn.randn(5000, generator=g).numpy()

    for i, values in enumerate(in_threads(own)):
        np.testing.assert_array_equal(values, own(i))

    tn.manual_seed(5)
    drawn = np.sort(np.concatenate(in_threads(lambda i: tn.rand(16).numpy())))
    tn.manual_seed(5)
    alone = np.sort(np.concatenate([tn.rand(16).numpy() for _ in range(THREADS)]))
    np.testing.assert_array_equal(drawn, alone)


def test_thread_count_changes_while_others_compute() -> None:
    before = tn.get_num_threads()
    x = tn.ones(400, 400)

    def work(i: int) -> bool:
        for k in range(10):
            if i == 0:
                tn.set_num_threads(1 + k % 3)
            elif (x + i).sum().item() != 160000 * (1 + i):
                return False
        return True

    try:
        assert all(in_threads(work))
    finally:
        tn.set_num_threads(before)


def test_factories_let_others_run() -> None:
    """Filling a large tensor gives the interpreter's lock away: another thread counts meanwhile."""
    done = threading.Event()
    counted = [0]

    def count() -> None:
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)  # nobody takes the lock from a thread that keeps it
    thread = threading.Thread(target=count)
    try:
        thread.start()
        moved = 0
        for _ in range(20):
            start = counted[0]
            tn.randn(2_000_000)
            moved += counted[0] > start
    finally:
        sys.setswitchinterval(before)
        done.set()
        thread.join()
    assert moved > 0


def test_data_loader_workers() -> None:
    data = tn.utils.data.TensorDataset(tn.arange(64).reshape(32, 2))
    loader = tn.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    for _ in range(2):
        rows = np.concatenate([batch[0].numpy() for batch in loader])
        np.testing.assert_array_equal(rows, np.arange(64).reshape(32, 2))


def test_draws_of_others_are_no_draws_of_a_map() -> None:
    """vmap refuses random numbers of its own function; other threads may draw them meanwhile."""
    ends = threading.Event()

    def work(i: int) -> bool:
        if i:
            while not ends.is_set():
                tn.randn(3)
            return True
        try:
            x = tn.ones(4, 3)
            for _ in range(150):
                got = tn.func.vmap(lambda v: v * 2)(x)
            return bool(got.eq(2).all())
        finally:
            ends.set()

    assert all(in_threads(work))
    with pytest.raises(RuntimeError, match="random"):
        tn.func.vmap(lambda v: v + tn.randn(3))(tn.ones(4, 3))


def test_all_at_once() -> None:
    done = at_once.run(seed=1, seconds=float(os.environ.get("TENON_TEST_SECONDS", "4")))
    assert min(done.values()) >= 6, done


def test_custom_functions() -> None:
    class Double(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 + 0 * x

    def work(i: int) -> bool:
        x = tn.full((50,), float(i), requires_grad=True)
        Double.apply(Double.apply(x)).sum().backward()
        assert x.grad is not None
        return (x.grad == 4).all().item()

    assert all(in_threads(work))


def test_tensors_of_a_thread_that_ended_are_given_back() -> None:
    """A thread keeps some headers of freed tensors for its next ones, until it ends."""

    def many() -> None:
        [tn.zeros(1, 1, 1, 1, device="cpu") for _ in range(400)]

    def rounds(n: int) -> None:
        for _ in range(n):
            thread = threading.Thread(target=many)
            thread.start()
            thread.join()

    rounds(50)
    before = memory.resident()
    rounds(250)
    assert memory.resident() - before < 10 << 20
