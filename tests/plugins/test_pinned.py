"""Memory of the host that a device reaches by itself: copies that nobody waits for, in order with
what is queued around them, and memory that stays until they are done. The device is plugins/sim,
which copies late, and fails when the host's memory is gone by then."""

from __future__ import annotations

from pathlib import Path

import pytest
import tenon as tn
from simulated import COUNTS, HAVE_CC, script

needs_cc = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


# ---- Without a device ----------------------------------------------------------------------------


def test_pin_memory() -> None:
    x = tn.arange(6.0).reshape(2, 3).t()
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.is_pinned("cpu") and pinned.pin_memory() is pinned
    assert pinned.data_ptr() % 4096 == 0 and pinned.data_ptr() != x.data_ptr()
    assert pinned.stride() == x.stride() and tn.equal(pinned, x)
    assert pinned[1:].is_pinned() and not pinned.clone().is_pinned()
    assert tn.zeros(0).pin_memory().is_pinned() and tn.zeros(0).pin_memory().shape == (0,)
    broadcast = tn.ones(1).expand(1 << 40)
    with pytest.raises((MemoryError, RuntimeError)):
        broadcast.pin_memory()


def test_pin_memory_has_a_gradient() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    (x.pin_memory() * tn.tensor([3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda pin: tn.empty(3, 4, pin_memory=pin),
        lambda pin: tn.zeros((2,), dtype=tn.int32, pin_memory=pin),
        lambda pin: tn.full((2, 2), 7, pin_memory=pin),
        lambda pin: tn.randn(5, pin_memory=pin),
        lambda pin: tn.empty_like(tn.ones(2, 3), pin_memory=pin),
        lambda pin: tn.ones(2).new_zeros(3, pin_memory=pin),
        lambda pin: tn.arange(4, pin_memory=pin),
        lambda pin: tn.tensor([1.0, 2.0], pin_memory=pin, requires_grad=True),
    ],
)
def test_factories(make: object) -> None:
    assert make(True).is_pinned() and not make(False).is_pinned()
    assert make(True).is_leaf


def test_factories_keep_values() -> None:
    assert tn.arange(4, pin_memory=True).tolist() == [0, 1, 2, 3]
    leaf = tn.ones(2, pin_memory=True, requires_grad=True)
    assert leaf.is_leaf and leaf.requires_grad and leaf.is_pinned()


def test_bad_arguments() -> None:
    with pytest.raises(RuntimeError, match="no_such"):
        tn.ones(2).pin_memory("no_such")
    with pytest.raises(TypeError, match="pin_memory"):
        tn.ones(2).pin_memory(device=None, other=1)
    with pytest.raises(TypeError):
        tn.ones(2).is_pinned(1.5)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers: int) -> None:
    data = tn.utils.data.TensorDataset(tn.arange(10.0), tn.arange(10))
    loader = tn.utils.data.DataLoader(data, 4, pin_memory=True, num_workers=workers)
    batches = list(loader)
    assert all(part.is_pinned() for batch in batches for part in batch)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not any(x.is_pinned() for x, _ in tn.utils.data.DataLoader(data, 4))


class Batch:
    """A batch that says itself what is pinned."""

    def __init__(self, samples: list) -> None:
        self.data = tn.tensor(samples)

    def pin_memory(self) -> Batch:
        self.data = self.data.pin_memory()
        return self


def test_data_loader_pins_nested_batches() -> None:
    samples = [{"x": tn.ones(2), "names": ("a", [i])} for i in range(4)]
    (batch,) = tn.utils.data.DataLoader(samples, 4, pin_memory=True)
    assert batch["x"].is_pinned() and batch["names"][0] == ["a"] * 4
    assert batch["names"][1][0].is_pinned() and batch["names"][1][0].tolist() == [0, 1, 2, 3]
    (batch,) = tn.utils.data.DataLoader([1.0, 2.0], 2, pin_memory=True, collate_fn=Batch)
    assert isinstance(batch, Batch) and batch.data.is_pinned()


# ---- Copies --------------------------------------------------------------------------------------

