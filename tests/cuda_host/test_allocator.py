"""The CUDA allocator on the host harness: blocks, streams, ranges that grow, running out."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")
WAYS = ["", "expandable_segments:True"]
MIB = 1 << 20


@pytest.mark.parametrize("way", WAYS)
def test_blocks_are_split_and_merged(way: str) -> None:
    """Many small tensors share a segment; what is freed serves a larger one."""
    alone = f"alone = {not harness.ON_GPU}\n"  # a GPU's memory is others' too, and its context's
    harness.script(
        alone
        + """
cu, mib = tn.cuda, 1 << 20
def held():
    return cu.memory_reserved()
small = [tn.full((1000,), float(i), device="cuda") for i in range(100)]
assert held() == 2 * mib and cu.memory_allocated() == 400000
assert all(x.sum().item() == 1000.0 * i for i, x in enumerate(small))
del small
assert cu.memory_allocated() == 0 and 400000 <= cu.max_memory_allocated() < 402000
x = tn.zeros(1000 * 128, device="cuda")  # as large as all of them
assert held() == 2 * mib
large = [tn.zeros(mib // 2, device="cuda") for _ in range(4)]
assert held() == 22 * mib
before = large[1].data_ptr()
large[1] = None
large[1] = tn.zeros(mib // 2, device="cuda")
assert large[1].data_ptr() == before
del x, large
cu.empty_cache()
assert held() == 0 and not any(s["total_size"] for s in cu.memory_snapshot())
left, total = cu.mem_get_info()
assert left == total if alone else 0 < left < total
cu.reset_peak_memory_stats()
assert cu.max_memory_allocated() == cu.max_memory_reserved() == 0
""",
        TENON_CUDA_ALLOC=way,
    )


@pytest.mark.parametrize("way", WAYS)
def test_random_sizes_never_overlap(way: str) -> None:
    """Every tensor keeps its values, and the snapshot adds up, whatever lives beside it."""
    harness.script(
        """
import random
random.seed(1)
live = []
def check_snapshot():
    total = allocated = 0
    for s in tn.cuda.memory_snapshot():
        end = s["address"]
        for b in s["blocks"]:
            assert b["address"] >= end
            end = b["address"] + b["size"]
            total += b["size"]
            allocated += b["requested_size"]
        assert s["total_size"] == sum(b["size"] for b in s["blocks"])
    assert total == tn.cuda.memory_reserved() and allocated == tn.cuda.memory_allocated()
for step in range(400):
    if live and random.random() < 0.5:
        x, value = live.pop(random.randrange(len(live)))
        assert x[0].item() == x[-1].item() == value
    else:
        size = random.choice((1, 100, 5000, 300000, 600000))
        live.append((tn.full((random.randint(1, size),), float(step), device="cuda"), step))
    if step % 100 == 50:
        check_snapshot()
        tn.cuda.empty_cache()
        check_snapshot()
assert all(x.sum().item() == value * x.numel() for x, value in live if x.numel() < 1000)
del x
live.clear()
tn.cuda.empty_cache()
assert tn.cuda.memory_reserved() == 0
""",
        TENON_CUDA_ALLOC=way,
    )


@pytest.mark.parametrize("variable", ["TENON_CUDA_ALLOC", "PYTORCH_CUDA_ALLOC_CONF"])
def test_ranges_grow_without_gaps(variable: str) -> None:
    """Tensors that grow step by step fit where pieces of fixed size would not."""
    text = """
mib = 1 << 20
x = tn.zeros(1, device="cuda")
for size in range(4, 100, 4):
    x = None
    x = tn.zeros(size * mib // 4, device="cuda")
print(tn.cuda.memory_reserved() // mib)
print({s["is_expandable"] for s in tn.cuda.memory_snapshot()})
"""
    options = "max_split_size_mb:128,expandable_segments:True"
    grown = harness.script(text, **{variable: options}).split("\n")
    pieces = harness.script(text).split("\n")
    assert grown[1] == "{True}" and pieces[1] == "{False}"
    assert int(grown[0]) <= 120 and int(pieces[0]) > 150


# ---- Streams -------------------------------------------------------------------------------------

USES = """
slow = tn.cuda.Stream()
for i in range(40):
    x = tn.full((32, 32), float(i), device="cuda")
    slow.wait_stream(tn.cuda.current_stream())
    with slow:
        {use}
    done = slow.record_event()
    {record}
    del x
    junk = [tn.full((32, 32), -1.0, device="cuda") for _ in range(4)]
    done.synchronize()
    assert tn.equal(y.cpu(), tn.full((32, 32), {want})), i
    del junk
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("use", "want"),
    [("y = x @ x", "32.0 * i * i"), ("y = tn.cat([x, x])[:32]", "float(i)")],
)
def test_memory_that_another_stream_uses(way: str, use: str, want: str) -> None:
    text = USES.format(use=use, want=want, record="x.record_stream(slow)")
    harness.script(text, TENON_CUDA_HOST_DELAY="1500", TENON_CUDA_ALLOC=way)


def test_streams_that_end() -> None:
    """Their pools go to the next streams, and nothing piles up."""
    harness.script("""
for i in range(100):
    stream = tn.cuda.Stream()
    with stream:
        x = tn.full((1000,), float(i), device="cuda")
    y = tn.full((1000,), 1.0, device="cuda")
    stream.wait_stream(tn.cuda.current_stream())
    with stream:
        z = x + y
    del stream, y
    tn.cuda.synchronize()
    assert z.sum().item() == 1000 * (i + 1)
    del x, z
assert tn.cuda.memory_allocated() == 0
assert tn.cuda.memory_reserved() <= 6 << 20, tn.cuda.memory_reserved()
tn.cuda.empty_cache()
assert tn.cuda.memory_reserved() == 0
""")


def test_threads_with_streams_of_their_own() -> None:
    harness.script(
        """
import threading
shared = tn.arange(64.0, device="cuda").reshape(8, 8)
tn.cuda.synchronize()
wrong = []
def work(seed):
    stream = tn.cuda.Stream() if seed % 2 else tn.cuda.current_stream()
    with stream:
        for i in range(60):
            x = tn.full((8, 8), float(seed + i), device="cuda")
            y = (x + shared).sum()
            del x
            if y.item() != 64 * (seed + i) + 2016:
                wrong.append((seed, i))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong, wrong[:5]
""",
        TENON_CUDA_HOST_DELAY="50",
    )


def test_pinned_memory_is_kept() -> None:
    """It serves the next of its size, once no copy uses it; empty_cache gives it back."""
    harness.script(
        """
x = tn.ones(3, device="cuda")
tn.cuda.synchronize()
seen = set()
for i in range(50):
    p = tn.full((5000,), float(i)).pin_memory()
    seen.add(p.data_ptr())
    d = p.to("cuda", non_blocking=True)
    del p
    assert d.sum().item() == 5000.0 * i
assert len(seen) <= 3, seen
tn.cuda.empty_cache()
q = tn.ones(1 << 20).pin_memory()
assert q.sum().item() == 1 << 20 and q.is_pinned()
""",
        TENON_CUDA_HOST_DELAY="500",
    )


# ---- Running out ---------------------------------------------------------------------------------

FULL = """
import pytest
mib = 1 << 20
def floats(n):
    return tn.empty(n * mib // 4, device="cuda")
kept = [floats(12) for _ in range(4)]
del kept
big = floats(50)  # what was kept is given back first
stats = tn.cuda.memory_stats()
assert stats["num_alloc_retries"] == (0 if growing else 1) and stats["num_ooms"] == 0, stats
with pytest.raises(tn.cuda.OutOfMemoryError) as caught:
    floats(20)
said = str(caught.value)
assert isinstance(caught.value, MemoryError) and isinstance(caught.value, RuntimeError)
for part in ("cuda:0 is out of memory: tried to allocate 20971520 bytes", "tensors use 52428800",
             "are reserved of 67108864", "are free"):
    assert part in said, (part, said)
assert tn.cuda.memory_stats()["num_ooms"] == 1
assert "1 failures" in tn.cuda.memory_summary()
del big
assert floats(40).zero_().sum().item() == 0
assert tn.ones(3, device="cuda:1").tolist() == [1.0] * 3
with pytest.raises(tn.OutOfMemoryError):
    tn.empty(1 << 58, device="cuda")
"""


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_is_given_back_before_memory_runs_out(way: str) -> None:
    text = f"growing = {bool(way)}\n" + FULL
    memory = str(64 * MIB)
    harness.script(text, devices=2, TENON_CUDA_HOST_MEMORY=memory, TENON_CUDA_ALLOC=way)


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_of_ones_own(way: str) -> None:
    harness.script(
        """
import pytest
tn.cuda.set_per_process_memory_fraction(0.5)
with pytest.raises(MemoryError, match="limits itself to 33554432 bytes"):
    tn.empty(10 << 20, device="cuda")
x = tn.zeros(3 << 20, device="cuda")
tn.cuda.set_per_process_memory_fraction(1.0)
y = tn.zeros(5 << 20, device="cuda")
with pytest.raises(ValueError, match="fraction must be from 0 to 1"):
    tn.cuda.set_per_process_memory_fraction(2.0)
""",
        TENON_CUDA_HOST_MEMORY=str(64 * MIB),
        TENON_CUDA_ALLOC=way,
    )


STEP = """
import os
from tenon import nn
net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
x = tn.randn(64, 256).cuda()
def step(x):
    net(x).square().mean().backward()
    got = [p.grad.cpu() for p in net.parameters()]
    net.zero_grad()
    return got
want = step(x)
tn.cuda.empty_cache()
used = tn.cuda.mem_get_info()[1] - tn.cuda.mem_get_info()[0]
"""


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_step_that_runs_out_can_be_made_again(where: str) -> None:
    """With more memory, and by then nothing of the first attempt is left."""
    harness.script(
        STEP
        + f"""
big = tn.randn(20000, 256).cuda() if {where == "forward"} else x
out = None if {where == "forward"} else net(big).square().mean()
tn.cuda.empty_cache()
free, total = tn.cuda.mem_get_info()
os.environ["TENON_CUDA_HOST_MEMORY"] = str(total - free)  # not a byte more
try:
    hog = []
    while True:
        hog.append(tn.empty(1 << 17, device="cuda"))
except MemoryError:
    pass
failed = False
try:
    (net(big) if out is None else out.backward())
except tn.cuda.OutOfMemoryError as err:
    failed = True
    assert "cuda:0 is out of memory: tried to allocate" in str(err), err
assert failed
del hog, out, big
net.zero_grad()
os.environ["TENON_CUDA_HOST_MEMORY"] = str(1 << 30)
assert all(tn.equal(a, b) for a, b in zip(step(x), want))
"""
    )
