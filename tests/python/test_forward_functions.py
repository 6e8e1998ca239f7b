"""Functions of a program under forward-mode differentiation: jvp is called, and looked at."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import tenon as tn
from tenon.autograd import Function
from tenon.autograd import forward_ad as fw
from tenon.func import jacfwd, jacrev


class Thrice(Function):
    """x times two, whose jvp says three, so that one sees who was asked."""

    @staticmethod
    def forward(ctx: Any, n: int, x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        ctx.save_for_forward(y)
        ctx.save_for_backward(x)
        return x * 2 + y

    @staticmethod
    def backward(ctx: Any, g: tn.Tensor) -> Any:
        return None, g * 2, g

    @staticmethod
    def jvp(ctx: Any, n: Any, x_t: tn.Tensor, y_t: tn.Tensor) -> tn.Tensor:
        (y,) = ctx.saved_tensors
        assert n is None and float(y) == 5.0
        return 3 * x_t + y_t


def pushed(fn: Any, *args: Any) -> Any:
    return fw.unpack_dual(fn(*args)).tangent


@pytest.mark.parametrize("recorded", [True, False])
def test_jvp_is_what_counts(recorded: bool) -> None:
    x = tn.tensor(1.0, requires_grad=recorded)
    with fw.dual_level():
        dual = fw.make_dual(x, tn.tensor(7.0))
        out = Thrice.apply(0, dual, tn.tensor(5.0))
        assert fw.unpack_dual(out).tangent.item() == 21.0
        assert fw.unpack_dual(out + out).tangent.item() == 42.0
    if recorded:
        out.backward()
        assert x.grad is not None and x.grad.item() == 2.0


def test_without_jvp_backward_says_it() -> None:
    class Ten(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            return x

        @staticmethod
        def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
            return g * 10

    with fw.dual_level():
        dual = fw.make_dual(tn.ones(2), tn.tensor([1.0, 2.0]))
        assert pushed(Ten.apply, dual).tolist() == [10.0, 20.0]


def test_an_input_that_comes_back_keeps_a_tangent() -> None:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            return x

        @staticmethod
        def jvp(ctx: Any, t: tn.Tensor) -> tn.Tensor:
            return t.view_as(t)

    with fw.dual_level():
        assert pushed(Same.apply, fw.make_dual(tn.ones(2), tn.ones(2))).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("faithful", [True, False])
def test_what_writes_writes_its_tangent(faithful: bool) -> None:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx: Any, t: tn.Tensor) -> tn.Tensor:
            return t.mul_(2) if faithful else t * 2

    tangent = tn.ones(2)
    with fw.dual_level():
        dual = fw.make_dual(tn.ones(2), tangent)
        if not faithful:
            with pytest.raises(RuntimeError, match="must modify the corresponding gradient inpl"):
                Double.apply(dual)
            return
        out = Double.apply(dual)
        assert out is dual and fw.unpack_dual(out).tangent is tangent
        assert tangent.tolist() == [2.0, 2.0]


def test_tangents_have_places_and_shapes() -> None:
    class Two(Function):
        tangents: Any = None

        @staticmethod
        def forward(ctx: Any, x: tn.Tensor, y: tn.Tensor) -> Any:
            out = y.clone()
            ctx.mark_non_differentiable(out)
            return x.clone(), out

        @staticmethod
        def jvp(ctx: Any, x_t: tn.Tensor, y_t: Any) -> Any:
            return Two.tangents(x_t, y_t)

    with fw.dual_level():
        dual, plain = fw.make_dual(tn.ones(2), tn.ones(2)), tn.tensor(3)
        Two.tangents = lambda x_t, y_t: (x_t, y_t)  # None: integers have none
        out, constant = Two.apply(dual, plain)
        assert fw.unpack_dual(out).tangent.tolist() == [1.0, 1.0]
        assert fw.unpack_dual(constant).tangent is None
        for wrong, y, message in (
            (lambda x_t, y_t: (x_t, x_t), tn.ones(2), "return None at that position instead"),
            (lambda x_t, y_t: (x_t, x_t), plain, "return None at that position instead"),
            (lambda x_t, y_t: x_t, plain, "returned 1 tangents for 2 outputs"),
            (lambda x_t, y_t: (x_t[0], None), plain, "as the tangent of an output of shape"),
        ):
            Two.tangents = wrong
            with pytest.raises(RuntimeError, match=message):
                Two.apply(dual, y)


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_are_of_real_numbers_and_of_each_argument_once(jacobian: Any) -> None:
    with pytest.raises(RuntimeError, match="Expected all outputs to be real"):
        jacobian(lambda x: x * 1j)(tn.ones(2))
    with pytest.raises(RuntimeError, match="Expected all inputs to be real"):
        jacobian(lambda x: x.abs())(tn.ones(2, dtype=tn.complex64))
    with pytest.raises(RuntimeError, match="argnums elements must be unique"):
        jacobian(lambda x, y: x * y, argnums=(0, -2))(tn.ones(2), tn.ones(2))


def tangent(t: tn.Tensor) -> Any:
    found = fw.unpack_dual(t).tangent
    return None if found is None else found.tolist()


def test_writes_to_parts_are_writes_to_the_whole() -> None:
    with fw.dual_level():
        dual = fw.make_dual(tn.ones(4), tn.tensor([1.0, 2.0, 3.0, 4.0]))
        front, even = dual[:2], dual[::2]
        front.mul_(3)
        assert tangent(dual) == [3.0, 6.0, 3.0, 4.0]
        assert tangent(even) == [3.0, 3.0] and tangent(front) == [3.0, 6.0]
        dual.mul_(2)
        assert tangent(even) == [6.0, 6.0] and tangent(dual * 1) == [6.0, 12.0, 6.0, 8.0]


def test_a_tensor_of_no_tangent_gets_one_by_a_part() -> None:
    with fw.dual_level():
        plain = tn.ones(4)
        middle, late = plain[1:3], plain[2:]
        dual = fw.make_dual(tn.ones(2), tn.tensor([7.0, 8.0]))
        plain[:2].copy_(dual)
        assert tangent(plain) == [7.0, 8.0, 0.0, 0.0]
        assert tangent(middle) == [8.0, 0.0] and tangent(late) == [0.0, 0.0]
        middle *= 3
        assert tangent(plain) == [7.0, 24.0, 0.0, 0.0]
        late[0] = dual[1]
        assert tangent(middle) == [24.0, 8.0] and tangent(plain.sum()) == 39.0


def test_copies_have_tangents_of_their_own() -> None:
    given = tn.ones(2)
    with fw.dual_level():
        dual = fw.make_dual(tn.ones(2), given)
        copy = tn.zeros(2).copy_(dual)
        for t in (copy, dual.clone(), dual + 0):
            fw.unpack_dual(t).tangent.mul_(5)
        assert given.tolist() == [1.0, 1.0] and tangent(dual) == [1.0, 1.0]
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            fw.make_dual(dual, given)
        with pytest.raises(RuntimeError, match="itself has a forward gradient"):
            fw.make_dual(given, dual)
        bits = fw.make_dual(tn.ones(2, 2), tn.ones(2, 2))
        pairs = tn.view_as_complex(bits)
        with pytest.raises(NotImplementedError, match="read as another dtype"):
            pairs.mul_(2)


def test_tensors_are_let_go_before_their_level_ends() -> None:
    """A view is known as a part of its tensor for as long as there is the view."""
    with fw.dual_level():
        dual = fw.make_dual(tn.ones(4), tn.ones(4))
        view, watched = dual[1:], weakref.ref(dual)
        assert fw.unpack_dual(view).tangent is not None
        del dual, view
        gc.collect()
        assert watched() is None
