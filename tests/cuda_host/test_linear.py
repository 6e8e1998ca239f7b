"""Linear maps and their ends on CUDA: bias, relu and gelu, and their gradients, in the step that
multiplies (`backends/cuda/ops/linear.c`)."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

# What asks the library how many products there were is for the harness alone.
COUNT = """
import ctypes
def products():
    ask = ctypes.CDLL("libcublasLt.so.13").cublasLtHostCount
    ask.restype = ctypes.c_long
    return ask(b"product")
"""

ENDS = """
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
    if name != "relu" and dtype == tn.float32:
        tol = 1e-3  # a GPU's library has a tanh of its own
    for got, want in zip(run(FUSED, "cuda", dtype), run(PLAIN, "cpu", tn.float64)):
        got, want = got.detach().cpu().double(), want.detach()
        assert got.shape == want.shape
        assert ((got - want).abs() <= tol * (4 + want.abs())).all(), (name, dtype, how)
"""

# What the library declines is done by its parts in the same dtype.
NEVER_ELSEWHERE = """
for op in ("_linear_relu", "_linear_gelu", "_linear_gelu_backward", "_linear_backward_weight"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
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
"""
        + NEVER_ELSEWHERE
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
        + NEVER_ELSEWHERE
    )


def test_rows_that_lie_apart() -> None:
    """Where no stride leads from row to row, the input is packed on the device."""
    harness.script(
        ENDS
        + """
for half in (tn.float16, tn.bfloat16):
    x, w, b, _, _ = (t.detach() for t in inputs("cuda", half))
    turned, packed = x.transpose(0, 1), x.transpose(0, 1).contiguous()
    for fn in (F.linear, _nn._linear_relu, lambda *args: _nn._linear_gelu(*args, True)[0]):
        args = [t.requires_grad_() for t in (w, b)]
        got, want = fn(turned, w, b), fn(packed, w, b)
        assert tn.equal(got, want)
        for g in (tn.randn_like(got), tn.randn(5, 16, 3, device="cuda").to(half).transpose(1, 2)):
            pairs = zip(*(tn.autograd.grad(y, args, g, retain_graph=True) for y in (got, want)))
            assert all(tn.equal(p, q) for p, q in pairs)
for op in ("linear", "_linear_relu", "_linear_gelu", "_linear_backward_weight"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
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
    harness.script(COUNT + ENDS + text, TENON_CUBLASLT_HOST=trouble)


def test_addmm_activation() -> None:
    """gelu is the tanh approximation here, as in PyTorch on CUDA."""
    harness.script(
        ENDS
        + """
tn.manual_seed(0)
b, x, w = tn.randn(16), tn.randn(5, 12), tn.randn(12, 16)
args = [t.to("cuda") for t in (b, x, w)]
for use_gelu, f in ((False, F.relu), (True, gelu)):
    got = tn._addmm_activation(*args, use_gelu=use_gelu)
    assert tn.allclose(got.cpu(), f(tn.addmm(b, x, w)), atol=1e-3)
got = tn._addmm_activation(*args, beta=2, alpha=3, use_gelu=True)
assert tn.allclose(got.cpu(), gelu(tn.addmm(b, x, w, beta=2, alpha=3)), atol=1e-4)
for t in args:
    t.requires_grad_()
got = tn.autograd.grad(tn._addmm_activation(*args, use_gelu=True).sum(), args)
near = [t.requires_grad_() for t in (b, x, w)]
want = tn.autograd.grad(gelu(tn.addmm(*near)).sum(), near)
assert all(tn.allclose(p.cpu(), q, atol=1e-3) for p, q in zip(got, want))
"""
    )


def test_launches_of_a_feed_forward_block() -> None:
    """Forward and backward are six products, with biases and their gradients. An activation takes
    no launch, and its gradient none where gelu stands between two linear maps."""
    harness.script(
        COUNT
        + ENDS
        + """
def count(fn):
    args = inputs("cuda", tn.float32)
    for _ in range(2):
        y = fn(*args)
        g = tn.ones_like(y)
        before = products()
        tn.cuda.reset_counters()
        tn.autograd.grad(fn(*args), args, g)
    c = tn.cuda.counters()
    return c["library_calls"], products() - before, c["launches"]
assert count(FUSED["relu"]) == (6, 4, 1)
assert count(FUSED["gelu"]) == (6, 4, 1)
assert count(FUSED["two"]) == (6, 4, 0)
assert count(PLAIN["relu"]) == (6, 4, 2)
assert count(PLAIN["gelu"]) == (6, 4, 2)
args = inputs("cuda", tn.float32)
before = products()
for use_gelu in (False, True):
    tn._addmm_activation(args[2].detach(), args[0].detach()[0], args[1].detach().t(),
                         use_gelu=use_gelu)
assert products() == before + 2
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

def near(net, *shape):
    \"\"\"Whether values and gradients in half precision are those of float64 on the CPU.\"\"\"
    for half in (tn.float16, tn.bfloat16):
        far, x = copy.deepcopy(net).cuda().to(half), tn.randn(*shape).to(half)
        exact = copy.deepcopy(far).cpu().double()
        y, x = x.cuda().requires_grad_(), x.double().requires_grad_()
        got, want = far(y), exact(x)
        g = tn.linspace(-1, 1, want.numel()).reshape(want.shape).to(half)
        got.backward(g.cuda())
        want.backward(g.double())
        pairs = [(got, want), (y.grad, x.grad)]
        pairs += [(p.grad, q.grad) for p, q in zip(far.parameters(), exact.parameters())]
        for p, q in pairs:
            assert (p.cpu() - q).abs().max() <= 0.03 * (1 + q.abs().max()), (net, half, p.shape)

def mlp(*between):
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), *between, nn.Linear(16, 4))

gelu = functools.partial(nn.GELU, "tanh")
"""


def test_modules_in_sequence_have_their_values() -> None:
    harness.script(
        MODULES
        + """
for between in ([gelu()], [nn.ReLU()], [nn.GELU()], [gelu(), nn.Dropout(0.5).eval()],
                [gelu(), nn.Tanh()], [gelu(), nn.Dropout(0), nn.Dropout(0)]):
    near(mlp(*between), 6, 12)
    near(mlp(*between), 2, 3, 12)
near(nn.Sequential(gelu(), nn.Linear(12, 8), gelu()), 6, 12)
near(nn.Sequential(nn.Linear(12, 8, bias=False), gelu(), nn.Linear(8, 3, bias=False)), 6, 12)
near(nn.Sequential(nn.Linear(12, 13), gelu(), nn.Linear(13, 3)), 6, 12)
net, x = mlp(gelu()).cuda(), tn.randn(2, 12, device="cuda")
with tn.autocast("cuda", dtype=tn.bfloat16):
    y = net(x)
assert y.dtype == tn.bfloat16 and tn.allclose(y.float(), net(x), atol=0.03)
y.float().sum().backward()
assert net[0].weight.grad.dtype == tn.float32
for half in (tn.float16, tn.bfloat16):  # nothing that is wrong is lost
    x = tn.full((2, 12), float("nan"), device="cuda", dtype=half)
    for act in (gelu(), nn.ReLU()):
        assert mlp(act).cuda().to(half)(x).isnan().all()
"""
    )


def test_modules_in_sequence_are_joined() -> None:
    """gelu with what stands on both sides; not in float32."""
    harness.script(
        COUNT
        + MODULES
        + """
def launches(net, half=tn.bfloat16):
    net, x = net.cuda().to(half), tn.ones(6, 12, device="cuda", dtype=half, requires_grad=True)
    for _ in range(2):
        y = net(x)
        g = tn.ones_like(y)
        tn.cuda.reset_counters()
        tn.autograd.grad(net(x), (x, *net.parameters()), g)
    return tn.cuda.counters()["launches"]
before = products()
assert launches(mlp(nn.Tanh())) == launches(mlp(nn.ReLU())) == launches(mlp(nn.GELU())) == 2
assert launches(mlp(gelu())) == launches(mlp(gelu(), nn.Dropout(0.5).eval())) == 0
assert launches(mlp(gelu(), nn.Dropout(0))) == launches(mlp(gelu()), tn.float16) == 0
assert launches(mlp(gelu()), tn.float32) == 2
assert launches(nn.Sequential(nn.Linear(12, 8), gelu())) == 1
assert products() > before
with tn.no_grad():
    net, x = mlp(gelu()).cuda().bfloat16(), tn.ones(6, 12, device="cuda", dtype=tn.bfloat16)
    tn.cuda.reset_counters()
    net(x)
    assert tn.cuda.counters()["launches"] == 0
"""
    )


def test_what_somebody_looks_at_is_not_joined() -> None:
    """Hooks, subclasses, a forward of its own, other tensors than plain ones."""
    harness.script(
        MODULES
        + """
x = tn.randn(6, 12, device="cuda", dtype=tn.bfloat16)
make = lambda act=None: mlp(act or gelu()).cuda().bfloat16()
want = make()(x)
def check(net, seen):
    assert tn.allclose(net(x), want, atol=0.03) and seen
for at in range(3):
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        net, seen = make(), []
        getattr(net[at], register)(lambda *args: seen.append(at))
        check(net, seen)
    net, seen = make(), []
    forward = net[at].forward
    net[at].forward = lambda x: seen.append(1) or forward(x)
    check(net, seen)
net, seen = make(), []
handle = nn.modules.module.register_module_forward_hook(lambda m, *args: seen.append(m))
check(net, seen)
assert len(seen) == 4
handle.remove()
net, seen = make(), []
net[1].register_full_backward_hook(lambda *args: seen.append(1))
net(x).sum().backward()
assert seen
class Loud(nn.GELU):
    def forward(self, x):
        seen.append(self)
        return super().forward(x)
net, seen = make(Loud("tanh")), []
check(net, seen)
net = make()
net[1] = nn.Tanh()  # replaced later
assert tn.allclose(net(x), net[2](net[0](x).tanh()), atol=0.03)
net = nn.utils.parametrizations.weight_norm(make()[0])
assert tn.allclose(nn.Sequential(net, gelu())(x), gelu()(net(x)), atol=0.03)
params = {name: p.detach() for name, p in make().named_parameters()}
net = make()
call = lambda p, x: tn.func.functional_call(net, p, (x,))
assert tn.allclose(tn.func.vmap(call, (None, 0))(params, x), want, atol=0.03)
"""
    )


def test_transformer_layers() -> None:
    harness.script(
        MODULES
        + """
tanh = functools.partial(F.gelu, approximate="tanh")
for activation in ("relu", "gelu", tanh, gelu(), tn.tanh):
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
layer = nn.TransformerEncoderLayer(8, 2, 16, 0.5, tanh).cuda().bfloat16()  # dropouts that draw
x = tn.randn(3, 2, 8, device="cuda", dtype=tn.bfloat16)
assert not tn.equal(layer(x), layer(x))
layer.eval()
assert tn.equal(layer(x), layer(x))
"""
    )
