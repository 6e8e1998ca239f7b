"""Linear maps and their ends on CUDA: bias, relu and gelu, and their gradients, in the step that
multiplies (`backends/cuda/linear.c`)."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

ENDS = """
import ctypes
from tenon._C import _nn
F = tn.nn.functional
gelu = lambda x: F.gelu(x, approximate="tanh")
FUSED = {
    "relu": lambda x, w, b, v, c: F.linear(_nn._linear_relu(x, w, b), v, c),
    "gelu": lambda x, w, b, v, c: F.linear(_nn._linear_gelu(x, w, b, True)[0], v, c),
    "two": lambda x, w, b, v, c: _nn._linear_gelu_linear(x, w, b, v, c)[0],
}
PLAIN = {
    "relu": lambda x, w, b, v, c: F.linear(F.linear(x, w, b).relu(), v, c),
    "gelu": lambda x, w, b, v, c: F.linear(gelu(F.linear(x, w, b)), v, c),
}
PLAIN["two"] = PLAIN["gelu"]

def inputs(device, dtype, hidden=16, bias=True, lead=(3, 5)):
    tn.manual_seed(0)
    shapes = (*lead, 12), (hidden, 12), (hidden,), (7, hidden), (7,)
    made = [(tn.randn(*shape) / 2).to(dtype).to(device) for shape in shapes]
    return [t.requires_grad_() if bias or t.ndim > 1 else None for t in made]

def compare(name, dtype, **how):
    def run(fn, device, dtype):
        args = inputs(device, dtype, **how)
        y = fn[name](*args)
        g = tn.linspace(-1, 1, y.numel()).reshape(y.shape).to(device).to(dtype)
        return y, *tn.autograd.grad(y, [a for a in args if a is not None], g)
    tol = {tn.float16: 5e-3, tn.bfloat16: 4e-2}.get(dtype, 2e-6)
    for got, want in zip(run(FUSED, "cuda", dtype), run(PLAIN, "cpu", tn.float64)):
        got, want = got.detach().cpu().double(), want.detach()
        assert got.shape == want.shape
        assert ((got - want).abs() <= tol * (4 + want.abs())).all(), (name, dtype, how)

def products():
    ask = ctypes.CDLL("libcublasLt.so.13").cublasLtHostCount
    ask.restype = ctypes.c_long
    return ask(b"product")
"""


def test_values_and_gradients() -> None:
    """Against the CPU in float64; each linear map and each of its gradients is one product."""
    harness.script(
        ENDS
        + """
for dtype in (tn.float32, tn.float16, tn.bfloat16):
    for name in FUSED:
        compare(name, dtype)
        compare(name, dtype, bias=False)
        compare(name, dtype, lead=())
