"""Views and functions of one's own, hooks at the ends of the graph, what a pass leaves behind."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon.autograd import Function, graph


class Scaled(Function):
    """The identity, whose gradient is ten times the other."""

    @staticmethod
    def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
        return g * 10


class Halves(Function):
    @staticmethod
    def forward(ctx: Any, x: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        return x[:2], x[2:]

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor, h: tn.Tensor) -> tn.Tensor:
        return tn.cat([g * 10, h])


class Front(Function):
    @staticmethod
    def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
        return x[:2]

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
        return tn.cat([g * 10, g])


def base() -> tn.Tensor:
    return tn.ones(4, requires_grad=True).clone()


@pytest.mark.parametrize(
    "made, message",
    [
        (Scaled.apply, "Output 0 of Scaled is a view and is being modified inplace. This view was "
         "created inside a custom Function"),
        (Front.apply, "Output 0 of Front is a view and is being modified inplace. This view was "
         "created inside a custom Function"),
        (lambda x: Halves.apply(x)[1], "Output 1 of Halves is a view .* returns multiple views"),
        (lambda x: Scaled.apply(x)[:1], "Output 0 of Slice is a view .* inside a custom Function"),
    ],
)  # fmt: skip
def test_a_view_that_a_function_made_is_not_written(
    made: Callable[[tn.Tensor], tn.Tensor], message: str
) -> None:
    x = base()
    y = made(x)
    with pytest.raises(RuntimeError, match=message):
        y.mul_(2)
    assert x.tolist() == [1.0] * 4
    y.sum().backward()


@pytest.mark.parametrize("recording", [True, False])
def test_nor_is_what_it_is_a_view_of(recording: bool) -> None:
    x = base()
    y = Scaled.apply(x)
    with tn.set_grad_enabled(recording):
        x.mul_(2)
    with pytest.raises(RuntimeError, match="its base or another view of its base has been modif"):
        y.sum().backward()


def test_a_view_of_what_has_no_gradient_takes_none_in() -> None:
    x = tn.ones(4)
    y = Scaled.apply(x)
    assert y is not x and y._is_view() and y._base is x
    with pytest.raises(RuntimeError, match="inside a custom Function"):
        y.mul_(tn.ones(4, requires_grad=True))
    y.add_(1)
    assert x.tolist() == [2.0] * 4
    y.requires_grad_()
    assert not x.requires_grad
    leaf = tn.ones(2, requires_grad=True)
    with tn.no_grad():
        assert not Scaled.apply(leaf).requires_grad
    assert leaf.requires_grad


def test_inputs_of_a_class_come_back_as_its_objects() -> None:
    class Own(tn.Tensor):
        pass

    for x in (base().as_subclass(Own), tn.ones(4).as_subclass(Own)):
        assert type(Scaled.apply(x)) is Own
    p = tn.nn.Parameter(tn.ones(2))
    y = Scaled.apply(p)
    assert type(y) is tn.Tensor
    y.sum().backward()
    assert p.grad is not None and p.grad.tolist() == [10.0, 10.0]


def test_a_view_made_before_its_leaf_asked_for_a_gradient_is_not_written() -> None:
    a = tn.zeros(3, 4)
    b = a.t()
    a.requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        b.add_(1)
    with tn.no_grad():
        b.add_(1)
    assert a.sum().item() == 12.0


@pytest.mark.parametrize("write", [lambda x: x.mul_(3), lambda x: x.view(2, 2).mul_(3)])
def test_views_keep_gradients_when_their_base_is_written(
    write: Callable[[tn.Tensor], Any],
) -> None:
    x = base()
    kept = x[:2]
    kept.retain_grad()
    write(x)
    (kept * 5).sum().backward()
    assert kept.grad is not None and kept.grad.tolist() == [5.0, 5.0]


def test_hooks_at_the_end_of_the_graph_have_an_order() -> None:
    log: list[Any] = []
    a = tn.tensor(1.0, requires_grad=True)
    b = a.clone()
    end = b.grad_fn.next_functions[0][0]
    end.register_hook(lambda gi, go: log.append(("post", gi, go[0].item())))
    a.register_post_accumulate_grad_hook(lambda t: log.append(("added", t.grad.item())))
    end.register_prehook(lambda g: (log.append(("pre", g[0].item())), (g[0] * 2,))[1])
    a.register_hook(lambda g: (log.append(("tensor", g.item())), g * 3)[1])
    b.backward(retain_graph=True)
    assert log == [("tensor", 1.0), ("pre", 3.0), ("added", 6.0), ("post", (), 6.0)]
    log.clear()
    (g,) = tn.autograd.grad(b, a, retain_graph=True)
    assert g.item() == 3.0 and log == [("tensor", 1.0)]
    end.register_prehook(lambda g: (g[0].double(),))
    b.backward(retain_graph=True)
    assert a.grad.dtype == tn.float32 and a.grad.item() == 12.0
    a.register_post_accumulate_grad_hook(lambda t: t)
    with pytest.raises(RuntimeError, match="hooks should return None"):
        b.backward()


def test_hooks_of_a_node_that_does_not_run_do_not() -> None:
    log: list[str] = []
    a = tn.tensor(1.0, requires_grad=True)
    b = a * 2
    c = b * 2
    b.register_hook(lambda g: log.append("tensor"))
    b.grad_fn.register_prehook(lambda g: log.append("pre"))
    b.grad_fn.register_hook(lambda gi, go: log.append("post"))
    tn.autograd.grad(c, b, retain_graph=True)
    assert log == ["tensor"]
    log.clear()
    tn.autograd.grad(c, (a, b), retain_graph=True)
    assert log == ["tensor", "pre", "post"]
    log.clear()
    c.backward(inputs=(b,), retain_graph=True)
    assert log == ["tensor", "pre"]


def saves_plainly() -> bool:
    seen: list[int] = []
    x = tn.ones(2, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: (seen.append(1), t)[1], lambda t: t):
        x.exp()
    n = len(seen)
    x.exp()
    return n == 1 and len(seen) == 1


def test_what_pack_computes_is_not_packed() -> None:
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(t)
        with tn.enable_grad():
            (t * 2).exp()
        return t

    with graph.saved_tensors_hooks(pack, lambda t: t):
        tn.ones(2, requires_grad=True).sin()
    assert len(packed) == 1
    assert saves_plainly()


class Mark:
    """Lives as long as the hooks that know it."""


def enter_hooks_at(where: str, seen: list[str]) -> weakref.ref[Mark]:
    """A pass in which hooks of saved tensors are entered and not left; tells whether they live."""
    mark = Mark()

    def enter(t: Any, at: str) -> Any:
        if where == at:
            stray = graph.saved_tensors_hooks(lambda t, m=mark: seen.append("stray") or t, id_of)
            stray.__enter__()
        return t

    x = tn.ones(2, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: enter(t, "pack"), lambda t: enter(t, "unpack")):
        y = x.sin()
        y.register_hook(lambda g: enter(None, "hook"))
        y.sum().backward()
    x.sin()
    return weakref.ref(mark)


def id_of(t: tn.Tensor) -> tn.Tensor:
    return t


@pytest.mark.parametrize("where", ["unpack", "pack", "hook"])
def test_saved_hooks_of_a_pass_end_with_it(where: str) -> None:
    seen: list[str] = []
    alive = enter_hooks_at(where, seen)
    assert seen == [] and saves_plainly() and alive() is None


def test_modes_that_a_hook_leaves_on_are_off_for_the_next_node() -> None:
    modes: list[bool] = []
    x = tn.ones(2, requires_grad=True)
    a = x * 2
    b = a * 3
    b.register_hook(lambda g: tn.set_grad_enabled(True) and None)
    a.register_hook(lambda g: modes.append(tn.is_grad_enabled()))
    b.sum().backward()
    assert modes == [False]


# ---- The gradient that a result keeps ------------------------------------------------------------


def kept_result() -> tuple[tn.Tensor, tn.Tensor]:
    """A result that keeps its gradient, and a number computed from it."""
    y = tn.ones(2, requires_grad=True) * 2
    y.retain_grad()
    return y, y.sum()


def test_a_kept_gradient_stays_when_the_result_becomes_a_leaf() -> None:
    y, z = kept_result()
    z.backward()
    y.detach_()
    assert y.is_leaf and y.retains_grad and y.grad.tolist() == [1.0, 1.0]
    y.requires_grad_()
    (y * 3).sum().backward()
    assert y.grad.tolist() == [4.0, 4.0]


def test_the_graph_that_a_leaf_has_left_still_adds_to_it() -> None:
    y, z = kept_result()
    y.detach_()
    y.requires_grad_()
    (y * 3).sum().backward()
    z.backward()
    assert y.grad.tolist() == [4.0, 4.0]


def test_a_gradient_set_before_it_is_kept_is_added_to() -> None:
    y = tn.ones(2, requires_grad=True) * 2
    y.grad = given = tn.full((2,), 5.0)
    y.retain_grad()
    assert y.grad is given
    y.sum().backward()
    assert y.grad.tolist() == [6.0, 6.0] and given.tolist() == [5.0, 5.0]
    leaf = tn.zeros(2)
    leaf.grad = tn.full((2,), 4.0)
    leaf.mul_(tn.ones(2, requires_grad=True))
    leaf.retain_grad()
    leaf.sum().backward()
    assert leaf.grad.tolist() == [5.0, 5.0]


# ---- What functions and hooks hand on ------------------------------------------------------------


def gives(gradient: Callable[[], Any]) -> Any:
    """A function like the identity with another gradient."""

    class Gives(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: tn.Tensor) -> Any:
            return gradient()

    return Gives.apply


def test_gradients_of_complex_tensors_may_be_real_but_not_whole_numbers() -> None:
    z = tn.ones(2, dtype=tn.complex64, requires_grad=True)
    gives(lambda: tn.tensor([2.0, 3.0]))(z).abs().sum().backward()
    assert z.grad.dtype == tn.complex64 and z.grad.tolist() == [2 + 0j, 3 + 0j]
    with pytest.raises(RuntimeError, match="must be floating point or complex, got Long"):
        gives(lambda: tn.tensor([2, 3]))(z).abs().sum().backward()


def raised(call: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the tests compare what it says
        call()
    return str(caught.value)


def test_errors_of_a_pass_tell_of_its_nodes_where_anomalies_are_looked_for() -> None:
    def wrong() -> tn.Tensor:
        return gives(lambda: tn.ones(5))(tn.ones(2, requires_grad=True)).sum()

    def own() -> tn.Tensor:
        return gives(lambda: 1 / 0)(tn.ones(2, requires_grad=True)).sum()

    told = (
        "Function GivesBackward returned an invalid gradient at index 0 - got [5] but expected "
        "shape compatible with [2]"
    )
    assert raised(wrong().backward) == told
    assert raised(own().backward) == "division by zero"
    with tn.autograd.detect_anomaly():
        assert raised(wrong().backward).startswith(f"{told}\n\nError detected in GivesBackward.")
        assert raised(own().backward) == "division by zero"


def test_an_input_that_was_written_before_comes_back_with_its_history() -> None:
    x = tn.ones(2, requires_grad=True)
    y = x * 1
    y.mul_(2)
    Scaled.apply(y).sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]


def test_what_a_function_writes_is_one_of_its_inputs() -> None:
    class Writes(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            y = x * 1
            ctx.mark_dirty(y)
            return y

    with pytest.raises(RuntimeError, match="output 0 was marked dirty but is not an input"):
        Writes.apply(tn.ones(2, requires_grad=True))


# ---- Views and changes in place ------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, strides, offset",
    [
        ((2, 3), (0, 1), 0),
        ((3, 2), (1, 0), 1),
        ((3, 4), (2, 1), 0),
        ((3, 3), (1, 1), 0),
        ((2, 2, 2), (1, 0, 1), 1),
        ((2, 3, 2), (3, 2, 1), 0),
        ((2, 1, 3), (3, 0, 1), 2),
    ],
)
def test_gradients_add_up_where_elements_share_a_place(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    x = tn.arange(9.0, requires_grad=True)
    y = x.as_strided(shape, strides, offset)
    weights = tn.arange(1.0, y.numel() + 1).reshape(shape)
    (y * weights).sum().backward()
    want = [0.0] * 9
    for at in itertools.product(*map(range, shape)):
        place = offset + sum(i * s for i, s in zip(at, strides, strict=True))
        want[place] += weights[at].item()
    assert x.grad.tolist() == want


def test_complex_and_real_views_follow_a_change_of_their_base() -> None:
    x = tn.ones(2, requires_grad=True)
    z = tn.complex(x * 1, x * 2)
    parts = tn.view_as_real(z)
    z.mul_(2 + 1j)
    (parts * tn.arange(4.0).reshape(2, 2)).sum().backward()
    assert x.grad.tolist() == [5.0, 15.0]  # z = x (1 + 2j)(2 + 1j) = 5j x
    w = tn.ones(2, 2, requires_grad=True)
    y = w * 1
    pairs = tn.view_as_complex(y)
    y.mul_(tn.arange(4.0).reshape(2, 2))
    (pairs * 2).abs().pow(2).sum().backward()
    assert w.grad.tolist() == [[0.0, 8.0], [32.0, 72.0]]


def test_what_was_written_over_has_its_gradient_in_a_second_pass() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    w = tn.tensor([3.0, 4.0], requires_grad=True)
    y = x * 1
    y.mul_(w)
    (g,) = tn.autograd.grad(y.pow(2).sum(), w, create_graph=True)  # 2 x^2 w
    assert g.tolist() == [6.0, 32.0]
    assert tn.autograd.grad(g.sum(), x)[0].tolist() == [12.0, 32.0]


def test_a_view_asks_once_for_the_history_of_its_written_base() -> None:
    y = base()
    view, beside = y[:2], y.view(2, 2)
    y.mul_(2)
    assert view.grad_fn is view.grad_fn
    beside.mul_(3)
    assert view.grad_fn is view.grad_fn and y.grad_fn is y.grad_fn
    assert beside.grad_fn is beside.grad_fn


# ---- What is let go of ---------------------------------------------------------------------------


def test_hooks_of_saved_tensors_live_as_long_as_what_they_saved() -> None:
    class Same:
        def __call__(self, t: Any) -> Any:
            return t

    pack, unpack = Same(), Same()
    refs = [weakref.ref(pack), weakref.ref(unpack)]
    x = tn.ones(2, requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        y = x.pow(2)
    del pack, unpack
    assert all(r() is not None for r in refs)
    y.sum().backward()
    del y
    assert all(r() is None for r in refs)


@pytest.mark.parametrize(
    "keep",
    [
        lambda ctx, t: ctx.save_for_forward(t),
        lambda ctx, t: ctx.mark_non_differentiable(t),
        lambda ctx, t: ctx.mark_dirty(t),
        lambda ctx, t: setattr(ctx, "own", t),
    ],
)
def test_circles_through_the_context_of_a_function_are_found(
    keep: Callable[[Any, tn.Tensor], Any],
) -> None:
    def circle() -> weakref.ref[tn.Tensor]:
        made = tn.ones(3)

        class Keeps(Function):
            @staticmethod
            def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
                made.context = ctx
                keep(ctx, made)
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            Keeps.apply(tn.ones(2, requires_grad=True))
        return weakref.ref(made)

    alive = circle()
    gc.collect()
    assert alive() is None


MOVED: dict[str, Callable[[tn.Tensor], Any]] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_ of one": lambda x: x.squeeze_(0),
    "as_strided_": lambda x: x.as_strided_((3, 1), (1, 1)),
    "resize_": lambda x: x.resize_(3, 1),
    "resize_ beyond": lambda x: x.resize_(2, 3),
    "resize_as_": lambda x: x.resize_as_(tn.ones(3, 1)),
    "set_": lambda x: x.set_(tn.full((1, 3), 7.0)),
    "set_ to a part": lambda x: x.set_(x[:, :1]),
    "out=": lambda x: tn.add(tn.ones(3, 1), 1, out=x),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_saved_tensor_that_got_other_sizes_or_memory_is_noticed(name: str) -> None:
    w, x = tn.ones(1, 3, requires_grad=True), tn.tensor([[1.0, 2.0, 3.0]])
    y, before = w * x, x._version
    MOVED[name](x)
    assert x._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_sizes_that_stay_and_other_tensors_over_the_memory_are_no_change() -> None:
    w, x = tn.ones(1, 3, requires_grad=True), tn.tensor([[1.0, 2.0, 3.0]])
    y, other, before = w * x, x[:], x._version
    x.resize_(1, 3)
    other.t_()
    assert (x._version, other._version) == (before, before + 1)
    y.sum().backward()
    assert w.grad.tolist() == x.tolist()
    x.add_(1)
    assert (x._version, other._version) == (before + 1, before + 2)


class Power(Function):
    @staticmethod
    def forward(x: tn.Tensor, n: int = 3) -> tn.Tensor:
        return x**n

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tn.Tensor) -> None:
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> tuple[tn.Tensor, None]:
        return g * ctx.n * ctx.saved_tensors[0] ** (ctx.n - 1), None


def test_setup_context_gets_arguments_that_were_left_out() -> None:
    x = tn.tensor(2.0, requires_grad=True)
    for y, slope in ((Power.apply(x), 12), (Power.apply(x, 2), 4), (Power.apply(x, n=4), 32)):
        y.backward()
        assert x.grad == slope
        x.grad = None


def test_gradients_that_are_made_up_may_be_differentiated_again() -> None:
    x, a = tn.tensor(0.5, requires_grad=True), tn.tensor(1.0, requires_grad=True)
    found = tn.autograd.grad(x * a, x, create_graph=True)
    for last in (False, True):
        kept = not last
        found = tn.autograd.grad(found, x, create_graph=kept, materialize_grads=True)
        assert found[0] == 0 and found[0].requires_grad == kept


def test_data_that_is_exchanged_keeps_the_version() -> None:
    w, x = tn.ones(2, requires_grad=True), tn.ones(2)
    x.mul_(2)
    y, before = w * x, x._version
    x.data = tn.full((2,), 5.0)
    assert x._version == before
    y.sum().backward()
    assert w.grad.tolist() == [5.0, 5.0]
    x.add_(1)
    assert x._version == before + 1


def test_hooks_behind_the_gradient_see_what_hooks_on_the_leaf_made_of_it() -> None:
    x, seen = tn.ones(3, requires_grad=True), []
    node = x.view_as(x).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: g - 2)
    node.register_prehook(lambda g: (g[0] / 5,))

    def add(t: tn.Tensor) -> None:
        t.grad.add_(0.5)

    x.register_post_accumulate_grad_hook(add)
    node.register_hook(lambda none, g: seen.append(g[0].clone()))
    x.sum().backward()
    assert tn.allclose(seen[0], tn.full((3,), 0.3)) and tn.allclose(x.grad, seen[0])
    x.sum().backward()  # a second gradient is added: the hook sees that one alone
    assert tn.allclose(seen[1], tn.full((3,), -0.2)) and tn.allclose(x.grad, tn.full((3,), 0.6))


def test_a_hook_behind_the_gradient_costs_no_copy() -> None:
    x, where = tn.ones(3, requires_grad=True), []
    x.view_as(x).grad_fn.next_functions[0][0].register_hook(lambda none, g: where.append(g[0]))
    (x * 2).sum().backward()
    assert where[0].data_ptr() == x.grad.data_ptr() and where[0] is not x.grad


@pytest.mark.parametrize(
    "register",
    [
        lambda x, y, fn: x.register_hook(fn),
        lambda x, y, fn: y.register_hook(fn),
        lambda x, y, fn: x.register_post_accumulate_grad_hook(fn),
        lambda x, y, fn: y.grad_fn.register_hook(fn),
        lambda x, y, fn: y.grad_fn.register_prehook(fn),
    ],
)
def test_a_removed_hook_is_let_go_of_at_once(register: Callable[..., Any]) -> None:
    class Nothing:
        def __call__(self, *given: Any) -> None:
            handle.remove()

    x = tn.ones(2, requires_grad=True)
    for by_itself in (False, True):
        y = x * 2
        hook = Nothing()
        alive = weakref.ref(hook)
        handle = register(x, y, hook)
        del hook
        assert alive() is not None
        if by_itself:
            y.sum().backward(retain_graph=True)
        else:
            handle.remove()
        assert alive() is None
