"""The CUDA plugin's runtime on the host harness: devices, streams, graphs, counters, spans."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import harness
import pytest
import tenon

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


# ---- Devices -------------------------------------------------------------------------------------


def test_the_current_device() -> None:
    """ "cuda" is the thread's own choice."""
    harness.script(
        """
import threading
import pytest
cu = tn.cuda
assert not cu.is_initialized() and cu.current_device() == 0
cu.set_device(1)
x = tn.ones(3, device="cuda")
assert cu.is_initialized() and x.device == tn.device("cuda:1")
assert tn.ones(2).cuda().device.index == 1
assert cu.current_stream().device.index == 1 and tn.Stream("cuda").device.index == 1
seen = []
worker = threading.Thread(target=lambda: seen.append(cu.current_device()))
worker.start()
worker.join()
assert seen == [0]
with cu.device(0):
    assert tn.zeros(1, device="cuda").device.index == 0
    with cu.device_of(x):
        assert cu.current_device() == 1
    with cu.device(None), cu.device(-1):
        assert cu.current_device() == 0
    with cu.stream(cu.Stream("cuda:1")) as s:
        assert cu.current_device() == 1 and cu.current_stream() == s
    assert cu.current_device() == 0
assert cu.current_device() == 1
assert (x + 1).tolist() == [2.0] * 3  # where x is, not where "cuda" is
cu.set_device("cuda:0")
assert (x * 2).device.index == 1 and x.cuda().device.index == 0
for bad in (2, "cuda:7", tn.device("cuda", 2)):
    with pytest.raises(RuntimeError, match="no index"):
        cu.set_device(bad)
with pytest.raises(ValueError, match="kind 'cuda', got 'cpu'"):
    cu.set_device("cpu")
""",
        devices=2,
    )


def test_properties() -> None:
    harness.script(
        f"on_gpu = {harness.ON_GPU}\n"
        + """
cu = tn.cuda
last = cu.device_count() - 1
p = cu.get_device_properties(last)
assert (p.major, p.minor) == cu.get_device_capability(f"cuda:{last}") >= (5, 0)
assert p.name == cu.get_device_name(last) and ("harness" in p.name) is not on_gpu
assert p.total_memory == cu.mem_get_info(last)[1] >= 1 << 30
assert on_gpu or (p.major, p.total_memory) == (9, 1 << 30)
assert p.warp_size == 32 and p.multi_processor_count > 0
assert not cu.can_device_access_peer(last, last)
assert on_gpu or cu.can_device_access_peer(0, last)
assert cu.is_bf16_supported()
assert cu.is_bf16_supported(including_emulation=False) is (p.major >= 8)
assert cu.is_tf32_supported() or p.major < 8
""",
        devices=harness.most(),
    )


def test_seeds() -> None:
    harness.script(
        """
cu = tn.cuda
count = cu.device_count()
cu.manual_seed_all(7)
states = cu.get_rng_state_all()
assert len(states) == count and cu.initial_seed() == 7
a, b = (tn.rand(100, device=f"cuda:{i}").cpu() for i in (0, count - 1))
assert tn.equal(a, b) is (count > 1)
cu.set_rng_state_all(states)
assert tn.equal(tn.rand(100, device=f"cuda:{count - 1}").cpu(), a)
cu.set_rng_state(states[0])
assert tn.equal(tn.rand(100, device="cuda").cpu(), a)
cu.seed_all()
assert cu.initial_seed() != 7
""",
        devices=harness.most(),
    )


def test_streams_and_events() -> None:
    harness.script(
        """
import pytest
cu = tn.cuda
x = tn.zeros(1000, device="cuda")
side = cu.Stream(priority=-1)
start, end = cu.Event(enable_timing=True), cu.Event(enable_timing=True)
for i in range(20):
    x += 1
    start.record()
    side.wait_event(start)
    with cu.stream(side):
        y = x * 2
        end.record()
    cu.current_stream().wait_event(end)
    x += y - y
    y.record_stream(cu.current_stream())
end.synchronize()
assert end.query() and start.elapsed_time(end) >= 0 and x.sum().item() == 20000
assert isinstance(cu.current_stream(), cu.Stream) and cu.current_stream() == cu.default_stream()
cu.set_stream(side)
assert cu.current_stream() == side and side.cuda_stream != 0
cu.set_stream(cu.default_stream())
with cu.device(cu.device_count() - 1):
    late = cu.Event()
late.record(side)  # it belongs where it is recorded first
late.synchronize()
with pytest.raises(RuntimeError, match="enable_timing"):
    late.elapsed_time(late)
""",
        devices=harness.most(),
        TENON_CUDA_HOST_DELAY="300",
    )


