"""Recurrent networks on the host harness: values and gradients are those of the CPU, whose tests
compare them with PyTorch; how many kernels a step takes."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

CHECK = """
import copy
tools = tn.nn.utils.rnn
tn.manual_seed(0)

def run(module, given, lengths):
    x, *states = given
    if lengths:
        x = tools.pack_padded_sequence(x, tn.tensor(lengths), enforce_sorted=False)
    y, last = module(x, tuple(states) if len(states) == 2 else states[0])
    return [y.data if lengths else y, *(last if isinstance(last, tuple) else (last,))]

def check(kind, dtype=tn.float64, tol=1e-12, lengths=None, shape=(4, 3), hidden=7, **options):
    near = kind(5, hidden, dtype=dtype, **options)
    far = copy.deepcopy(near).to("cuda")
    count = near.num_layers * (2 if near.bidirectional else 1)
    batch = shape[0 if near.batch_first else 1]
    sizes = [(*shape, 5), (count, batch, near.proj_size or hidden)]
    if kind is tn.nn.LSTM:
        sizes.append((count, batch, hidden))
    values = [tn.randn(*s, dtype=tn.float64).to(dtype) for s in sizes]
    found = []
    for module, device in ((near, "cpu"), (far, "cuda")):
        given = [v.detach().to(device).requires_grad_() for v in values]
        outs = run(module, given, lengths)
        sum((o * o).sum() for o in outs).backward()
        tensors = [*outs, *[t.grad for t in (*given, *module.parameters())]]
        found.append([t.detach().cpu().double() for t in tensors])
    for a, b in zip(*found):
        scale = float(a.abs().max()) if a.numel() else 1.0
        assert tn.allclose(a, b, rtol=0, atol=tol * max(scale, 1.0)), (kind, options)
"""


LOOP = {"TENON_CUDNN": "0", "TENON_FALLBACK": "error"}


@pytest.mark.parametrize("cudnn", ["0", "1"])
def test_networks(cudnn: str) -> None:
    harness.script(
        CHECK
        + """
for kind in (tn.nn.LSTM, tn.nn.GRU, tn.nn.RNN):
    check(kind)
    check(kind, num_layers=2, bidirectional=True)
    check(kind, lengths=[2, 4, 3], bidirectional=True)
    check(kind, shape=(2, 0))
    check(kind, bias=False, batch_first=True, shape=(3, 4))
check(tn.nn.LSTM, proj_size=3, num_layers=2, lengths=[4, 1, 1])
check(tn.nn.LSTM, proj_size=3, num_layers=2, bidirectional=True)
check(tn.nn.RNN, nonlinearity="relu", bias=False)
""",
        TENON_CUDNN=cudnn,
        TENON_FALLBACK="error",
    )


@pytest.mark.parametrize("cudnn", ["0", "1"])
def test_types_and_sizes(cudnn: str) -> None:
    """Rows that do not fill a block, and more than one block."""
    harness.script(
        CHECK
        + """
for kind in (tn.nn.LSTM, tn.nn.GRU):
    for dtype, tol in ((tn.float32, 1e-5), (tn.float16, 2e-2), (tn.bfloat16, 1e-1)):
        check(kind, dtype, tol, shape=(2, 5), hidden=67)
""",
        TENON_CUDNN=cudnn,
        TENON_FALLBACK="error",
    )


def test_second_derivatives() -> None:
    harness.script(
        """
for kind in (tn.nn.LSTM, tn.nn.GRU):
    module = kind(2, 2, dtype=tn.float64).to("cuda")
    x = tn.randn(3, 2, 2, dtype=tn.float64, device="cuda", requires_grad=True)
    with tn.backends.cudnn.flags(enabled=False):
        assert tn.autograd.gradgradcheck(lambda x: module(x)[0].sum(), (x,))
    g, = tn.autograd.grad(module(x)[0].sum(), [x], create_graph=True)
    try:
        g.sum().backward()
    except RuntimeError as err:
        assert "cudnn.flags(enabled=False)" in str(err), err
    else:
        raise AssertionError("a second derivative through cuDNN")
