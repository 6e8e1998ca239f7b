"""The recorded graph as Python sees it: nodes, hooks, saved tensors, functions, and what the
garbage collector can take back."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.autograd import Function, graph
from tenon.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def leaf(*values: float) -> tn.Tensor:
    return tn.tensor(values, dtype=tn.float32, requires_grad=True)


class Double(Function):
    @staticmethod
    def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
        ctx.note = "kept"
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
        return g * 2


# ---- Nodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: x + 1, "AddBackward0"),
        (lambda x: x / 2, "DivBackward0"),
        (lambda x: x.t(), "TBackward0"),
        (lambda x: x.T, "PermuteBackward0"),
        (lambda x: x.view(4), "ViewBackward0"),
        (lambda x: x.sum(), "SumBackward0"),
        (lambda x: x.sum(1), "SumBackward1"),
        (lambda x: x.prod(1), "ProdBackward1"),
        (lambda x: x.squeeze(0), "SqueezeBackward1"),
        (lambda x: x.log1p(), "Log1PBackward0"),
        (lambda x: x.half(), "ToCopyBackward0"),
        (lambda x: x // 2, "NotImplemented"),
        (Double.apply, "DoubleBackward"),
    ],
)
def test_class_of_a_node(make: Any, name: str) -> None:
    result = make(tn.ones(2, 2, requires_grad=True))
    node = result.grad_fn
    assert type(node).__name__ == node.name() == name
    assert f"{name} object at 0x" in repr(node)
    assert isinstance(node, graph.Node)


def test_identity_of_a_node() -> None:
    y = leaf(1, 2) * 3
    z = y + 1
    assert y.grad_fn is y.grad_fn
    assert z.grad_fn.next_functions[0][0] is y.grad_fn
    assert [type(n).__name__ for n, _ in z.grad_fn.next_functions] == ["MulBackward0", "NoneType"]
    assert [nr for _, nr in z.grad_fn.next_functions] == [0, 0]


def test_metadata_stays_with_the_node() -> None:
    y = leaf(1, 2) * 3
    y.grad_fn.metadata["key"] = [1]
    gc.collect()
    assert y.grad_fn.metadata == {"key": [1]}


def test_end_of_the_graph() -> None:
    x = leaf(1, 2)
    node = (x * 3).grad_fn
    end, nr = node.next_functions[0]
    assert (end.variable, nr, end.next_functions) == (x, 0, ())
    assert end is node.next_functions[0][0]
    seen: list[Any] = []
    first = end.register_prehook(lambda grads: (grads[0] * 2,))
    second = end.register_hook(lambda inputs, grads: seen.append((inputs, grads[0].tolist())))
    (x * 3).sum().backward()
    assert x.grad.tolist() == [6, 6] and seen == [((), [6, 6])]
    first.remove()
    second.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3] and len(seen) == 1


def test_handles_are_removable_handles() -> None:
    x = leaf(1, 2)
    with x.register_hook(lambda g: g * 2) as handle:
        assert isinstance(handle, tn.utils.hooks.RemovableHandle) and handle.id >= 0
        (x * 3).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [9, 9]


# ---- Functions ----------------------------------------------------------------------------------


def test_the_node_of_a_function_is_its_ctx() -> None:
    y = Double.apply(leaf(1, 2))
    assert y.grad_fn is y.grad_fn
    assert y.grad_fn.note == "kept" and y.grad_fn._forward_cls is Double
    assert y.grad_fn.saved_tensors[0].tolist() == [1, 2]
    assert y.grad_fn.needs_input_grad == (True,)
    node = y.grad_fn
    del y
    with pytest.raises(RuntimeError, match="is gone"):
        node.name()


def test_gradients_of_a_batch_of_seeds() -> None:
    x, unused = leaf(1, 2, 3), leaf(1)
    y = x * x
    rows, none = tn.autograd.grad(
        y, (x, unused), tn.eye(3), is_grads_batched=True, allow_unused=True, retain_graph=True
    )
    assert tn.equal(rows, tn.diag(2 * x.detach())) and none is None
    _, zeros = tn.autograd.grad(
        y, (x, unused), tn.eye(3), is_grads_batched=True, materialize_grads=True
    )
    assert zeros.tolist() == [[0], [0], [0]]


def test_vjp_is_another_name_of_backward() -> None:
    class Seven(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor, *, scale: int = 1) -> tn.Tensor:
            return x * scale

        @staticmethod
        def vjp(ctx: Any, g: tn.Tensor) -> tn.Tensor:
            return g * 7

    x = leaf(1, 2)
    Seven.apply(x).sum().backward()
    assert x.grad.tolist() == [7, 7]
    with pytest.raises(RuntimeError, match="non-static forward"):
        Seven()(x)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, 1), r"incorrect number of gradients \(expected 2, got 3\)"),
        ((), r"incorrect number of gradients \(expected 2, got 1\)"),
        ((1,), "different than None at position 2, but the corresponding forward input"),
    ],
)
def test_wrong_gradients_of_a_function(answer: tuple[int, ...], words: str) -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor, n: int) -> tn.Tensor:
            return x * n

        @staticmethod
        def backward(ctx: Any, g: tn.Tensor) -> Any:
            return (g, *(g for _ in answer)) if answer else g

    with pytest.raises(RuntimeError, match=words):
        Wrong.apply(leaf(1, 2), 3).sum().backward()


# ---- Saved tensors ------------------------------------------------------------------------------


def test_saved_tensors_go_through_hooks() -> None:
    log: list[str] = []
    x = leaf(3)

    def pack(t: tn.Tensor) -> list[float]:
        log.append("pack")
        return t.tolist()

    def unpack(values: list[float]) -> tn.Tensor:
        log.append("unpack")
        return tn.tensor(values)

    with graph.saved_tensors_hooks(pack, unpack):
        y = x * x
        z = Double.apply(y)
    assert log == ["pack"] * 3
    assert z.grad_fn.saved_tensors[0].tolist() == [9]
    z.backward()
    assert x.grad.tolist() == [12] and log.count("unpack") == 3


def test_saved_tensors_are_unpacked_where_they_are_asked_for_by_name() -> None:
    log: list[list[float]] = []

    def unpack(values: list[float]) -> tn.Tensor:
        log.append(values)
        return tn.tensor(values)

    x, other = leaf(3, 2), tn.tensor([5.0, 7.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.tolist(), unpack):
        power, product, root, joined = x.pow(2), x * other, x.sqrt(), tn.cat([x, other])
    assert power.grad_fn._saved_self.tolist() == [3, 2] and power.grad_fn._saved_self.requires_grad
    assert product.grad_fn._saved_other.tolist() == [5, 7] and len(log) == 3
    assert product.grad_fn._saved_self.tolist() == [3, 2]
    result = root.grad_fn._saved_result
    assert result.tolist() == root.tolist() and result.grad_fn is root.grad_fn
    for node, name in ((power.grad_fn, "other"), (root.grad_fn, "self"), (joined.grad_fn, "out")):
        with pytest.raises(AttributeError, match="saves nothing named"):
            getattr(node, f"_saved_{name}")
    # What was looked at is there for the pass, and gone after it.
    (power + product + root * 0).sum().backward()
    assert x.grad.tolist() == [11, 11]
    with pytest.raises(RuntimeError, match="second time"):
        _ = power.grad_fn._saved_self


def test_a_saved_tensor_that_hooks_do_not_give_back() -> None:
    x = leaf(3)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: None):
        y = x.pow(2)
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        _ = y.grad_fn._saved_self
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t.to_sparse()):
        y = x.pow(2)
    with pytest.raises(RuntimeError, match="layout"):
        _ = y.grad_fn._saved_self


def test_unpacked_tensors_have_their_history() -> None:
    """Second derivatives through saved inputs, leaves and others, and results."""
    x = tn.tensor([0.5, 2.0], dtype=tn.float64, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        y = (x * x * x.exp()).sum()
        (first,) = tn.autograd.grad(y, x, create_graph=True)
    (second,) = tn.autograd.grad(first.sum(), x)
    e = x.detach().exp()
    v = x.detach()
    assert tn.allclose(first, (v * v + 2 * v) * e)
    assert tn.allclose(second, (v * v + 4 * v + 2) * e)


def test_misused_hooks_of_saved_tensors() -> None:
    x = leaf(3)
    with graph.saved_tensors_hooks(lambda t: 1, lambda n: n):
        y = x * x
    with pytest.raises(TypeError, match="got result of type int"):
        y.backward()
    with (
        pytest.raises(RuntimeError, match="modifying its input in place"),
        graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t),
        tn.no_grad(),
        tn.enable_grad(),
    ):
        (x * 1).exp().log()
    with (
        graph.disable_saved_tensors_hooks("none of that"),
        pytest.raises(RuntimeError, match="none of that"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass


def test_save_on_cpu() -> None:
    x = leaf(3)
    with graph.save_on_cpu():
        y = x * x
    y.backward()
    assert x.grad.tolist() == [6]


def test_increment_version() -> None:
    x = leaf(1, 2) * 1
    y = x.exp() * x
    graph.increment_version(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hook_on_several_tensors(mode: str) -> None:
    seen: list[Any] = []
    x = leaf(1, 2)
    ts = [x * 2, x * 3, x * 4]
    handle = graph.register_multi_grad_hook(ts, seen.append, mode=mode)
    for _ in range(2):
        (ts[0].sum() + ts[1].sum()).backward(retain_graph=True)
    if mode == "all":
        assert [[g if g is None else g.tolist() for g in gs] for gs in seen] == [
            [[1, 1], [1, 1], None]
        ] * 2
    else:
        assert [g.tolist() for g in seen] == [[1, 1]] * 2
    handle.remove()
    ts[0].sum().backward()
    assert len(seen) == 2


# ---- Checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool) -> None:
    calls = []
    weight = leaf(2, 3)

    def fn(x: tn.Tensor) -> tn.Tensor:
        calls.append(1)
        return (x * weight).exp() * tn.rand(2)

    def run(outer: Any) -> list[Any]:
        tn.manual_seed(0)
        x = leaf(0.5, 1)
        weight.grad = None
        y = outer(x)
        y.sum().backward()
        return [y.tolist(), x.grad.tolist(), weight.grad.tolist()]

    want = run(fn)
    assert run(lambda x: checkpoint(fn, x, use_reentrant=reentrant)) == want
    assert len(calls) == 3


def test_checkpoint_is_recorded_as_the_call_itself() -> None:
    x = leaf(1, 2)
    y = checkpoint(lambda a, k: (a * k).exp(), x, k=3, use_reentrant=False)
    assert y.grad_fn.name() == "ExpBackward0"
    (g,) = tn.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = tn.autograd.grad(g.sum(), x)
    assert tn.allclose(h, 9 * (3 * x).exp())
    with pytest.raises(ValueError, match="Unexpected keyword"):
        checkpoint(lambda a, k: a, x, k=3, use_reentrant=True)
    z = checkpoint(lambda a: a * a, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
        tn.autograd.grad(z.sum(), x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_arguments_that_were_written_are_not_computed_with_again(reentrant: bool) -> None:
    w, other = tn.ones(3, requires_grad=True), tn.ones(3)

    def scaled(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        return (x * y).exp() * 2

    x = w * 2
    for written in (x, other):
        out = checkpoint(scaled, x, other, use_reentrant=reentrant)
        with tn.no_grad():
            written.mul_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
    assert w.grad is None


def test_a_function_that_writes_its_argument_is_not_computed_again() -> None:
    w, scale = tn.ones(3, requires_grad=True), tn.ones(3)
    out = checkpoint(lambda x, s: x * s.mul_(2).clone(), w, scale, use_reentrant=False)
    with pytest.raises(RuntimeError, match=r"argument 1 of the checkpointed function.*version 1"):
        out.sum().backward()
    assert scale.tolist() == [2.0, 2.0, 2.0]


def test_checkpoint_of_a_function_that_changes() -> None:
    calls: list[int] = []

    def fn(x: tn.Tensor) -> tn.Tensor:
        calls.append(1)
        return (x * x).exp() if len(calls) == 1 else x.exp()

    with pytest.raises(CheckpointError, match="different number of tensors"):
        checkpoint(fn, leaf(1, 2), use_reentrant=False).sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_sequential(reentrant: bool) -> None:
    model = tn.nn.Sequential(*[tn.nn.Linear(3, 3) for _ in range(4)])
    x = tn.rand(2, 3, requires_grad=True)
    want = tn.autograd.grad(model(x).sum(), list(model.parameters()))
    checkpoint_sequential(model, 2, x, use_reentrant=reentrant).sum().backward()
    for p, w in zip(model.parameters(), want, strict=True):
        assert tn.allclose(p.grad, w)


def test_checkpoint_sequential_in_fewer_parts_than_none() -> None:
    assert checkpoint_sequential([tn.neg, tn.exp], -(2**31), tn.zeros(2)).tolist() == [1, 1]


# ---- Garbage ------------------------------------------------------------------------------------


def dies(make: Any) -> None:
    """What make() returns a weak reference to is gone after a collection."""
    gc.collect()
    ref = make()
    gc.collect()
    assert ref() is None


def test_result_on_its_own_ctx_is_collected() -> None:
    def make() -> Any:
        y = Double.apply(leaf(1, 2))
        y.grad_fn.result = y
        return weakref.ref(y.grad_fn)

    dies(make)


def test_later_result_on_ctx_is_collected() -> None:
    def in_list() -> Any:
        y = Double.apply(leaf(1, 2))
        y.grad_fn.results = [y]
        return weakref.ref(y.grad_fn)

    def computed() -> Any:
        y = Double.apply(leaf(1, 2))
        node = y.grad_fn
        node.later = (y * 3).exp()
        return weakref.ref(node)

    dies(in_list)
    dies(computed)


def test_what_changed_a_view_is_collected_with_its_base() -> None:
    class Kept:
        base: Any

    class Changes(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, kept: Any) -> Any:
            ctx.mark_dirty(x)
            ctx.kept = kept
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2, None

    def make() -> Any:
        kept, base = Kept(), leaf(2, 2) * 1
        Changes.apply(base[0], kept)
        assert base.grad_fn.name() == "CopySlices"
        kept.base = base  # its history holds the function, which holds this
        return weakref.ref(kept)

    dies(make)


def test_hooks_that_refer_to_their_tensor_are_collected() -> None:
    class Owner:
        pass

    def of_leaf() -> Any:
        owner = Owner()
        owner.x = leaf(1, 2)
        owner.x.register_hook(lambda g: owner and None)
        owner.handle = owner.x.register_post_accumulate_grad_hook(lambda p: owner and None)
        (owner.x * 2).sum().backward()
        return weakref.ref(owner)

    def of_node() -> Any:
        owner = Owner()
        owner.y = leaf(1, 2) * 2
        owner.y.register_hook(lambda g: owner and None)
        owner.y.grad_fn.register_hook(lambda a, b: owner and None)
        owner.y.grad_fn.metadata["owner"] = owner
        return weakref.ref(owner)

    dies(of_leaf)
    dies(of_node)


@pytest.mark.parametrize("kind", ["post", "pre", "behind", "metadata", "tensor"])
def test_a_hook_that_holds_its_node_is_collected(kind: str) -> None:
    def make() -> Any:
        class Owner:
            pass

        owner = Owner()
        y = leaf(1, 2).exp()
        node = (y * 2).grad_fn if kind == "behind" else y.grad_fn
        owner.node = node
        if kind == "post":
            node.register_hook(lambda *grads: owner)
        elif kind == "pre":
            node.register_prehook(lambda *grads: owner)
        elif kind == "behind":  # of the node that leads to it
            y.grad_fn.register_hook(lambda *grads: owner)
        elif kind == "metadata":
            node.metadata["owner"] = owner
        else:
            y.register_hook(lambda grad: owner)
        return weakref.ref(owner)

    dies(make)


def test_a_hook_that_holds_its_node_runs_while_the_graph_is_there() -> None:
    seen: list[str] = []
    x = leaf(1, 2)
    y = x.exp() * 2

    def hang(node: Any) -> None:
        node.register_hook(lambda *grads: seen.append(node.name()))
        node.metadata["what"] = [node]

    hang(y.grad_fn)
    gc.collect()
    assert y.grad_fn.metadata["what"][0] is y.grad_fn
    y.sum().backward()
    assert seen == ["MulBackward0"]
    held = y.grad_fn
    del y
    gc.collect()
    assert held.metadata["what"][0] is held and held.next_functions[0][0].name() == "ExpBackward0"


def test_what_is_in_use_is_not_collected() -> None:
    y = Double.apply(leaf(1, 2))
    y.grad_fn.result = y
    z = y * 3
    ref = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert ref() is not None and ref().result.tolist() == [2, 4]
    z.sum().backward()
    assert z.tolist() == [6, 12]


def test_pack_hooks_run_without_recording() -> None:
    """So that they can hand a tensor to NumPy; its history is there when it comes back."""
    x = tn.tensor([2.0, 3.0], requires_grad=True)
    seen = []

    def pack(t: tn.Tensor) -> np.ndarray:
        seen.append(tn.is_grad_enabled())
        return t.numpy().copy()

    with graph.saved_tensors_hooks(pack, lambda a: tn.tensor(a)):
        y = (x * x).exp()
    (g,) = tn.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(g.numpy(), 2 * x.detach().numpy() * y.detach().numpy(), rtol=1e-6)
    assert seen and not any(seen)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b, c: a * b, lambda a, b, c: b / a, lambda a, b, c: tn.addcmul(c, a, b),
        lambda a, b, c: a.exp() * c.tanh(), lambda a, b, c: tn.stack([a * b, c, b * c]),
        lambda a, b, c: tn.cat([a, b.sqrt()]).prod(0), lambda a, b, c: tn.where(a > b, a * c, b),
        lambda a, b, c: tn.lerp(a, b, c), lambda a, b, c: tn.einsum("ij,kj,lj->ikl", a, b, c),
        lambda a, b, c: a[tn.tensor([1, 0, 1])] @ b.t(), lambda a, b, c: tn.atan2(a, b) * c,
        lambda a, b, c: tn.linalg.multi_dot([a, b.t(), c]),
        lambda a, b, c: tn.gradient(a * b, spacing=(c[:, 0].cumsum(0), c[0].cumsum(0)))[1],
        lambda a, b, c: tn.block_diag(a * b, c * c), lambda a, b, c: a.std(0) + b.amax(0) * c,
    ],
)  # fmt: skip
def test_packed_tensors_come_back_to_their_places(fn: Any) -> None:
    """Each operand is another one: gradients from packed copies are those from the tensors."""
    leaves = [(tn.arange(6.0).reshape(2, 3) * k % 5 + 0.5 + k / 8).double() for k in (1, 2, 3)]
    for t in leaves:
        t.requires_grad_()
    options = {"allow_unused": True}
    wanted = tn.autograd.grad(fn(*leaves).square().sum(), leaves, **options)
    packed = []
    with tn.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(1) or t.detach().clone(), lambda t: t.clone()
    ):
        out = fn(*leaves)
    got = tn.autograd.grad(out.square().sum(), leaves, **options)
    assert packed
    for a, b in zip(got, wanted, strict=True):
        assert (a is None and b is None) or tn.equal(a, b)
