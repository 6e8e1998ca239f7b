"""Calls leave nothing behind: neither memory of the library nor objects of Python, whether they
end well or are refused. The allocators' own counts say so, exactly."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
import test_refusal_words
from both import flat
from table import call, function_of, make_case, rows, tensor_args
from test_formulas import formulas

TIMES = 40


class Counts(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]  # fmt: skip


LIBC = ctypes.CDLL(None)
OWN = "libasan" not in Path("/proc/self/maps").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(
    not (OWN and hasattr(LIBC, "mallinfo2")),
    reason="only glibc's allocator tells what is in use",
)


def in_use() -> tuple[int, int]:
    LIBC.mallinfo2.restype = Counts
    found = LIBC.mallinfo2()
    return found.uordblks + found.hblkhd, sys.getallocatedblocks()


def grows(step: Callable[[], Any]) -> str:
    """What is more in use after calls, a block each at least; "" where nothing is. What lists of
    free objects and the tables of compiled functions take until they have their lengths, some
    kilobytes in the first thousands of calls, does not grow with the number of calls."""
    for _ in range(4):
        step()
    more, times = [0, 0], 0
    for turn in range(9):
        times = TIMES << turn
        if turn:
            gc.collect()
        before = in_use()
        for _ in range(times):
            step()
        if turn:
            gc.collect()
        after = in_use()
        more = [b - a for a, b in zip(before, after, strict=True)]
        if more[0] < 16 * times and more[1] < times:
            return ""
    return f"{more[0] / times:.0f} bytes and {more[1] / times:.1f} objects a call"


@pytest.fixture(autouse=True, scope="module")
def only_what_is_new() -> Iterator[None]:
    """The collector looks at nothing that was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def bare_step(row: dict[str, Any], sample: dict[str, Any]) -> Callable[[], Any]:
    """A call of an operator, and its gradient where it has one."""
    floats = "float32" in row["dtypes"] or not row["dtypes"]
    args = tensor_args(make_case(row, sample, "float32" if floats else row["dtypes"][0]))
    written = {a["name"] for a in row["args"] if "!" in a["type"]}
    if not written:
        for t in flat(list(args.values())):
            if isinstance(t, tn.Tensor) and t.is_floating_point():
                t.requires_grad_()
    inputs = [t for t in flat(list(args.values())) if isinstance(t, tn.Tensor) and t.requires_grad]

    def step() -> None:
        ends = [t for t in flat(call(row, args)) if isinstance(t, tn.Tensor)]
        ends = [t for t in ends if t.requires_grad]
        if ends and inputs:
            tn.autograd.grad(ends, inputs, [tn.ones_like(t) for t in ends], allow_unused=True)

    return step


def step_of(row: dict[str, Any], sample: dict[str, Any]) -> Callable[[], Any]:
    """The same, where parts without a gradient and a dtype that is no text are no matter."""
    bare = bare_step(row, sample)

    def step() -> None:
        with suppress(RuntimeError, TypeError):
            bare()

    return step


def reachable(row: dict[str, Any]) -> bool:
    """Through the package, and again and again with the same arguments."""
    with suppress(AttributeError):
        return row["name"] != "unsqueeze_" and bool(row["samples"]) and callable(function_of(row))
    return False


GROUPS: dict[str, list[dict[str, Any]]] = {}
for each in filter(reachable, rows()):
    GROUPS.setdefault(each["name"].strip("_")[:1], []).append(each)


@pytest.mark.parametrize("kind", GROUPS)
def test_operators_and_gradients_leave_nothing(kind: str) -> None:
    leaks = {}
    for row in GROUPS[kind]:
        found = grows(step_of(row, row["samples"][0]))
        if found:
            leaks[row["name"]] = found
    assert not leaks


@pytest.mark.parametrize("kind", GROUPS)
def test_formulas_leave_nothing(kind: str) -> None:
    """Of operators that have kernels, too."""
    leaks = {}
    with formulas():
        for row in (r for r in GROUPS[kind] if r["composite"] and r["kind"] != "composite"):
            found = grows(step_of(row, row["samples"][0]))
            if found:
                leaks[row["name"]] = found
    assert not leaks


@pytest.mark.parametrize("name", test_refusal_words.CASES)
def test_what_is_refused_leaves_nothing(name: str) -> None:
    def step() -> None:
        with suppress(Exception):
            test_refusal_words.CASES[name][2]()

    assert not grows(step)


x, i = tn.arange(12.0).view(3, 4), tn.tensor([0, 2])
leaf = tn.ones(3, 4, requires_grad=True)


def assign(key: Any, value: Any) -> Callable[[], Any]:
    return lambda: x.__setitem__(key, value)