for op in ("_linear_relu", "_linear_gelu", "_linear_gelu_backward", "_linear_backward_weight"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


def test_what_the_library_does_not_serve_is_done_in_parts() -> None:
    """float64, rows that are no multiple of 8, no rows, strides and biases of other shapes."""
    harness.script(
        ENDS
        + """
for name in FUSED:
    compare(name, tn.float64)
    compare(name, tn.float16, hidden=13)
    compare(name, tn.float32, lead=(0,))
x, w, b, _, _ = (t.detach() for t in inputs("cuda", tn.float32, lead=(6,)))
want = F.linear(x, w, b).relu()
assert tn.allclose(_nn._linear_relu(x.t().contiguous().t(), w, b), want)
assert tn.allclose(_nn._linear_relu(x.repeat(1, 2)[:, ::2], w.flip(1), b),
                   F.linear(x.repeat(1, 2)[:, ::2], w.flip(1), b).relu())
assert tn.allclose(_nn._linear_relu(x, w, b[:1]), F.linear(x, w, b[:1]).relu())
assert tn.allclose(_nn._linear_relu(x[:, None].expand(6, 4, 12), w, b),
                   want[:, None].expand(6, 4, 16))
for g in (tn.randn(16, 6, device="cuda").t(), tn.ones(1, 16, device="cuda").expand(6, 16)):
    w.requires_grad_(), b.requires_grad_()
    gw, gb = tn.autograd.grad(F.linear(x, w, b), (w, b), g)
    assert tn.allclose(gw, g.t() @ x, atol=1e-5) and tn.allclose(gb, g.sum(0), atol=1e-5)
"""
    )


def test_relu_at_zero() -> None:
    """Its gradient is 0 there, as everywhere else."""
    harness.script(
        ENDS
        + """
x, w = tn.zeros(4, 8, device="cuda"), tn.ones(8, 8, device="cuda")
b = tn.zeros(8, device="cuda", requires_grad=True)
_nn._linear_relu(x, w, b).sum().backward()
assert b.grad.tolist() == [0] * 8
"""
    )


@pytest.mark.parametrize("trouble", ["no-handle", "no-algorithm", "unsupported"])
def test_without_a_way(trouble: str) -> None:
    text = "\nfor name in FUSED:\n    compare(name, tn.float32)\nassert products() == 0"
    harness.script(ENDS + text, TENON_CUBLASLT_HOST=trouble)


def test_addmm_activation() -> None:
    """gelu is the tanh approximation here, as in PyTorch on CUDA."""
    harness.script(
        ENDS
        + """
tn.manual_seed(0)
b, x, w = tn.randn(16), tn.randn(5, 12), tn.randn(12, 16)
args = [t.to("cuda") for t in (b, x, w)]
before = products()
for use_gelu, f in ((False, F.relu), (True, gelu)):
    got = tn._addmm_activation(*args, use_gelu=use_gelu)
    assert tn.allclose(got.cpu(), f(tn.addmm(b, x, w)), atol=1e-5)
assert products() == before + 2
got = tn._addmm_activation(*args, beta=2, alpha=3, use_gelu=True)
assert tn.allclose(got.cpu(), gelu(tn.addmm(b, x, w, beta=2, alpha=3)), atol=1e-4)
for t in args:
    t.requires_grad_()
got = tn.autograd.grad(tn._addmm_activation(*args, use_gelu=True).sum(), args)
near = [t.requires_grad_() for t in (b, x, w)]
want = tn.autograd.grad(gelu(tn.addmm(*near)).sum(), near)
assert all(tn.allclose(p.cpu(), q, atol=1e-4) for p, q in zip(got, want))
"""
    )


def test_launches_of_a_feed_forward_block() -> None:
    """Forward and backward are six products, with biases and their gradients. An activation takes
    no launch, and its gradient none where gelu stands between two linear maps."""
    harness.script(
        ENDS
        + """
def count(fn):
    args = inputs("cuda", tn.float32)
    for _ in range(2):
        y = fn(*args)
        g = tn.ones_like(y)
        tn.cuda.reset_counters()
        tn.autograd.grad(fn(*args), args, g)
    c = tn.cuda.counters()
    return c["library_calls"], c["launches"]
assert count(FUSED["relu"]) == (6, 1)
assert count(FUSED["gelu"]) == (6, 1)
assert count(FUSED["two"]) == (6, 0)
assert count(PLAIN["relu"]) == (6, 2)
assert count(PLAIN["gelu"]) == (6, 2)
"""
    )


def test_a_norm_makes_no_zeros_for_its_statistics() -> None:
    """Nothing comes for mean and deviation, and their gradient reads nothing."""
    harness.script("""
x, w, b = (tn.ones(*s, device="cuda", requires_grad=True) for s in ((4, 8), (8,), (8,)))
y = tn.nn.functional.layer_norm(x, (8,), w, b)
g = tn.ones_like(y)
tn.cuda.reset_counters()
tn.autograd.grad(y, (x, w, b), g)
assert tn.cuda.counters()["launches"] <= 2, tn.cuda.counters()
""")


MODULES = """
import copy, functools
import tenon.nn as nn
from tenon.nn import functional as F
count = lambda: tn.cuda.counters()["launches"]

def near(net, *shape):
    \"\"\"Values and gradients as on the CPU; returns the launches of a pass on the device.\"\"\"
    far = copy.deepcopy(net).cuda()
    x = tn.randn(*shape)
    y = x.cuda().requires_grad_()
    x.requires_grad_()
    for _ in range(2):
        far.zero_grad(set_to_none=True)
        before = count()
        got = far(y)
        got.backward(tn.ones_like(got))
        after = count()
    want = net(x)
    want.backward(tn.ones_like(want))
    pairs = [(got, want), (y.grad / 2, x.grad)]
    pairs += [(p.grad, q.grad) for p, q in zip(far.parameters(), net.parameters())]
    for p, q in pairs:
        assert tn.allclose(p.cpu(), q, rtol=1e-4, atol=1e-4), (net, p.shape)
    return after - before

def mlp(*between):
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), *between, nn.Linear(16, 4))
"""


def test_modules_in_sequence_are_joined() -> None:
    """With the values that they have one by one, and fewer launches."""
    harness.script(
        MODULES
        + """
gelu = lambda: nn.GELU(approximate="tanh")
plain = near(mlp(nn.Tanh()), 6, 12)
assert near(mlp(nn.ReLU()), 6, 12) == near(mlp(nn.ReLU(inplace=True)), 6, 12) == plain - 1
assert near(mlp(gelu()), 6, 12) == plain - 2
assert near(mlp(gelu(), nn.Dropout(0.5).eval()), 6, 12) == plain - 2
assert near(mlp(gelu(), nn.Dropout(0)), 2, 3, 12) == plain - 2
near(mlp(gelu(), nn.Tanh()), 6, 12)
near(nn.Sequential(nn.ReLU(), nn.Linear(12, 8), nn.GELU("tanh")), 6, 12)
near(nn.Sequential(nn.Linear(12, 8, bias=False), nn.ReLU(), nn.ReLU()), 6, 12)
near(mlp(nn.GELU()), 6, 12)  # the exact one is not the library's
with tn.no_grad():
    far = mlp(gelu()).cuda()
    before = count()
    far(tn.ones(2, 12, device="cuda"))
    assert count() == before + 1  # the ones
net = mlp(nn.ReLU()).cuda()
with tn.autocast("cuda", dtype=tn.bfloat16):
    y = net(tn.ones(2, 12, device="cuda"))
assert y.dtype == tn.bfloat16
y.float().sum().backward()
assert net[0].weight.grad.dtype == tn.float32
"""
    )


def test_what_somebody_looks_at_is_not_joined() -> None:
    """Hooks, subclasses, a forward of its own, other tensors than plain ones."""
    harness.script(
        MODULES
        + """
x = tn.randn(6, 12, device="cuda")
want = mlp(nn.ReLU()).cuda()(x)
def check(net, seen):
    assert tn.allclose(net(x), want, atol=1e-5) and seen
for at in range(3):
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        net, seen = mlp(nn.ReLU()).cuda(), []
        getattr(net[at], register)(lambda *args: seen.append(at))
        check(net, seen)
    net, seen = mlp(nn.ReLU()).cuda(), []
    forward = net[at].forward
    net[at].forward = lambda x: seen.append(1) or forward(x)
    check(net, seen)
net, seen = mlp(nn.ReLU()).cuda(), []
handle = nn.modules.module.register_module_forward_hook(lambda m, *args: seen.append(m))
check(net, seen)
assert len(seen) == 4
handle.remove()
net, seen = mlp(nn.ReLU()).cuda(), []
net[1].register_full_backward_hook(lambda *args: seen.append(1))
net(x).sum().backward()
assert seen
class Loud(nn.ReLU):
    def forward(self, x):
        seen.append(self)
        return super().forward(x)
net, seen = mlp(Loud()).cuda(), []
check(net, seen)
net = mlp(nn.ReLU()).cuda()
net[1] = nn.Tanh()  # replaced later
assert tn.allclose(net(x), net[2](net[0](x).tanh()), atol=1e-5)
net = nn.utils.parametrizations.weight_norm(mlp(nn.ReLU())[0]).cuda()
assert nn.Sequential(net, nn.ReLU())(x).min().item() >= 0
params = {name: p.detach() for name, p in mlp(nn.ReLU()).cuda().named_parameters()}
call = lambda p, x: tn.func.functional_call(mlp(nn.ReLU()).cuda(), p, (x,))
assert tn.allclose(tn.func.vmap(call, (None, 0))(params, x), want, atol=1e-5)
"""
    )


def test_transformer_layers() -> None:
    harness.script(
        MODULES
        + """
tanh = functools.partial(F.gelu, approximate="tanh")
for activation in ("relu", "gelu", tanh, nn.GELU("tanh"), nn.ReLU(), tn.tanh):
    for norm_first in (False, True):
        tn.manual_seed(0)
        near(nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, norm_first=norm_first), 3, 2, 8)
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, tanh)
    def forward(self, x):
        return self.layer(x, x * 2)
near(Decoder(), 3, 2, 8)
layer = nn.TransformerEncoderLayer(8, 2, 16, 0.5).cuda()  # with dropouts that draw
x = tn.randn(3, 2, 8, device="cuda")
assert not tn.equal(layer(x), layer(x))
layer.eval()
assert tn.equal(layer(x), layer(x))
"""
    )
