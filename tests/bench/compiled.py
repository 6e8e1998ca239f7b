"""What compile brings: eager, compiled, and PyTorch's two, one after the other in turns.

    python tests/bench/compiled.py [--deferred] [name ...]

Times are the calling thread's processor time with one thread, the least of many turns, so that a
busy machine matters little. Without PyTorch its columns are empty. --deferred: eager against calls
in `with tn.deferred():`, which are looked at when the block ends.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import tenon as tn

try:
    import torch
except ImportError:
    torch = None

Make = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]  # of a library


def mlp(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                         nn.Linear(64, 10))  # fmt: skip


def cnn(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def chain(n: int) -> Make:
    return lambda lib: (
        lambda a, b, c, d: lib.relu(a * b + c) * d - a, tuple(lib.randn(n) for _ in range(4)),
    )  # fmt: skip


def ten(lib: Any) -> Any:
    def fn(a: Any, b: Any, c: Any, d: Any) -> Any:
        return (((a * b + c).relu() * d - a) * 0.5 + b) * c - d + a

    return fn, tuple(lib.randn(64) for _ in range(4))


def of_functional(fn: Callable[..., Any], *shapes: Sequence[int]) -> Make:
    return lambda lib: (
        lambda *xs: fn(lib.nn.functional, *xs), tuple(lib.randn(*s) for s in shapes),
    )  # fmt: skip


ROWS: dict[str, Make] = {
    "ten operators, 64 elements": ten,
    "relu(a*b+c)*d-a, 1M": chain(1 << 20),
    "relu(a*b+c)*d-a, 16M": chain(1 << 24),
    "gelu(x)+y, 1M": of_functional(lambda f, x, y: f.gelu(x) + y, [1 << 20], [1 << 20]),
    "silu(x)*y, 1M": of_functional(lambda f, x, y: f.silu(x) * y, [1 << 20], [1 << 20]),
    "softmax, 4096 x 1000": of_functional(lambda f, x: f.softmax(x, -1), [4096, 1000]),
    "layer norm, 4096 x 768": of_functional(
        lambda f, x, w, b: f.layer_norm(x, (768,), w, b), [4096, 768], [768], [768]
    ),
    "digits MLP, 1 row": lambda lib: (mlp(lib).eval(), (lib.randn(1, 64),)),
    "digits MLP, 64 rows": lambda lib: (mlp(lib).eval(), (lib.randn(64, 64),)),
    "CNN, 16 images": lambda lib: (cnn(lib).eval(), (lib.randn(16, 1, 8, 8),)),
}
TRAINED = {
    "training step of the MLP, 64 rows": (mlp, (64, 64)),
    "training step of the CNN, 16 images": (cnn, (16, 1, 8, 8)),
}


def step_of(lib: Any, make: Any, shape: tuple[int, ...], wrap: Any) -> Callable[[], Any]:
    model = make(lib)
    opt = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y, call = lib.randn(*shape), lib.zeros(shape[0], dtype=lib.int64), wrap(model)

    def step() -> None:
        opt.zero_grad()
        lib.nn.functional.cross_entropy(call(x), y).backward()
        opt.step()

    return step


def calls_of(name: str) -> list[Callable[[], Any]]:
    found: list[Callable[[], Any]] = []
    for lib in (tn, torch) if torch else (tn,):
        for wrap in (lambda f: f, lib.compile):
            if name in TRAINED:
                found.append(step_of(lib, *TRAINED[name], wrap))
                continue
            fn, inputs = ROWS[name](lib)
            found.append(functools.partial(wrap(fn), *inputs))
    return found


def measure(calls: list[Callable[[], Any]], seconds: float = 1.5) -> list[float]:
    """Microseconds of each."""
    best, count = [1e9] * len(calls), [1] * len(calls)
    for i, call in enumerate(calls):
        for _ in range(3):
            call()
        begin = time.perf_counter()
        call()
        count[i] = max(1, int(2e-3 / (time.perf_counter() - begin)))
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for i, call in enumerate(calls):
            begin = time.thread_time()
            for _ in range(count[i]):
                call()
            best[i] = min(best[i], (time.thread_time() - begin) / count[i])
    return [b * 1e6 for b in best]


def put_off(names: Sequence[str]) -> None:
    print("| program | eager | deferred | of eager |")
    print("|---|---|---|---|")
    for name in names or ROWS:
        fn, inputs = ROWS[name](tn)
        with tn.no_grad():
            a, b = measure([functools.partial(f, *inputs) for f in (fn, tn.deferred()(fn))])
        print(f"| {name} | {a:.1f} | {b:.1f} | {b / a:.2f} |", flush=True)


def main() -> None:
    tn.set_num_threads(1)
    if sys.argv[1:2] == ["--deferred"]:
        put_off(sys.argv[2:])
        return
    if torch:
        torch.set_num_threads(1)
    print("| program | eager | compiled | PyTorch | torch.compile | of eager | of torch.compile |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or [*ROWS, *TRAINED]:
        calls = calls_of(name)
        if name in TRAINED:
            times = measure(calls)
        elif torch:
            with tn.no_grad(), torch.no_grad():
                times = measure(calls)
        else:
            with tn.no_grad():
                times = measure(calls)
        times += [float("nan")] * (4 - len(times))
        cells = " | ".join(f"{t:.1f}" for t in times)
        ratios = f"{times[1] / times[0]:.2f} | {times[1] / times[3]:.2f}"
        print(f"| {name} | {cells} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
