"""compile: what programs rely on, and that it never changes what a program means."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import tenon as tn
from tenon import fx, nn
from tenon._torch import _dynamo as dynamo

FACTOR = 2.0


class Counted:
    """A backend that counts what it gets."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.runs = 0

    def __call__(self, gm: fx.GraphModule, example_inputs: list[tn.Tensor]) -> Any:
        assert isinstance(gm, fx.GraphModule)
        assert all(isinstance(t, tn.Tensor) for t in example_inputs)
        self.graphs.append(gm)

        def run(*args: tn.Tensor) -> Any:
            self.runs += 1
            return gm(*args)

        return run


def net() -> nn.Module:
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


# ---- Modules and functions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend", ["inductor", "eager", Counted()], ids=["name", "eager", "callable"]
)
def test_modules(backend: Any) -> None:
    model = net()
    fast = tn.compile(model, backend=backend)
    assert isinstance(fast, tn.compiler.OptimizedModule) and fast._orig_mod is model
    assert list(fast.state_dict()) == [f"_orig_mod.{k}" for k in model.state_dict()]
    assert [n for n, _ in fast.named_parameters()][0] == "_orig_mod.0.weight"
    assert fast[0] is model[0] and len(fast) == 4
    fast.eval()
    assert not model.training and not fast.training and not model[1].training
    x = tn.randn(3, 4)
    for _ in range(3):
        assert tn.equal(fast(x), model(x))
    fast.train()
    twin = copy.deepcopy(model)
    for _ in range(3):
        assert tn.equal(fast(x), twin(x))
        assert tn.equal(model[1].running_mean, twin[1].running_mean)
    fast.extra = 5
    assert model.extra == 5
    model.load_state_dict(net().state_dict())
    fast.load_state_dict(fast.state_dict())


