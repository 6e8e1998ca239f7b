"""compile without a backend: programs stand for calls, and nobody can tell but by the time."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon.overrides import TorchFunctionMode

SCALE = 2.0
SPACE = types.ModuleType("space")
SPACE.scale, SPACE.inner = 2.0, types.ModuleType("inner")  # type: ignore[attr-defined]
SPACE.inner.scale = 2.0  # type: ignore[attr-defined]


def ways(fast: Any) -> int:
    """In how many short ways a compiled function can be called."""
    if isinstance(fast, tn.compiler.OptimizedModule):
        return len(fast._ways)
    return len(fast._compiled.ways)


def net() -> nn.Module:
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))


# ---- A program stands for calls ------------------------------------------------------------------


def test_a_program_runs() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor, k: float, *, c: tn.Tensor) -> Any:
        return {"y": (tn.relu(a * b + c) * k - a, None), "z": a}

    fast = tn.compile(fn)
    for n in (5, 5, 7, 9, 7):
        a, b, c = tn.randn(3, n, 4)
        out, wanted = fast(a, b, 1.5, c=c), fn(a, b, 1.5, c=c)
        assert tn.equal(out["y"][0], wanted["y"][0]) and out["y"][1] is None and out["z"] is a
    assert ways(fast) == 2  # one size, and any
    assert [e.program.fused for e in fast._compiled.entries] == [[(0, 5)], [(0, 5)]]
    assert tn.equal(fast(a, b, 2.5, c=c)["y"][0], fn(a, b, 2.5, c=c)["y"][0])
    assert tn.equal(fast(a, b, c=c, k=2.5)["y"][0], fn(a, b, 2.5, c=c)["y"][0])


def test_python_is_left_out() -> None:
    ran: list[str] = []

    class Noisy(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return helper(x) * 2

    def helper(x: tn.Tensor) -> tn.Tensor:
        return x + 1

    fast, x = tn.compile(Noisy()), tn.ones(3)
    fast(x)
    code = helper.__code__
    import sys

    sys.setprofile(lambda frame, event, arg: ran.append(frame.f_code.co_name)
                   if frame.f_code is code else None)  # fmt: skip
    try:
        assert fast(x).tolist() == [4.0, 4.0, 4.0]
    finally:
        sys.setprofile(None)
    assert not ran and ways(fast) == 1


def test_training() -> None:
    results = []
    for wrap in (lambda m: m, tn.compile):
        model = wrap(net())
        opt = tn.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tn.manual_seed(7)
        for _ in range(6):
            loss = model(tn.randn(6, 4)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        results.append([p.detach().clone() for p in model.parameters()] + [loss])
        results[-1].append(getattr(model, "_orig_mod", model)[1].running_mean)
    assert ways(model) == 1
    assert all(tn.equal(a, b) for a, b in zip(*results, strict=True))


def test_gradients_of_inputs() -> None:
    fast = tn.compile(lambda x: (x * x).sin())
    for wants in (True, False, True):
        x = tn.randn(4, requires_grad=wants)
        y = fast(x)
        assert y.requires_grad is wants
        if wants:
            (grad,) = tn.autograd.grad(y.sum(), x)
            assert tn.allclose(grad, 2 * x * (x * x).cos())
    assert ways(fast) == 2


# ---- What a call depends on ----------------------------------------------------------------------


class Plain:
    def __init__(self) -> None:
        self.scale = 2.0


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


class Act:
    scale = 2.0

    def __call__(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.scale


class Net(nn.Module):
    scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = Act()

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return self.act(self.lin(x)) * self.scale


def _global() -> Any:
    def change() -> None:
        globals()["SCALE"] += 1.0

    return lambda x: x * SCALE, change


def _of_a_module() -> Any:
    def change() -> None:
        SPACE.scale += 1.0  # type: ignore[attr-defined]

    return lambda x: x * SPACE.scale, change  # type: ignore[attr-defined]


def _of_an_inner_module() -> Any:
    def change() -> None:
        SPACE.inner.scale += 1.0  # type: ignore[attr-defined]

    return lambda x: x * SPACE.inner.scale, change  # type: ignore[attr-defined]


def _of_a_class() -> Any:
    class Config:
        scale = 2.0

    def change() -> None:
        Config.scale += 1.0

    return lambda x: x * Config.scale, change


def _class_of_a_module() -> Any:
    class Own(Net):
        pass

    return Own(), lambda: setattr(Own, "scale", Own.scale + 1.0)


def _forward_of_a_class() -> Any:
    class Own(Net):
        pass

    return Own(), lambda: setattr(Own, "forward", lambda self, x: x - 1)


def _class_of_a_callable() -> Any:
    class Own(Act):
        pass

    own = Own()
    return lambda x: own(x), lambda: setattr(Own, "scale", Own.scale + 1.0)


def _attribute(kind: type) -> Any:
    own = kind()
    return lambda x: x * own.scale, lambda: setattr(own, "scale", own.scale + 1.0)


def _deep() -> Any:
    table = {"a": [[{"b": ([[2.0]],)}]]}

    def change() -> None:
        table["a"][0][0]["b"][0][0][0] += 1.0

    return lambda x: x * table["a"][0][0]["b"][0][0][0], change


def _cell() -> Any:
    scale = 2.0

    def change() -> None:
        nonlocal scale
        scale += 1.0

    return lambda x: x * scale, change


def _default() -> Any:
    def fn(x: tn.Tensor, scale: float = 2.0) -> tn.Tensor:
        return x * scale

    return fn, lambda: setattr(fn, "__defaults__", (5.0,))


def _default_of_a_helper() -> Any:
    def helper(x: tn.Tensor, scale: float = 2.0) -> tn.Tensor:
        return x * scale

    return lambda x: helper(x), lambda: setattr(helper, "__defaults__", (5.0,))


def _decorated() -> Any:
    scale = [2.0]

    @tn.no_grad()
    def helper(x: tn.Tensor) -> tn.Tensor:
        return x * scale[0]

    return lambda x: helper(x), lambda: scale.append(scale.pop() + 1.0)


def _attribute_of_a_function() -> Any:
    def helper() -> None:
        pass

    helper.scale = 2.0  # type: ignore[attr-defined]
    return lambda x: x * helper.scale, lambda: setattr(helper, "scale", 5.0)  # type: ignore[attr-defined]


def _partial() -> Any:
    scale = [2.0]
    part = functools.partial(lambda s, x: x * s[0], scale)
    return lambda x: part(x), lambda: scale.append(scale.pop() + 1.0)


def _set() -> Any:
    on = {"a"}
    return lambda x: x * (2 if "b" in on else 3), lambda: on.add("b")


def _array() -> Any:
    array = np.ones(3, dtype=np.float32)

    def change() -> None:
        array[0] += 1.0

    return lambda x: x * tn.tensor(array), change


def _iterator() -> Any:
    stream = [iter([1.0] * 2 + [2.0] * 20)]

    def fn(x: tn.Tensor) -> tn.Tensor:
        for value in stream[0]:
            return x * value
        return x

    return fn, lambda: stream.append(iter([1.0] * 2 + [2.0] * 20)) or stream.pop(0)


def _parameter() -> Any:
    own = Net()
    return own, lambda: setattr(own.lin, "weight", nn.Parameter(tn.randn(3, 3)))


def _data() -> Any:
    own = Net()
    return own, lambda: setattr(own.lin.weight, "data", tn.randn(3, 3))


def _submodule() -> Any:
    own = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    return own, lambda: own.__setitem__(1, nn.Tanh())


def _hook() -> Any:
    own = Net()
    return own, lambda: own.lin.register_forward_hook(lambda m, args, out: out + 1)


def _hook_of_all() -> Any:
    own, handles = Net(), []

    def change() -> None:
        hook = tn.nn.modules.module.register_module_forward_hook
        handles.append(hook(lambda m, args, out: out + 1))

    change.undo = lambda: [h.remove() for h in handles]  # type: ignore[attr-defined]
    return own, change


def _train() -> Any:
    own = net()
    own[0] = nn.Linear(3, 8)
    return own, own.eval


_cases = [
    _global, _of_a_module, _of_an_inner_module, _of_a_class, _class_of_a_module,
    _forward_of_a_class, _class_of_a_callable, lambda: _attribute(Plain),
    lambda: _attribute(Slotted), _deep, _cell, _default, _default_of_a_helper, _decorated,
    _attribute_of_a_function, _partial, _set, _array, _iterator, _parameter, _data, _submodule,
    _hook, _hook_of_all, _train,
]  # fmt: skip


@pytest.mark.parametrize("make", _cases, ids=lambda f: getattr(f, "__name__", "attribute"))
def test_changes_are_seen(make: Callable[[], Any]) -> None:
    """A twin that nobody compiled goes through the same changes."""
    before = SCALE, SPACE.scale, SPACE.inner.scale  # type: ignore[attr-defined]
    histories = []
    for wrap in (lambda f: f, tn.compile):
        globals()["SCALE"], SPACE.scale, SPACE.inner.scale = before  # type: ignore[attr-defined]
        tn.manual_seed(0)
        fn, change = make()
        fast = wrap(fn)
        tn.manual_seed(1)
        seen = []
        for step in range(5):
            seen += [fast(tn.full((3, 3), 1.0 + step)).detach().clone() for _ in range(3)]
            change()
        getattr(change, "undo", lambda: None)()
        histories.append(seen)
    assert all(tn.equal(a, b) for a, b in zip(*histories, strict=True))


_held = nn.Parameter(tn.ones(2))


@pytest.mark.parametrize("fn", [
    lambda x: x + _held.grad, lambda x: x + x._version, lambda x: x + _held.grad.mul(2),
    lambda x: x + tn.get_num_threads(), lambda x: x if _held.grad[0] > 2 else x * 2,
])  # fmt: skip
def test_what_nobody_compares_is_looked_at_each_time(fn: Any) -> None:
    fast, threads = tn.compile(fn), tn.get_num_threads()
    for step in range(1, 5):
        _held.grad = tn.full((2,), float(step))
        tn.set_num_threads(1 + step % 2)
        x = tn.zeros(2)
        for _ in range(step):
            x.add_(1)
        assert tn.equal(fast(x), fn(x))
    tn.set_num_threads(threads)


def test_modes() -> None:
    seen: list[Any] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # noqa: ANN204
            seen.append(func)
            return func(*args, **(kwargs or {}))

    model, x = net().eval(), tn.randn(2, 4)
    fast = tn.compile(model)
    wanted = model(x)

    def check(requires: bool = True) -> None:
        for _ in range(2):
            y = fast(x)
            assert tn.equal(y.detach(), wanted.detach()) and y.requires_grad is requires

    check()
    with tn.no_grad():
        check(False)
    with tn.inference_mode():
        check(False)
        assert fast(x).is_inference()
    with tn.autocast("cpu", dtype=tn.bfloat16):
        assert fast(x).dtype is tn.bfloat16
    with Spy():
        check()
        assert seen
    check()
    fill = tn.compile(lambda x: x + tn.ones(2))
    assert fill(tn.ones(2)).dtype is tn.float32
    tn.set_default_dtype(tn.float64)
    try:
        assert fill(tn.ones(2, dtype=tn.float32)).dtype is tn.float64
    finally:
        tn.set_default_dtype(tn.float32)
    made = tn.compile(lambda x: (x, tn.ones(2)))
    made(x), made(x)
    with tn.device("meta"):
        assert made(x)[1].is_meta
    with tn.compiler.set_stance("force_eager"), Spy():
        fast(x)


def test_arguments() -> None:
    def fn(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        x.mul_(2)
        return y + x

    fast = tn.compile(fn)

    def check(make: Callable[[], tuple[Any, Any]]) -> None:
        for _ in range(2):
            assert tn.equal(fast(*make()), fn(*make()))

    base = tn.arange(8.0)
    check(lambda: (base[:4].clone(), base[4:].clone()))
    check(lambda: (base.clone(),) * 2)
    check(lambda: (lambda b: (b[:4], b[2:6]))(base.clone()))
    check(lambda: (base.clone().view(2, 4).t(), tn.ones(4, 2)))
    check(lambda: (tn.ones(4, dtype=tn.float64), tn.ones(4)))
    check(lambda: (tn.ones(1), tn.ones(4)))
    check(lambda: (tn.ones(0), tn.ones(0)))
    weight = nn.Parameter(tn.ones(3))
    fast = tn.compile(lambda x: x * weight)
    assert tn.equal(fast(tn.ones(3)), weight) and tn.equal(fast(weight), weight * weight)
    for bad in (tn.ones(2), tn.ones(3, 2)):
        with pytest.raises(RuntimeError):
            fast(bad)
    assert fast(tn.ones(3)).requires_grad


def test_arguments_that_are_not_contiguous() -> None:
    base = tn.arange(96.0)
    forms = [base[:24].view(4, 6), base[:24].view(6, 4).t(), base[:48].view(4, 12)[:, ::2],
             base.view(8, 12)[::2, :6], base[:24].view(4, 6)]  # fmt: skip
    fast = tn.compile(lambda x: (x + 1) * x)
    for _ in range(3):
        for x in forms:
            y, wanted = fast(x), (x + 1) * x
            assert tn.equal(y, wanted) and y.stride() == wanted.stride()
    assert ways(fast) == 4
    image = tn.randn(2, 3, 4, 5).to(memory_format=tn.channels_last)
    conv = tn.compile(nn.Conv2d(3, 2, 3))
    for _ in range(3):
        y, wanted = conv(image), conv._orig_mod(image)
        assert tn.equal(y, wanted) and y.stride() == wanted.stride()
    assert ways(conv) == 1


def test_containers_among_arguments() -> None:
    def fn(batch: Any, rows: Any = (), **more: Any) -> tn.Tensor:
        total = batch["x"] * batch["k"]
        for row, factor in rows:
            total = total - row * factor
        for i, name in enumerate(more):
            total = total + more[name] * (i + 1)
        return total

    x, y, z, v, w = tn.randn(5, 3, 2)
    y, z, v, w = (t.clone() for t in (y, z, v, w))
    x = x.clone()
    fast = tn.compile(fn)
    calls: list[Any] = [
        (({"x": x, "k": 2.0},), {}), (({"x": x, "k": 3.0},), {}),
        (({"k": 2.0, "x": x}, [(y, 1), (z, 2)]), {}), (({"x": x, "k": 2.0}, ((y, 1), (z, 2))), {}),
        (({"x": x, "k": 2.0}, [(y, 1), (z, 3)]), {"a": v, "b": w}),
        (({"x": x, "k": 2.0}, [(y, 1), (z, 3)]), {"b": w, "a": v}),
        (({"x": x, "k": 2.0}, [(y, 1), (z, 3)]), {"a": w, "b": v}),
        (({"x": x, "k": 2.0}, [(x, 1)]), {}), (({"x": x, "k": 2.0}, []), {}),
    ]  # fmt: skip
    for _ in range(3):
        for args, kwargs in calls:
            assert tn.equal(fast(*args, **kwargs), fn(*args, **kwargs))
    assert 6 <= ways(fast) <= 8
    deep: Any = x
    for _ in range(12):
        deep = [deep]
    nested = tn.compile(lambda t: tn.utils._pytree.tree_leaves(t)[0] + 1)
    assert tn.equal(nested(deep), x + 1) and tn.equal(nested(deep), x + 1)


def test_numbers_among_arguments() -> None:
    fast = tn.compile(lambda x, k, flag: x * k if flag else x + k)
    x = tn.ones(1)
    for k in (0.0, -0.0, 2, 2.0, float("nan"), 1, True):
        for flag in (True, False, 1):
            for _ in range(2):
                got, wanted = fast(x, k, flag), x * k if flag else x + k
                assert repr(got.tolist()) == repr(wanted.tolist())


# ---- What it leaves behind -----------------------------------------------------------------------


def test_results_are_new() -> None:
    """Memory that the call makes is made in each call."""

    def fn(x: tn.Tensor) -> Any:
        return tn.tensor([1.0, 2.0]).view(2, 1), x + 1

    fast = tn.compile(fn)
    for _ in range(3):
        made, _ = fast(tn.ones(1))
        assert made.tolist() == [[1.0], [2.0]]
        made.zero_()


def test_errors() -> None:
    def fn(x: tn.Tensor, n: int) -> tn.Tensor:
        x.add_(1)
        return x.reshape(-1, n)

    fast = tn.compile(fn)
    for _ in range(3):
        x = tn.zeros(6)
        assert fast(x, 3).shape == (2, 3) and x[0] == 1
    x = tn.zeros(7)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="reshape|shape"):
            fast(x, 3)
    assert x[0] == 2
    index = tn.compile(lambda x, i: x[i] * 2)
    assert index(tn.arange(3), tn.tensor([1])).tolist() == [2]
    for _ in range(2):
        with pytest.raises(IndexError) as err:
            index(tn.arange(3), tn.tensor([5]))
        assert any("test_compile_default" in str(e.path) for e in err.traceback[1:])


def test_modules_are_freed() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(2, 2)
            self.fast = tn.compile(self.work)

        def work(self, x: tn.Tensor) -> tn.Tensor:
            return self.lin(x)

    own = Own()
    for _ in range(3):
        own.fast(tn.ones(1, 2))
    assert ways(own.fast) == 1
    gone = weakref.ref(own)
    del own
    gc.collect()
    assert gone() is None


def test_a_recording_that_fails_keeps_nothing() -> None:
    gone: list[Any] = []

    def fn(x: tn.Tensor) -> int:
        print("", end="")
        for _ in range(4):
            x = x + 1
            gone.append(weakref.ref(x))
        return sum(g() is not None for g in gone)

    assert tn.compile(fn)(tn.ones(2)) == 1


def test_functions_that_are_no_graph_run_as_python() -> None:
    calls: list[int] = []

    def fn(x: tn.Tensor) -> tn.Tensor:
        calls.append(1)
        return x + 1 if x.sum() > 0 else x - 1

    fast = tn.compile(fn, fullgraph=True)
    for i in range(3):
        assert fast(tn.ones(1)).item() == 2 and fast(-tn.ones(1)).item() == -2
        assert len(calls) == 2 * i + 2
    assert ways(fast) == 0


def test_generators_and_views() -> None:
    def rows() -> Iterator[int]:
        yield from range(3)

    def fn(x: tn.Tensor) -> tn.Tensor:
        out = tn.zeros(3)
        out[1:].add_(x[0])
        return sum((out * i for i in rows()), x)

    fast = tn.compile(fn)
    for i in range(4):
        x = tn.arange(3.0) + i
        assert tn.equal(fast(x), fn(x))
    assert ways(fast) == 1
    twos = (2.0 for _ in range(3))  # ends while calls go on
    used = tn.compile(lambda x: x * sum(next(iter([t])) for t in twos))
    assert [used(tn.ones(1)).item() for _ in range(3)] == [6.0, 0.0, 0.0]


def test_explain_says_what_is_fused() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        return (nn.functional.gelu(x) * 2 + 1).sum(0) * 3 - 1

    said = tn.compiler.explain(fn)(tn.ones(4, 3))
    assert said.fused == [
        "one kernel: gelu, mul, add; then sum, which has the shape [3]", "one kernel: mul, sub",
    ]  # fmt: skip
    assert "runs as one kernel: mul, sub" in str(said)
    said = tn.compiler.explain(lambda x: (x * 2 + 1).add_(1))(tn.ones(3))
    assert said.fused == ["one kernel: mul, add; then add, which writes to memory that is there"]
    assert tn.compiler.explain(lambda x: x * 2 if x.sum() > 0 else x)(tn.ones(3)).fused == []


def test_writes_by_data_are_none_that_a_gradient_sees() -> None:
    """What `.data` of a computed value is written to is there in every call, and no error later."""

    def clamped(x: tn.Tensor) -> tn.Tensor:
        y = (x * 2).exp()
        y.data.clamp_(max=1.5)
        return (y * y).sum()

    def cut(x: tn.Tensor) -> tn.Tensor:
        y = (x * 2).exp()
        y.data[1:].zero_()
        return (y * y).sum()

    def marked(x: tn.Tensor) -> tn.Tensor:
        y = (x * 2).exp()
        y.detach()[1:].zero_()
        return (y * y).sum()

    for fn in (clamped, cut, marked):
        for backend in ("inductor", lambda gm, inputs: gm.forward):
            fast = tn.compile(fn, backend=backend)
            for n in (3, 3, 4, 3):
                x = tn.randn(n, requires_grad=True)
                y = x.detach().clone().requires_grad_()
                got, wanted = fast(x), fn(y)
                assert tn.equal(got, wanted)
                if fn is marked:
                    for out in (got, wanted):
                        with pytest.raises(RuntimeError, match="modified by an inplace"):
                            out.backward()
                    continue
                got.backward()
                wanted.backward()
                assert tn.equal(x.grad, y.grad)
    with tn.no_grad():  # no history: a program stands for it
        fast = tn.compile(clamped)
        for _ in range(3):
            assert tn.equal(fast(tn.ones(2)), clamped(tn.ones(2)))
        assert ways(fast) == 1


@pytest.mark.parametrize("options", [{}, {"backend": lambda gm, inputs: gm.forward}])
def test_sizes_that_lie_side_by_side_make_no_rule(options: dict[str, Any]) -> None:
    """Of 4 and 5 elements every second one is 2 and 3, which is no size less two."""

    def second(x: tn.Tensor) -> tn.Tensor:
        y = x[:, ::2]
        return y * y.shape[1]

    def first(x: tn.Tensor) -> tn.Tensor:
        y = x.chunk(2, 1)[0]
        return y * y.shape[1] + y.sum(1, keepdim=True)

    def pooled(x: tn.Tensor) -> tn.Tensor:
        return nn.functional.max_pool1d(x[None], 3, 2, 1) * 2

    def cut(x: tn.Tensor) -> tn.Tensor:
        return x[:, :3] * 2

    def far(x: tn.Tensor) -> tn.Tensor:
        return x[:, :12] * x[:, :12].shape[1]

    def spectrum(x: tn.Tensor) -> tn.Tensor:
        return tn.fft.rfft(x).abs() + 1

    for fn in (second, first, pooled, cut, far, spectrum):
        for sizes in ((4, 5, 9, 12, 2, 7, 4), (9, 8, 16, 3, 30), (20, 21, 5, 40)):
            fast = tn.compile(fn, **options)
            for n in sizes:
                x = tn.randn(2, n)
                assert tn.equal(fast(x), fn(x)), (fn.__name__, sizes, n)


def test_a_third_size_is_tried_beside_no_one() -> None:
    """What is called once is done once, and what follows by a rule has two graphs as ever."""
    calls: list[int] = []

    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", tn.zeros(()))

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            self.total += x.sum()
            return x * self.total

    cache = tn.zeros(4)
    plain, model = Adds(), Adds()
    fast, keeps = tn.compile(model), tn.compile(lambda x: (cache.add_(1)[0] * x).sum())
    for i, n in enumerate((4, 5, 9, 4), 1):
        x = tn.randn(n)
        assert tn.equal(fast(x), plain(x)) and tn.equal(model.total, plain.total)
        assert tn.equal(keeps(x), (x * i).sum()) and cache.tolist() == [i] * 4
    grows = tn.compile(lambda x: tn.cat([x, x]).reshape(-1) * x.shape[0] + len(calls))
    for n in (4, 5, 9, 12, 3):
        x = tn.randn(n)
        assert tn.equal(grows(x), tn.cat([x, x]) * n)
    assert ways(grows) == 2
