"""The simulated device, plugins/sim, built with nothing but the installed headers and a compiler:
the operator suite at every level, and what happens when memory, kernels or the device go wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from simulated import COUNTS, HAVE_CC, run, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


def suite(folder: Path, cache: int, **switches: str | int) -> None:
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_ops.py")
    done = run(folder, *command, cache=cache, **switches)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


# ---- Operators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "cache"), [(0, 1), (3, 0)])
def test_every_operator(folder: Path, level: int, cache: int) -> None:
    """Values, layouts, out=, in-place forms and gradients of the whole table. Without the cache
    every block has its own red zones and is looked at when it is freed."""
    suite(folder, cache, LEVEL=level)


@pytest.mark.slow
@pytest.mark.parametrize(("level", "cache"), [(1, 0), (2, 1), (3, 1)])
def test_every_operator_at_other_levels(folder: Path, level: int, cache: int) -> None:
    suite(folder, cache, LEVEL=level)


@pytest.mark.slow
def test_every_operator_with_opaque_handles(folder: Path) -> None:
    suite(folder, 1, LEVEL=1, POINTERS="opaque", DELAY=200)


def test_kernels_of_the_device_run(folder: Path) -> None:
    text = """
x = tn.arange(12.0, device="sim").reshape(3, 4)
y = (x @ x.t() + 1).relu().sum()
i = tn.tensor([2, 0], device="sim")
z = x.index_select(0, i).gather(1, i[:, None])
assert y.item() == float((x.cpu() @ x.cpu().t() + 1).relu().sum())
assert z.tolist() == [[10.0], [0.0]]
for op in ("_arange_", "mm", "add", "relu", "sum", "index_select", "gather"):
    assert launches(op) == 1, (op, launches(op))
assert launches("exp") == 0
"""
    script(folder, COUNTS + text, LEVEL=1)


TRAIN = """
from tenon import nn
def train(device, dtype=tn.float32):
    tn.manual_seed(0)
    x = tn.randn(32, 1, 6, 6).to(dtype=dtype)
    y = (x.float().sum((1, 2, 3)) > 0).long()
    tn.manual_seed(1)
    parts = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 2)]
    net = nn.Sequential(*parts).to(device=device, dtype=dtype)
    opt = tn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, y = x.to(device), y.to(device)
    for _ in range(15):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    return loss.item(), net[0].weight.detach().cpu()
"""


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_training(folder: Path, level: int) -> None:
    text = """
(a, wa), (b, wb) = train("cpu"), train("sim:1")
assert a < 0.3 and abs(a - b) < 1e-3, (a, b)
assert tn.allclose(wa, wb, atol=1e-4)
assert (launches("linear") > 0) == (level >= 2) and (launches("mm") > 0) == (level >= 1)
"""
    script(folder, COUNTS + TRAIN + f"level = {level}\n" + text, LEVEL=level, DELAY=5)


def test_coverage(folder: Path) -> None:
    """The report of `tenon coverage` agrees with what explain says and with what happens."""
    done = run(folder, "-m", "tenon", "coverage", "sim", "--json", LEVEL=2)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    ops, totals = report["ops"], report["totals"]
    assert ops["add"]["float32"] == "kernel" and ops["add"]["float16"] == "wider"
    assert ops["add"]["int16"] == "cpu" and ops["layer_norm"]["float32"] == "composite"
    assert sum(totals.values()) == sum(len(ways) for ways in ops.values())
    assert totals["kernel"] > 100 and totals["none"] == 0
    people = run(folder, "-m", "tenon", "coverage", "sim", LEVEL=2)
    assert f"{totals['kernel']} of {sum(totals.values())}" in people.stdout
    text = """
