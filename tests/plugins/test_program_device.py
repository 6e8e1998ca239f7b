"""Programs of which a device takes parts as its own ("tn.program/1" of the simulated device): the
numbers are those of operator by operator, and whatever does not fit runs so."""

from __future__ import annotations

from pathlib import Path

import cases
import pytest
from simulated import COUNTS, HAVE_CC, run, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")

PROGRAM = """
from tenon import nn
from tenon.nn import functional as F
KINDS = ("program.compile", "program.run", "program.destroy", "linear", "relu", "mm", "mul")
def change(call):
    before = [launches(kind) for kind in KINDS]
    result = call()
    after = [launches(kind) for kind in KINDS]
    return result, {k: b - a for k, a, b in zip(KINDS, before, after) if a != b}
def compiled(fn, *args):
    made = tn.compile(fn)
    made(*args)  # is recorded
    made(*args)  # runs as a program, and is compiled
    return made
tn.manual_seed(0)
"""


def program(folder: Path, text: str, **switches: str | int) -> str:
    return script(folder, COUNTS + PROGRAM + text, LEVEL=3, **switches)


@pytest.mark.parametrize("pointers", ["address", "opaque"])
def test_a_network_is_one_entry_of_the_queue(folder: Path, pointers: str) -> None:
    program(
        folder,
        """
net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
x = tn.randn(5, 3, 4)
want = net(x)
net.to("sim")
with tn.no_grad():
    fast = compiled(net, x.to("sim"))
    y, said = change(lambda: fast(x.to("sim")))
    eager = net(x.to("sim"))
assert said == {"program.run": 1}, said
assert tn.equal(y, eager) and y.stride() == eager.stride()
assert tn.allclose(y.cpu(), want, atol=1e-6)
other = tn.randn(5, 3, 4, device="sim")
with tn.no_grad():
    y, said = change(lambda: fast(other))
    assert said == {"program.run": 1} and tn.equal(y, net(other))
    net[1].weight.mul_(2)  # a weight is what it is when the program runs
    y, said = change(lambda: fast(other))
    assert said == {"program.run": 1}, said
    assert tn.equal(y, net(other))
""",
        POINTERS=pointers,
    )


def test_what_the_device_does_not_take_runs_as_ever(folder: Path) -> None:
    """Parts before and after an operator that is not taken; results that others need; views."""
    program(
        folder,
        """
def fn(x, w):
    a = (x * 2 + 1).relu()           # taken
    b = a.cumsum(1)                  # not taken
    c = tn.sigmoid(b) - a            # taken: it needs what the first part made
    d = c.t()                        # a view of a result that is handed out
    return a, d, tn.mm(c, w).reshape(-1)  # taken
x, w = tn.randn(4, 6), tn.randn(6, 2)
far = x.to("sim"), w.to("sim")
fast = compiled(fn, *far)
got, said = change(lambda: fast(*far))
eager = fn(*far)
assert said["program.run"] == 3 and "relu" not in said and "mm" not in said, said
for g, e, near in zip(got, eager, fn(x, w)):
    assert tn.equal(g, e) and g.stride() == e.stride(), (g, e)
    assert tn.allclose(g.cpu(), near, atol=1e-5)
got[1].zero_()                       # the view shares nothing with what a later run gives
again = fast(*far)
assert tn.equal(again[1], eager[1])
""",
    )


def test_results_that_share_memory(folder: Path) -> None:
    """A view of an input or of another result is one, whatever the device takes."""
    program(
        folder,
        """
def of_input(x):
    flat = x.reshape(-1)
    return flat, flat * 2
def of_result(x):
    y = x * 2
    return y, y.reshape(-1), y + 1
for fn, which in ((of_input, None), (of_result, 0)):
    x = tn.ones(2, 3, device="sim")
    traced = tn.jit.trace(fn, x, check_trace=False)
    got = traced(x)
    whole, flat = (x, got[0]) if which is None else (got[0], got[1])
    flat.zero_()
    assert whole.sum().item() == 0, fn
    assert got[-1].sum().item() in (12, 18)
""",
    )


def test_inputs_that_are_laid_out_otherwise(folder: Path) -> None:
    """The device gets what lies row by row alone; a program does not ask how its inputs lie."""
    program(
        folder,
        """
def fn(x):
    return (x * 2).relu() - 1
traced = tn.jit.trace(fn, tn.randn(4, 4, device="sim"))
x = tn.randn(4, 4, device="sim")
assert tn.equal(traced(x), fn(x))
for other in (x.t(), x.expand(4, 4), tn.randn(4, 8, device="sim")[:, ::2], x[0].expand(4, 4)):
    y = traced(other)
    assert tn.equal(y, fn(other)) and y.stride() == fn(other).stride()
""",
    )


