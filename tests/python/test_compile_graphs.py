"""compile: how many graphs there are, what they depend on, and that every call is still right."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon import library, nn
from tenon._torch import _dynamo as dynamo
from tenon._torch._dynamo.testing import CompileCounter

WEIGHT = tn.ones(2)


class Half(nn.Module):
    """A parameter, and a buffer whose value decides."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(tn.tensor([1.0, 2.0]))
        self.register_buffer("k", tn.tensor(1.0))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.w + 2

    def with_buffer(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.k.item()


def checked(fn: Callable[..., Any], calls: list[tuple[Any, ...]], **options: Any) -> CompileCounter:
    """Compiles; each call, made twice, gives what the function gives."""
    counter = CompileCounter()
    fast = tn.compile(fn, backend=counter, **options)
    for args in [c for call in calls for c in (call, call)]:
        got, wanted = fast(*args), fn(*args)
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        assert tn.equal(got.nan_to_num(77.0), wanted.nan_to_num(77.0))
    return counter


# ---- Sizes ---------------------------------------------------------------------------------------

SIZES = (2, 3, 5, 8, 13, 21)


def rows(x: tn.Tensor) -> tn.Tensor:
    return tn.relu(x @ tn.arange(12.0).reshape(4, 3)).reshape(x.shape[0] * 3) + x.shape[0]


@pytest.mark.parametrize(("dynamic", "most"), [(True, 1), (None, 2), (False, 6)])
def test_sizes(dynamic: bool | None, most: int) -> None:
    calls = [(tn.randn(n, 4),) for n in SIZES]
    assert checked(rows, calls, dynamic=dynamic).frame_count == most
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    assert checked(net, calls, dynamic=dynamic).frame_count == most


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_are_returned(dynamic: bool | None) -> None:
    """No size of another call comes back."""

    def fn(x: tn.Tensor, y: tn.Tensor) -> Any:
        return x.shape[0], x + 1, {"n": len(y)}, tn.zeros(len(x) * len(y))

    for backend in ("inductor", CompileCounter()):
        fast = tn.compile(fn, dynamic=dynamic, backend=backend)
        for i, j in ((3, 4), (5, 4), (6, 4), (7, 4), (7, 2), (7, 8), (2, 9)):
            rows, _, more, flat = fast(tn.ones(i), tn.ones(j))
            assert (rows, more, flat.shape) == (i, {"n": j}, (i * j,))


def test_marked_sizes() -> None:
    calls = [(tn.randn(n, 4),) for n in SIZES]
    dynamo.mark_dynamic(calls[0][0], 0)
    assert checked(rows, calls).frame_count == 1
    with pytest.raises(IndexError, match="no dimension 2"):
        dynamo.mark_dynamic(tn.ones(2, 2), 2)
    dynamo.mark_static(calls[0][0])
    assert checked(rows, calls, dynamic=False).frame_count == 6


def test_sizes_that_lead_elsewhere() -> None:
    """No graph stands for a size for which the function does something else."""

    def course(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if x.shape[0] > 6 else x * 3

    def halves(x: tn.Tensor) -> tn.Tensor:
        return x[: (x.shape[0] + 1) // 2] + 1

    def odd(x: tn.Tensor) -> tn.Tensor:
        return x + x.shape[0] % 2

    def turns(x: tn.Tensor) -> tn.Tensor:
        for _ in range(x.shape[0]):
            x = x + 1
        return x

    for fn in (course, halves, odd, turns):
        for dynamic in (None, True):
            checked(fn, [(tn.arange(float(n)),) for n in (4, 6, 8, 5, 2, 1, 0)], dynamic=dynamic)


# ---- Values --------------------------------------------------------------------------------------


def test_a_branch_on_data() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y.exp() - x

    up, down = tn.tensor([1.0, 2.0]), tn.tensor([-1.0, 0.5])
    assert checked(fn, [(up,), (down,), (up + 1,), (down - 1,)]).frame_count == 3
    report = dynamo.explain(fn)(up)
    assert (report.graph_count, report.graph_break_count) == (2, 1)
    assert [len(ops) for ops in report.ops_per_graph] == [3, 1] and report.op_count == 4
    (told,) = report.break_reasons
    assert "test_compile_graphs.py" in told.reason and told.graph_break
    (frame,) = told.user_stack
    assert (frame.filename, frame.name) == (__file__, "fn") and frame.line == "if y.sum() > 0:"
    lines = str(report).splitlines()
    assert lines[:6] == [
        "Graph Count: 2", "Graph Break Count: 1", "Op Count: 4", "Break Reasons:",
        "  Break Reason 1:", f"    Reason: {told.reason.splitlines()[0]}",
    ]  # fmt: skip
    assert lines.index("Ops per Graph:") < lines.index("  Ops 2:")


def test_gradients_through_a_branch() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        y = x * x
        return (y * 3 if y.sum() > 4 else y.exp()).sum()

    counter = CompileCounter()
    fast = tn.compile(fn, backend=counter)
    for value in (1.0, 3.0, 0.5, 4.0):
        grads = []
        for f in (fn, fast):
            x = tn.tensor([value, 0.25], requires_grad=True)
            f(x).backward()
            grads.append(x.grad)
        assert tn.equal(*grads)
    assert counter.frame_count == 3


def test_values_that_become_numbers() -> None:
    """Whatever is read out of a tensor, and whatever size follows from values, is no constant."""
    mine = Half()
    calls = [(tn.tensor(v),) for v in ([1.0, -1, 2], [1.0, 2, 3], [-1.0, -2, 3], [1.0, 1, 1])]
    for fn in (
        lambda x: x * x[0].item(),
        lambda x: x * sum(x.tolist()),
        lambda x: x[x > 0].sum() / x[x > 0].shape[0],
        lambda x: x * tn.nonzero(x > 0).shape[0],
        lambda x: x * tn.unique(x).shape[0],
        lambda x: x * tn.bincount(x.long().abs()).shape[0],
        lambda x: x * tn.repeat_interleave(x, x.long().abs()).shape[0],
        lambda x: x * tn.where(x > 0)[0].shape[0],
        lambda x: tn.masked_select(x, x > 1).mean(),
        lambda x: x + int(x.sum()),
        mine.with_buffer,
    ):
        if fn == mine.with_buffer:
            checked(fn, calls)
            mine.k.fill_(4.0)
        assert checked(fn, calls * 2).frame_count <= 8


def test_sizes_that_nobody_reads_end_no_graph() -> None:
    calls = [(tn.tensor(v),) for v in ([1.0, 0, 2], [1.0, 2, 3], [0.0, 0, 0], [3.0, 1, 0])]
    for fn in (
        lambda x: x[x > 0] * 2,
        lambda x: tn.where(x > 0)[0].float().sum() + x,
        lambda x: tn.cat([x[x > 0].sort().values.view(-1, 1), x.unique().unsqueeze(1)]),
    ):
        assert checked(fn, calls * 2).frame_count == 1
    for fn in (
        lambda x: x[x > 0].sort().values.size(0) + x,
        lambda x: (x.unique(return_counts=True)[1] + 1).numel() * x,
    ):
        assert checked(fn, calls * 2).frame_count > 2


def test_graph_break() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        x = x + 1
        dynamo.graph_break()
        return x * 2

    assert checked(fn, [(tn.ones(2),), (tn.zeros(2),)]).frame_count == 2
    with pytest.raises(dynamo.exc.Unsupported):
        tn.compile(fn, backend=CompileCounter(), fullgraph=True)(tn.ones(2))


def test_writes_before_a_branch_happen_once() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        x.add_(1)
        return x * 2 if x.sum() > 0 else x * 3

    fast = tn.compile(fn, backend=CompileCounter())
    for value in (3.0, -3.0, 3.0, -3.0):
        x, y = tn.full((2,), value), tn.full((2,), value)
        assert tn.equal(fast(x), fn(y)) and tn.equal(x, y)


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_cond(value: float) -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        return tn.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))

    x = tn.full((3,), value)
    assert tn.equal(fn(x), x * 2 if value > 0 else x - 1)
    calls = [(x,), (-x,)]
    assert checked(fn, calls, fullgraph=True).frame_count == 1
    with pytest.raises(RuntimeError, match=r"true_fn returns .*float32 \[3\]"):
        tn.compile(lambda x: tn.cond(x.sum() > 0, lambda a: a, lambda a: a[0], (x,)),
                   backend=CompileCounter())(x)  # fmt: skip
    with pytest.raises(RuntimeError, match="one element"):
        tn.cond(tn.ones(2) > 0, abs, abs, (x,))


def test_ways_of_cond_write_to_their_own_tensors() -> None:
    """Both are called, so that what one writes to must not be seen behind it."""
    seen = tn.zeros(2)

    def own(x: tn.Tensor) -> tn.Tensor:
        y, z = tn.zeros_like(x), tn.zeros(2)
        z[:1].copy_(y.add_(x)[1:])
        return z.mul_(2)

    def choose(way: Callable[[tn.Tensor], tn.Tensor]) -> Callable[[tn.Tensor], tn.Tensor]:
        return lambda x: tn.cond(x.sum() > 0, way, lambda a: a * 3, (x,))

    ones = tn.ones(2)
    checked(choose(own), [(ones,), (-ones,)], fullgraph=True)
    ways: list[Callable[[tn.Tensor], tn.Tensor]] = [
        lambda a: seen.add_(a), lambda a: a.mul_(2), lambda a: a[0].fill_(1) + a,
        lambda a: tn.mul(a, a, out=seen),
    ]  # fmt: skip
    for way in ways:
        with tn.no_grad(), pytest.raises(RuntimeError, match="cond: true_fn writes to a tensor"):
            tn.compile(choose(way), backend=CompileCounter())(-ones)


# ---- What graphs depend on -----------------------------------------------------------------------


def test_weights_are_read_anew() -> None:
    module, counter = Half(), CompileCounter()
    fast = tn.compile(module, backend=counter)
    x = tn.ones(2)
    for value in (1.0, 2.0, 3.0):
        with tn.no_grad():
            module.w.fill_(value)
        assert tn.equal(fast(x), module(x))
    module.load_state_dict({"w": tn.zeros(2), "k": tn.ones(())})
    assert tn.equal(fast(x), module(x)) and counter.frame_count == 1


def test_an_argument_that_is_a_weight() -> None:
    module = Half()
    other = nn.Parameter(tn.full((2,), 10.0))
    checked(module, [(module.w,), (other,)])
    checked(module, [(other,), (module.w,)])
    checked(lambda x: x * 2 + WEIGHT, [(WEIGHT,), (tn.zeros(2),)])


def test_arguments_that_share_memory() -> None:
    def fn(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        z = y + 0
        x.add_(1)
        return y * 2 + z

    fast = tn.compile(fn, backend=CompileCounter())
    for _ in range(2):
        results = []
        for f in (fn, fast):
            a, b, c, d = tn.ones(4), tn.ones(4), tn.ones(4), tn.ones(4)
            results.append([f(a, b), f(c, c), f(d[:2], d[1:3]), f(d[:2], d[2:]), d])
        assert all(tn.equal(p, q) for p, q in zip(*results, strict=True))


def test_kinds_of_arguments() -> None:
    x = tn.arange(6.0).reshape(2, 3)
    grad = x.clone().requires_grad_()
    calls = [(x,), (x.double(),), (x.t(),), (x.int(),), (x[0],), (grad.detach(),), (x[:, ::2],)]
    assert checked(lambda x: x.reshape(-1) * 2, calls, dynamic=False).frame_count <= 7
    fast = tn.compile(lambda x: x * -0.0 + 1, backend=CompileCounter())
    assert fast(grad).requires_grad and not fast(x).requires_grad
    with tn.no_grad():
        assert not fast(grad).requires_grad
    fast = tn.compile(lambda x, y: x / y, backend=CompileCounter())
    assert [fast(tn.ones(()), y).item() for y in (0.0, -0.0)] == [float("inf"), float("-inf")]


def test_hooks() -> None:
    module, seen = nn.Linear(2, 2), []
    fast = tn.compile(module, backend=CompileCounter())
    x = tn.ones(1, 2)
    fast(x)
    handle = module.register_forward_hook(lambda m, i, o: seen.append(1))
    fast(x), fast(x)
    handle.remove()
    fast(x)
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2)
    assert tn.equal(fast(x), module(x))
    handle.remove()
    assert tn.equal(fast(x), module(x)) and len(seen) == 2


def test_results_that_are_arguments_and_weights() -> None:
    class Both(Half):
        def forward(self, x: tn.Tensor) -> Any:
            return x * 2, self.w, {"x": x}

    module = Both()
    fast = tn.compile(module, backend=CompileCounter())
    for _ in range(3):
        x = tn.ones(2)
        _, w, d = fast(x)
        assert w is module.w and d["x"] is x


# ---- Calls that are taken whole ------------------------------------------------------------------


@library.custom_op("compiled::thrice", mutates_args=())
def thrice(x: tn.Tensor, by: float = 3.0) -> tn.Tensor:
    return tn.from_numpy(x.detach().numpy() * by)


thrice.register_autograd(lambda ctx, g: (g * 3, None))


class Flip(tn.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
        return -g


@pytest.mark.parametrize("fn", [thrice, Flip.apply], ids=["custom_op", "Function"])
def test_operators_of_the_program(fn: Any) -> None:
    counter = CompileCounter()
    fast = tn.compile(lambda x: fn(x * 2).sum(), backend=counter, fullgraph=True)
    for _ in range(3):
        x = tn.randn(3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        a, b = fast(x), fn(y * 2).sum()
        a.backward(), b.backward()
        assert tn.equal(a, b) and tn.equal(x.grad, y.grad)
    targets = [n.target for n in counter.graphs[0].graph.nodes if n.op == "call_function"]
    assert fn in targets and counter.frame_count == 1 and len(targets) == 3


def test_what_is_not_to_be_compiled() -> None:
    seen = []

    @tn.compiler.disable
    def side(x: tn.Tensor) -> tn.Tensor:
        seen.append(1)
        return x * 3

    counter = CompileCounter()
    fast = tn.compile(lambda x: side(x + 1) + 1, backend=counter)
    for _ in range(3):
        assert fast(tn.ones(1)).item() == 7
    assert len(seen) == 3 and counter.frame_count == 0


def test_training_steps_run_as_python() -> None:
    """The optimizer and the gradients keep something from call to call."""
    losses = []
    for wrap in (lambda f: f, lambda f: tn.compile(f, backend=CompileCounter())):
        tn.manual_seed(0)
        model = nn.Linear(2, 1)
        opt = tn.optim.Adam(model.parameters(), lr=0.1)

        def step(x: tn.Tensor, model: Any = model, opt: Any = opt) -> tn.Tensor:
            opt.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            opt.step()
            return loss.detach()

        fast = wrap(step)
        losses.append([fast(tn.ones(3, 2)).item() for _ in range(4)])
    assert losses[0] == losses[1]


# ---- Modules, stances, errors --------------------------------------------------------------------


def test_module_compile() -> None:
    module, counter = Half(), CompileCounter()
    x = tn.ones(2)
    wanted = module(x)
    module.compile(backend=counter)
    assert tn.equal(module(x), wanted) and tn.equal(module(x), wanted)
    assert counter.frame_count == 1 and list(module.state_dict()) == ["w", "k"]
    twin = copy.deepcopy(module)
    with tn.no_grad():
        twin.w.fill_(5.0)
    assert twin(x).tolist() == [7, 7] and tn.equal(module(x), wanted)
    assert counter.frame_count == 2
    again = pickle.loads(pickle.dumps(module))
    assert tn.equal(again(x), wanted) and counter.frame_count == 2
    with pytest.raises(RuntimeError, match="Invalid backend"):
        module.compile(backend="none such")


def test_stances() -> None:
    counter = CompileCounter()
    fast = tn.compile(lambda x: x + 1, backend=counter)
    with tn.compiler.set_stance("eager_on_recompile"):
        assert fast(tn.ones(2)).tolist() == [2, 2] and counter.frame_count == 0
    fast(tn.ones(2))
    with tn.compiler.set_stance("fail_on_recompile"):
        fast(tn.ones(2))
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            fast(tn.ones(2, 2))
    fast(tn.ones(2, 2))
    assert counter.frame_count == 2
    with pytest.raises(RuntimeError, match="invalid torch.compile stance"):
        tn.compiler.set_stance("never")


def test_backends_by_name() -> None:
    counter = CompileCounter()
    dynamo.register_backend(counter, name="counting")
    try:
        assert "counting" in tn.compiler.list_backends()
        assert tn.compile(lambda x: x + 1, backend="counting")(tn.ones(1)).item() == 2
        assert counter.frame_count == 1 and counter.op_count == 1
        with pytest.raises(RuntimeError, match="already"):
            dynamo.register_backend(counter, name="counting")
        dynamo.register_backend(name="tried", tags=["experimental"])(counter)
        assert "tried" not in tn.compiler.list_backends()
        assert "tried" in tn.compiler.list_backends(["debug"])
    finally:
        tn.compiler._registered.pop("counting")
        tn.compiler._registered.pop("tried", None)


def test_errors_show_the_users_line() -> None:
    table = nn.Embedding(3, 2)

    def fn(i: tn.Tensor) -> tn.Tensor:
        return table(i) + 1  # the line

    fast = tn.compile(fn, backend=CompileCounter())
    fast(tn.tensor([0, 1]))
    with pytest.raises(IndexError) as caught:
        fast(tn.tensor([0, 7]))
    assert "# the line" in "".join(traceback.format_exception(caught.value))


NUMBERS = itertools.count(1)


def test_what_changes_a_state_happens_each_time() -> None:
    """What later calls would leave out, if a graph stood for them."""
    module, store = nn.Dropout(0.5), [0.0]

    def seeds(x: tn.Tensor) -> tn.Tensor:
        tn.manual_seed(3)
        return x + 1

    def sets(x: tn.Tensor) -> tn.Tensor:
        operator.setitem(store, 0, store[0] + 1)
        return x * 2

    def counts(x: tn.Tensor) -> tn.Tensor:
        return x * next(NUMBERS)

    def switches(x: tn.Tensor) -> tn.Tensor:
        module.eval()
        return module(x)

    def wants(x: tn.Tensor) -> tn.Tensor:
        return (x * 2).detach().requires_grad_()

    x = tn.ones(2)
    fast = {
        f: tn.compile(f, backend=CompileCounter()) for f in (seeds, sets, counts, switches, wants)
    }
    draws, results = [], []
    for _ in range(3):
        fast[seeds](x)
        draws.append(tn.rand(2))
        fast[sets](x)
        results.append(fast[counts](x)[0].item())
        module.train()
        fast[switches](x)
        assert not module.training and fast[wants](x).requires_grad
    assert tn.equal(draws[0], draws[1]) and tn.equal(draws[1], draws[2])
    assert store == [3.0] and results == [1, 2, 3]


KEPT: list[tn.Tensor] = []


def test_lists_that_a_call_makes() -> None:
    def rows(x: tn.Tensor) -> tn.Tensor:
        found = []
        by_name = {}
        for row in x:
            found.append(row * 2)
            by_name.setdefault("last", row)
        found.extend([x[0], by_name["last"]])
        return tn.stack(found)

    x = tn.randn(3, 2)
    assert checked(rows, [(x,), (x + 1,)], fullgraph=True).frame_count == 1

    def keeps(x: tn.Tensor) -> tn.Tensor:
        KEPT.append(x)
        return x + 1

    def renamed(x: tn.Tensor) -> tn.Tensor:
        found = []
        found = KEPT
        found.append(x)
        return x + 1

    def given(x: tn.Tensor, found: list[tn.Tensor] = KEPT) -> tn.Tensor:  # noqa: B006
        found.append(x)
        return x + 1

    for fn in (keeps, renamed, given):
        KEPT.clear()
        fast = tn.compile(fn, backend=CompileCounter())
        for _ in range(3):
            fast(x)
        assert len(KEPT) == 3


def test_relu_in_place() -> None:
    """An operator that takes no `out`, on its own input."""
    checked(lambda x: tn.relu_(x * 2) + tn.nn.functional.elu(x - 1, inplace=True), [(tn.randn(5),)])


def test_what_happened_before_an_error_stays() -> None:
    log = []

    def fn(x: tn.Tensor) -> tn.Tensor:
        log.append(1)
        x.add_(1)
        raise ValueError("mine")

    fast, x = tn.compile(fn, backend=CompileCounter()), tn.zeros(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="mine"):
            fast(x)
    assert len(log) == 3 and x.item() == 3
