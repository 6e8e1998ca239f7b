"""Graphs on devices: core records for a device that cannot (acme, sim below level 3), and a device
with "tn.graph/1" records by itself (sim)."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import COUNTS, HAVE_CC, run, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


TRAIN = """
from tenon import nn

tn.manual_seed(2)
batches = [(tn.randn(16, 6), tn.randint(0, 3, (16,))) for _ in range(22)]

class Training:
    def __init__(self, device, **options):
        tn.manual_seed(0)
        layers = [nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)]
        self.net = nn.Sequential(*layers).to(device)
        self.optimizer = tn.optim.AdamW(self.net.parameters(), lr=0.01, **options)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

def compare(device, **options):
    eager, replayed = Training(device), Training(device, **options)
    tn.manual_seed(5)
    losses = [eager.step(x.to(device), y.to(device)).item() for x, y in batches]
    tn.manual_seed(5)
    again = [replayed.step(x.to(device), y.to(device)).item() for x, y in batches[:2]]
    x, y = (t.to(device) for t in batches[0])
    graph = tn.Graph()
    with tn.get_device_module(device).graph(graph, device=device):
        loss = replayed.step(x, y)
    for new_x, new_y in batches[2:]:
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        again.append(loss.item())
    assert again == losses, (again, losses)
    for a, b in zip(eager.net.parameters(), replayed.net.parameters()):
        assert tn.equal(a.cpu(), b.cpu())
"""


@pytest.mark.parametrize(
    ("device", "switches"),
    [("acme:1", {}), ("sim", {"LEVEL": 0}), ("sim:1", {"LEVEL": 2, "POINTERS": "opaque"})],
)
def test_a_replayed_training_step_is_the_step(
    folder: Path, device: str, switches: dict[str, str | int]
) -> None:
    """Bit for bit over 20 replays, where core records."""
    text = f"compare({device!r})\ncompare({device!r}, capturable=True)\n"
    script(folder, TRAIN + text, **switches)


COUNTING = """
w = tn.tensor([1.0, -2.0, 3.0], device="sim").requires_grad_()
near = w.detach().cpu().requires_grad_()
there = tn.optim.Adam([w], lr=0.1, amsgrad=True, capturable=True)
here = tn.optim.Adam([near], lr=0.1, amsgrad=True)
for p, opt in ((w, there), (near, here)):
    p.grad = tn.ones_like(p)
    opt.step()
graph = tn.Graph()
with tn.sim.graph(graph):
    there.step()
for i in range(10):
    w.grad.fill_(i - 4.0)
    near.grad.fill_(i - 4.0)
    graph.replay()
    here.step()
assert tn.allclose(w.detach().cpu(), near.detach(), atol=1e-5), (w, near)
assert there.state[w]["step"].item() == 11.0

# What the host counts, a replay would not.
w.grad = tn.ones_like(w)
opt = tn.optim.Adam([w], lr=0.1)
opt.step()
before = w.tolist()
try:
    with tn.sim.graph(tn.Graph()):
        opt.step()
except RuntimeError as error:
    assert "capturable=True" in str(error), error
else:
    raise AssertionError("the host's counter was captured")
assert w.tolist() == before and opt.state[w]["step"].item() == 1.0
"""


def test_a_device_that_records_adam_counts_itself(folder: Path) -> None:
    script(folder, COUNTING, LEVEL=3, DELAY=100)


NATIVE = """
tn.manual_seed(0)
x, w = tn.randn(4, 3), tn.randn(3, 5)
far_x, far_w = x.to("sim"), w.to("sim").requires_grad_()
near_w = w.clone().requires_grad_()

def step(x, w, scale):
    y = ((x @ w) * scale).tanh().sum()
    y.backward()
    with tn.no_grad():
        w.sub_(w.grad, alpha=0.01)
    w.grad = None
    return y

graph = tn.Graph()
before = launches("tanh")
with tn.sim.graph(graph):
    far_y = step(far_x, far_w, tn.full((5,), 2.0, device="sim"))
tn.sim.synchronize()
assert launches("tanh") == before, "captured work must not run"
assert tn.equal(far_w.detach().cpu(), w)
for i in range(20):
    x = tn.randn(4, 3)
    far_x.copy_(x)
    graph.replay()
    y = step(x, near_w, 2.0)
    assert abs(far_y.item() - y.item()) < 1e-3, i
assert tn.allclose(far_w.detach().cpu(), near_w.detach(), atol=1e-4)
assert launches("tanh") == before + 20

# What was allocated meanwhile is not used by others, and comes back.
held = tn.sim.memory_allocated()
graph.reset()
tn.sim.synchronize()
assert tn.sim.memory_allocated() < held
"""


def test_a_device_that_records(folder: Path) -> None:
    script(folder, COUNTS + NATIVE, LEVEL=3, DELAY=200)


@pytest.mark.parametrize("without", ["", "allocator,memory"])
def test_a_capture_uses_its_memory_again(folder: Path, without: str) -> None:
    """What is dropped in a capture serves what comes later in it, and nobody outside."""
    text = """
x = tn.ones(1000, device="sim")
def work():
    y = x
    for _ in range(40):
        y = (y * 2).clone() / 2
    return y + 1
