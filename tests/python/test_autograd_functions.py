"""The functions and decorators of autograd: products with Jacobians and Hessians in closed form,
what strict mode refuses, Functions of one's own, modes around classes and generators."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
import stored
import tenon
from tenon import _C
from tenon.autograd import Function, functional, graph
from tenon.autograd.function import InplaceFunction, once_differentiable
from tenon.overrides import BaseTorchFunctionMode, TorchFunctionMode
from tenon.utils.hooks import RemovableHandle


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    tenon.set_default_dtype(tenon.float64)
    yield
    tenon.set_default_dtype(tenon.float32)


A, B = 1.5, -0.75


def pair(x: Any, y: Any) -> Any:
    """(x^2 y, x + y^3): rows [2xy, x^2] and [1, 3y^2] of the Jacobian."""
    return x**2 * y, x + y**3


def cube(x: Any, y: Any) -> Any:
    """x^3 y^2: its Hessian is [[6x y^2, 6x^2 y], [6x^2 y, 2x^3]]."""
    return x**3 * y**2


JACOBIAN = np.array([[2 * A * B, A * A], [1, 3 * B * B]])
HESSIAN = np.array([[6 * A * B**2, 6 * A * A * B], [6 * A * A * B, 2 * A**3]])


def numbers(values: Any) -> np.ndarray:
    return np.array([float(v.detach()) for v in values])


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("create_graph", [True, False])
def test_products_with_jacobians(create_graph: bool, recording: bool) -> None:
    xs = tuple(tenon.tensor(v, requires_grad=True) for v in (A, B))
    v = (tenon.tensor(2.0), tenon.tensor(-1.0))
    seed = np.array([2.0, -1.0])
    with tenon.set_grad_enabled(recording):
        for found, values, want in (
            (functional.vjp(pair, xs, v, create_graph), pair(A, B), seed @ JACOBIAN),
            (functional.jvp(pair, xs, v, create_graph), pair(A, B), JACOBIAN @ seed),
            (functional.vhp(cube, xs, v, create_graph), (cube(A, B),), seed @ HESSIAN),
            (functional.hvp(cube, xs, v, create_graph), (cube(A, B),), HESSIAN @ seed),
        ):
            outputs = found[0] if isinstance(found[0], tuple) else (found[0],)
            np.testing.assert_allclose(numbers(outputs), values)
            np.testing.assert_allclose(numbers(found[1]), want)
            assert all(t.requires_grad is create_graph for t in (*outputs, *found[1]))
        matrix = functional.jacobian(pair, xs, create_graph)
        second = functional.hessian(cube, xs, create_graph)
    np.testing.assert_allclose([numbers(row) for row in matrix], JACOBIAN)
    np.testing.assert_allclose([numbers(row) for row in second], HESSIAN)
    assert matrix[0][0].requires_grad is create_graph and not xs[0].grad
    if create_graph:
        (slope,) = tenon.autograd.grad(matrix[0][0], xs[1])  # of 2xy
        assert float(slope) == 2 * A


def test_shapes_of_jacobians() -> None:
    x = tenon.arange(6.0).view(2, 3)
    found = functional.jacobian(lambda x: x.sum(1), x)
    np.testing.assert_array_equal(found.numpy(), np.eye(2)[:, :, None] * np.ones(3))
    assert functional.jacobian(lambda x: x[:0], x).shape == (0, 3, 2, 3)
    assert functional.hessian(lambda x: (x**2).sum().reshape(1, 1), x).shape == (2, 3, 2, 3)
    one, slope = functional.vjp(lambda x: (x**2).sum(), x)  # no seed: the one element's is 1
    assert float(one) == 55 and slope.tolist() == (2 * x).tolist()


def test_what_does_not_depend_on_its_input() -> None:
    x, y = tenon.ones(2), tenon.ones(2)
    constant = tenon.zeros(2)
    for fn, inputs in ((lambda x: constant, x), (lambda x, y: x * 2, (x, y))):
        found = functional.jacobian(fn, inputs)
        last = found[-1] if isinstance(found, tuple) else found
        assert last.tolist() == [[0, 0], [0, 0]]
        for product in (functional.vjp, functional.jvp):
            v = inputs if product is functional.jvp else tenon.ones(2)
            product(fn, inputs, v)
            with pytest.raises(RuntimeError, match="strict mode"):
                product(fn, inputs, v, strict=True)
        with pytest.raises(RuntimeError, match="strict mode"):
            functional.jacobian(fn, inputs, strict=True)
    assert functional.hvp(lambda x: x.sum(), x, x)[1].tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="strict mode"):
        functional.hvp(lambda x: constant.sum(), x, x, strict=True)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: functional.vjp(lambda x: x, x), RuntimeError, "v can only be None"),
        (lambda x: functional.vjp(lambda x: x, x, x[:1]), RuntimeError, "v has invalid size"),
        (
            lambda x: functional.vjp(lambda x: x, x, (x, x)),
            RuntimeError,
            "should contain a single Tensor",
        ),
        (lambda x: functional.vjp(lambda x: 1.0, x), TypeError, "given to vjp must be either"),
        (lambda x: functional.vjp(lambda x: x, x, [1.0]), TypeError, "v given to vjp must"),
        (lambda x: functional.vjp(lambda x: x, [x]), TypeError, "inputs given to vjp must"),
        (lambda x: functional.hessian(lambda x: (x,), x), RuntimeError, "return a single Tensor"),
        (lambda x: functional.hvp(lambda x: x, x, x), RuntimeError, "contain a single"),
        (
            lambda x: functional.jacobian(lambda x: x, x, strategy="both"),
            AssertionError,
            "strategy",
        ),
    ],
)
def test_what_functional_refuses(call: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        call(tenon.ones(2))


def test_old_arguments_of_backward() -> None:
    x = tenon.ones(2, requires_grad=True)
    tenon.autograd.backward(x * 3, grad_variables=tenon.tensor([1.0, 2.0]))
    assert x.grad.tolist() == [3, 6]
    with pytest.raises(RuntimeError, match="both passed"):
        tenon.autograd.backward(x * 3, tenon.ones(2), grad_variables=tenon.ones(2))
    with pytest.raises(RuntimeError, match="got 1 tensors and 2 gradients"):
        tenon.autograd.backward(x * 3, (tenon.ones(2), tenon.ones(2)))


def test_anomaly_mode_is_switched_and_comes_back() -> None:
    from tenon.autograd import anomaly_mode as a

    assert not tenon.is_anomaly_enabled()
    with tenon.autograd.set_detect_anomaly(True, check_nan=False):
        assert tenon.is_anomaly_enabled() and not a.is_anomaly_check_nan_enabled()
        with tenon.autograd.detect_anomaly():
            assert a.is_anomaly_check_nan_enabled()
        assert tenon.is_anomaly_enabled() and not a.is_anomaly_check_nan_enabled()
    assert not tenon.is_anomaly_enabled()
    switch = tenon.autograd.set_detect_anomaly(True)
    assert tenon.is_anomaly_enabled() and a.is_anomaly_check_nan_enabled()
    switch.__exit__(None, None, None)
    assert not tenon.is_anomaly_enabled()


def test_edges_of_the_graph() -> None:
    x = tenon.ones(4, requires_grad=True)
    parts = (x * 2).split(2)
    assert graph.get_gradient_edge(parts[1])[:2] == (parts[1].grad_fn, 1)
    end = graph.get_gradient_edge(x)
    assert end.output_nr == 0 and end.node.variable is x
    assert end.node == graph.AccumulateGrad(x) and end.node != graph.AccumulateGrad(parts[0])
    with pytest.raises(RuntimeError, match="does not require"):
        graph.get_gradient_edge(tenon.ones(1))


def test_passes_begin_and_end_at_edges() -> None:
    x = tenon.tensor([0.5, 2.0], requires_grad=True)
    y = x * 3
    z = y.exp()
    middle, start = graph.get_gradient_edge(y), graph.get_gradient_edge(x)
    total = graph.get_gradient_edge(z.sum())
    want = z.detach().clone()
    del y, z
    assert tenon.autograd.grad(total, middle, retain_graph=True)[0].allclose(want)
    both = tenon.autograd.grad([total], [start, x], retain_graph=True)
    assert both[0].allclose(3 * want) and both[1].equal(both[0])
    seed = (tenon.tensor(2.0),)
    (twice,) = tenon.autograd.grad((total,), (start,), seed, retain_graph=True)
    assert twice.allclose(6 * want)
    tenon.autograd.backward(total)
    assert x.grad.allclose(3 * want)
    parts = (x * 2).split(1)
    (second,) = tenon.autograd.grad(graph.GradientEdge(parts[0].grad_fn, 1), x)
    assert second.tolist() == [0.0, 2.0]
    with pytest.raises(ValueError, match="2 outputs has none with number 2"):
        tenon.autograd.grad(graph.GradientEdge(parts[0].grad_fn, 2), x)


def test_an_edge_stays_where_it_was() -> None:
    x = tenon.ones(2, requires_grad=True)
    y = x * 3
    edge = graph.get_gradient_edge(y)
    y.mul_(5)
    assert tenon.autograd.grad(y.sum(), edge, retain_graph=True)[0].tolist() == [5.0, 5.0]
    assert tenon.autograd.grad(y.sum(), y)[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("several", [True, False])
def test_versions_of_one_and_of_several(several: bool) -> None:
    x = tenon.ones(2, requires_grad=True)
    weight = tenon.ones(2)
    y = (x * weight).sum()
    graph.increment_version([weight] if several else weight)
    assert weight._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_saved_hooks_are_refused_inside_only() -> None:
    hooks = graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with graph.disable_saved_tensors_hooks("not here"):
        with graph.disable_saved_tensors_hooks("nor there"):
            with pytest.raises(RuntimeError, match="nor there"), hooks:
                pass
        with pytest.raises(RuntimeError, match="not here"), hooks:
            pass
    with hooks:
        pass


# ---- Functions of one's own ----------------------------------------------------------------------


class Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, by: float = 3.0, *, plus: float = 1.0) -> Any:
        ctx.by = by
        return x * by + plus

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.by, None, None


class Apart(Function):
    @staticmethod
    def forward(x: Any, by: float = 3.0) -> Any:
        return x * by

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.by, None


def test_arguments_by_name() -> None:
    x = tenon.ones(1, requires_grad=True)
    for call, want in (
        (lambda: Apart.apply(x, by=2.0), 2), (lambda: Apart.apply(by=4.0, x=x), 4),
        (lambda: Apart.apply(x=x), 3), (lambda: Scaled.apply(x, by=5.0), 5),
    ):  # fmt: skip
        (slope,) = tenon.autograd.grad(call(), x)
        assert float(slope) == want


def test_functions_that_say_too_little_or_too_much() -> None:
    x = tenon.ones(1, requires_grad=True)

    class Nothing(Function):
        pass

    class Forward(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Both(Forward):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

        @staticmethod
        def vjp(ctx: Any, grad: Any) -> Any:
            return grad

    with pytest.raises(NotImplementedError, match="implement the forward"):
        Nothing.apply(x)
    with pytest.raises(NotImplementedError, match="either the backward or vjp"):
        Forward.apply(x).backward()
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        Both.apply(x).backward()
    assert type(Forward.apply(x).grad_fn).__name__ == "ForwardBackward"
    assert InplaceFunction(True).inplace is True and InplaceFunction().inplace is False


@pytest.mark.parametrize("several", [True, False])
def test_a_backward_that_runs_once(several: bool) -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2 + y

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Any) -> Any:
            assert not tenon.is_grad_enabled()
            return (2 * ctx.saved_tensors[0] * grad, None) if several else (grad * 2, grad)

    x = tenon.tensor(3.0, requires_grad=True)
    y = tenon.tensor(1.0, requires_grad=True)
    want = 6.0 if several else 2.0
    assert float(tenon.autograd.grad(Square.apply(x, y), x)[0]) == want
    seed = tenon.tensor(1.0, requires_grad=True)
    (slope,) = tenon.autograd.grad(Square.apply(x, y), x, seed, create_graph=True)
    assert float(slope) == want
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        slope.backward()

    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    (slope,) = tenon.autograd.grad(Twice.apply(x), x, seed, create_graph=True)
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        slope.backward()


# ---- Modes ---------------------------------------------------------------------------------------


def test_a_mode_around_the_steps_of_a_generator() -> None:
    seen: list[Any] = []

    @tenon.no_grad()
    def steps(n: int) -> Generator[Any, Any, str]:
        try:
            for i in range(n):
                try:
                    seen.append((yield i, tenon.is_grad_enabled()))
                except KeyError as err:
                    seen.append((err.args[0], tenon.is_grad_enabled()))
        finally:
            seen.append(("closed", tenon.is_grad_enabled()))
        return "end"

    running = steps(3)
    assert next(running) == (0, False) and tenon.is_grad_enabled()
    assert running.send("sent") == (1, False)
    assert running.throw(KeyError("thrown")) == (2, False) and tenon.is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == "end"
    assert seen == ["sent", ("thrown", False), None, ("closed", False)]
    seen.clear()
    running = steps(3)
    next(running)
    running.close()
    assert seen == [("closed", False)] and tenon.is_grad_enabled()
    assert list(steps(0)) == []


def test_a_mode_around_a_class() -> None:
    @tenon.no_grad()
    class Made:
        def __init__(self) -> None:
            self.recorded = tenon.is_grad_enabled()

    assert Made().recorded is False and tenon.is_grad_enabled()


def test_modes_that_see_calls() -> None:
    x = tenon.ones(2)
    with TorchFunctionMode(), pytest.raises(NotImplementedError):
        x.sum()
    with BaseTorchFunctionMode():
        assert float(x.sum()) == 2 and x.sum(dim=0, keepdim=True).shape == (1,)


def test_handles_of_hooks() -> None:
    hooks: dict[int, str] = OrderedDict()
    more: dict[int, str] = OrderedDict()
    handle = RemovableHandle(hooks, extra_dict=more)
    hooks[handle.id] = more[handle.id] = "hook"
    copied = pickle.loads(pickle.dumps(handle))
    assert copied.id == handle.id and RemovableHandle(hooks).id > handle.id
    with copy.copy(handle):
        assert hooks and more
    assert not hooks and not more
    handle.remove()  # which is gone already


def test_the_older_profiler() -> None:
    for enabled in (True, False):
        with tenon.autograd.profiler.profile(enabled) as found:
            tenon.ones(3).sum()
        names = {event.key for event in found.key_averages()} if enabled else set()
        assert ("aten::sum" in names) is enabled


def test_nodes_run_from_the_last_to_the_first() -> None:
    def run(lib: Any) -> list[Any]:
        x = lib.ones(2, dtype=lib.float64, requires_grad=True)
        seen: list[int] = []
        ends = []
        for k in (7, 3, 11, 0, 5, 9, 1, 10, 2, 8, 4, 6):
            y = (x * (k + 1)).exp()
            y.register_hook(lambda g, k=k: seen.append(k))
            for _ in range(k % 4):
                y = y.sin()
                y.register_hook(lambda g, k=k: seen.append(100 + k))
            ends.append(y.sum())
        lib.stack(ends).sum().backward()
        return seen

    stored.same(run(tenon), stored.of_torch(run))


def test_what_is_called_when_a_pass_has_ended() -> None:
    def look(lib: Any) -> list[Any]:
        queue = lib.autograd.Variable._execution_engine.queue_callback
        seen: list[Any] = []

        def last() -> None:
            seen.append(("last", x.grad is None))
            queue(lambda: seen.append("later still"))

        def inner(grad: Any) -> Any:
            queue(lambda: seen.append("outer"))
            with lib.enable_grad():
                z = lib.ones(1, requires_grad=True) * 2
                z.register_hook(lambda g: queue(lambda: seen.append("inner")))
                z.sum().backward()
            seen.append("hook")
            queue(last)
            return grad

        x = lib.ones(2, requires_grad=True)
        try:
            queue(print)
        except RuntimeError as err:
            seen.append(str(err))
        y = x * 3
        y.register_hook(inner)
        y.sum().backward()
        z = x * 2
        z.register_hook(lambda g: queue(lambda: seen.append("of grad")))
        lib.autograd.grad(z.sum(), x)

        def fails(grad: Any) -> Any:
            queue(lambda: seen.append("never"))
            raise KeyError("hook")

        z = x * 2
        z.register_hook(fails)
        try:
            z.sum().backward()
        except KeyError as err:
            seen.append(repr(err))
        (x * 2).sum().backward()
        z = x * 2
        z.register_hook(lambda g: queue(lambda: {}["no"]))
        try:
            z.sum().backward()
        except KeyError as err:
            seen.append(repr(err))
        (x * 2).sum().backward()
        return seen

    stored.same(look(tenon), stored.of_torch(look))


def test_queued_calls_are_let_go_of() -> None:
    class Call:
        def __call__(self) -> None:
            raise ValueError("at the end")

    calls = [Call(), Call()]
    gone = [weakref.ref(c) for c in calls]
    x = tenon.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: [_C._queue_callback(calls.pop()) for _ in "ab"] and None)
    with pytest.raises(ValueError, match="at the end"):
        y.sum().backward()
    assert [ref() for ref in gone] == [None, None]
    with pytest.raises(TypeError, match="takes a callable"):
        _C._queue_callback(3)


def test_gradients_lie_as_their_leaves_and_keep_their_imaginary_parts() -> None:
    def run(lib: Any) -> list[Any]:
        found: list[Any] = []
        kind = {"dtype": lib.float64}
        w, image = lib.arange(12.0, **kind).reshape(3, 4), lib.ones(1, 3, 2, 2, **kind)
        for leaf in (lib.ones(4, 3, **kind).t(), w.exp(), lib.ones(3, 8, **kind)[:, ::2],
                     image.to(memory_format=lib.channels_last)):  # fmt: skip
            x = leaf.detach().requires_grad_()
            y = (x * w).sum() if x.dim() == 2 else (x * image).exp().sum()
            y.backward()
            found += [x.grad, list(x.grad.stride())]
        z = lib.tensor([1 + 2j, -3j], dtype=lib.complex64, requires_grad=True)
        v = lib.tensor([0.5 - 1j, 2 + 4j], dtype=lib.complex128)
        (z * v).sum().real.backward()
        found.append(z.grad)
        real = lib.tensor([0.5, 2.0], dtype=lib.float32, requires_grad=True)
        (real * v).sum().imag.backward()
        found.append(real.grad)
        return found

    stored.same(run(tenon), stored.of_torch(run))


def test_hooks_stay_where_a_tensor_was_when_they_came() -> None:
    def run(lib: Any) -> list[Any]:
        seen: list[Any] = []
        x = lib.ones(3, dtype=lib.float64, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()))
        y.mul_(5)
        y.register_hook(lambda g: seen.append(g.clone()) or g * 10)
        y[0] = 7
        y.retain_grad()
        y[1:].add_(x[:2])
        (y * lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64)).sum().backward()
        return [*seen, x.grad, y.grad]

    stored.same(run(tenon), stored.of_torch(run))


def test_functions_run_without_a_gradient() -> None:
    """Their backward may do more than compute: pipelines have others wait for it."""

    def look(lib: Any) -> list[Any]:
        seen: list[Any] = []

        def numbers(g: Any) -> Any:
            return None if g is None else g.tolist()

        class Stops(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, other: Any) -> Any:
                return x.detach().clone()

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                seen.append(("stops", numbers(grad)))
                return grad, None

        class Splits(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, zeros: bool) -> Any:
                ctx.set_materialize_grads(zeros)
                return x.detach().clone(), x.new_zeros(3)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                seen.append(("splits", [numbers(g) for g in grads]))
                return grads[0], None

        class Works(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.detach()

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                seen.append(("works", numbers(grad)))
                return grad + 1

        for zeros in (True, False):
            x = lib.tensor([1.0, 2.0], requires_grad=True)
            y = lib.tensor([3.0], requires_grad=True)
            first, second = Splits.apply(x, zeros)
            side = Works.apply(Works.apply(y)[:1] * 2)
            late = Works.apply(second)
            out = Stops.apply(Stops.apply(first, late), side)
            out.sum().backward()
            seen += [numbers(t.grad) for t in (x, y)]
        first, second = Splits.apply(x, False)
        found = lib.autograd.grad(Stops.apply(y * 2, second).sum(), (x, y), allow_unused=True)
        seen += [numbers(g) for g in found]
        return seen

    stored.same(look(tenon), stored.of_torch(look))