ASKED = """
import os
kept = []
def heard_now():
    return open(os.environ["ASKED_FILE"]).read().splitlines()
def asked(fn, *args, check=False):
    open(os.environ["ASKED_FILE"], "w").close()
    kept.append(tn.jit.trace(fn, args, check_trace=check))
    with tn.no_grad():
        kept[-1](*args)
    return heard_now()
from tenon.nn import functional as F
x = tn.ones(3, 4, device="asked")
"""


@pytest.fixture
def hearing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a device that writes down what it is asked, asked_device.c."""
    source = Path(__file__).with_name("asked_device.c").read_text(encoding="utf-8")
    cases.add(tmp_path, "asked", source, "-std=c11", "-Wall", "-Wextra", "-Werror")
    monkeypatch.setenv("ASKED_FILE", str(tmp_path / "asked.txt"))
    return tmp_path


def test_what_is_asked(hearing: Path) -> None:
    """About nodes that write, draw, run in lower precision, go from one device to another, have no
    elements, or take memory that does not lie row by row, nobody is asked."""
    script(
        hearing,
        ASKED
        + """
def fn(x, total, mean, var):
    a = x * 2.5
    b = F.dropout(a, 0.5, training=True)
    total.add_(b)
    c = tn.sub(a, b)
    empty = c[:0] * 2
    turned = a.t()
    d = turned.exp()
    tn.mul(a, c, out=total)
    F.batch_norm(a, mean, var, training=True)
    with tn.autocast("asked", dtype=tn.bfloat16):
        e = c.sin()
    return c.sigmoid(), empty, d, e, c.to("asked:1") * 3
statistics = tn.zeros(4, device="asked"), tn.ones(4, device="asked")
heard = asked(fn, x, tn.zeros(3, 4, device="asked"), *statistics)
assert heard == [
    "mul [3,4] 2.5",
    "region of 1: 1 in, 1 out",
    "sub [3,4] [3,4]",
    "region of 1: 2 in, 1 out",
    "t [3,4]",
    "exp [4,3]",  # its result is column by column, and before it there is a view alone
    "sigmoid [3,4]",
    "region of 1: 1 in, 1 out",
    "mul [3,4] 3",
    "region of 1: 1 in, 1 out",
], heard
""",
    )


def test_what_is_handed_over(hearing: Path) -> None:
    """Sizes, numbers and constants of a region."""
    script(
        hearing,
        ASKED
        + """
k = tn.full((4,), 7.0, device="asked")
def fn(x):
    y = (x + k).reshape(x.shape[0] * 2, 2) - 1.5
    return tn.cat([y, y * x.shape[0]], 1)
heard = asked(fn, x, check=True)
assert heard[-6:] == [
    "add [3,4] [4]=7",
    "reshape [3,4] 6 2",
    "sub [6,2] 1.5",
    "mul [6,2] 3",
    "cat [6,2] [6,2]",
    "region of 5: 2 in, 1 out",
], heard
more = tn.ones(5, 4, device="asked")
with tn.no_grad():
    kept[-1](more)
assert heard_now()[len(heard) + 1 : -3] == ["reshape [5,4] 10 2", "sub [10,2] 1.5"], heard_now()
layer = tn.nn.Linear(4, 2).to("asked")
assert asked(layer, x) == ["linear [3,4] [2,4] [2]", "region of 1: 3 in, 1 out"]
""",
    )


def test_constants_that_are_replaced(hearing: Path) -> None:
    script(
        hearing,
        ASKED
        + """
k = tn.full((4,), 7.0, device="asked")
heard = asked(lambda x: x + k, x)
assert heard[0] == "add [3,4] [4]=7", heard
program = kept[-1].program
(place,) = (i for i, w in enumerate(program.weights) if w[2].shape == (4,))
program.set_weight(place, k + 2)
with tn.no_grad():
    assert kept[-1](x)[0, 0].item() == 10
assert heard_now()[2:] == ["add [3,4] [4]=9", "region of 1: 2 in, 1 out"], heard_now()
""",
    )


def test_regions_are_shown(folder: Path) -> None:
    program(
        folder,
        """
def fn(x):
    return tn.exp(x.relu() * 3).cumsum(0) + 1