work()
tn.sim.synchronize()
tn.sim.empty_cache()
before = tn.sim.memory_allocated()
graph = tn.Graph()
with tn.sim.graph(graph):
    y = work()
assert tn.sim.memory_allocated() - before <= 6 * 4096, tn.sim.memory_allocated() - before
for i in range(3):
    x.fill_(float(i))
    junk = [tn.full((1000,), -1.0, device="sim") for _ in range(20)]
    graph.replay()
    assert y.tolist() == [i + 1.0] * 1000
    assert all(t.sum().item() == -1000 for t in junk)
    del junk
z = y
graph.reset()
del graph
junk = [tn.full((1000,), -1.0, device="sim") for _ in range(20)]
assert z.tolist() == [3.0] * 1000  # a result outlives the graph
del junk, y, z
tn.sim.synchronize()
assert tn.sim.memory_allocated() == before
"""
    script(folder, text, LEVEL=3, DELAY=100, WITHOUT=without)


def test_a_stream_of_ones_own(folder: Path) -> None:
    text = """
x = tn.zeros(3, device="sim")
stream, graph = tn.Stream("sim"), tn.Graph()
tn.sim.synchronize()
with tn.graph(graph, stream=stream):
    assert tn.current_stream("sim") == stream and tn.sim.is_current_stream_capturing()
    x += 1
assert tn.current_stream("sim").stream_id == 0
with tn.stream(stream):
    for _ in range(3):
        graph.replay()
stream.synchronize()
assert x.tolist() == [3.0] * 3
del graph, stream
assert (x + 1).tolist() == [4.0] * 3
"""
    script(folder, text, LEVEL=3, DELAY=500)


ERRORS = """
import re
x = tn.ones(4, device="sim")
def fails(text, piece):
    graph = tn.Graph()
    try:
        with tn.sim.graph(graph):
            x.add_(1)
            piece()
    except RuntimeError as error:
        assert re.search(text, str(error)), (text, str(error))
    else:
        raise AssertionError(text)
    assert not tn.sim.is_current_stream_capturing()
    tn.sim.synchronize()
    assert x.tolist() == [1.0] * 4
fails("reading a value", lambda: x.sum().item())
fails("erfinv", lambda: x.erfinv())
fails("waiting for a device", tn.sim.synchronize)
fails("waiting for a copy", lambda: x.cpu())
fails("waiting for a stream", lambda: tn.sim.current_stream().synchronize())
fails("another stream", lambda: tn.Stream("sim").__enter__())
fails("events", lambda: tn.Event("sim").record())
fails("already", lambda: tn.Graph().capture_begin(device="sim"))
# Other devices go on as ever.
y, graph = tn.ones(3), tn.Graph()
with tn.sim.graph(graph):
    y += 1
    assert y.sum().item() == 6 and (x * 2).shape == (4,)
graph.replay()
assert y.sum().item() == 6
"""


@pytest.mark.parametrize("device", ["acme", "sim"])
def test_a_number_on_the_host_is_not_read(folder: Path, device: str) -> None:
    text = f"""
x, scale, graph = tn.ones(3, device={device!r}), tn.tensor(2.0), tn.Graph()
try:
    with tn.graph(graph, device={device!r}):
        x * scale
except RuntimeError as error:
    assert "mul: reading a value" in str(error), error
else:
    raise AssertionError("the number was kept for ever")
with tn.graph(graph, device={device!r}):
    y = x * 2.0
graph.replay()
assert y.tolist() == [2.0] * 3
"""
    script(folder, text, LEVEL=3)


def test_what_a_device_cannot_record_names_the_operator(folder: Path) -> None:
    script(folder, ERRORS, LEVEL=3)


UNSAFE = """
graph = tn.Graph()
x = tn.ones(3, device="sim")
try:
    with tn.sim.graph(graph):
        x.neg()
except RuntimeError as error:
    assert "neg: a kernel without TN_K_CAPTURE_SAFE" in str(error), error
else:
    raise AssertionError("the kernel ran")
"""


def test_a_kernel_that_is_not_safe_is_not_run(folder: Path) -> None:
    script(folder, UNSAFE, LEVEL=3, UNSAFE="neg")


def test_late_failures_of_a_replay_are_reported(folder: Path) -> None:
    text = """
x, graph = tn.ones(3, device="sim"), tn.Graph()
with tn.sim.graph(graph):
    y = x.exp()
tn.sim.synchronize()
graph.replay()
try:
    tn.sim.synchronize()
except RuntimeError as error:
    assert "exp" in str(error)
else:
    raise AssertionError("no failure")
"""
    script(folder, text, LEVEL=3, FAULT="kernel:exp:1")


def test_a_graph_outlives_its_device(folder: Path) -> None:
    """After the plugin was retired a replay is an error, and releasing the graph is not."""
    text = """
x, graph = tn.ones(3, device="sim"), tn.Graph()
with tn.sim.graph(graph):
    y = x + 1
tn.retire_plugin("sim")
try:
    graph.replay()
except RuntimeError as error:
    assert "retired" in str(error), error
else:
    raise AssertionError("the device is gone")
graph.reset()
del graph
"""
    for level in (0, 2, 3):
        done = run(folder, "-c", "import tenon as tn\n" + text, LEVEL=level)
        assert done.returncode == 0, (level, done.stderr[-2000:])
