"""Everything at once: threads that train, compile, record, read and write files, bind functions,
register operators, hand tensors to each other and change settings, with pauses of any length. Each
checks its own results; the thread sanitizer looks for races.

    python tests/python/at_once.py --seed 7 --seconds 300
"""

from __future__ import annotations

import argparse
import copy
import gc
import io
import itertools
import queue
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenon as tn
from tenon import nn
from tenon.io import safetensors

F = nn.functional


class Place:
    """What the threads of one run share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors: queue.Queue[Any] = queue.Queue(8)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        self.count = 0
        self.lock = threading.Lock()
        self.profiles = threading.Lock()

    def number(self) -> int:
        with self.lock:
            self.count += 1
            return self.count


def train(place: Place, rng: random.Random) -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))
    kind = rng.choice((tn.optim.SGD, tn.optim.Adam, tn.optim.AdamW))
    optimizer = kind(net.parameters(), lr=0.01)
    x = tn.randn(16, 6)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 1.5, losses


def shared_net(place: Place, rng: random.Random) -> None:
    """Gradients of parameters that other threads use, too."""
    x = tn.full((4, 6), float(rng.randrange(1, 5)))
    grads = tn.autograd.grad(place.net(x).sum(), list(place.net.parameters()))
    want = tn.autograd.grad(copy.deepcopy(place.net)(x).sum(), list(place.net.parameters()),
                            allow_unused=True)  # fmt: skip
    assert all(g is None for g in want)
    assert all(g.isfinite().all() for g in grads) and grads[-1].tolist() == [4.0, 4.0]


def into_leaf(place: Place, rng: random.Random) -> None:
    (place.net(tn.ones(2, 6)) * 0).sum().backward()


def compiled(place: Place, rng: random.Random) -> None:
    k = place.number()
    fn = tn.compile(lambda a, b: ((a * k + b).relu() - a.sin()).sum(-1))
    n = rng.randrange(1, 70)
    a, b = tn.randn(3, n), tn.randn(n)
    assert tn.allclose(fn(a, b), ((a * k + b).relu() - a.sin()).sum(-1), atol=1e-4, rtol=1e-4)


def recorded(place: Place, rng: random.Random) -> None:
    x = tn.randn(2, 6)
    with warnings.catch_warnings():
        traced = tn.jit.trace(place.net, (x,), check_trace=False)
    data = io.BytesIO()
    tn.jit.save(traced, data)
    assert tn.allclose(tn.jit.load(io.BytesIO(data.getvalue()))(x), place.net(x), atol=1e-5)


def files(place: Place, rng: random.Random) -> None:
    n = place.number()
    state = {
        "w": tn.full((rng.randrange(1, 300), 3), float(n)),
        "n": n,
        "net": place.net.state_dict(),
    }
    path = place.folder / f"{n % 3}.pt"  # others write there, too: one whole file or another
    tn.save(state, path)
    got = tn.load(path, mmap=rng.randrange(2) == 1)
    assert got["w"].eq(float(got["n"])).all()
    safetensors.save_file({"w": state["w"]}, place.folder / f"{n}.safetensors")
    read = safetensors.load_file(place.folder / f"{n}.safetensors")
    assert tn.equal(read["w"], state["w"])
    (place.folder / f"{n}.safetensors").unlink()


def loader(place: Place, rng: random.Random) -> None:
    data = tn.utils.data.TensorDataset(tn.arange(24.0), tn.arange(24))
    batches = list(tn.utils.data.DataLoader(data, batch_size=5, shuffle=True))
    assert sum(float(x.sum()) for x, _ in batches) == 276.0


def hand_over(place: Place, rng: random.Random) -> None:
    """Tensors with a history go to whoever takes them next, and are freed there."""
    leaf = tn.ones(5, requires_grad=True)
    try:
        place.tensors.put_nowait((leaf, (leaf * 3).exp().log()))
    except queue.Full:
        pass


def take(place: Place, rng: random.Random) -> None:
    try:
        leaf, result = place.tensors.get_nowait()
    except queue.Empty:
        return
    result.sum().backward()
    assert tn.allclose(leaf.grad, tn.full((5,), 3.0))


def functions(place: Place, rng: random.Random) -> None:
    x = tn.randn(5, 3)
    got = tn.func.vmap(tn.func.grad(lambda v: v.sin().sum()))(x)
    assert tn.allclose(got, x.cos(), atol=1e-5)


def bound(place: Place, rng: random.Random) -> None:
    erf = tn.ffi.bind("libm.so.6", "double erf(double x)", derivative="2/sqrt(pi) * exp(-x*x)")
    assert tn.allclose(erf(tn.ones(3, dtype=tn.float64)), tn.ones(3, dtype=tn.float64).erf())


def operator(place: Place, rng: random.Random) -> None:
    k = place.number()

    @tn.library.custom_op(f"at_once::op{k}", mutates_args=())
    def op(x: tn.Tensor) -> tn.Tensor:
        return x * k

    assert op(tn.ones(2)).tolist() == [k, k]


def random_numbers(place: Place, rng: random.Random) -> None:
    seed = place.number()
    a = tn.randn(300, generator=tn.Generator().manual_seed(seed))
    assert tn.equal(a, tn.randn(300, generator=tn.Generator().manual_seed(seed)))
    tn.randn(5)


def settings(place: Place, rng: random.Random) -> None:
    tn.set_num_threads(rng.randrange(1, 5))
    a = tn.ones(40000)
    assert a.cumsum(0)[-1].item() == 40000.0 and (a + a).sum().item() == 80000.0


def products(place: Place, rng: random.Random) -> None:
    a = tn.ones(70, 90) @ tn.ones(90, 50)
    assert a.eq(90.0).all()
    assert F.conv2d(tn.ones(1, 2, 9, 9), tn.ones(3, 2, 3, 3)).eq(18.0).all()


def looks(place: Place, rng: random.Random) -> None:
    repr(place.net), str(tn.randn(3, 3)), tn.plugins()
    copy.deepcopy(place.net).state_dict()
    gc.collect() if rng.randrange(8) == 0 else None
    # There is one profile at a time: another thread's is an error.
    alone = rng.randrange(8) == 0 and place.profiles.acquire(blocking=False)
    with tn.inference_mode(), tn.profiler.profile() if alone else tn.no_grad():
        tn.ones(3).exp()
    if alone:
        place.profiles.release()


ACTIONS: tuple[Callable[[Place, random.Random], None], ...] = (
    train, shared_net, into_leaf, compiled, recorded, files, loader, hand_over, take, functions,
    bound, operator, random_numbers, settings, products, looks,
)  # fmt: skip


def run(seed: int, seconds: float, threads: int = 6) -> dict[str, int]:
    """How often each was done, by each thread once at least; the first failure is raised."""
    done = dict.fromkeys((a.__name__ for a in ACTIONS), 0)
    failed: list[BaseException] = []
    before = tn.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="tenon-at-once-") as folder:
        place, end = Place(Path(folder)), time.monotonic() + seconds

        def body(i: int) -> None:
            rng = random.Random(f"{seed}:{i}")
            turn = list(ACTIONS)
            try:
                for number in itertools.count():
                    rng.shuffle(turn)
                    for action in turn:
                        if failed or (number and time.monotonic() > end):
                            return
                        action(place, rng)
                        done[action.__name__] += 1
                        if rng.randrange(3) == 0:
                            time.sleep(rng.random() * 0.003)
            except BaseException as err:
                failed.append(err)

        own = [threading.Thread(target=body, args=(i,)) for i in range(threads)]
        for thread in own:
            thread.start()
        for thread in own:
            thread.join()
    tn.set_num_threads(before)
    if failed:
        raise failed[0]
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.setswitchinterval(1e-4)
    print(run(options.seed, options.seconds))