def test_products_of_many_threads_and_streams() -> None:
    """One library, two devices, a stream for each thread; the library's workspaces are apart, also
    those of graphs."""
    harness.script(
        """
import threading
wrong = []
count = tn.cuda.device_count()
ones = [tn.ones(64, 64, device=f"cuda:{i}") for i in range(count)]
[tn.cuda.synchronize(i) for i in range(count)]
def work(seed):
    with tn.cuda.stream(tn.cuda.Stream(seed % count)):
        for i in range(20):
            x = tn.full((64, 64), float(seed + i), device="cuda")
            y = (x @ ones[seed % count]).sum()
            del x
            if y.item() != 64.0 ** 3 * (seed + i):
                wrong.append((seed, i))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    y = (ones[0] @ ones[0]).sum()
[t.start() for t in threads]
for i in range(20):
    g.replay()
    assert y.item() == 64.0 ** 3
[t.join() for t in threads]
assert not wrong, wrong
""",
        devices=harness.most(),
        TENON_CUDA_HOST_DELAY="50",
    )


# ---- Counters ------------------------------------------------------------------------------------

DIGITS = """
from tenon import nn
tn.manual_seed(0)
x, y = tn.randn(64, 64).cuda(), tn.randint(0, 10, (64,)).cuda()
net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).cuda()
opt = tn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
def step():
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss
"""


def test_a_training_step_waits_for_nothing() -> None:
    """Launches of the digits' step: what its formulas need and no more; waits: none. The library of
    a GPU may leave some of what follows on a product to launches."""
    harness.script(
        DIGITS
        + f"most = {13 if harness.ON_GPU else 7}"
        + """
for _ in range(2):
    step()
tn.cuda.reset_counters()
for _ in range(10):
    loss = step()
counted = tn.cuda.counters()
assert counted["waits"] == counted["bytes_in"] == counted["bytes_out"] == 0, counted
assert counted["library_calls"] == 50, counted  # two products forward, three backward
assert counted["launches"] <= 10 * most, counted
loss.item()
counted = tn.cuda.counters()
assert counted["waits"] == 1 and counted["bytes_out"] == 4, counted
"""
    )


def test_counters_of_copies() -> None:
    harness.script("""
tn.cuda.reset_counters()
x = tn.ones(1000)
d = x.to("cuda")
assert tn.cuda.counters()["bytes_in"] == 4000
p = x.pin_memory()
waits = tn.cuda.counters()["waits"]
p.to("cuda", non_blocking=True)
assert tn.cuda.counters()["waits"] == waits and tn.cuda.counters()["bytes_in"] == 8000
d.cpu()
assert tn.cuda.counters()["bytes_out"] == 4000
""")


def test_counters_of_copies_between_devices() -> None:
    harness.script(
        """
d = tn.ones(1000, device="cuda")
tn.cuda.synchronize()
tn.cuda.reset_counters()
d.to("cuda:1").cpu()
assert tn.cuda.counters(0)["bytes_out"] == 4000 == tn.cuda.counters(1)["bytes_in"]
assert tn.cuda.counters(1)["bytes_out"] == 4000
""",
        devices=2,
    )


# ---- Graphs --------------------------------------------------------------------------------------


