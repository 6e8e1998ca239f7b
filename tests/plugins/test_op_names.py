"""An operator of a plugin is known by its namespace and its schema: one called like a built-in
operator is not taken for that, and what it writes to does not follow from a `_` at the end."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import as_user
import pytest
import tenon as tn
from added import (  # noqa: F401
    COMPOSITE,
    POINTWISE,
    STRUCTURED,
    load,
    make,
    private_cache,
    source,
)

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

NAMES = ("sum", "relu", "view", "clone", "where", "softmax", "add_", "exp")


@pytest.fixture(scope="module")
def alike() -> Any:
    """Operators with the names of others: each gives 100 times its argument."""
    more = "".join(
        f"tn_op_desc {n} = {{.struct_size = sizeof {n}, .kind = TN_OP_COMPOSITE, "
        f'.formula = "100 * x", .schema = "alike::{n}(Tensor x) -> Tensor"}};'
        f"if (!st) st = h->register_op(t, &{n});"
        for n in NAMES
    )
    more += 'return st ? st : kernel(h, t, "alike::each", 0, copy, TN_F32, 0);'
    return load("alike", f'{POINTWISE}"alike::each(Tensor x) -> Tensor"', more)


X = tn.arange(6.0).reshape(2, 3)
KINDS: dict[str, Callable[[], tn.Tensor]] = {
    "nested": lambda: tn.nested.nested_tensor([X, X]),
    "jagged": lambda: tn.nested.nested_tensor([X, X], layout=tn.jagged),
    "masked": lambda: tn.masked.masked_tensor(X, X > 1),
    "quantized": lambda: tn.quantize_per_tensor(X, 1.0, 0, tn.qint32),
    "lazy": lambda: tn.nn.UninitializedParameter(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_others_have(alike: Any, name: str, kind: str) -> None:
    """Classes that have rules by name have none for it, and say so."""
    with pytest.raises((RuntimeError, TypeError, ValueError), match=f"alike::{name}|uninitialized"):
        getattr(alike, name)(KINDS[kind]())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_others_have_in_transforms(alike: Any, name: str) -> None:
    f, want = getattr(alike, name), (100 * X).tolist()
    before = X.tolist()
    assert tn.vmap(f)(X).tolist() == want
    assert tn.func.functionalize(f)(X).tolist() == want
    assert tn.func.jvp(f, (X,), (X,))[1].tolist() == want
    assert tn.fx.symbolic_trace(lambda x: f(x))(X).tolist() == want
    assert tn.compile(lambda x: f(x))(X).tolist() == want
    assert X.tolist() == before


def test_what_works_by_element_goes_through_nested_and_masked_tensors(alike: Any) -> None:
    for layout in (tn.strided, tn.jagged):
        nested = alike.each(tn.nested.nested_tensor([X, X[:1]], layout=layout))
        assert [t.tolist() for t in nested.unbind()] == [X.tolist(), X[:1].tolist()]
    masked = alike.each(KINDS["masked"]())
    assert masked.get_mask().tolist() == (X > 1).tolist()
    assert masked.to_tensor(-1).tolist() == X.where(X > 1, tn.tensor(-1.0)).tolist()


# -- what is written ------------------------------------------------------------------------------

AXPY = r"""
typedef struct axpy_args {
    const tn_plan *plan; const tn_view *x; tn_view *y; double a;
} axpy_args;
static tn_status axpy(const tn_call *call, const void *args) {
    const axpy_args *s = (const axpy_args *)args;
    (void)call;
    for (int64_t i = 0; i < s->y->shape[0]; i++)
        ((double *)s->y->data)[i * s->y->strides[0]] +=
            s->a * ((const double *)s->x->data)[i * s->x->strides[0]];
    return TN_OK;
}
"""


@pytest.fixture(scope="module", params=["c", "python"])
def axpy(request: pytest.FixtureRequest) -> Any:
    """y += a * x, whose second argument is written."""
    name = f"written_{request.param}"
    if request.param == "c":
        row = f'return kernel(h, t, "{name}::axpy", 0, axpy, TN_F64, 0);'
        schema = f'"{name}::axpy(Tensor x, Tensor! y, float a=1.0) -> ()"'
        return load(name, STRUCTURED + schema, row, AXPY).axpy

    @tn.library.custom_op(f"{name}::axpy", mutates_args=("y",))
    def axpy(x: tn.Tensor, y: tn.Tensor, a: float = 1.0) -> None:
        y.add_(x, alpha=a)

    return axpy


def test_writing_an_argument_that_is_not_mapped(axpy: Any) -> None:
    xs, ys = tn.arange(6.0).reshape(2, 3).double(), tn.zeros(2, 3, dtype=tn.float64)
    tn.vmap(lambda x, y: (axpy(x, y), y)[1])(xs, ys)
    assert ys.tolist() == xs.tolist()
    tn.vmap(lambda y: (axpy(xs[0], y=y, a=2.0), y)[1])(ys)
    assert ys.tolist() == (xs + 2 * xs[0]).tolist()
    y = tn.zeros(3, dtype=tn.float64)
    for call in (lambda x: axpy(x, y), lambda x: axpy(x, a=2.0, y=y)):
        with pytest.raises(RuntimeError, match="axpy' would write different elements into"):
            tn.vmap(call)(xs)
    assert y.tolist() == [0, 0, 0]


def test_a_call_that_writes_is_not_dead(axpy: Any) -> None:
    def run(x: tn.Tensor) -> tn.Tensor:
        y = tn.zeros_like(x)
        axpy(x, y, 2.0)
        return y + 1

    x = tn.arange(3.0, dtype=tn.float64)
    traced = tn.fx.symbolic_trace(run)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert traced(x).tolist() == run(x).tolist() == [1, 3, 5]


def test_forms_of_the_table_write_by_their_operators_name() -> None:
    """`ops.aten.add_.Tensor` writes as `add_` does, and is the same object once read again."""
    aten = tn.ops.aten
    nodes = {f: tn.fx.Graph().call_function(f, (X, 1)) for f in (aten.add_.Tensor, aten.add.Tensor)}
    assert [n.is_impure() for n in nodes.values()] == [True, False]
    for op in (aten, aten.relu, aten.add.Tensor):
        assert copy.deepcopy(op) is copy.copy(op) is pickle.loads(pickle.dumps(op)) is op
    program = tn.export.export(tn.nn.BatchNorm1d(3), (tn.rand(2, 3),)).run_decompositions()
    before = len(program.graph.nodes)
    program.graph.eliminate_dead_code()
    assert before >= len(program.graph.nodes) >= before - 2  # statistics that nobody reads
    assert any(n.target is aten.add_.Tensor for n in program.graph.nodes)


def test_tracing_without_writes_refuses_it() -> None:
    fields = f'{COMPOSITE}"writes_first::scale(Tensor! x, float a) -> ()", .formula = "x * a"'
    scale = load("writes_first", fields).scale
    node = tn.fx.Graph().call_function(scale, (tn.ones(2), 2.0))
    assert node.is_impure()
    with pytest.raises(RuntimeError, match="mutable operation writes_first::scale"):
        tn.fx.operator_schemas.check_for_mutable_operation(scale, (tn.ones(2), 2.0), {})


def test_tangents_of_what_is_written() -> None:
    """By a name without `_`; the tangent of the target is that of its new value."""
    schema = '"tangents::axpy(Tensor! y, Tensor x, float a) -> ()"'
    f = load("tangents", f'{COMPOSITE}{schema}, .formula = "y + a * x"').axpy

    def run(x: tn.Tensor) -> tn.Tensor:
        y = x * x
        f(y, x, 3.0)
        return y

    x = tn.arange(3.0, dtype=tn.float64)
    value, tangent = tn.func.jvp(run, (x,), (tn.ones_like(x),))
    assert value.tolist() == [0, 4, 10] and tangent.tolist() == [3, 5, 7]


PARTS = """
import sys
import tenon as tn
from tenon import distributed as dist
from tenon.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
tn.load_library(sys.argv[1])
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
x, y = (distribute_tensor(tn.full((4,), v), mesh, [Shard(0)]) for v in (1.0, 2.0))
assert tn.ops.parts.sum(x).full_tensor().tolist() == [100] * 4
try:
    tn.ops.parts.add(x, y)