x = tn.rand(4, 3, device="sim")
text = "\\n".join(tn.compiler.explain(fn)(x).fused)
assert "the device's own: relu, mul, exp" in text, text
""",
    )


def test_where_it_does_not_run(folder: Path) -> None:
    """Gradients are recorded, an operand is laid out otherwise or empty: operator by operator."""
    program(
        folder,
        """
def fn(x, w):
    return F.linear(x, w).relu() * 2
x, w = tn.randn(4, 6, device="sim"), tn.randn(5, 6, device="sim", requires_grad=True)
fast = tn.compile(fn)
fast(x, w)
y, said = change(lambda: fast(x, w))
assert "program.run" not in said and said["linear"] == 1, said
y.sum().backward()
near = w.detach().cpu().requires_grad_()
fn(x.cpu(), near).sum().backward()
assert tn.allclose(w.grad.cpu(), near.grad, atol=1e-5)
w = w.detach()
fast = compiled(fn, x, w)
assert change(lambda: fast(x, w))[1] == {"program.run": 1}
wide = tn.randn(6, 4, device="sim").t()
y, said = change(lambda: fast(wide, w))
assert "program.run" not in said and tn.equal(y, fn(wide, w)) and y.stride() == fn(wide, w).stride()
empty = tn.randn(0, 6, device="sim")
assert fast(empty, w).shape == (0, 5)
other = x.to("sim:1"), w.to("sim:1")
assert tn.equal(fast(*other).cpu(), fn(x, w).cpu())
""",
    )


def test_free_sizes(folder: Path) -> None:
    """A region is made for each combination of sizes, up to eight."""
    program(
        folder,
        """
net = nn.Sequential(nn.Flatten(1), nn.Linear(12, 4), nn.Tanh()).to("sim")
def fn(x):
    y = net(x)
    return y.reshape(x.shape[0] * 2, 2) * x.shape[0]
def rows(n):
    return tn.randn(n, 3, 4, device="sim")
with tn.no_grad():
    traced = tn.jit.trace(fn, rows(5))
    said = [change(lambda n=n: traced(rows(n)))[1] for n in (5, 5, 7, 7, 5)]
    assert [s.get("program.compile", 0) for s in said] == [1, 0, 1, 0, 0], said
    assert [s["program.run"] for s in said] == [1] * 5 and "linear" not in said[-1], said
    for n in (5, 7, 3, 1):
        x = rows(n)
        assert tn.equal(traced(x), fn(x)), n
    for n in range(8, 20):
        x = rows(n)
        assert tn.equal(traced(x), fn(x)), n
    _, said = change(lambda: traced(rows(19)))
    assert "program.run" not in said and said["linear"] == 1, said
    _, said = change(lambda: traced(rows(7)))
    assert said == {"program.run": 1}, said
""",
    )


def test_draws_and_writes_stay_between(folder: Path) -> None:
    """Looking at what a program's values are like draws no numbers and writes nothing."""
    program(
        folder,
        """
def fn(x, total):
    a = x * 2 + 1
    b = F.dropout(a, 0.5, training=True)
    total.add_(b)
    return (b + a).relu() - total + tn.rand(6, 5).to("sim")
x = tn.randn(6, 5, device="sim")
def sums():
    return tn.zeros(6, 5, device="sim")
tn.manual_seed(3)
t, u = sums(), sums()
want = [fn(x, t) for _ in range(4)]
tn.manual_seed(3)
fast = tn.compile(fn)
got, said = change(lambda: [fast(x, u) for _ in range(4)])
assert said["program.run"] > 1, said
for g, w in zip(got, want):
    assert tn.equal(g, w)
assert tn.equal(t, u)
""",
    )


def test_numbers_and_conditions(folder: Path) -> None:
    program(
        folder,
        """
def fn(x, y):
    m = x > y
    z = tn.where(m, F.leaky_relu(x, 0.3), tn.add(y, x, alpha=-2.5)) ** 2
    return z.unsqueeze(0) / (1 - tn.sigmoid(y)), m
x, y = tn.randn(3, 1, 5), tn.randn(4, 5)
far = x.to("sim"), y.to("sim")
fast = compiled(fn, *far)
got, said = change(lambda: fast(*far))
assert said["program.run"] == 1 and "mul" not in said, said
for g, e, near in zip(got, fn(*far), fn(x, y)):
    assert tn.equal(g, e) and g.stride() == e.stride()
    assert tn.allclose(g.cpu().float(), near.float(), atol=1e-5, rtol=1e-5)
""",
    )


