"""Composites whose formulas have only pointwise parts run as one kernel on a device that makes
kernels ("tn.codegen/1" of the simulated device), and as ever where that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import COUNTS, HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


PROGRAM = '''
SOURCE = r"""
#include <tenon/plugin.h>
#define OP(s, f, ...) {.struct_size = sizeof(tn_op_desc), .kind = TN_OP_COMPOSITE, \\
                       .schema = s, .formula = f, __VA_ARGS__}
static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_op_desc ops[] = {
        OP("fuse::swish(Tensor x, float beta=1.0) -> Tensor", "x * sigmoid(beta * x)", 0),
        OP("fuse::own(Tensor x) -> Tensor", "x * x + 1", .gradient = "x: grad * 2 * x"),
        OP("fuse::pick(Tensor x, Tensor y) -> Tensor", "where(x > y * 2 - 1, x, tanh(y))", 0),
        OP("fuse::total(Tensor x) -> Tensor", "sum(x * x)", 0),
        OP("fuse::odd(Tensor x) -> Tensor", "erfinv(x * 0.5)", 0),
        OP("fuse::scaled(Tensor x, Tensor y) -> Tensor", "sub(x, y, alpha=3)", 0),
    };
    for (int i = 0; i < (int)(sizeof ops / sizeof ops[0]); i++) {
        tn_status st = host->register_op(txn, &ops[i]);
        if (st != TN_OK) return st;
    }
    return TN_OK;
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "fuse", "1.0", "composites", activate);
}
"""
tn.load_inline(name="fuse", source=SOURCE)
fuse = tn.ops.fuse
KINDS = ("codegen.compile", "codegen.run", "codegen.destroy", "mul", "sigmoid")
def counts():
    return {kind: launches(kind) for kind in KINDS}
def change(call):
    before = counts()
    result = call()
    after = counts()
    return result, {k: after[k] - before[k] for k in KINDS if after[k] != before[k]}
'''


def program(folder: Path, text: str, **switches: str | int) -> None:
    script(folder, COUNTS + PROGRAM + text, LEVEL=3, **switches)


def test_one_kernel(folder: Path) -> None:
    program(
        folder,
        """
near = tn.randn(5, 7)
x = near.to("sim")
y, said = change(lambda: fuse.swish(x))
assert said == {"codegen.compile": 1, "codegen.run": 1}, said
assert tn.allclose(y.cpu(), fuse.swish(near), atol=1e-6)
parts, said = change(lambda: x * tn.sigmoid(1.0 * x))
assert said == {"mul": 2, "sigmoid": 1} and tn.equal(y, parts)
_, said = change(lambda: fuse.swish(x[:2]))  # compiled once for all shapes
assert said == {"codegen.run": 1}, said
z, said = change(lambda: fuse.swish(x, 0.1))  # a number is a part of the expression
assert said == {"codegen.compile": 1, "codegen.run": 1}, said
assert tn.equal(z, x * tn.sigmoid(0.1 * x))
other = near.to("sim:1")
_, said = change(lambda: fuse.swish(other))
assert said == {"codegen.compile": 1, "codegen.run": 1}, said
assert fuse.swish(x[:0]).shape == (0, 7)
""",
    )


@pytest.mark.parametrize("pointers", ["address", "opaque"])
def test_broadcasting_masks_and_views(folder: Path, pointers: str) -> None:
    program(
        folder,
        """
x, y = tn.randn(4, 6), tn.randn(6)
far_x, far_y = x.to("sim"), y.to("sim")
z, said = change(lambda: fuse.pick(far_x, far_y))
assert said == {"codegen.compile": 1, "codegen.run": 1}, said
assert tn.allclose(z.cpu(), fuse.pick(x, y), atol=1e-6) and z.is_contiguous()
z, said = change(lambda: fuse.pick(far_x[1:], far_x[0]))
assert said == {"codegen.run": 1} and tn.allclose(z.cpu(), fuse.pick(x[1:], x[0]), atol=1e-6)
z, said = change(lambda: fuse.swish(far_x.t()))  # the layout is the parts' affair
assert "codegen.run" not in said and z.stride() == fuse.swish(x.t()).stride()
""",
        POINTERS=pointers,
    )


def test_gradients(folder: Path) -> None:
    """A gradient of its own leaves one kernel; without one the parts are recorded."""
    program(
        folder,
        """
x = tn.tensor([1.0, 2.0, 3.0], device="sim", requires_grad=True)
y, said = change(lambda: fuse.own(x))
assert said == {"codegen.compile": 1, "codegen.run": 1} and y.requires_grad, said
y.sum().backward()
assert y.tolist() == [2.0, 5.0, 10.0] and x.grad.tolist() == [2.0, 4.0, 6.0]
near = x.detach().cpu().requires_grad_()
x.grad = None
y, said = change(lambda: fuse.swish(x))
assert "codegen.run" not in said
y.sum().backward()
fuse.swish(near).sum().backward()
assert tn.allclose(x.grad.cpu(), near.grad, atol=1e-5)
with tn.no_grad():
    _, said = change(lambda: fuse.swish(x))
assert said["codegen.run"] == 1
""",
    )


def test_what_does_not_fit_runs_as_ever(folder: Path) -> None:
    program(
        folder,
        """
near = tn.rand(4)
x = near.to("sim")
def plain(op, *args):
    result, said = change(lambda: op(*[a.to("sim") for a in args]))
    assert "codegen.run" not in said, said
    assert tn.allclose(result.cpu().double(), op(*args).double(), atol=1e-5)
plain(fuse.total, near)                     # a part that is not pointwise
plain(fuse.odd, near)                       # a part that the device does not know
plain(fuse.scaled, near, near * 2)          # an argument beside the operands
plain(fuse.swish, near.double())            # a dtype that the device does not compute
plain(fuse.pick, near, tn.arange(4))        # operands that are converted first
for i in range(40):                         # a number that is never the same
    assert tn.equal(fuse.swish(x, i / 8), x * tn.sigmoid((i / 8) * x))
assert launches("codegen.compile") <= 16 + 2
""",
    )


def test_codes_go_with_the_device(folder: Path) -> None:
    program(
        folder,
        """
x = tn.rand(4).to("sim")
count = counter()
fuse.swish(x), fuse.own(x), fuse.swish(x, 2.0)
assert count(b"codegen.compile") == 3 and count(b"codegen.destroy") == 0
tn.retire_plugin("sim")
assert count(b"codegen.destroy") == 3
try:
    fuse.swish(x)
except RuntimeError as error:
    assert "retired" in str(error)
else:
    raise AssertionError("the device is gone")
""",
    )


def test_a_graph_records_the_parts(folder: Path) -> None:
    program(
        folder,
        """
x = tn.rand(4).to("sim")
graph = tn.Graph()
with tn.sim.graph(graph):
    y = fuse.swish(x)
graph.replay()
assert tn.allclose(y.cpu(), fuse.swish(x.cpu()), atol=1e-6)
""",
    )