STEPS: dict[str, Callable[[], Any]] = {
    "a number for a place": assign((0, 1), 2.5),
    "a number for a row": assign(1, 3),
    "a number for places": assign(i, 1.5),
    "a number for a mask": assign(x > 5, 0.5),
    "a tensor for a part": assign(slice(1, None), tn.ones(2, 4)),
    "a list for a row": assign(0, [1.0, 2.0, 3.0, 4.0]),
    "reading of all kinds": lambda: (x[0], x[0, 1], x[..., None], x[i], x[x > 5], x[1:, ::2]),
    "numbers out and in": lambda: (x.tolist(), x[0, 0].item(), tn.tensor([[1.0], [2.0]])),
    "arrays and capsules": lambda: (x.numpy(), tn.from_numpy(x.numpy()), tn.from_dlpack(x)),
    "text": lambda: (repr(x), str(x.dtype), repr(x.shape)),
    "what a call would do": lambda: tn.explain("add", "cpu", tn.float32),
    "operators of Python": lambda: (x + 1, 2 - x, x @ x.t(), x == x, -x, abs(x), x**2, x.sum()),
    "in place": lambda: (x.add_(1).sub_(1), x.mul_(2).div_(2), x.clamp_(-9, 99)),
    "a hook": lambda: leaf.register_hook(lambda g: g).remove(),
    "a pass with hooks": lambda: passed_with_hooks(),
    "a pass that is recorded": lambda: tn.autograd.grad(
        tn.autograd.grad((leaf**3).sum(), leaf, create_graph=True)[0].sum(), leaf),
    "a refused pass": lambda: refused_pass(),
    "a saved tensor's hooks": lambda: packed(),
    "storages": lambda: (x.untyped_storage(), x.untyped_storage().nbytes(), x.data_ptr()),
    "views": lambda: (x.view(4, 3), x.t().reshape(12), x.expand(2, 3, 4), x.unfold(0, 2, 1)),
    "sparse": lambda: (x.to_sparse().to_dense(), x.to_sparse_csr().values()),
    "generators": lambda: tn.rand(3, generator=tn.Generator().manual_seed(3)),
    "dtypes": lambda: (x.double(), x.to(tn.int32), x.half(), tn.promote_types(tn.int8, tn.float32)),
    "lists": lambda: (tn.cat([x, x]), tn.stack([x, x]), x.split(2), x.unbind()),
    "a compiled function": lambda: compiled(),
    "a compiled function that holds itself": lambda: compiled_in_a_circle(),
    "a function that is refused": lambda: refused_function(),
    "given outputs": lambda: (tn.add(x, x, out=tn.empty(0)), tn.sort(x, out=(x + 0, x.long()))),
}  # fmt: skip


def passed_with_hooks() -> None:
    t = leaf * 2
    t.register_hook(lambda g: g * 2)
    t.retain_grad()
    t.grad_fn.register_hook(lambda *_: None)  # type: ignore[union-attr]
    t.grad_fn.register_prehook(lambda *_: None)  # type: ignore[union-attr]
    t.sum().backward()
    leaf.grad = None


def refused_pass() -> None:
    y = leaf.exp()
    y.add_(1)
    with suppress(RuntimeError):
        y.sum().backward()


def compiled() -> None:
    """Its guards look at a tensor, a number, a list, a dict and an attribute."""
    weights, how = [leaf.detach(), tn.ones(4)], {"scale": 2.0}

    def fn(a: tn.Tensor, k: int) -> tn.Tensor:
        return (a * weights[0] + weights[1]) * how["scale"] * k

    fast = tn.compile(fn)
    for _ in range(4):
        fast(x, 3)


def compiled_in_a_circle() -> None:
    net = tn.nn.Linear(4, 4)
    net.again = tn.compile(lambda a: net.forward(a).relu())
    for _ in range(4):
        net.again(x)


class Written(tn.autograd.Function):
    """Says that it has written what is no input."""

    @staticmethod
    def forward(ctx: Any, a: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        out = a * 2
        ctx.save_for_backward(a, out)
        ctx.mark_dirty(out)
        return a, out


def refused_function() -> None:
    with suppress(RuntimeError):
        Written.apply(leaf)


def packed() -> None:
    with tn.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), tn.from_numpy):
        y = leaf.detach().requires_grad_().exp().sum()
    y.backward()


@pytest.mark.parametrize("name", STEPS)
def test_what_a_tensor_does_leaves_nothing(name: str) -> None:
    assert not grows(STEPS[name])


@pytest.mark.parametrize("reset", [False, True])
def test_graphs_leave_nothing(reset: bool) -> None:
    """Tensors, memory, numbers and generators that a graph holds end with it."""
    x = tn.ones(40, 3)

    def step() -> None:
        graph, drawn = tn.Graph(), tn.Generator()
        with tn.graph(graph):
            y = (x * 2.5 + x[:, :1]).sum(1)
            y.mul_(tn.rand(40, generator=drawn))
            tn.cat([y, x.T[0]])
        graph.replay()
        if reset:
            graph.reset()

    assert not grows(step)
