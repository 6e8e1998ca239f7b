"""__torch_function__: subclasses of Tensor and other classes that take part in calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import stored
import tenon as tn
from tenon import overrides


class Plain(tn.Tensor):
    """A subclass that adds nothing."""


class Log(tn.Tensor):
    """Notes what is called on it."""

    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Duck:
    """No tensor; answers for the functions in `known`."""

    known: dict[Any, Callable[..., Any]] = {}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.known:
            return NotImplemented
        return cls.known[func](*args, **(kwargs or {}))


def plain(*shape: int) -> Plain:
    return tn.ones(*shape).as_subclass(Plain)


CALLS: list[Callable[[Any], Any]] = [
    lambda x: x + 1, lambda x: 1 + x, lambda x: 2 - x, lambda x: 2 / x, lambda x: 2**x,
    lambda x: x @ x, lambda x: -x, lambda x: abs(x), lambda x: x > 0, lambda x: x == x,
    lambda x: x[0], lambda x: x[:, 1:], lambda x: x[x > 0], lambda x: x.sum(), lambda x: x.T,
    lambda x: x.double(), lambda x: x.to("cpu", copy=True), lambda x: x.detach(),
    lambda x: x.clone(), lambda x: x.data, lambda x: x.new_zeros(2), lambda x: tn.zeros_like(x),
    lambda x: tn.cat([tn.ones(2, 2), x]), lambda x: tn.stack((x, x)), lambda x: x.max(1)[0],
    lambda x: x.split(1)[0], lambda x: tn.where(x > 0, x, tn.ones(2, 2)),
    lambda x: tn.nn.functional.relu(x), lambda x: tn.ones(2, 2) + x, lambda x: next(iter(x)),
    lambda x: tn.nn.Linear(2, 2)(x), lambda x: tn.nn.Parameter(tn.ones(2, 2)) * x,
]  # fmt: skip


@pytest.mark.parametrize("fn", CALLS)
def test_results_have_the_class(fn: Callable[[Any], Any]) -> None:
    x, want = plain(2, 2), fn(tn.ones(2, 2))
    got = fn(x)
    assert type(got) is Plain and type(want) is not Plain
    assert got.shape == want.shape and got.dtype == want.dtype
    with overrides.DisableTorchFunctionSubclass():
        assert type(x + 1) is tn.Tensor


def test_in_place_calls_and_items_keep_the_object() -> None:
    x = plain(3)
    before = x
    x += 1
    x[0] = 7
    assert x is before and x.tolist() == [7, 2, 2] and type(x) is Plain


def test_gradients_of_a_subclass() -> None:
    x = plain(3).requires_grad_()
    (x * 3).sum().backward()
    assert type(x.grad) is tn.Tensor and x.grad.tolist() == [3, 3, 3]


def test_parameters_are_left_alone() -> None:
    p = tn.nn.Parameter(tn.ones(2))
    assert type(p + 1) is tn.Tensor and not overrides.has_torch_function((p,))


def test_what_a_class_sees() -> None:
    Log.calls = []
    x = tn.ones(2).as_subclass(Log)
    x = 2 - tn.add(x * 2, 1)
    x += 1
    x = tn.sum(x.mean())
    assert type(x) is Log
    assert Log.calls == ["mul", "add", "__rsub__", "add_", "mean", "sum"]


def test_subclass_beats_its_base_and_strangers_do_not_mix() -> None:
    class Child(Plain):
        pass

    class Stranger(tn.Tensor):
        pass

    assert type(plain(2) + tn.ones(2).as_subclass(Child)) is Child
    with pytest.raises(TypeError, match="handlers returned NotImplemented"):
        plain(2) + tn.ones(2).as_subclass(Stranger)


def test_classes_that_are_no_tensors() -> None:
    Duck.known = {
        tn.mean: lambda d: "mean",
        tn.Tensor.add: lambda a, b: "method",
        tn.cat: lambda ds, dim=0: f"cat {len(ds)} {dim}",
    }
    assert tn.mean(Duck()) == "mean"
    assert tn.ones(2) + Duck() == "method" == tn.ones(2).add(Duck())
    assert tn.cat([Duck(), tn.ones(1)], dim=1) == "cat 2 1"
    with pytest.raises(TypeError, match=r"'tenon\.sum'.*\n\n  - tensor subclass .*Duck"):
        tn.sum(Duck())


def test_functions_of_a_program() -> None:
    def own(x: Any) -> str:
        if overrides.has_torch_function((x,)):
            return overrides.handle_torch_function(own, (x,), x)
        return "own"

    Duck.known = {own: lambda x: "theirs"}
    assert (own(tn.ones(1)), own(Duck())) == ("own", "theirs")
    wrapped = overrides.wrap_torch_function(lambda x: (x,))(lambda x: "own")
    Duck.known = {wrapped: lambda x: "theirs"}
    assert (wrapped(tn.ones(1)), wrapped(Duck())) == ("own", "theirs")
    assert [overrides.is_tensor_like(o) for o in (Duck(), tn.ones(1), 3)] == [True, True, False]


def test_losses_with_former_arguments() -> None:
    values, classes = tn.arange(6.0).view(2, 3), tn.tensor([1, 0])
    F = tn.nn.functional  # noqa: N806 - its name everywhere
    for loss, target in (
        (F.cross_entropy, classes),
        (F.nll_loss, classes),
        (F.mse_loss, values + 1),
    ):
        for reduction in ("mean", "sum"):
            got = loss(values.as_subclass(Plain), target, reduction=reduction)
            want = loss(values, target, reduction=reduction)
            assert type(got) is Plain and got.item() == want.item()


def test_functions_with_twins_of_other_arguments() -> None:
    """F.batch_norm is not shown as tn.batch_norm, whose arguments stand in another order."""
    functional = tn.nn.functional
    x, mean, var = tn.randn(4, 3), tn.zeros(3), tn.ones(3)
    y = tn.randn(4, 3)
    calls: list[Callable[[Any], Any]] = [
        lambda x: functional.batch_norm(x, mean, var, training=False),
        lambda x: functional.instance_norm(x[None], momentum=0.2),
        lambda x: functional.kl_div(x, y.exp(), reduction="sum"),
        lambda x: functional.poisson_nll_loss(x, y.abs()),
        lambda x: functional.triplet_margin_loss(x, y, y + 1, reduction="none"),
        lambda x: functional.cosine_embedding_loss(x, y, tn.ones(4), reduction="none"),
    ]
    for call in calls:
        got = call(x.as_subclass(Plain))
        assert type(got) is Plain
        assert tn.equal(got.as_subclass(tn.Tensor), call(x))
        assert tn.allclose(tn.vmap(call)(tn.stack([x, y + 2])), tn.stack([call(x), call(y + 2)]))


def test_attributes_and_methods_that_are_no_operators_ask() -> None:
    def asked(lib: Any) -> list[str]:
        seen: list[str] = []

        class Listening(lib.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
                seen.append(f"{func.__name__} {[t.__name__ for t in types]} {len(args)}")
                return super().__torch_function__(func, types, args, kwargs)

        x = lib.ones(2, 3).as_subclass(Listening)
        assert type(x.T) is Listening and type(x.to(lib.float64)) is Listening
        assert (x.shape, len(x), x[0, 0].item(), x.size(1)) == ((2, 3), 2, 1.0, 3)
        assert (float(x.sum()), bool(x.any()), x.dtype, x.dim()) == (6.0, True, lib.float32, 2)
        x.requires_grad_().sum().backward()
        assert type(x.grad) is lib.Tensor and x.is_leaf
        x.requires_grad = False
        x.data = lib.zeros(2, 3)
        assert x.tolist() == [[0, 0, 0], [0, 0, 0]] and x.numpy().shape == (2, 3)
        return seen

    assert asked(tn) == stored.of_torch(asked)


def test_classes_that_say_nothing_of_their_own_keep_tensors_attributes() -> None:
    class Plain(tn.Tensor):
        pass

    class Named(Plain):
        shape = "mine"

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return super().__torch_function__(func, types, args, kwargs)

    assert "shape" not in vars(Plain) and vars(Named)["shape"] == "mine"
    assert Named.ndim is tn.Tensor.ndim
    assert tn.ones(2).as_subclass(Named).ndim == 1


def test_a_class_says_what_an_attribute_is() -> None:
    class Double(tn.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            if func == tn.Tensor.shape.__get__:
                return "a shape"
            if func is tn.Tensor.item:
                return 2 * super().__torch_function__(func, types, args, kwargs)
            return super().__torch_function__(func, types, args, kwargs)

    x = tn.tensor([3.0]).as_subclass(Double)
    assert x.shape == "a shape" and x.item() == 6 and x.size() == (1,)
