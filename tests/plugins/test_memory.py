"""Memory of devices: core's cache above alloc and free, blocks that several streams use,
statistics, and what happens when memory runs out. The device is plugins/sim, which fills freed
memory and looks at it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


# ---- The cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [0, 1])
def test_freed_memory_is_taken_again(folder: Path, cache: int) -> None:
    """With the cache the device is asked once for each size, without it every time."""
    text = """
for size in (10, 1000, 70000):
    x = tn.zeros(size, device="sim")
    address = x.data_ptr()
    del x
    for _ in range(20):
        x = tn.zeros(size, device="sim")
        assert x.data_ptr() == address or not cache
        del x
stats = tn.sim.memory_stats()
assert (stats["allocations"], stats["frees"]) == (63, 63), stats
tn.sim.synchronize()
assert tn.sim.memory_allocated() == 0
"""
    script(folder, f"cache = {cache}\n" + text, cache=cache, LEVEL=1)


def test_statistics(folder: Path) -> None:
    text = """
import pytest
x = tn.zeros(1000, device="sim")
y = tn.zeros(500, device="sim")
assert tn.sim.memory_allocated() == 6000
del y
assert tn.sim.memory_allocated() == 4000 and tn.sim.max_memory_allocated() == 6000
tn.sim.reset_peak_memory_stats()
assert tn.sim.max_memory_allocated() == 4000
free, total = tn.sim.mem_get_info()
assert total == 1 << 20 and free <= total - 6000
tn.sim.empty_cache()
tn.sim.synchronize()
free, total = tn.sim.mem_get_info()
assert total - 4500 < free <= total - 4000
text = tn.sim.memory_summary()
assert "sim:0" in text and "4,000" in text and "2 allocations, 1 frees" in text, text
assert tn.sim.memory_allocated("sim:1") == 0
with pytest.raises(RuntimeError, match="no index 2"):
    tn.sim.mem_get_info(2)
"""
    script(folder, text, LEVEL=1, MEMORY=1 << 20)


def test_a_block_is_used_in_any_order_of_sizes(folder: Path) -> None:
    """Sizes around those that blocks are rounded to: what is asked for is there, and no more."""
    text = """
kept = []
for size in (1, 127, 128, 129, 143, 144, 145, 255, 256, 257, 4095, 4096, 4097, 65535, 65537):
    for value in (1.0, 2.0):
        x = tn.full((size,), value, device="sim")
        assert x.sum().item() == size * value
        kept.append((x, size * value)) if value == 1 else None
assert all(x.sum().item() == want for x, want in kept)
"""
    script(folder, text, LEVEL=1)


# ---- Streams -------------------------------------------------------------------------------------

USES = """
slow = tn.Stream("sim")
for i in range(40):
    if {made_on_slow}:
        with slow:
            x = tn.full((32, 32), float(i), device="sim")
        tn.current_stream("sim").wait_stream(slow)
        y = {use}
        done = tn.current_stream("sim").record_event()
        del x
        with slow:
            junk = [tn.full((32, 32), -1.0, device="sim") for _ in range(4)]
    else:
        x = tn.full((32, 32), float(i), device="sim")
        slow.wait_stream(tn.current_stream("sim"))
        with slow:
            y = {use}
        done = slow.record_event()
        del x
        junk = [tn.full((32, 32), -1.0, device="sim") for _ in range(4)]
    done.synchronize()
    assert tn.equal(y.cpu(), tn.full((32, 32), {want})), i
    del junk
"""


@pytest.mark.parametrize("made_on_slow", [False, True])
@pytest.mark.parametrize(
    ("use", "want"),
    [
        ("x @ x", "32.0 * i * i"),
        ("tn.cat([x, x])[:32]", "float(i)"),
        ("x.to('sim:1').to('sim:0')", "float(i)"),
    ],
)
@pytest.mark.parametrize("without", ["", "allocator"])
def test_memory_that_another_stream_uses(
    folder: Path, use: str, want: str, made_on_slow: bool, without: str
) -> None:
    """A tensor is dropped while work on another stream still has to read it; new tensors on the
    first stream must not get its memory before."""
    text = USES.format(use=use, want=want, made_on_slow=made_on_slow)
    script(folder, text, LEVEL=3, DELAY=1500, WITHOUT=without)


@pytest.mark.parametrize("without", ["", "allocator"])
def test_streams_that_end(folder: Path, without: str) -> None:
    """Memory of a stream that is gone serves others, and nothing piles up."""
    text = """