def test_training_is_as_before() -> None:
    results = []
    for wrap in (lambda m: m, lambda m: tn.compile(m, backend=Counted())):
        model = wrap(net())
        opt = tn.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tn.manual_seed(7)
        for _ in range(5):
            x = tn.randn(6, 4)
            loss = model(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(tn.equal(a, b) for a, b in zip(*results, strict=True))


def test_functions() -> None:
    @tn.compile(mode="max-autotune")
    def double(x: tn.Tensor) -> tn.Tensor:
        """Twice."""
        return x * 2

    assert double(tn.tensor(2.0)).item() == 4 and double.__doc__ == "Twice."
    assert tn.compiler.disable(double)(tn.tensor(2.0)).item() == 4
    assert tn.compiler.list_backends() == ["cudagraphs", "inductor"]
    every = ["aot_eager", "cudagraphs", "eager", "inductor"]
    assert tn.compiler.list_backends(None) == tn.compiler.list_backends(()) == every
    with pytest.raises(RuntimeError, match="Invalid backend: 'fast'"):
        tn.compile(double, backend="fast")
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        tn.compile(double, mode="fast")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        tn.compile(double, mode="default", options={})
    model = tn.compile(nn.Linear(2, 2))
    x = tn.ones(1, 2)
    assert tn.equal(pickle.loads(pickle.dumps(model))(x), model(x))


# ---- Backends ------------------------------------------------------------------------------------


def test_a_graph_stands_for_equal_calls() -> None:
    counted = Counted()
    fn = tn.compile(lambda x, y: {"a": tn.relu(x) * FACTOR + y, "b": (x, None)}, backend=counted)
    for n in (3, 3, 4, 3):
        x, y = tn.randn(n), tn.randn(n)
        out = fn(x, y)
        assert tn.equal(out["a"], tn.relu(x) * 2.0 + y)
        assert out["b"][0] is x and out["b"][1] is None
    assert len(counted.graphs) == 2 and counted.runs == 4
    assert "relu" in counted.graphs[0].code


def test_a_backend_may_change_the_graph() -> None:
    def swap(gm: fx.GraphModule, example_inputs: Any) -> Any:
        for node in gm.graph.nodes:
            if node.op == "call_function" and node.target.__name__ == "relu":
                node.target = tn.neg
        gm.recompile()
        return gm.forward

    assert tn.compile(lambda x: tn.relu(x), backend=swap)(tn.ones(2)).tolist() == [-1, -1]


class Knob(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.times, self.table, self.w = 2, {"k": [1.0]}, nn.Parameter(tn.ones(2))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.times * self.table["k"][0] * FACTOR * self.w


def test_as_many_graphs_as_are_allowed() -> None:
    """Eight; beyond that a function runs as Python, but where the limit is lifted."""
    from tenon._torch._dynamo.utils import disable_cache_limit

    def recorded(times: range) -> int:
        counted = Counted()
        fn = tn.compile(lambda x, n: x * n, backend=counted)
        for n in times:
            assert fn(tn.ones(2), float(n)).tolist() == [n, n]
        return len(counted.graphs)

    assert recorded(range(12)) == 8
    with disable_cache_limit():
        assert recorded(range(12)) == 12
    assert recorded(range(12)) == 8


def test_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the call depended on, a change of it is seen."""
    counted = Counted()
    module = Knob()
    fn = tn.compile(module, backend=counted)
    x = tn.ones(2)

    def check(graphs: int) -> None:
        for _ in range(2):
            assert tn.equal(fn(x), module(x))
        assert len(counted.graphs) == graphs

    check(1)
    module.times = 3
    check(2)
    module.table["k"][0] = 5.0
    check(3)
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    check(4)
    with tn.no_grad():
        assert not fn(x).requires_grad
        module.w.mul_(2)  # a value of a weight is no reason
    assert len(counted.graphs) == 5
    check(5)
    module.w = nn.Parameter(tn.full((2,), 4.0))
    check(6)
    tn.compiler.reset()
    check(7)


def test_closures_and_keywords() -> None:
    counted, scale = Counted(), 3.0

    def fn(x: tn.Tensor, *, power: int = 2) -> tn.Tensor:
        return x**power * scale

    fast = tn.compile(fn, backend=counted)
    x = tn.tensor([2.0])
    assert [fast(x).item(), fast(x, power=3).item(), fast(x, power=2).item()] == [12, 24, 12]
    scale = 5.0
    assert fast(x).item() == 20


def test_python_that_matters_runs_each_time() -> None:
    seen: list[int] = []
    counts = {"calls": 0}

    def listed(x: tn.Tensor) -> tn.Tensor:
        seen.append(1)
        return x + 1

    def counting(x: tn.Tensor) -> tn.Tensor:
        counts["calls"] += 1
        return x + 1

    def branch(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    for fn in (listed, counting, branch):
        fast = tn.compile(fn, backend=Counted())
        for x in (tn.ones(2), -tn.ones(2), tn.ones(2)):
            assert tn.equal(fast(x), fn(x))
    assert len(seen) == 6 and counts["calls"] == 6
    report = dynamo.explain(branch)(tn.ones(2))
    assert (report.graph_count, report.graph_break_count) == (2, 1)
    assert "test_compile.py" in report.break_reasons[0].reason
    report = dynamo.explain(listed)(tn.ones(2))
    assert report.graph_count == 0 and "test_compile.py" in report.break_reasons[0].reason
    with pytest.raises(dynamo.exc.Unsupported if hasattr(dynamo, "exc") else RuntimeError,
                       match="no graph"):  # fmt: skip
        tn.compile(branch, backend=Counted(), fullgraph=True)(tn.ones(2))


def test_random_numbers_and_writes() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        x.add_(1)
        return x * tn.rand(2)

    fast = tn.compile(fn, backend=Counted())
    results = []
    for f in (fn, fast):
        tn.manual_seed(0)
        x = tn.zeros(2)
        results.append([f(x) for _ in range(3)] + [x])
    assert all(tn.equal(a, b) for a, b in zip(*results, strict=True))


def test_errors_are_the_functions_own() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tn.compile(fn, backend=Counted())(tn.ones(1))
    assert not tn.compiler.is_compiling()
    with tn.compiler.set_stance("force_eager"):
        counted = Counted()
        tn.compile(lambda x: x + 1, backend=counted)(tn.ones(1))
    assert not counted.graphs
