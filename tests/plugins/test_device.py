"""A device with six functions and one kernel: plugins/examples/device, built with nothing but the
installed headers and a compiler, has every operator, autograd, layers and optimizers."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import as_user
import cases
import pytest

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")


def run(folder: Path, *args: str, fallback: str = "allow") -> CompletedProcess[str]:
    return as_user.run(folder, *args, TENON_FALLBACK=fallback, TENON_TEST_DEVICE="acme")


def test_every_operator(folder: Path) -> None:
    """Values, layouts, out=, in-place forms and gradients of the whole table."""
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_ops.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


TRAIN = """
import tenon as tn
from tenon import nn
tn.manual_seed(0)
x = tn.randn(64, 4)
y = (x.sum(1) > 0).long()
def train(device):
    tn.manual_seed(1)
    layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)]
    net = nn.Sequential(*layers).to(device)
    opt = tn.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(30):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        opt.step()
    return loss.item(), net[0].weight.detach().cpu()
(a, wa), (b, wb) = train("cpu"), train("acme:1")
assert a == b and a < 0.3, (a, b)
assert tn.equal(wa, wb)
"""

VIEWS = """
import tenon as tn
base = tn.arange(12.0, device="acme").reshape(3, 4)
same = tn.arange(12.0).reshape(3, 4)
for t in (base, same):
    t[1:, ::2] += 10
    t.t()[0].mul_(3)
    t[t > 15] = -1
assert tn.equal(base.cpu(), same)
assert repr(base).endswith("device='acme:0')")
assert base._version == same._version
"""

POLICY = """
import tenon as tn
assert tn.get_fallback_policy() == "allow"
x = tn.ones(2, device="acme")
tn.set_fallback_policy("error")
assert tn.get_fallback_policy() == "error"
try:
    x.exp()
except NotImplementedError as err:
    assert "acme" in str(err), err
else:
    raise AssertionError("the CPU helped")
for wrong in ("never", "", 0, None):
    try:
        tn.set_fallback_policy(wrong)
    except ValueError as err:
        assert "allow, warn, error" in str(err), err
    else:
        raise AssertionError(wrong)
tn.set_fallback_policy("allow")
x.exp()
"""

RESULTS = """
import tenon as tn
x = tn.tensor([0.0, 3.0, 0.0, 1.0], device="acme")
places = tn.full((2, 1), -1, device="acme", dtype=tn.int64)
assert tn.nonzero(x, out=places) is places and places.tolist() == [[1], [3]]
picked = tn.full((2,), -1.0, device="acme")
assert tn.masked_select(x, x > 0, out=picked) is picked and picked.tolist() == [3.0, 1.0]
w = tn.nn.init.sparse_(tn.ones(10, 8, device="acme"), 0.5)
assert ((w == 0).sum(0) == 5).all()
"""

ERRORS = """
import tenon as tn
x = tn.ones(2, device="acme")
try:
    x + tn.ones(2, device="acme:1")
except RuntimeError as err:
    assert "acme:0 and acme:1" in str(err), err
else:
    raise AssertionError("devices were mixed")
try:
    x.exp()
except NotImplementedError as err:
    assert "exp" in str(err) and "acme" in str(err) and "TENON_FALLBACK=error" in str(err), err
else:
    raise AssertionError("the policy was not obeyed")
"""


ACROSS = """
import tenon as tn
def leaf(*shape, dtype=tn.float32, device="cpu"):
    return tn.ones(shape, dtype=dtype, device=device).requires_grad_()
for here, there in (("cpu", "acme"), ("acme:1", "acme:0"), ("acme", "cpu")):
    for dtype in (tn.float32, tn.float64):
        for write in (lambda x, v: x.copy_(v), lambda x, v: x.fill_(v), lambda x, v: v.to(x)):
            v = leaf(dtype=dtype, device=there)
            y = write(tn.zeros(3, device=here), v)
            g, = tn.autograd.grad(y, v, tn.arange(1.0, 1.0 + y.numel()).reshape(y.shape).to(here))
            assert (g.dtype, g.device, g.shape) == (v.dtype, v.device, v.shape)
            assert g.item() == y.numel() * (y.numel() + 1) / 2
x = leaf(3, 1, device="acme").expand(3, 4)
x.retain_grad()
x.as_strided((3,), (1,)).sum().backward()
assert x.grad.device == x.device and x.grad.tolist() == [[0.25] * 4] * 3
"""


@pytest.mark.parametrize(
    ("script", "fallback"),
    [
        (TRAIN, "allow"),
        (VIEWS, "allow"),
        (ACROSS, "allow"),
        (POLICY, "allow"),
        (RESULTS, "allow"),
        (ERRORS, "error"),
    ],
)
def test_script(folder: Path, script: str, fallback: str) -> None:
    done = run(folder, "-c", script, fallback=fallback)
    assert done.returncode == 0, done.stderr


def test_warns_once(folder: Path) -> None:
    script = "import tenon as tn; x = tn.ones(2, device='acme'); x.exp(); x.exp(); x.sin()"
    done = run(folder, "-c", script, fallback="warn")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("'exp' has no kernel") == 1, done.stderr
    assert done.stderr.count("'sin' has no kernel") == 1, done.stderr


DECLINES = """
static tn_status declines(const tn_call *call, const void *args) {
    (void)call, (void)args;
    return TN_DECLINE;
}

static const tn_kernel_row rows[] = {
    {.op = "neg", .sig = TN_SIG_neg, .fn = declines, .dtype = TN_F16},
"""


def test_what_a_kernel_declines_goes_on_in_the_wider_dtype(tmp_path: Path) -> None:
    """As if it had no kernel, so not over the CPU."""
    source = cases.edited("static const tn_kernel_row rows[] = {\n", DECLINES)
    cases.add(tmp_path, "acme", source)
    script = """
import tenon as tn
x = tn.tensor([1.0, -2.0], dtype=tn.float16).to("acme")
y = -x
assert y.dtype is tn.float16 and y.cpu().tolist() == [-1.0, 2.0]
assert tn.acme.fallback_count("neg") == (1, 0), tn.acme.fallback_count("neg")
"""
    done = run(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