assert "in float32" in tn.explain("add", device="sim", dtype=tn.float16)
x = tn.ones(3, device="sim", dtype=tn.float16)
y = x + x + x.short()
assert tn.sim.fallback_count("add") == (2, 0), tn.sim.fallback_count("add")
"""
    script(folder, text, LEVEL=2)


# ---- Several vendors, several devices ------------------------------------------------------------


@pytest.fixture(scope="session")
def vendors(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the device of two vendors: the same code, but Tenon cannot know that."""
    out = tmp_path_factory.mktemp("vendors")
    for name in ("sim", "other"):
        shutil.copy(folder / "tenon_sim.so", out / f"tenon_{name}.so")
        manifest = json.loads((folder / "tenon_sim.json").read_text(encoding="utf-8"))
        manifest |= {"name": name, "library": f"tenon_{name}.so", "devices": [name]}
        (out / f"tenon_{name}.json").write_text(json.dumps(manifest), encoding="utf-8")
    return out


VENDORS = """
import os
import pytest
os.environ["TENON_SIM_NAME"] = "other"
os.environ["TENON_SIM_LEVEL"] = "0"
os.environ["TENON_SIM_POINTERS"] = "opaque"
b = tn.arange(6.0, device="other:1").reshape(2, 3)
for name in ("NAME", "LEVEL", "POINTERS"):
    del os.environ["TENON_SIM_" + name]
a = tn.arange(6.0, device="sim").reshape(2, 3)
"""


def test_two_vendors(vendors: Path) -> None:
    text = """
assert tn.other.device_count() == 2 and tn.sim.device_count() == 2
assert "level 0" in tn.other.get_device_name() and "level 3" in tn.sim.get_device_name()
for x, y, names in ((a, b, "sim:0 and other:1"), (b, a, "other:1 and sim:0"),
                    (a, a.to("sim:1"), "sim:0 and sim:1"), (b, b.cpu(), "other:1 and cpu:0")):
    for call in (lambda: x + y, lambda: x @ y.t(), lambda: tn.cat([x, y]), lambda: x.add_(y)):
        with pytest.raises(RuntimeError, match="same device.*" + names):
            call()
assert tn.equal((a + 2).cpu(), (b + 2).cpu())
for where in ("sim:1", "other:0", "other:1", "cpu"):
    for x in (a, b):
        for view in (x, x.t(), x[:, ::2], x.half(), x.long()):
            moved = view.to(where)
            assert str(moved.device) in (where, "cpu") and tn.equal(moved.cpu(), view.cpu())
            into = tn.zeros(view.shape, device=where)
            into.copy_(view)
            assert tn.equal(into.cpu(), view.cpu().float())
x = a.clone().requires_grad_()
((x.to("other:1") * b).sum().to("sim:1") * 2).backward()
assert str(x.grad.device) == "sim:0" and tn.equal(x.grad.cpu(), 2 * b.cpu())
tn.retire_plugin("other")
with pytest.raises(RuntimeError, match="'other' was retired"):
    b + 1
assert tn.equal(b.to("sim").cpu(), a.cpu())
"""
    script(vendors, VENDORS + text, LEVEL=3)


# ---- Memory --------------------------------------------------------------------------------------


def test_the_host_cannot_read_the_memory(folder: Path) -> None:
    text = """
import ctypes
x = tn.ones(4, device="sim")
assert x.tolist() == [1.0] * 4
ctypes.string_at(x.data_ptr(), 4)
"""
    done = run(folder, "-c", "import tenon as tn\n" + text)
    assert done.returncode < 0, "the host read memory of the device"


@pytest.mark.parametrize("pointers", ["address", "opaque"])
def test_views_and_writes(folder: Path, pointers: str) -> None:
    text = """
base = tn.arange(12.0, device="sim:1").reshape(3, 4)
same = tn.arange(12.0).reshape(3, 4)
for t in (base, same):
    t[1:, ::2] += 10
    t.t()[0].mul_(3)
    t[t > 15] = -1
assert tn.equal(base.cpu(), same)
assert repr(base).endswith("device='sim:1')")
"""
    script(folder, text, POINTERS=pointers)


def test_out_of_memory(folder: Path) -> None:
    text = """
kept = tn.zeros(1000, device="sim")
for _ in range(50):
    tn.zeros(50000, device="sim")  # what is dropped can be used again
try:
    tn.zeros(100000, device="sim")
except MemoryError as err:
    assert "sim:0 is out of memory: 400000 bytes" in str(err), err
else:
    raise AssertionError("there was memory")
assert tn.zeros(100, device="sim:1").sum().item() == 0
assert kept.sum().item() == 0
"""
    script(folder, text, MEMORY=300000)