except NotImplementedError as err:
    assert "parts::add(): an operator of a plugin that writes to DTensors" in str(err), err
else:
    raise SystemExit("nothing was raised")
assert tn.ops.parts.scale(x, 3.0) is None
assert x.full_tensor().tolist() == [3] * 4 and y.full_tensor().tolist() == [2] * 4
"""


def test_parts_of_tensors(tmp_path: Path) -> None:
    """DTensors know the rule of a built-in operator, and do in place what the schema says."""
    ops = [
        ("sum(Tensor x) -> Tensor", "x * 100"),
        ("add(Tensor x, Tensor! y) -> ()", "y + x"),
        ("scale(Tensor! y, float a) -> ()", "y * a"),
    ]
    (_, first), *others = [
        (k, f'.schema = "parts::{schema}", .formula = "{formula}"')
        for k, (schema, formula) in enumerate(ops)
    ]
    kind = ".kind = TN_OP_COMPOSITE"
    more = "".join(
        f"tn_op_desc op{k} = {{.struct_size = sizeof op{k}, {kind}, {fields}}};"
        f"if (!st) st = h->register_op(t, &op{k});"
        for k, fields in others
    )
    text = source("parts", f"{kind}, {first}", f"{more} return st;")
    code = tmp_path / "parts.c"
    unused = ("static tn_status copy", "static tn_status kernel")
    for head in unused:
        text = text.replace(head, head.replace("static", "static inline"))
    code.write_text(text)
    done = as_user.run(tmp_path, "-c", PARTS, str(make(code, tmp_path)))
    assert done.returncode == 0, done.stderr