IN_AND_OUT = """
x = tn.arange(1000.0).pin_memory()
assert x.is_pinned()
y = x.to("sim", non_blocking=True)
z = (y * 2).to("cpu", non_blocking=True)
assert z.is_pinned() == pins, z.is_pinned()
tn.sim.synchronize()
assert z.tolist() == [2.0 * i for i in range(1000)]
w = tn.empty(1000, pin_memory=True)
assert w.copy_(y, non_blocking=True) is w
tn.sim.synchronize()
assert tn.equal(w, x)
y.copy_(z, non_blocking=True)
assert tn.equal(y.cpu(), z)
"""


@needs_cc
@pytest.mark.parametrize("without", ["", "allocator", "stream"])
def test_copies_are_queued(folder: Path, without: str) -> None:
    text = COUNTS + "tn.ones(1, device='sim')\npins = True\n" + IN_AND_OUT
    text += "assert (launches('copy_pinned_in'), launches('copy_pinned_out')) == (2, 2)\n"
    script(folder, text, DELAY=2000, WITHOUT=without)


@needs_cc
@pytest.mark.parametrize(("level", "without"), [(3, "pinned"), (1, ""), (0, "")])
def test_devices_without_it_wait(folder: Path, level: int, without: str) -> None:
    text = "tn.ones(1, device='sim')\npins = False\n" + IN_AND_OUT
    script(folder, text, LEVEL=level, WITHOUT=without)


@needs_cc
def test_ordinary_memory_waits(folder: Path) -> None:
    """What is not pinned may be changed or dropped at once."""
    text = (
        COUNTS
        + """
for i in range(50):
    x = tn.full((100,), float(i))
    y = x.to("sim", non_blocking=True)
    x.fill_(-1)
    out = tn.empty(100)
    out.copy_(y, non_blocking=True)
    assert out.tolist() == [float(i)] * 100
    other = tn.full((100,), float(i), pin_memory=True).double().to("sim", non_blocking=True)
    assert other.sum().item() == 100 * i
assert launches("copy_pinned_in") == launches("copy_pinned_out") == 0
"""
    )
    script(folder, text, DELAY=500)


@needs_cc
def test_a_copy_returns_before_it_is_done(folder: Path) -> None:
    """Work before it in the queue lingers; the host goes on meanwhile."""
    text = """
tn.ones(1, device="sim")
late = 0
for i in range(60):
    x = tn.full((10,), float(i), device="sim")
    out = tn.full((10,), -1.0, pin_memory=True)
    out.copy_(x, non_blocking=True)
    late += out[0].item() == -1.0
    tn.sim.synchronize()
    assert out.tolist() == [float(i)] * 10
assert late > 0
"""
    script(folder, text, DELAY=20000)


@needs_cc
@pytest.mark.parametrize("shape", ["x[::2]", "x.t()", "x[1:]", "x.expand(3, 6, 4)", "x.int()"])
def test_layouts_and_dtypes(folder: Path, shape: str) -> None:
    text = f"""
tn.ones(1, device="sim")
x = tn.arange(24.0).reshape(6, 4).pin_memory()
v = {shape}
there = v.to("sim", non_blocking=True)
back = there.to("cpu", non_blocking=True)
tn.sim.synchronize()
assert tn.equal(back, v) and back.stride() == v.to("cpu", copy=True).stride()
out = tn.zeros(v.shape, dtype=tn.int64, pin_memory=True)
out.copy_(there, non_blocking=True)
there.copy_(out, non_blocking=True)
tn.sim.synchronize()
assert tn.equal(out, v.long()) and tn.equal(there.cpu(), v)
"""
    script(folder, text, DELAY=1000)


# ---- Memory that stays ---------------------------------------------------------------------------