def test_the_nth_allocation_fails(folder: Path) -> None:
    text = """
x = tn.ones(3, device="sim")
try:
    x.clone()
except MemoryError:
    pass
else:
    raise AssertionError("the switch was not obeyed")
assert x.clone().tolist() == [1.0] * 3
"""
    script(folder, text, cache=0, FAULT="oom:2")


# ---- Streams and events --------------------------------------------------------------------------


def test_streams_and_events(folder: Path) -> None:
    text = """
import pytest
a, b = tn.Stream("sim"), tn.Stream("sim", priority=-1)
assert a != b and a == a and a.device == tn.device("sim:0")
default = tn.current_stream("sim")
assert default.stream_id == 0 and default != a
start, end = tn.Event("sim", enable_timing=True), tn.Event("sim", enable_timing=True)
x = tn.arange(64.0, device="sim").reshape(8, 8)
a.wait_stream(default)
with tn.stream(a):
    assert tn.current_stream("sim") == a
    start.record()
    y = x @ x
    with b:
        assert tn.current_stream("sim") == b
    assert tn.current_stream("sim") == a
    end.record()
assert tn.current_stream("sim") == default
b.wait_event(end)
with b:
    z = (y + 1).cpu()
assert end.query() and start.elapsed_time(end) >= 0
plain = x.cpu()
assert tn.equal(z, plain @ plain + 1)
a.synchronize()
assert a.query() and b.query() and default.query()
with pytest.raises(RuntimeError, match="made without timing"):
    start.elapsed_time(a.record_event())
with pytest.raises(RuntimeError, match="belongs to sim:0, not to|different devices"):
    tn.Event("sim:1").record(a)
"""
    script(folder, text, LEVEL=3, DELAY=300)


def test_a_queue_waits_for_a_queue_of_another_device(folder: Path) -> None:
    text = """
x = tn.full((64, 64), 0.5, device="sim:0")
for _ in range(20):
    a, b = tn.Stream("sim:0"), tn.Stream("sim:1")
    a.wait_stream(tn.current_stream("sim:0"))
    with a:
        y = (x @ x) @ x
        done = a.record_event()
    b.wait_event(done)
    with b:
        z = tn.zeros(2, device="sim:1") + 1
    b.synchronize()
    assert done.query()
    assert z.tolist() == [1.0, 1.0]
    assert tn.equal(y.cpu(), tn.full((64, 64), 512.0))
"""
    script(folder, text, LEVEL=3, DELAY=500)


def test_memory_is_reused_only_after_queued_work(folder: Path) -> None:
    """The product on a slow queue reads an operand that was dropped long before it runs."""
    text = """
slow = tn.Stream("sim")
for i in range(30):
    x = tn.full((32, 32), float(i), device="sim")
    tn.sim.synchronize()
    with slow:
        y = x @ x
    del x
    junk = [tn.full((32, 32), -1.0, device="sim") for _ in range(4)]
    slow.synchronize()
    assert tn.equal(y.cpu(), tn.full((32, 32), 32.0 * i * i)), i
"""
    script(folder, text, LEVEL=3, DELAY=2000)


@pytest.mark.parametrize("level", [2, 3])
def test_copies_between_devices(folder: Path, level: int) -> None:
    """Neither the source nor the destination is waited for, and still all happens in order."""
    text = """
for i in range(20):
    x = tn.full((64, 64), float(i), device="sim:0")
    y = (x @ x).to("sim:1")
    x.fill_(-1)
    z = (y + 1).to("sim:0")
    y.zero_()
    assert tn.equal(z.cpu(), tn.full((64, 64), 64.0 * i * i + 1)), i
    assert y.sum().item() == 0
assert launches("copy_peer") == (40 if level == 3 else 0)
"""
    script(folder, COUNTS + f"level = {level}\n" + text, LEVEL=level, DELAY=1000)


