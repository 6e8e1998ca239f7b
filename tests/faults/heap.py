"""Faults of memory: in a scenario every allocation fails once, each time in a process of its own.

    heap.py SCENARIO [--every N] [--from N] [--to N] [--lasting] [--trace]

is to be run with heap.c's library preloaded; `--lasting` lets all allocations fail from that one
on, `--trace` shows where it was. A scenario must end in MemoryError or in success, and after the
fault it must succeed. What did not is printed."""

from __future__ import annotations

import argparse
import ctypes
import dis
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECONDS = 20  # for one try; a scenario takes much less than one
MISSED = 100  # the status of a process in which there was no such allocation

# A lack of memory that is no MemoryError: Python's own words for it, and a worker that it ended.
OTHER_WORDS = (
    "exited unexpectedly",
    "can't allocate lock",
    "can't allocate read lock",
    "can't start new thread",
    "Cannot allocate memory",
)

# A scenario prepares what is no part of it and returns what is to be tried. That answers whether
# the result is right.
Scenario = Callable[[Path], Callable[[], bool]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(fn: Scenario) -> Scenario:
    SCENARIOS[fn.__name__] = fn
    return fn


@scenario
def first_use(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    return lambda: (tn.ones(3) + 1).tolist() == [2.0, 2.0, 2.0]


@scenario
def first_product(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    return lambda: float((tn.ones(40, 50) @ tn.ones(50, 40)).sum()) == 80000.0


@scenario
def plugin_device(folder: Path) -> Callable[[], bool]:
    """TENON_PLUGIN_PATH names a folder with the device of the examples."""
    import tenon as tn
    import tenon._plugin.trial

    return lambda: (tn.ones(3, device="acme") * 2).tolist() == [2.0, 2.0, 2.0]


@scenario
def plugin_operator(folder: Path) -> Callable[[], bool]:
    import tenon as tn
    import tenon._plugin.trial
    import tenon.ops

    tn.zeros(1)
    return lambda: tn.ops.example.gelu(tn.zeros(3)).tolist() == [0.0, 0.0, 0.0]


@scenario
def plugin_path(folder: Path) -> Callable[[], bool]:
    import tenon as tn
    import tenon._plugin.trial
    import tenon.ops
    from tenon import load_library

    tn.zeros(1)
    library = Path(os.environ["TENON_PLUGIN_PATH"]) / "tenon_example.so"

    def run() -> bool:
        load_library(library)
        return tn.ops.example.gelu(tn.zeros(3)).tolist() == [0.0, 0.0, 0.0]

    return run


@scenario
def operators(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    x = tn.arange(24.0).reshape(4, 6)
    wide = tn.ones(300, 300)
    exact = tn.ones(3, dtype=tn.int64)

    def run() -> bool:
        y = tn.cat([x, x.flip(0)]).sort(dim=0).values[::2, 1:].to(tn.float64)
        z = tn.einsum("ij,kj->ik", y, y).tril().cumsum(0)
        w = tn.linalg.solve(tn.eye(4, dtype=tn.float64) * 2, z)
        u = tn.unique(tn.tensor([3, 1, 3]))
        c = tn.nn.functional.conv2d(tn.ones(1, 2, 8, 8), tn.ones(3, 2, 3, 3))
        m = wide @ wide
        deep = tn.ones(1, 1, 1, 1, 1, 1, 1, 2).expand(2, 1, 1, 1, 1, 1, 1, 2) + exact[:1]
        right = float(m[0, 0]) == 300.0 and u.tolist() == [1, 3] and float(c[0, 0, 0, 0]) == 18.0
        return right and w.shape == (4, 4) and float(deep.sum()) == 8.0

    assert run()
    return run


@scenario
def step(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    def run() -> bool:
        net = tn.nn.Sequential(
            tn.nn.Linear(4, 8), tn.nn.GELU(), tn.nn.LayerNorm(8), tn.nn.Linear(8, 2)
        )
        for p in net.parameters():
            tn.nn.init.constant_(p, 0.5)
        optimizer = tn.optim.AdamW(net.parameters(), lr=0.1)
        before = net[3].bias.detach().clone()
        loss = tn.nn.functional.cross_entropy(net(tn.ones(5, 4)), tn.tensor([0, 1, 0, 0, 1]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return bool((net[3].bias != before).all()) and abs(float(loss) - 0.6931472) < 1e-5

    assert run()
    return run


@scenario
def saved(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    tn.zeros(1)
    path = str(folder / "saved.pt")
    value = {"a": tn.arange(100.0), "b": [1, "text", tn.ones(2, dtype=tn.int64)]}

    def run() -> bool:
        tn.save(value, path)
        return tn.load(path)["a"].tolist() == list(range(100))

    assert run()
    return run


@scenario
def safetensors(folder: Path) -> Callable[[], bool]:
    import tenon as tn
    from tenon.io.safetensors import load_file, save_file

    path = str(folder / "saved.safetensors")
    value = {"a": tn.arange(100.0), "b": tn.ones(2, dtype=tn.int64)}

    def run() -> bool:
        save_file(value, path)
        return load_file(path)["a"].tolist() == list(range(100))

    assert run()
    return run


@scenario
def function(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    class Double(tn.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * factor, x.sum()

        @staticmethod
        def backward(ctx, g, h):
            (x,) = ctx.saved_tensors
            return g * ctx.factor + h.expand_as(x), None

    def run() -> bool:
        x = tn.ones(3, requires_grad=True)
        y, total = Double.apply(x, 2.0)
        (y.sum() + total).backward()
        return x.grad.tolist() == [3.0, 3.0, 3.0]

    assert run()
    return run


@scenario
def graph(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    net = tn.nn.Sequential(tn.nn.Linear(4, 8), tn.nn.ReLU(), tn.nn.Linear(8, 2))
    x = tn.ones(3, 4)
    want = net(x).tolist()
    path = str(folder / "net.tng")

    def run() -> bool:
        traced = tn.jit.trace(net, x)
        tn.jit.save(traced, path)
        return tn.jit.load(path)(x).tolist() == want

    assert run()
    return run


@scenario
def compiled(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    x = tn.linspace(-1, 1, 50)
    want = (x.sin() * 2 + x.exp()).tolist()

    def run() -> bool:
        fn = tn.compile(lambda x: x.sin() * 2 + x.exp(), backend=lambda graph, inputs: graph)
        return all(fn(x).tolist() == want for _ in range(3))

    assert run()
    return run


@scenario
def transforms(folder: Path) -> Callable[[], bool]:
    import tenon as tn

    x = tn.linspace(-1, 1, 4)

    def run() -> bool:
        return tn.func.vmap(tn.func.grad(lambda x: x * x))(x).tolist() == (2 * x).tolist()

    assert run()
    return run


@scenario
def loader(folder: Path) -> Callable[[], bool]:
    import tenon as tn
    from tenon.utils.data import DataLoader, TensorDataset

    data = TensorDataset(tn.arange(10.0), tn.arange(10))

    def run() -> bool:
        return [b[1].tolist() for b in DataLoader(data, batch_size=5)] == [
            [0, 1, 2, 3, 4],
            [5, 6, 7, 8, 9],
        ]

    assert run()
    return run


@scenario
def workers(folder: Path) -> Callable[[], bool]:
    import tenon as tn
    from tenon.utils.data import DataLoader, TensorDataset

    data = TensorDataset(tn.arange(10.0), tn.arange(10))

    def run() -> bool:
        batches = DataLoader(data, batch_size=5, num_workers=1, timeout=10)
        return [b[1].tolist() for b in batches] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    assert run()
    return run


@scenario
def exchange(folder: Path) -> Callable[[], bool]:
    import copy
    import pickle

    import numpy as np
    import tenon as tn

    x = tn.arange(6.0).reshape(2, 3)

    def run() -> bool:
        y = copy.deepcopy(pickle.loads(pickle.dumps(x)))
        z = tn.from_numpy(np.asarray(y.numpy())) + 1
        w = tn.from_dlpack(z)
        return tn.tensor(w.tolist()).sum().item() == 21.0 and "tensor" in repr(w)

    assert run()
    return run


# ---- Trying --------------------------------------------------------------------------------------


class Allocator:
    """The preloaded library."""

    def __init__(self) -> None:
        self._all = ctypes.CDLL(None)
        self._all.heap_arm.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_int]
        self._all.heap_disarm.restype = self._all.heap_alive.restype = ctypes.c_long

    def arm(self, first: int, last: int, trace: bool) -> None:
        self._all.heap_arm(first, last, trace)

    def disarm(self) -> int:
        return int(self._all.heap_disarm())

    def alive(self) -> int:
        """How many blocks there are."""
        return int(self._all.heap_alive())


def is_lack(err: BaseException) -> bool:
    """Whether memory was lacking. Where it has none for a frame or a parser, Python itself may end
    a call without an exception."""
    ends = ("<function ", "<built-in function compile>")
    if isinstance(err, SystemError):
        bare = str(err) == "error return without exception set" and _was_calling(err)
        return bare or str(err).startswith(ends)
    return any(words in str(err) for words in OTHER_WORDS)


def _was_calling(err: BaseException) -> bool:
    """Whether the interpreter was calling: of functions in C it says which one it was."""
    at = err.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return False
    code, step = at.tb_frame.f_code.co_code, at.tb_lasti
    while step > 0 and dis.opname[code[step]] == "CACHE":
        step -= 2
    return "CALL" in dis.opname[code[step]]


def attempt(run: Callable[[], bool], heap: Allocator, n: int, lasting: bool, trace: bool) -> str:
    """What was wrong when allocation n failed; "": nothing, "missed": there was none."""
    wrong = ""
    heap.arm(n, sys.maxsize if lasting else n, trace)
    try:
        right = run()
        seen = heap.disarm()
        if not right:
            wrong = "a wrong result"
    except MemoryError:
        seen = heap.disarm()
        if trace:
            traceback.print_exc()
    except BaseException as err:
        seen = heap.disarm()
        if not is_lack(err):
            wrong = traceback.format_exc()
    try:
        if not run():
            wrong += "\nafterwards: a wrong result"
    except BaseException:
        wrong += "\nafterwards: " + traceback.format_exc()
    return wrong or ("missed" if seen < n else "")


def try_once(run: Callable[[], bool], heap: Allocator, n: int, lasting: bool, trace: bool) -> str:
    """`attempt` in a child of this process; also what ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            if not trace:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # "Exception ignored in" is no fault
            answer = attempt(run, heap, n, lasting, trace)
            os.write(writing, answer.encode()[-60000:])
            status = MISSED if answer == "missed" else 0
        finally:
            os._exit(status)
    os.close(writing)
    answer = b""
    end = time.monotonic() + SECONDS
    hangs = False
    while True:
        ready = select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]
        if not ready:
            hangs = True
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(reading, 65536)
        if not part:
            break
        answer += part
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if hangs:
        return f"it hung; {answer.decode()}"
    return (
        answer.decode() if status in (0, MISSED) else f"it ended with {status}; {answer.decode()}"
    )


def sweep(
    name: str, first: int, last: int, every: int, lasting: bool = False, trace: bool = False
) -> Iterator[tuple[int, str]]:
    """Each allocation that was made to fail, and what was wrong then."""
    heap = Allocator()
    with tempfile.TemporaryDirectory() as folder:
        run = SCENARIOS[name](Path(folder))
        for n in range(first, last + 1, every):
            wrong = try_once(run, heap, n, lasting, trace)
            if wrong == "missed":
                return
            yield n, wrong


def build(folder: Path) -> Path:
    library = folder / "heap.so"
    command = [
        "cc",
        "-std=c11",
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(HERE / "heap.c"),
    ]
    subprocess.run(command, check=True)
    return library


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--to", type=int, default=sys.maxsize, dest="last")
    parser.add_argument("--lasting", action="store_true")
    parser.add_argument("--trace", action="store_true")
    o = parser.parse_args()
    tries = faults = 0
    for n, wrong in sweep(o.scenario, o.first, o.last, o.every, o.lasting, o.trace):
        tries += 1
        if wrong:
            faults += 1
            print(f"{o.scenario}, allocation {n}: {wrong}", flush=True)
    print(f"{o.scenario}: {tries} allocations failed, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
