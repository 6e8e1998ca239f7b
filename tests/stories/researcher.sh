#!/bin/sh
# A researcher has one function, a C compiler and a Tenon wheel, and wants the function differentiated,
# in every dtype, in a network, on a device, and installed on another machine.
#
#     tests/stories/researcher.sh FOLDER     FOLDER holds the wheel; nothing comes from a network
set -eu
. "$(dirname "$0")/fresh.sh"

cat >check.py <<'END'
"""Uses tn.ops.mygelu.gelu, wherever it comes from."""
import math
import tenon as tn

gelu = tn.ops.mygelu.gelu
exact = lambda v: 0.5 * v * math.erfc(-v / math.sqrt(2))

x = tn.linspace(-3, 3, 24, dtype=tn.float64)
want = tn.tensor([exact(v) for v in x.tolist()], dtype=tn.float64)
for dtype, error in ((tn.float64, 1e-14), (tn.float32, 1e-6), (tn.float16, 4e-3), (tn.bfloat16, 3e-2)):
    y = gelu(x.to(dtype).reshape(2, 3, 4).permute(2, 0, 1))
    assert y.dtype == dtype and y.shape == (4, 2, 3)
    assert tn.allclose(y.permute(1, 2, 0).flatten().double(), want, rtol=0, atol=error), dtype
assert gelu(tn.arange(3)).dtype == tn.float32

t = x[::5].clone().requires_grad_()
assert tn.autograd.gradcheck(gelu, (t,)) and tn.autograd.gradgradcheck(gelu, (t,))
(first,) = tn.autograd.grad(gelu(t).sum(), t, create_graph=True)
(second,) = tn.autograd.grad(first.sum(), t)
curve = tn.tensor([(2 - v * v) * math.exp(-v * v / 2) / math.sqrt(2 * math.pi) for v in t.tolist()])
assert tn.allclose(second.float(), curve, atol=1e-6)


class Gelu(tn.nn.Module):
    def forward(self, x):
        return gelu(x)


def losses(act, device):
    tn.manual_seed(0)
    data = tn.randn(64, 5).to(device)
    net = tn.nn.Sequential(tn.nn.Linear(5, 16), act, tn.nn.Linear(16, 1)).to(device)
    opt = tn.optim.Adam(net.parameters(), lr=0.02)
    out = []
    for _ in range(20):
        loss = (net(data) - data.sin().sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return tn.tensor(out)


mine = losses(Gelu(), "cpu")
assert mine[-1] < 0.7 * mine[0]
assert tn.allclose(mine, losses(tn.nn.GELU(), "cpu"), rtol=1e-3)
assert tn.allclose(mine, losses(Gelu(), "mychip"), rtol=1e-4)
assert tn.mychip.fallback_count("mygelu::gelu")[1] > 0  # in a wider dtype, on the CPU
END

step "a device to try it on, by the compiler line of its README"
tenon plugin new mychip --kind device >/dev/null
(cd mychip && sh -c "$(grep '^cc ' README.md)")

step "the operator, by the compiler line of its README"
tenon plugin new mygelu --kind ops
(cd mygelu && sh -c "$(grep '^cc ' README.md)" && tenon plugin check tenon_mygelu.so)
TENON_PLUGIN_PATH=$work/mygelu:$work/mychip python check.py

step "the operator in a notebook"
TENON_PLUGIN_PATH=$work/mychip python -c '
import runpy, tenon as tn
tn.load_inline(open("mygelu/gelu.c").read(), "mygelu")
runpy.run_path("check.py")'

step "the operator as a wheel"
rm mygelu/*.so
pip wheel -q --no-deps -w wheels ./mygelu
pip install -q wheels/tenon_mygelu-*-py3-none-*.whl
TENON_PLUGIN_PATH=$work/mychip python check.py
tenon doctor

step "gone again"
pip uninstall -q -y tenon-mygelu
if python -c 'import tenon; tenon.ops.mygelu.gelu' 2>/dev/null; then exit 1; fi
step "done"