def test_a_replayed_step_is_the_step() -> None:
    """Bit for bit; one launch, and no kernel asked for by the host."""
    harness.script(
        DIGITS
        + """
import copy
other = copy.deepcopy(net)
batches = [tn.randn(64, 64) for _ in range(12)]
losses = []
for batch in batches:
    x.copy_(batch)
    losses.append(step().item())
want = [p.detach().cpu() for p in net.parameters()]
net, losses_again = other, []
opt = tn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for batch in batches[:2]:
    x.copy_(batch)
    losses_again.append(step().item())
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    assert tn.cuda.is_current_stream_capturing()
    loss = step()
tn.cuda.reset_counters()
for batch in batches[2:]:
    x.copy_(batch)
    g.replay()
    losses_again.append(loss.item())
counted = tn.cuda.counters()
assert counted["launches"] == counted["library_calls"] == 0, counted
assert counted["graph_launches"] == 10, counted
assert losses_again == losses, (losses, losses_again)
assert all(tn.equal(a, b.detach().cpu()) for a, b in zip(want, net.parameters()))
"""
    )


NETS = {
    "attention": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(20, 16), nn.Linear(16, 48)
        self.norm, self.drop, self.head = nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 20)
    def forward(self, x):
        h = self.embed(x)
        qkv = self.qkv(self.norm(h)).reshape(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        return self.head(h + self.drop(y.transpose(1, 2).reshape(2, 8, 16))).reshape(16, 20)
x, y = tn.randint(0, 20, (2, 8)).cuda(), tn.randint(0, 20, (16,)).cuda()
""",
    "convolution": """
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 20),
        )
x, y = tn.randn(3, 1, 12, 12).cuda(), tn.randint(0, 20, (3,)).cuda()
""",
}


@pytest.mark.parametrize("net", NETS)
def test_steps_of_larger_networks_are_captured(net: str) -> None:
    """Nothing in them waits, and the replays are the steps."""
    harness.script(
        "from tenon import nn\nF = nn.functional\n"
        + NETS[net]
        + """
def train(capture):
    tn.manual_seed(0)
    net = Net().cuda()
    opt = tn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    def step():
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss
    losses = [step().item() for _ in range(2)]
    tn.cuda.reset_counters()
    if not capture:
        made = [step() for _ in range(3)]
        assert tn.cuda.counters()["waits"] == 0, tn.cuda.counters()
        return losses + [loss.item() for loss in made]
    g = tn.cuda.CUDAGraph()
    with tn.cuda.graph(g):
        loss = step()
    for _ in range(3):
        g.replay()
        losses.append(loss.item())
    return losses
want, got = train(False), train(True)
assert max(abs(a - b) for a, b in zip(want, got)) < 1e-5 and want[-1] < want[0], (want, got)
"""
    )


def test_random_numbers_of_a_graph_are_drawn_anew() -> None:
    """Those that the same calls would have drawn outside, from all generators, on any stream."""
    harness.script(
        """
F = tn.nn.functional
x = tn.ones(5000, device="cuda")
own = tn.Generator(device="cuda")
out = [tn.empty(777, device="cuda") for _ in range(3)]
def work():
    out[0].uniform_()
    out[1].normal_(generator=own)
    out[2].bernoulli_(0.3)
    return F.dropout(x, 0.4), tn.randn(100, device="cuda"), tn.randint(0, 50, (99,), device="cuda")
def seed():
    tn.cuda.manual_seed(3)
    own.manual_seed(4)
work()
seed()
want = []
for _ in range(4):
    made = work()
    want.append([t.cpu() for t in (*made, *out)])
seed()
before = tn.cuda.get_rng_state()
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    made = work()
assert tn.equal(tn.cuda.get_rng_state(), before), "a capture draws nothing"
side = tn.cuda.Stream()
side.wait_stream(tn.cuda.current_stream())
for i in range(4):
    with tn.cuda.stream(side if i % 2 else None):
        g.replay()
        got = [t.clone() for t in (*made, *out)]
        tn.cuda.current_stream().synchronize()
    assert all(tn.equal(a.cpu(), b) for a, b in zip(got, want[i])), i
