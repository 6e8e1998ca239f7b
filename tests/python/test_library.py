"""Operators written in Python: tenon.library.custom_op and the namespaces of tenon.ops."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from tenon._plugin.schema import parse


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int[] y=[1, -2]", [1, -2]), ("int[] y=[]", []), ("float y=1e-3", 1e-3),
        ("float y=-.5", -0.5), ("float y=inf", float("inf")), ("int y=-7", -7),
        ("str y='a, (\"b'", 'a, ("b'), ('str y=""', ""), ("bool y=True", True),
        ("int? y=None", None), ("float[] y=[0.5, 2]", [0.5, 2]),
    ],
)  # fmt: skip
def test_defaults_of_a_schema(text: str, value: Any) -> None:
    signature, written = parse("n::f", f"(Tensor x, {text}) -> Tensor")
    default = signature.parameters["y"].default
    assert default == value and type(default) is type(value) and not written
    after, written = parse("n::f", f"(Tensor(a!) x, *, {text}, int z=1) -> Tensor")
    assert after.parameters["y"].default == value and after.parameters["z"].default == 1
    assert after.parameters["y"].kind is inspect.Parameter.KEYWORD_ONLY and written == {"x"}


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


@pytest.fixture
def space() -> Any:
    lib = tn.library.Library("pytest_fragment", "FRAGMENT")
    yield lib
    lib._destroy()


def test_operators_by_schema(space: Any) -> None:
    assert space.define("scaled(Tensor x, float by=2.0, *, bool flip=False) -> Tensor") == "scaled"
    with pytest.raises(NotImplementedError, match="pytest_fragment::scaled"):
        tn.ops.pytest_fragment.scaled(tn.ones(1))

    def kernel(x: tn.Tensor, by: float, *, flip: bool) -> tn.Tensor:
        return tn.from_numpy(x.detach().numpy() * (-by if flip else by))

    space.impl("scaled", kernel, "CPU")
    scaled = tn.ops.pytest_fragment.scaled
    assert scaled(tn.ones(2)).tolist() == [2, 2]
    assert scaled.default(tn.ones(2), 3.0, flip=True).tolist() == [-3, -3]
    with pytest.raises(TypeError, match="scaled"):
        scaled(tn.ones(2), factor=3)
    x = tn.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="register_autograd"):
        scaled(x).sum().backward()
    tn.library.register_autograd(
        "pytest_fragment::scaled",
        lambda ctx, g: (g * ctx.by, None),
        setup_context=lambda ctx, inputs, **more: setattr(ctx, "by", inputs[1]),
    )
    scaled(x, 5.0).sum().backward()
    assert x.grad.tolist() == [5, 5]
    space._destroy()
    with pytest.raises(AttributeError, match="scaled"):
        _ = tn.ops.pytest_fragment.scaled


def test_kernels_that_are_recorded(space: Any) -> None:
    space.define("cubed(Tensor x) -> Tensor")
    parts = tn.library.Library("pytest_fragment", "IMPL", "CompositeImplicitAutograd")
    parts.impl("cubed", lambda x: x**3)
    x = tn.tensor([2.0], requires_grad=True)
    tn.ops.pytest_fragment.cubed(x).backward()
    assert x.grad.item() == 12
    space.define("own(Tensor x) -> Tensor")

    class Own(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: tn.Tensor) -> tn.Tensor:
            with tn.no_grad():
                return tn.ops.pytest_fragment.own(x)

        @staticmethod
        def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
            return g * 7

    space.impl("own", lambda x: x + 1, "CPU")
    space.impl("own", Own.apply, "Autograd")
    x.grad = None
    y = tn.ops.pytest_fragment.own(x)
    y.backward()
    assert (y.item(), x.grad.item()) == (3, 7)


def test_define_and_impl_by_name() -> None:
    tn.library.define("pytest_fragment::plus", "(Tensor x, int n) -> Tensor")

    @tn.library.impl("pytest_fragment::plus", ["cpu", "Meta"])
    def plus(x: tn.Tensor, n: int) -> tn.Tensor:
        return x + n

    @tn.library.impl_abstract("pytest_fragment::plus")
    def shape(x: tn.Tensor, n: int) -> tn.Tensor:
        return tn.empty_like(x)

    assert tn.ops.pytest_fragment.plus(tn.zeros(2), 4).tolist() == [4, 4]
    tn.library.opcheck("pytest_fragment::plus", (tn.zeros(2), 4))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda lib: tn.library.Library("aten", "IMPL"), ValueError, "aten"),
        (lambda lib: tn.library.Library("pytest_fragment", "ADD"), ValueError, "FRAGMENT"),
        (lambda lib: lib.define("no schema"), ValueError, "of the form"),
        (lambda lib: [lib.define("twice(Tensor x) -> Tensor") for _ in range(2)], RuntimeError,
         "already"),
        (lambda lib: lib.impl("absent", abs), ValueError, "absent"),
        (lambda lib: lib.impl("absent", 3), TypeError, "callable"),
        (lambda lib: tn.library.Library("pytest_fragment", "IMPL").define("f(Tensor x) -> Tensor"),
         RuntimeError, "IMPL"),
        (lambda lib: (lib.define("f(Tensor x) -> Tensor"), lib.impl("f", abs, "Sparse")),
         ValueError, "no dispatch key 'Sparse'"),
        (lambda lib: tn.library.define("pytest_fragment::g", "g(Tensor x) -> Tensor"), ValueError,
         "starts with"),
        (lambda lib: tn.library.define("g", "(Tensor x) -> Tensor"), ValueError, "namespace::name"),
    ],
)  # fmt: skip
def test_what_a_library_refuses(space: Any, call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(space)


def test_tensors_without_data_go_to_the_fake_function(cube: Any) -> None:
    cube.register_fake(lambda x, scale=1.0: x.new_empty(x.shape + (2,)))
    assert cube(tn.ones(3, device="meta")).shape == (3, 2)
    assert cube(tn.ones(3)).shape == (3,)


def test_schemas_of_operators_in_python() -> None:
    @tn.library.custom_op("pytest_library::moved", mutates_args={"y"})
    def moved(x: tn.Tensor, y: tn.Tensor, k: float = 0.5, *, n: int | None = None) -> tn.Tensor:
        return x.clone()

    schema = tn.ops.pytest_library.moved.default._schema
    assert (schema.name, schema.overload_name) == ("pytest_library::moved", "")
    assert schema.is_mutable and [r.type for r in schema.returns] == ["Tensor"]
    assert [(a.name, a.type, a.default_value, a.kwarg_only) for a in schema.arguments] == [
        ("x", "Tensor", None, False), ("y", "Tensor", None, False), ("k", "float", 0.5, False),
        ("n", "Optional[int]", None, True),
    ]  # fmt: skip
    assert [a.has_default_value() for a in schema.arguments] == [False, False, True, True]
    assert [a.alias_info is not None for a in schema.arguments] == [False, True, False, False]


def test_schemas_of_the_tables_operators_are_pytorchs() -> None:
    names = (
        "add.Tensor add.out add_.Tensor relu_.default mm.default mul.Tensor addmm.default "
        "t.default sigmoid.default clone.default bmm.default eq.Scalar gather.default "
        "masked_fill.Scalar transpose.int unsqueeze.default linear.default cat.default "
        "cumsum.default"
    ).split()

    def told(lib: Any) -> list[Any]:
        found = []
        for name in names:
            packet, form = name.split(".")
            op = getattr(getattr(lib.ops.aten, packet), form)
            found.append([str(op._schema), op._schema.is_mutable, op.is_view])
        return found

    assert told(tn) == stored.of_torch(told)
    with pytest.raises(AttributeError, match="_pin_memory"):
        _ = tn.ops.aten._pin_memory.default._schema


def test_operators_of_the_table_are_copied_and_pickled_as_themselves() -> None:
    aten = tn.ops.aten
    for op in (aten.mm, aten.mm.default, aten.add.Tensor):
        assert copy.deepcopy(op) is op and copy.copy(op) is op
        assert pickle.loads(pickle.dumps(op)) is op
    assert copy.deepcopy({aten.mm: 1}) == {aten.mm: 1}
    assert aten.mm.default._overloadpacket is aten.mm


def test_classes_of_libraries_do_not_exist() -> None:
    """Programs try them and go on without; they may make the module's path empty."""
    with pytest.raises(RuntimeError, match=r"class 'acme\.Engine', but it does not exist"):
        tn.classes.acme.Engine()
    assert not hasattr(tn.classes, "__path__")
    assert not hasattr(tn.classes.acme, "__path__")
    with pytest.raises(ImportError, match="no_such"):
        tn.classes.load_library("/no_such_library.so")