""",
        TENON_FALLBACK="error",
    )


COUNT = """
def count(module, shape, grad=True):
    x = tn.randn(*shape, device="cuda")
    y = None
    out = []
    for call in (lambda: module(x)[0], lambda: y.backward(tn.ones_like(y)))[:1 + grad]:
        before = dict(tn.cuda.counters())
        y = call()
        after = tn.cuda.counters()
        out += [after[k] - before[k] for k in ("launches", "library_calls", "waits")]
    return out

lstm = tn.nn.LSTM(5, 7).to("cuda")
"""


def test_kernels_of_a_step() -> None:
    """A step is one product and one kernel; backward, two products, one kernel, and the sums of
    gradients that meet."""
    found = harness.script(
        COUNT
        + """
count(lstm, (4, 3, 5))
print(*[b - a for a, b in zip(count(lstm, (4, 3, 5)), count(lstm, (14, 3, 5)))])
""",
        **LOOP,
    )
    launches, products, waits, back, back_products, back_waits = map(int, found.split())
    assert (launches, products) == (10, 10)
    assert (back, back_products) == (30, 20)
    assert (waits, back_waits) == (0, 0)


def test_one_call_for_all_steps() -> None:
    """cuDNN computes all layers at once; what cannot be, or must not be, is the loop's."""
    harness.script(
        COUNT
        + """
count(lstm, (4, 3, 5))
short, long = count(lstm, (4, 3, 5)), count(lstm, (14, 3, 5))
assert short == long and short[1::3] == [1, 2] and short[2::3] == [0, 0], (short, long)
with tn.no_grad():
    assert count(lstm, (9, 3, 5), grad=False)[1] == 1
deep = tn.nn.GRU(5, 7, num_layers=3, dropout=0.5, bidirectional=True).to("cuda")
assert count(deep, (9, 3, 5))[1::3] == [3, 6]  # layer by layer, with dropout between them
assert count(deep.eval(), (9, 3, 5))[1::3] == [1, 2]
for flags in ({"enabled": False}, {"deterministic": True}):
    with tn.backends.cudnn.flags(**flags):
        assert count(lstm, (9, 3, 5))[1] > 9, flags
tn.use_deterministic_algorithms(True)
assert count(lstm, (9, 3, 5))[1] > 9
""",
        TENON_FALLBACK="error",
    )


def test_what_cudnn_refuses_is_computed_anyhow() -> None:
    for how in ("unsupported", "old", "no-handle"):
        text = COUNT + "assert count(lstm, (9, 3, 5))[1] > 9"
        harness.script(text, TENON_CUDNN_HOST=how, TENON_FALLBACK="error")
    done = harness.run(
        "-c",
        "import tenon as tn\ntn.nn.GRU(2, 2).to('cuda')(tn.randn(3, 2, 2, device='cuda'))",
        TENON_CUDNN_HOST="broken",
    )
    assert "_rnn_layers: cuDNN returned error" in done.stderr


def test_passes_and_graphs() -> None:
    """Two backward passes over one forward pass, some weights without gradients, and a graph."""
    harness.script(
        COUNT
        + """
x = tn.randn(4, 3, 5, device="cuda", requires_grad=True)
y, (h, c) = lstm(x)
(h * 2).sum().backward(retain_graph=True)
first = lstm.weight_hh_l0.grad.clone(), x.grad.clone()
(h * 2).sum().backward()
assert tn.equal(lstm.weight_hh_l0.grad, first[0] * 2) and tn.equal(x.grad, first[1] * 2)

for p in lstm.parameters():
    p.grad = None
lstm.weight_ih_l0.requires_grad_(False)
lstm(x)[1][1].sum().backward()
assert lstm.weight_ih_l0.grad is None and lstm.bias_hh_l0.grad is not None

still = tn.randn(4, 3, 5, device="cuda")
graph = tn.cuda.CUDAGraph()
with tn.no_grad():
    lstm(still)
    with tn.cuda.graph(graph):
        out, _ = lstm(still)
    still.copy_(tn.ones(4, 3, 5))
    graph.replay()
    assert tn.allclose(out, lstm(still)[0])

with tn.autocast("cuda", tn.float16):
    assert lstm(still)[0].dtype == tn.float16
""",
        TENON_FALLBACK="error",
    )