del own
g.replay()  # which keeps the generator
g.replay()
tn.cuda.synchronize()
assert not tn.equal(made[1].cpu(), want[3][1])
""",
        TENON_CUDA_HOST_DELAY="500",
    )


CAPTURE_ERRORS = """
import re
x = tn.ones(4, device="cuda")
cu = tn.cuda
def fails(text, piece):
    g = cu.CUDAGraph()
    try:
        with cu.graph(g):
            x.add_(1)
            piece()
    except RuntimeError as error:
        assert re.search(text, str(error)), (text, str(error))
    else:
        raise AssertionError(text)
    assert not cu.is_current_stream_capturing()
    cu.synchronize()
    assert x.tolist() == [1.0] * 4
    with cu.graph(g):
        y = x * 3
    g.replay()
    assert y.tolist() == [3.0] * 4
fails("reading a value", lambda: x.sum().item())
fails("waiting for a device", cu.synchronize)
fails("waiting for a copy", lambda: x.cpu())
fails("waiting for a stream", lambda: cu.current_stream().synchronize())
fails("already", lambda: cu.CUDAGraph().capture_begin())
fails("out of memory", lambda: tn.empty(1 << 40, device="cuda"))
g = cu.CUDAGraph()
try:
    g.capture_begin(stream=cu.default_stream())
except RuntimeError as error:
    assert "default stream" in str(error), error
else:
    raise AssertionError("the default stream was captured")
with cu.graph(g):  # the host's memory is kept for the copy
    y = x + tn.tensor([1.0, 2.0, 3.0, 4.0], device="cuda")
g.replay()
assert y.tolist() == [2.0, 3.0, 4.0, 5.0]
"""


def test_what_cannot_be_captured_leaves_a_usable_device() -> None:
    harness.script(CAPTURE_ERRORS)


def test_a_capture_uses_its_memory_again() -> None:
    """As much as the same work takes outside, apart from everybody else's, and it comes back."""
    harness.script("""
mib = 1 << 20
x = tn.ones(mib, device="cuda")
def work():
    y = x
    for _ in range(30):
        y = (y * 2).exp().log() / 2
    return y.sum() + 1
work()
before = tn.cuda.memory_allocated()
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    y = work()
assert tn.cuda.memory_allocated() - before <= 13 * mib
junk = [tn.full((mib,), -1.0, device="cuda") for _ in range(5)]
for i in range(2):
    x.fill_(float(i))
    g.replay()
    assert abs(y.item() - (i * mib + 1)) < 40, y
assert all(t.sum().item() == -mib for t in junk)
del junk, y, g
assert tn.cuda.memory_allocated() == before
tn.cuda.empty_cache()
assert tn.cuda.memory_reserved() <= 20 * mib
""")


BRANCHES = """
x = tn.ones(3000, device="cuda")
side = tn.cuda.Stream()
g = tn.cuda.CUDAGraph()

def work(x):
    # Two branches that allocate and free beside each other; one draws, and has a stream of its own.
    here, brief = tn.cuda.current_stream(), tn.cuda.Stream()
    a = x * 3
    side.wait_stream(here)
    brief.wait_stream(here)
    with tn.cuda.stream(side):
        b = a
        for _ in range(6):
            b = (b * 2).exp().log() / 2
    with tn.cuda.stream(brief):
        c = a + tn.rand(3000, device="cuda")
    for _ in range(6):
        a = (a + 1) * 2 / 2 - 1
    here.wait_stream(side)
    here.wait_stream(brief)
    return a + b, c

with tn.cuda.graph(g):
    sums, drawn = work(x)
tn.cuda.manual_seed(7)
wanted = []
for i in range(8):
    x.fill_(float(i))
    wanted.append([t.tolist() for t in work(x)])
tn.cuda.manual_seed(7)
for i in range(8):
    x.fill_(float(i))
    g.replay()
    assert [sums.tolist(), drawn.tolist()] == wanted[i], i
    assert abs(sums.sum().item() - 6 * i * 3000) < 1, i
"""


def test_branches_of_a_graph() -> None:
    """The harness runs them in another order at each launch."""
    harness.script(BRANCHES, TENON_CUDA_HOST_DELAY="300")