def test_a_device_without_streams_has_one_queue(folder: Path) -> None:
    text = """
s, e = tn.Stream("sim"), tn.Event("sim")
with tn.stream(s):
    x = tn.ones(3, device="sim") * 2
    e.record()
s.wait_event(e)
e.synchronize()
assert s.query() and e.query() and s.stream_id == 0 and x.tolist() == [2.0] * 3
"""
    script(folder, text, LEVEL=1)


# ---- The device as a module ----------------------------------------------------------------------


def test_module_of_the_device(folder: Path) -> None:
    text = """
import pytest
assert tn.sim.is_available() and tn.sim.device_count() == 3
assert tn.get_device_module("sim:1") is tn.sim
assert "simulated device" in tn.sim.get_device_name(1)
x = tn.zeros(1000, device="sim:1")
stats = tn.sim.memory_stats("sim:1")
assert stats["allocated"] == tn.sim.memory_allocated(1) == 4000
assert stats["allocations"] - stats["frees"] == 1
big = tn.zeros(5000, device="sim:1")
del big
tn.sim.synchronize(1)
assert tn.sim.memory_allocated(1) == 4000 and tn.sim.max_memory_allocated(1) == 24000
tn.sim.reset_peak_memory_stats(1)
assert tn.sim.max_memory_allocated(1) == 4000 and tn.sim.memory_allocated() == 0
assert tn.sim.memory_reserved(1) > 0
del x
tn.sim.synchronize(1)
tn.sim.empty_cache()
assert tn.sim.memory_reserved(1) == 0
x = tn.ones(3, device="sim").exp().digamma()
assert tn.sim.fallback_count("digamma") == (0, 1) and tn.sim.fallback_count("exp") == (0, 0)
with pytest.raises(ValueError, match="expected a device of the kind 'sim'"):
    tn.sim.synchronize("cpu")
with pytest.raises(RuntimeError, match="no index 3"):
    tn.sim.memory_stats(3)
assert not hasattr(tn, "nosuchdevice")
"""
    script(folder, text, LEVEL=1, COUNT=3)


# ---- Retiring and loading ------------------------------------------------------------------------


def test_tensors_of_a_retired_device(folder: Path) -> None:
    text = """
import pytest
x = tn.arange(6.0, device="sim").reshape(2, 3) + 1
plain = x.cpu()
tn.retire_plugin("sim")
assert tn.equal(x.cpu(), plain) and tn.equal(x.t().cpu(), plain.t())
assert repr(x).endswith("device='sim:0')")
for use in (lambda: x + 1, lambda: x.add_(1), lambda: tn.ones(2, device="sim"),
            lambda: plain.to("sim"), lambda: tn.device("sim"), lambda: x.sum()):
    with pytest.raises(RuntimeError, match="'sim' was retired .* loading the plugin again"):
        use()
with pytest.raises(ImportError, match="no active plugin is called 'sim'"):
    tn.retire_plugin("sim")
tn.load_plugin(library)
assert tn.equal((x + 1).cpu(), plain + 1)
assert any(p["name"] == "sim" and p["active"] for p in tn.plugins())
"""
    script(folder, f"library = '{folder}/tenon_sim.so'\n" + text, LEVEL=1)


def test_retired_and_loaded_a_thousand_times(folder: Path) -> None:
    """Neither memory nor mappings nor files grow, whether tensors outlive a round or not."""
    text = """
import os
def measure():
    with open("/proc/self/statm") as f:
        pages = int(f.read().split()[1])
    with open("/proc/self/maps") as f:
        return pages, len(f.readlines()), len(os.listdir("/proc/self/fd"))
kept = tn.ones(3, device="sim:1")
late = None
for i in range(1000):
    y = tn.arange(6.0, device="sim").reshape(2, 3) @ tn.ones(3, 2, device="sim")
    late = y if i % 3 == 0 else None
    if i % 5:
        assert y.sum().item() == 30
    del y
    tn.retire_plugin("sim")
    tn.load_plugin(library)
    if i == 399:  # the allocator has settled
        before = measure()
after = measure()
assert after[0] - before[0] < 128, (before, after)  # pages: less than 1 KB a round
assert after[1] <= before[1] + 8 and after[2] <= before[2], (before, after)
assert kept.tolist() == [1.0] * 3
"""
    script(folder, f"library = '{folder}/tenon_sim.so'\n" + text, LEVEL=1, DELAY=0)


