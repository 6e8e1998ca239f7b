"""Operators written in Python: tenon.library.custom_op and the namespaces of tenon.ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn


@pytest.fixture
def cube() -> Any:
    @tn.library.custom_op("pytest_library::cube", mutates_args=())
    def cube(x: tn.Tensor, scale: float = 1.0) -> tn.Tensor:
        """scale * x cubed."""
        return tn.from_numpy(scale * x.detach().numpy() ** 3)

    return cube


def derive(op: Any) -> None:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.scale = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * ctx.scale * x**2 * grad, None

    op.register_autograd(backward, setup_context=setup_context)


def test_values_and_names(cube: Any) -> None:
    x = tn.tensor([1.0, -2.0])
    assert cube(x).tolist() == [1, -8]
    assert tn.ops.pytest_library.cube(x, scale=2.0).tolist() == [2, -16]
    assert "cube" in dir(tn.ops.pytest_library)
    assert cube.__doc__ == "scale * x cubed."
    with pytest.raises(TypeError, match="pytest_library::cube"):
        cube(x, factor=1)


def test_gradients(cube: Any) -> None:
    derive(cube)
    x = tn.randn(4, dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(lambda t: cube(t, 2.0), (x,))
    assert tn.autograd.gradgradcheck(lambda t: cube(t, 2.0), (x,))
    with tn.no_grad():
        assert not cube(x).requires_grad


def test_gradient_that_is_missing(cube: Any) -> None:
    y = cube(tn.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="derivative for pytest_library::cube is not impl"):
        y.sum().backward()


def test_wrong_number_of_gradients(cube: Any) -> None:
    cube.register_autograd(lambda ctx, grad: grad)
    y = cube(tn.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="returned 1 gradients for 2 arguments"):
        y.sum().backward()


def test_kernel_of_a_device() -> None:
    op = tn.library.custom_op(
        "pytest_library::twice", lambda x: x * 2, mutates_args=(), device_types="nowhere"
    )
    with pytest.raises(NotImplementedError, match="'cpu'"):
        op(tn.ones(1))
    tn.library.register_kernel("pytest_library::twice", "cpu", lambda x: x + x)
    np.testing.assert_array_equal(op(tn.ones(3)).numpy(), np.full(3, 2.0))


def test_keyword_only_arguments() -> None:
    @tn.library.custom_op("pytest_library::scaled", mutates_args=())
    def scaled(x: tn.Tensor, *, by: float = 2.0) -> tn.Tensor:
        return x * by

    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.by = keyword_only_inputs["by"]

    scaled.register_autograd(lambda ctx, grad: ctx.by * grad, setup_context=setup_context)
    x = tn.ones(2, requires_grad=True)
    scaled(x, by=3.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3]
    with pytest.raises(TypeError, match="pytest_library::scaled"):
        scaled(x, 3.0)
    with pytest.raises(TypeError, match=r"takes \*rest"):
        tn.library.custom_op("pytest_library::many", lambda x, *rest: x)


def test_names_that_are_refused() -> None:
    for name in ("cube", "a::b::c", "1::x", "::"):
        with pytest.raises(ValueError, match="namespace::name"):
            tn.library.custom_op(name, lambda x: x)
    with pytest.raises(ValueError, match="no custom_op"):
        tn.library.register_autograd("pytest_library::nothing", lambda ctx, grad: grad)
    with pytest.raises(AttributeError, match="no operator 'pytest_library::nothing'"):
        tn.ops.pytest_library.nothing  # noqa: B018


# -- what an operator says of itself ---------------------------------------------------------------


def test_announced_writes_are_counted() -> None:
    def fill(x: tn.Tensor, value: float) -> None:
        x.detach().numpy()[...] = value  # nobody sees this

    op = tn.library.custom_op("pytest_library::fill", fill, mutates_args=["x"])
    a = tn.ones(3, requires_grad=True)
    b = a * 1
    later = (b * b).sum()
    with pytest.raises(RuntimeError, match="argument 'x' is written to and cannot require grad"):
        op(b, 2.0)
    with tn.no_grad():
        assert op(b, 2.0) is None
    assert b.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        later.backward()
    for names in ("unknown", "x"):
        tn.library.custom_op("pytest_library::fill", fill, mutates_args=names)
    with pytest.raises(ValueError, match=r"mutates_args names \['y'\], which are no arguments"):
        tn.library.custom_op("pytest_library::fill", fill, mutates_args=["y"])


def test_schema() -> None:
    op = tn.library.custom_op(
        "pytest_library::mixed",
        lambda x, scale, *, offset, how: x * scale + (offset or 0) + len(how),
        mutates_args=(),
        schema='(Tensor x, float scale=2.0, *, int? offset=None, str how="up") -> Tensor',
    )
    x = tn.ones(2)
    assert op(x).tolist() == [4, 4]
    assert tn.ops.pytest_library.mixed(x, how="", offset=5, scale=3.0).tolist() == [8, 8]
    with pytest.raises(TypeError, match="pytest_library::mixed"):
        op(x, a=1)
    for schema, text in [
        ("Tensor x", "is of the form"),
        ("(Tensr x) -> Tensor", "cannot read argument 'Tensr x'"),
        ("(Tensor x, int y=z) -> Tensor", "no default 'z'"),
        ("(Tensor x, Tensor x) -> Tensor", "duplicate"),
        ("(Tensor(a!) x) -> ()", r"mutates_args names \['y'\], the schema \['x'\]"),
    ]:
        with pytest.raises(ValueError, match=text):
            tn.library.custom_op(
                "pytest_library::bad", lambda x: x, mutates_args=["y"] if "a!" in schema else (),
                schema=schema,
            )  # fmt: skip


def test_schema_of_a_function() -> None:
    def f(x: tn.Tensor, ys: list[tn.Tensor], k: int = 3, *, s: str = "a", z: float | None = None
          ) -> tuple[tn.Tensor, tn.Tensor]:  # fmt: skip
        return x, x

    want = '(Tensor(a0!) x, Tensor[] ys, int k=3, *, str s="a", float? z=None) -> (Tensor, Tensor)'
    assert tn.library.infer_schema(f, mutates_args=["x"]) == want
    with pytest.raises(ValueError, match="parameter x of g has no annotation"):
        tn.library.infer_schema(_untyped(), mutates_args=())


def _untyped() -> Any:
    def g(x):  # type: ignore[no-untyped-def]
        return x

    return g


def test_opcheck(cube: Any) -> None:
    x = tn.randn(3, requires_grad=True)
    with pytest.raises(Exception, match="test_autograd_registration.*not implemented"):
        tn.library.opcheck(cube, (x,))
    derive(cube)
    good = {
        "test_schema": "SUCCESS",
        "test_autograd_registration": "SUCCESS",
        "test_faketensor": "SUCCESS",
    }
    assert tn.library.opcheck(cube, (x,), {"scale": 2.0}) == good
    tn.library.register_fake("pytest_library::cube", lambda x, scale=1.0: tn.empty(4))
    with pytest.raises(Exception, match="test_faketensor.*what register_fake was given"):
        tn.library.opcheck("pytest_library::cube", (x,))
    cube.register_fake(lambda x, scale=1.0: tn.empty_like(x))
    assert tn.library.opcheck(cube, (x,), test_utils="test_faketensor")["test_faketensor"]
    found = tn.library.opcheck(
        tn.library.custom_op("pytest_library::sly", lambda x: x.add_(1), mutates_args=()),
        (tn.ones(2),),
        raise_exception=False,
    )
    assert found["test_schema"] == "argument 'x' was written to, which mutates_args omits"
    found = tn.library.opcheck(
        tn.library.custom_op("pytest_library::same", lambda x: x, mutates_args=()),
        (tn.ones(2),),
        raise_exception=False,
    )
    assert "shares memory with argument 'x'" in found["test_schema"]