def test_a_branch_that_is_not_joined() -> None:
    harness.script("""
import pytest
x = tn.ones(4, device="cuda")
side = tn.cuda.Stream()
with pytest.raises(RuntimeError, match="wait_stream"):
    with tn.cuda.graph(tn.cuda.CUDAGraph()):
        side.wait_stream(tn.cuda.current_stream())
        with tn.cuda.stream(side):
            y = x * 2
with tn.cuda.stream(side):
    assert (x * 2).tolist() == [2.0] * 4  # the stream is as good as before
mark = tn.cuda.Event()
with pytest.raises(RuntimeError):
    with tn.cuda.graph(tn.cuda.CUDAGraph()):
        with tn.cuda.stream(side):
            mark.record()  # not of the capture
        mark.wait()
assert (x + 1).tolist() == [2.0] * 4
""")


def test_a_graph_that_ends_while_it_runs() -> None:
    harness.script(
        """
x = tn.ones(3000, device="cuda")
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    y = x.exp().log().sum()
for _ in range(3):
    g.replay()
z = y + 1
g.reset()
del g
junk = [tn.full((3000,), -1.0, device="cuda") for _ in range(5)]
assert abs(z.item() - 3001) < 0.1
""",
        TENON_CUDA_HOST_DELAY="3000",
    )


# ---- Spans ---------------------------------------------------------------------------------------

NVTX = """
#include <stdio.h>
#include <stdint.h>
static int depth;
int nvtxRangePushA(const char *name) { printf("push %s\\n", name); return depth++; }
int nvtxRangePop(void) { printf("pop\\n"); return --depth; }
void nvtxMarkA(const char *name) { printf("mark %s\\n", name); }
uint64_t nvtxRangeStartA(const char *name) { printf("start %s\\n", name); return 42; }
void nvtxRangeEnd(uint64_t id) { printf("end %d\\n", (int)id); fflush(stdout); }
"""

SPANS = """
nvtx = tn.cuda.nvtx
print("depth", nvtx.range_push("outer"), flush=True)
with nvtx.range("step {}", 3):
    nvtx.mark("here")
@nvtx.range("decorated")
def f():
    pass
f()
with tn.profiler.record_function("recorded"):
    tn.ones(2, device="cuda")
nvtx.range_pop()
nvtx.range_end(nvtx.range_start("free"))
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_spans_reach_nvtx(tmp_path: Path) -> None:
    (tmp_path / "nvtx.c").write_text(NVTX, encoding="utf-8")
    library = tmp_path / "libnvToolsExt.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "nvtx.c", "-o", library], check=True)
    said = harness.script(SPANS, TENON_CUDA_PATH=str(tmp_path))
    lines = [line for line in said.splitlines() if not line.startswith("depth")]
    want = ["push outer", "push step 3", "mark here", "pop", "push decorated", "pop"]
    assert lines == [*want, "push recorded", "pop", "pop", "start free", "end 42"]
    assert "depth 0" in said


def test_spans_without_nvtx_go_nowhere() -> None:
    harness.script(SPANS)


# ---- Older names, and those of any accelerator ---------------------------------------------------


def test_types_of_tensors() -> None:
    harness.script(
        """
import pytest
last = tn.cuda.device_count() - 1
x = tn.ones(2, device=f"cuda:{last}")
assert x.type() == "tenon.cuda.FloatTensor" and isinstance(x, tn.cuda.FloatTensor)
assert not isinstance(x, tn.FloatTensor) and not isinstance(x.cpu(), tn.cuda.FloatTensor)
assert x.type("torch.cuda.LongTensor").device.index == last  # where it is, if that is one
assert x.type(tn.LongTensor).device.type == "cpu"
assert tn.cuda.LongTensor([1, 2]).device == tn.device("cuda:0")
assert tn.cuda.HalfTensor(3, device=x.device).device.index == x.new([1]).device.index == last
with pytest.raises(RuntimeError, match="kind 'cuda'"):
    tn.cuda.FloatTensor(3, device="cpu")
tn.set_default_tensor_type(tn.cuda.DoubleTensor)
made = tn.ones(1)
tn.set_default_tensor_type("torch.FloatTensor")
assert made.is_cuda and made.dtype is tn.float64 and not tn.ones(1).is_cuda
""",
        devices=harness.most(),
    )


def test_the_accelerator() -> None:
    harness.script(
        """