@needs_cc
@pytest.mark.parametrize("cache", [0, 1])
@pytest.mark.parametrize("without", ["", "allocator", "stream"])
def test_memory_stays_until_copies_are_done(folder: Path, without: str, cache: int) -> None:
    """Both sides are dropped at once; new tensors must not get their memory before."""
    text = """
tn.ones(1, device="sim")
for i in range(60):
    y = tn.full((5000,), float(i), pin_memory=True).to("sim", non_blocking=True)
    junk = [tn.full((5000,), -1.0, pin_memory=True) for _ in range(3)]
    tn.full((5000,), 7.0, pin_memory=True).copy_(y, non_blocking=True)
    del junk
    junk = [tn.full((5000,), -2.0, device="sim") for _ in range(3)]
    assert y.sum().item() == 5000 * i, i
    out = tn.empty(5000, pin_memory=True)
    out.copy_(y, non_blocking=True)
    del y
    junk = [tn.full((5000,), -3.0, device="sim") for _ in range(3)]
    tn.sim.synchronize()
    assert out.sum().item() == 5000 * i, i
"""
    script(folder, text, cache=cache, DELAY=1500, WITHOUT=without)


@needs_cc
def test_copies_go_with_the_current_stream(folder: Path) -> None:
    text = """
slow = tn.Stream("sim")
for i in range(40):
    x = tn.full((2000,), float(i), pin_memory=True)
    with slow:
        y = x.to("sim", non_blocking=True)
        z = y + 1
        out = z.to("cpu", non_blocking=True)
        done = slow.record_event()
    del x, y, z
    junk = [tn.full((2000,), -1.0, pin_memory=True).to("sim", non_blocking=True) for _ in range(3)]
    done.synchronize()
    assert out.sum().item() == 2000 * (i + 1), i
"""
    script(folder, text, DELAY=1500)


@needs_cc
def test_threads(folder: Path) -> None:
    text = """
import threading
tn.ones(1, device="sim")
wrong = []
def work(seed):
    stream = tn.Stream("sim")
    with stream:
        for i in range(60):
            x = tn.full((300,), float(seed + i), pin_memory=True).to("sim", non_blocking=True)
            y = (x + 1).to("cpu", non_blocking=True)
            stream.synchronize()
            if y.sum().item() != 300 * (seed + i + 1):
                wrong.append((seed, i))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not wrong, wrong[:5]
"""
    script(folder, text, DELAY=100)


# ---- Trouble -------------------------------------------------------------------------------------


@needs_cc
def test_tensors_of_devices_cannot_be_pinned(folder: Path) -> None:
    text = """
import pytest
x = tn.ones(2, device="sim")
assert not x.is_pinned()
with pytest.raises(RuntimeError, match="only tensors on the CPU can be pinned, not on 'sim'"):
    x.pin_memory()
with pytest.raises(RuntimeError, match="only tensors on the CPU can be pinned"):
    tn.empty(2, device="sim", pin_memory=True)
"""
    script(folder, text)


@needs_cc
def test_retired_and_lost_devices(folder: Path) -> None:
    """Pinned memory outlives its device, and goes back when it is dropped."""
    text = """
import pytest
x = tn.ones(1000).pin_memory("sim")
y = x.to("sim", non_blocking=True)
tn.retire_plugin("sim")
with pytest.raises(RuntimeError):
    x.to("sim", non_blocking=True)
assert tn.equal(x, y.cpu())
tn.load_plugin(library)
assert x.to("sim", non_blocking=True).sum().item() == 1000
del x, y
"""
    script(folder, f"library = '{folder}/tenon_sim.so'\n" + text, DELAY=1000)
    text = """
import pytest
x = tn.ones(1000).pin_memory("sim")
y = x.to("sim", non_blocking=True)
with pytest.raises(RuntimeError, match="sim:0 was lost"):
    y.cpu()
with pytest.raises(RuntimeError, match="sim:0 was lost"):
    x.to("sim", non_blocking=True)
del x, y
assert tn.ones(3).pin_memory().to("sim:1", non_blocking=True).tolist() == [1.0] * 3
"""
    script(folder, text, FAULT="lost:1")


@needs_cc
def test_in_graphs(folder: Path) -> None:
    """A copy into a graph is made again with what the memory holds then."""
    text = """
x = tn.ones(4).pin_memory("sim")
there = tn.zeros(4, device="sim")
g = tn.Graph()
with tn.graph(g, device="sim"):
    there.copy_(x, non_blocking=True)
    y = there * 2
g.replay()
assert y.tolist() == [2.0] * 4
"""
    script(folder, text, WITHOUT="graph")