def test_a_run_that_fails_is_done_operator_by_operator(folder: Path) -> None:
    program(
        folder,
        """
def fn(x):
    return (x * 2).relu() + 1
x = tn.randn(64, 64, device="sim")
fast = compiled(fn, x)
want = fn(x)
y, said = change(lambda: fast(x))
assert tn.equal(y, want)
""",
        WITHOUT="stream",
    )
    program(
        folder,
        """
def fn(x):
    return (x * 2).relu() + 1
x = tn.randn(8, device="sim")
fast = tn.compile(fn)
y, said = change(lambda: (fast(x), fast(x))[1])
assert "program.run" not in said and tn.equal(y, fn(x)), said
""",
        WITHOUT="program",
    )


def test_code_is_given_back(folder: Path) -> None:
    program(
        folder,
        """
import gc
def fn(x):
    return (x * 2).relu() + 1
x = tn.randn(8, device="sim")
fast = compiled(fn, x)
fast(x)
made = launches("program.compile")
assert made >= 1 and launches("program.destroy") < made
del fast
tn.compiler.reset()
gc.collect()
assert launches("program.destroy") == made
""",
    )


def test_a_device_that_goes_and_comes_back(folder: Path) -> None:
    program(
        folder,
        """
import gc
def fn(x):
    return (x * 2).relu() + 1
x = tn.randn(8, device="sim")
traced = tn.jit.trace(fn, x)
want = traced(x).cpu()
others = [tn.jit.trace(fn, x) for _ in range(3)]
tn.retire_plugin("sim")
try:
    traced(x)
except RuntimeError as err:
    assert "was retired" in str(err), err
else:
    raise AssertionError("a retired device has run a program")
del others
gc.collect()
"""
        + f"tn.load_plugin({str(folder / 'tenon_sim.so')!r})"
        + """
y, said = change(lambda: traced(tn.ones(8, device="sim")))
assert said == {"program.run": 1} and y.tolist() == [3.0] * 8, said
""",
    )


def test_a_file_on_the_device(folder: Path, tmp_path: Path) -> None:
    """Constants of a program that was loaded are the device's from the start."""
    program(
        folder,
        f"""
net = nn.Sequential(nn.Linear(6, 4), nn.Tanh()).to("sim")
x = tn.randn(3, 6, device="sim")
with tn.no_grad():
    tn.jit.trace(net, x).save({str(tmp_path / "net.tng")!r})
    loaded = tn.jit.load({str(tmp_path / "net.tng")!r})
    y, said = change(lambda: loaded(x))
    assert said == {{"program.compile": 1, "program.run": 1}}, said
    assert tn.equal(y, net(x))
    frozen = tn.jit.freeze(tn.jit.trace(net.eval(), x))
    y, said = change(lambda: frozen(x))
    assert said["program.run"] == 1 and "linear" not in said and tn.equal(y, net(x)), said
""",
    )


def test_the_kit_looks_at_programs(folder: Path) -> None:
    args = ["-m", "tenon", "conform", "sim", "--mode", "test", "--op", "relu", "--dtype", "float32"]
    good = run(folder, *args)
    assert good.returncode == 0, good.stdout + good.stderr
    bad = run(folder, *args, FAULT="kernel:program.run:1")
    assert bad.returncode != 0 and "in a program" in bad.stdout, bad.stdout + bad.stderr


LIE = """
import sys
words = sys.argv[1]
def fn(x):
    return x * 2 + 1
fast = tn.jit.trace(fn, tn.ones(3, device="asked"), check_trace=False)
x = tn.ones(3, device="asked")
try:
    y = fast(x)
except ImportError as err:
    assert words and words in str(err), err
else:
    assert not words and y.tolist() == [1.0 if sys.argv[2] else 3.0] * 3, y
assert x.shape == (3,)
"""


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("behind", "the code of plugin 'asked' wrote outside of its result (TENON_CHECK)"),
        ("before", "wrote outside of its result"),
        ("input", "wrote to input 0"),
        ("header", "changed the header of result 0"),
        ("size", "changed sizes or strides of result 0"),
        ("none", ""),
        ("fails", ""),
    ],
)
def test_code_that_lies_in_check_mode(
    hearing: Path, lie: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does beside its work is an error, and nobody computes it once more; what only fails
    runs operator by operator, as ever."""
    ran = "" if lie == "fails" else "ran"
    monkeypatch.setenv("ASKED_LIE", lie)
    monkeypatch.setenv("TENON_CHECK", "1")
    done = run(hearing, "-c", "import tenon as tn" + LIE, words, ran)
    assert done.returncode == 0, done.stderr