import pytest
acc = tn.accelerator
last = tn.cuda.device_count() - 1
assert acc.is_available() and acc.device_count() == last + 1
assert acc.current_accelerator() == tn.device("cuda")
assert acc.current_accelerator(True).index is None
with acc.device_index(last):
    assert acc.current_device_index() == tn.ones(1, device="cuda").device.index == last
    assert acc.current_stream().device.index == last
acc.set_device_index(f"cuda:{last}")
assert tn.cuda.current_device() == last
acc.set_device_index(0)
x = tn.ones(1 << 20, device="cuda")
assert acc.memory_allocated() >= x.nbytes <= acc.max_memory_allocated() <= acc.memory_reserved()
assert acc.memory_stats()["allocated_bytes.all.current"] >= x.nbytes
del x
acc.reset_peak_memory_stats()
assert acc.max_memory_allocated() < 1 << 20 and acc.max_memory_reserved() >= acc.memory_reserved()
acc.empty_cache()
free, total = acc.get_memory_info()
assert 0 < free <= total
s = tn.cuda.Stream()
acc.set_stream(s)
assert acc.current_stream() == s
acc.set_stream(tn.cuda.default_stream())
acc.synchronize()
acc.synchronize(f"cuda:{last}")
assert tn.float16 in acc.get_device_capability()["supported_dtypes"]
with pytest.raises(RuntimeError, match="no index"):
    acc.set_device_index(5)
tn.cuda.manual_seed_all(1)
expected = [tn.rand(2, device=d).tolist() for d in ("cuda:0", "cpu")]
tn.manual_seed(1)
drawn = tn.rand(2, device=f"cuda:{last}").tolist()
tn.manual_seed(1)
with tn.random.fork_rng():
    tn.rand(5, device=f"cuda:{last}")
assert tn.rand(2, device=f"cuda:{last}").tolist() == drawn == expected[0]
""",
        devices=harness.most(),
    )


def test_without_an_accelerator() -> None:
    acc = tenon.accelerator
    if tenon.cuda.is_available():
        pytest.skip("there is one")
    assert not acc.is_available() and acc.current_accelerator() is None
    assert acc.device_count() == 0
    for call in (acc.synchronize, acc.current_device_index, acc.memory_stats, acc.empty_cache):
        with pytest.raises(RuntimeError, match="none is available"):
            call()


def test_parts_for_a_profiler() -> None:
    harness.script("""
import ctypes
seen = (ctypes.c_uint * 2).in_dll(ctypes.CDLL("libcuda.so.1"), "cuda_host_recordings")
with tn.cuda.profiler.profile():
    assert list(seen) == [1, 0]
    tn.ones(1, device="cuda") + 1
assert list(seen) == [1, 1]
tn.cuda.profiler.start()
assert list(seen) == [2, 1]
""")


def test_which_kernels_attention_may_use() -> None:
    from tenon.backends import cuda
    from tenon.nn.attention import SDPBackend, sdpa_kernel

    before = cuda.cudnn_sdp_enabled()
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert cuda.math_sdp_enabled() and cuda.flash_sdp_enabled()
        assert not cuda.cudnn_sdp_enabled() and not cuda.mem_efficient_sdp_enabled()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            assert cuda.cudnn_sdp_enabled() and not cuda.math_sdp_enabled()
        assert cuda.math_sdp_enabled()
    assert cuda.cudnn_sdp_enabled() is before and cuda.mem_efficient_sdp_enabled()
    with pytest.raises(AssertionError, match="expected SDPBackend"), sdpa_kernel("math"):
        pass


def test_recurrent_networks_on_packed_sequences() -> None:
    harness.script("""
from tenon.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
tn.manual_seed(0)
net = tn.nn.GRU(3, 4)
x = tn.randn(5, 3, 3)
lengths = tn.tensor([2, 5, 3])

def run(net, x):
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, n = pad_packed_sequence(net(packed)[0])
    assert n.device.type == "cpu" and n.tolist() == [2, 5, 3]
    return y

near = run(net, x)
assert tn.allclose(run(net.to("cuda"), x.to("cuda")).cpu(), near, atol=1e-5)
""")