def test_loading_while_threads_compute(folder: Path) -> None:
    """On the CPU nothing is noticed; on the device a call works or says that it is retired."""
    text = """
import threading
stop, wrong, worked = threading.Event(), [], [0] * 8
def compute(index, device):
    while not stop.is_set():
        try:
            x = tn.full((8, 8), 2.0, device=device)
            got = (x @ x + x).exp().log().sum().item()
        except RuntimeError as err:
            if "was retired" not in str(err) or device == "cpu":
                wrong.append(str(err))
        else:
            worked[index] += 1
            if abs(got - 64 * 34) > 0.1:
                wrong.append(got)
threads = [threading.Thread(target=compute, args=(i, "cpu" if i % 2 else "sim")) for i in range(8)]
tn.ones(1, device="sim")
for t in threads:
    t.start()
for _ in range(100):
    tn.retire_plugin("sim")
    tn.load_plugin(library)
stop.set()
for t in threads:
    t.join()
assert not wrong, wrong[:3]
assert all(worked), worked
"""
    script(folder, f"library = '{folder}/tenon_sim.so'\n" + text, LEVEL=1, DELAY=0)


# ---- Failures ------------------------------------------------------------------------------------


def test_a_lost_device_stays_lost(folder: Path) -> None:
    text = """
x = tn.ones(3, device="sim")
y = tn.ones(3, device="sim:1")
for use in (x.cpu, x.cpu, x.clone, lambda: tn.ones(2, device="sim")):
    try:
        use()
    except RuntimeError as err:
        assert "sim:0 was lost" in str(err), err
    else:
        raise AssertionError("a lost device worked")
assert y.tolist() == [1.0] * 3
import os
del os.environ["TENON_SIM_FAULT"]
tn.retire_plugin("sim")
tn.load_plugin(library)
assert tn.ones(2, device="sim").tolist() == [1.0] * 2  # loading the plugin again is a reset
"""
    script(folder, f"library = '{folder}/tenon_sim.so'\n" + text, FAULT="lost:1")


def test_a_failing_kernel_is_named_when_somebody_waits(folder: Path) -> None:
    text = """
x = tn.ones(3, device="sim")
for _ in range(4):
    x = (x * 2).exp()  # the third product fails; nothing is said yet
x = x + 1
try:
    x.cpu()
except RuntimeError as err:
    assert str(err).startswith("sim:0: 'mul' failed"), err
else:
    raise AssertionError("the failure was lost")
assert tn.ones(2, device="sim").tolist() == [1.0, 1.0]  # it was reported once
"""
    script(folder, text, FAULT="kernel:mul:3")


def test_a_bad_index_is_a_late_failure(folder: Path) -> None:
    text = """
x = tn.ones(3, device="sim")
y = x.index_select(0, tn.tensor([5], device="sim"))
try:
    y.cpu()
except RuntimeError as err:
    assert "'index_select': index 5 is out of range for size 3" in str(err), err
else:
    raise AssertionError("the index was taken")
"""
    script(folder, text)


def test_a_kernel_that_writes_too_far_is_named(folder: Path) -> None:
    text = """
x = tn.ones(6, device="sim:1")
y = x + 1
try:
    y.cpu()
except RuntimeError as err:
    assert "sim:1: 'add' is wrong: a block of 24 bytes was written past its end" in str(err), err
else:
    raise AssertionError("the overrun was not seen")
assert y.tolist() == [2.0] * 6
"""
    script(folder, text, cache=0, FAULT="overrun:add:1")


@pytest.mark.parametrize("fault", ["kernel", "kernel:x", "disk:1", "kernel:mul:0", "oom:-1"])
def test_a_switch_that_makes_no_sense(folder: Path, fault: str) -> None:
    done = run(folder, "-c", "import tenon as tn; tn.ones(1, device='sim')", FAULT=fault)
    assert f"TENON_SIM_FAULT is '{fault}' and must be" in done.stderr