for i in range(200):
    stream = tn.Stream("sim")
    with stream:
        x = tn.full((1000,), float(i), device="sim")
    y = tn.full((1000,), 1.0, device="sim")
    stream.wait_stream(tn.current_stream("sim"))
    with stream:
        z = x + y
    del stream, y
    tn.sim.synchronize()
    assert z.sum().item() == 1000 * (i + 1)
    del x, z
assert tn.sim.memory_allocated() == 0
free, total = tn.sim.mem_get_info()
assert total - free < 40 * 4096, total - free
"""
    script(folder, text, LEVEL=3, WITHOUT=without)


def test_record_stream(folder: Path) -> None:
    text = """
import pytest
x = tn.ones(10, device="sim")
s = tn.Stream("sim")
assert x.record_stream(s) is None
with pytest.raises(RuntimeError, match="stream belongs to sim:1, the tensor to sim:0"):
    x.record_stream(tn.Stream("sim:1"))
with pytest.raises(TypeError, match="record_stream.*Stream"):
    x.record_stream(3)
with pytest.raises(RuntimeError, match="stream belongs to sim:0, the tensor to cpu:0"):
    tn.ones(2).record_stream(s)
del x
tn.sim.synchronize()
"""
    script(folder, text, LEVEL=3)


@pytest.mark.slow
def test_threads_with_streams_of_their_own(folder: Path) -> None:
    text = """
import threading
shared = tn.arange(64.0, device="sim").reshape(8, 8)
tn.sim.synchronize()
wrong = []
def work(seed):
    stream = tn.Stream("sim") if seed % 2 else tn.current_stream("sim")
    with stream:
        for i in range(150):
            x = tn.full((8, 8), float(seed + i), device="sim")
            y = (x + shared).sum()
            del x
            if y.item() != 64 * (seed + i) + 2016:
                wrong.append((seed, i))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not wrong, wrong[:5]
"""
    script(folder, text, LEVEL=3, WITHOUT="allocator", DELAY=50)


# ---- Out of memory -------------------------------------------------------------------------------


def test_what_is_kept_is_given_back_before_memory_runs_out(folder: Path) -> None:
    text = """
small = [tn.zeros(2500, device="sim") for _ in range(20)]
del small
big = tn.zeros(60000, device="sim")
try:
    tn.zeros(30000, device="sim")
except MemoryError as err:
    said = str(err)
else:
    raise AssertionError("there was memory")
assert "sim:0 is out of memory: tried to allocate 120000 bytes; tensors use 240000" in said, said
assert " of 300000 that there are" in said, said
assert tn.sim.memory_allocated() == 240000
del big
assert tn.zeros(60000, device="sim").sum().item() == 0
"""
    script(folder, text, LEVEL=1, MEMORY=300000)


@pytest.mark.parametrize(("cache", "fails"), [(1, False), (0, True)])
def test_one_allocation_fails(folder: Path, cache: int, fails: bool) -> None:
    """With the cache another attempt is made, of the exact size."""
    text = """
x = tn.ones(3, device="sim")
try:
    y = x.clone()
except MemoryError:
    assert fails
else:
    assert not fails and y.tolist() == [1.0] * 3
assert x.clone().tolist() == [1.0] * 3
"""
    script(folder, f"fails = {fails}\n" + text, cache=cache, FAULT="oom:2", WITHOUT="allocator")


def test_a_lost_device_lets_go_of_memory(folder: Path) -> None:
    """Streams of a lost device take no marks: blocks go straight back, and errors stay clear."""
    text = """
import pytest
x = tn.ones(3, device="sim")
tn.sim.synchronize()  # the sum is the second thing that happens, also on another stream
s = tn.Stream("sim")
with s:
    y = x + 1
    with pytest.raises(RuntimeError, match="sim:0 was lost"):
        y.cpu()
del x, y
with pytest.raises(RuntimeError, match="sim:0 was lost"):
    tn.ones(3, device="sim")
del s
assert tn.ones(3, device="sim:1").tolist() == [1.0] * 3
"""
    script(folder, text, LEVEL=3, FAULT="lost:2", WITHOUT="allocator")


@pytest.mark.parametrize("without", ["", "allocator"])
def test_retired_devices_keep_no_memory(folder: Path, without: str) -> None:
    text = """
x = tn.ones(1000, device="sim")
y = x + 1
del y
tn.retire_plugin("sim")
assert x.cpu().sum().item() == 1000
del x
tn.load_plugin(library)
assert tn.sim.memory_allocated() == 0
tn.sim.synchronize()
free, total = tn.sim.mem_get_info()
assert free == total
x = tn.ones(1000, device="sim")
del x
assert tn.ones(1000, device="sim").sum().item() == 1000
"""
    library = f"library = '{folder}/tenon_sim.so'\n"
    script(folder, library + text, LEVEL=3, WITHOUT=without)
