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
    sizes = [(*shape, 5), (count, shape[1], near.proj_size or hidden)]
    if kind is tn.nn.LSTM:
        sizes.append((count, shape[1], hidden))
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


def test_networks() -> None:
    harness.script(
        CHECK
        + """
for kind in (tn.nn.LSTM, tn.nn.GRU, tn.nn.RNN):
    check(kind)
    check(kind, num_layers=2, bidirectional=True)
    check(kind, lengths=[2, 4, 3], bidirectional=True)
    check(kind, shape=(2, 0))
check(tn.nn.LSTM, proj_size=3, num_layers=2, lengths=[4, 1, 1])
check(tn.nn.RNN, nonlinearity="relu", bias=False)
""",
        TENON_FALLBACK="error",
    )


def test_types_and_sizes() -> None:
    """Rows that do not fill a block, and more than one block."""
    harness.script(
        CHECK
        + """
for kind in (tn.nn.LSTM, tn.nn.GRU):
    for dtype, tol in ((tn.float32, 1e-5), (tn.float16, 2e-2), (tn.bfloat16, 1e-1)):
        check(kind, dtype, tol, shape=(2, 5), hidden=67)
""",
        TENON_FALLBACK="error",
    )


def test_second_derivatives() -> None:
    harness.script(
        """
for kind in (tn.nn.LSTM, tn.nn.GRU):
    module = kind(2, 2, dtype=tn.float64).to("cuda")
    x = tn.randn(3, 2, 2, dtype=tn.float64, device="cuda", requires_grad=True)
    assert tn.autograd.gradgradcheck(lambda x: module(x)[0].sum(), (x,))
""",
        TENON_FALLBACK="error",
    )


def test_kernels_of_a_step() -> None:
    """A step is one product and one kernel; backward, two products, one kernel, and the sums of
    gradients that meet."""
    found = harness.script(
        """
def count(steps):
    module = tn.nn.LSTM(5, 7).to("cuda")
    x = tn.randn(steps, 3, 5, device="cuda")
    y = None
    out = []
    for call in (lambda: module(x)[0], lambda: y.backward(tn.ones_like(y))):
        before = dict(tn.cuda.counters())
        y = call()
        after = tn.cuda.counters()
        out += [after[k] - before[k] for k in ("launches", "library_calls", "waits")]
    return out
count(4)
print(*[b - a for a, b in zip(count(4), count(14))])
""",
        TENON_FALLBACK="error",
    )
    launches, products, waits, back, back_products, back_waits = map(int, found.split())
    assert (launches, products) == (10, 10)
    assert (back, back_products) == (30, 20)
    assert (waits, back_waits) == (0, 0)
