"""What graphs, their passes, exports, conditions and scans, scripts, schemas and trees refuse, each
with the words that only this check says, and with PyTorch's class of error."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from refusals import check, check_beside, part, private

Call = Callable[[Any], Any]


# ---- Graphs --------------------------------------------------------------------------------------


def traced(lib: Any) -> Any:
    return lib.fx.symbolic_trace(lambda x, y: x.relu() + y)


def of_another(lib: Any) -> None:
    graph, other = lib.fx.Graph(), lib.fx.Graph()
    with graph.inserting_before(other.placeholder("x")):
        pass


def no_output(lib: Any) -> None:
    graph = lib.fx.Graph()
    graph.placeholder("x")
    graph.output_node()


def used_before_made(lib: Any) -> None:
    made = traced(lib)
    relu, add = list(made.graph.nodes)[2:4]
    add.append(relu)
    lib.fx.Interpreter(made).run(lib.ones(1), lib.ones(1))


def in_a_circle(lib: Any, sort: Callable[[Any], Any]) -> None:
    made = traced(lib)
    relu, add = list(made.graph.nodes)[2:4]
    relu.args = (add,)
    sort(made)


def nothing_goes_out(lib: Any) -> None:
    utils = part(lib, "fx", "passes", "utils", "fuser_utils")
    made = traced(lib)
    utils.insert_subgm(made, traced(lib), (), ())


def unknown_member(lib: Any) -> None:
    class Tracer(lib.fx.Tracer):
        traced_func_name = "backwards"

    Tracer().trace(lib.nn.Linear(1, 1))


def same(lib: Any, x: Any, y: Any) -> Any:
    return part(lib, "fx", "experimental", "symbolic_shapes").sym_eq(x, y)


def made_fx(lib: Any, *args: Any, **given: Any) -> Any:
    return part(lib, "fx", "experimental", "proxy_tensor").make_fx(lambda x: x, **given)(*args)


def order(lib: Any, nodes: Any) -> Any:
    return part(lib, "fx", "passes", "utils", "fuser_utils").topo_sort(nodes)


GRAPHS: dict[str, tuple[str, Call]] = {
    "argument of a class": (
        "argument of type: <class 'object'>",
        lambda t: t.fx.Tracer().create_arg(object()),
    ),
    "target of a method": (
        "text as its target",
        lambda t: t.fx.Graph().create_node("call_method", operator.add),
    ),
    "function that is a text": (
        "but a Callable is expected",
        lambda t: t.fx.Graph().create_node("call_function", "add"),
    ),
    "node of another graph": ("is a node of another graph", of_another),
    "graph without an output": ("the graph has no output", no_output),
    "used before it is made": ("referenced nonexistent value", used_before_made),
    "too few in a box": (
        "expected 2 arguments for placeholders but received 1 (missing arguments)",
        lambda t: t.fx.Interpreter(traced(t)).boxed_run([t.ones(1)]),
    ),
    "too many in a box": (
        "expected 2 arguments for placeholders but received 3 (extra arguments)",
        lambda t: t.fx.Interpreter(traced(t)).boxed_run([t.ones(1)] * 3),
    ),
    "circle": (
        "Input graph has cycles, unable to add",
        lambda t: in_a_circle(t, part(t, "fx", "passes", "tools_common").legalize_graph),
    ),
    "circle in order": (
        "Input graph has cycles, unable to add",
        lambda t: in_a_circle(t, part(t, "fx", "passes", "tools_common").stable_topological_sort),
    ),
    "circle of a part": (
        "topological sorted nodes doesn't have same length as input nodes",
        lambda t: in_a_circle(t, lambda made: order(t, list(made.graph.nodes))),
    ),
    "part without results": ("orig_outputs is empty", nothing_goes_out),
    "method that is not there": ("traced_func_name=backwards doesn't exist in", unknown_member),
    "kind of tracing": (
        "Unexpected tracing type: by ear",
        lambda t: made_fx(t, t.ones(1), tracing_mode="by ear"),
    ),
    "equal to a text": ("unexpected sym_eq between", lambda t: same(t, 3, "3")),
    "equal to a list of lists": ("unexpected sym_eq between", lambda t: same(t, [3], [(3,)])),
}


# ---- Programs ------------------------------------------------------------------------------------


def exported(lib: Any, sizes: Any) -> Any:
    class Sum(lib.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x.sum() + y.sum()

    args = (lib.ones(4, 2), lib.ones(3))
    return part(lib, "export").export(Sum(), args, dynamic_shapes=sizes)


def listed(lib: Any) -> Any:
    class Sum(lib.nn.Module):
        def forward(self, xs: Any) -> Any:
            return xs[0] + xs[1]

    sizes = {"xs": {"first": None, "second": None}}
    return part(lib, "export").export(Sum(), ([lib.ones(2)] * 2,), dynamic_shapes=sizes)


def mapped(lib: Any, *xs: Any) -> Any:
    maps = part(lib, *(["_program", "scans"] if lib is tn else ["_higher_order_ops"])).map
    return maps(lambda x: x[0] + x[1], xs)


def conditions(lib: Any, no: Call, operands: Any = None) -> Any:
    """A program with two ways, the second of which gives something else."""

    class Ways(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            given = (x,) if operands is None else operands
            return lib.cond(x.sum() > 0, lambda x: x + 1, no, given)

    return part(lib, "export").export(Ways(), (lib.ones(2),))


def signature(text: str) -> Call:
    def call(lib: Any) -> Any:
        space: dict[str, Any] = {"Any": Any, "lib": lib}
        exec(text, space)
        return part(lib, "library").infer_schema(space["f"], mutates_args=())

    return call


def fuser(lib: Any) -> None:
    with part(lib, "jit").fuser("fuser9"):
        pass


def pytree(lib: Any) -> Any:
    return part(lib, "utils", "_pytree")


def without_paths(lib: Any) -> None:
    class Pair:
        pass

    trees = pytree(lib)
    trees.register_pytree_node(Pair, lambda p: ([1, 2], None), lambda parts, _: Pair())
    trees.tree_flatten_with_path(Pair())


def frozen(lib: Any) -> None:
    flags = part(lib, "backends")
    flags.disable_global_flags()
    try:
        lib.backends.mkldnn.enabled = False
    finally:
        setattr(*((part(lib, "backends", "_options"), "frozen") if lib is tn
                  else (flags, "__allow_nonbracketed_mutation_flag")), lib is not tn)  # fmt: skip


PROGRAMS: dict[str, tuple[str, Call]] = {
    "sizes of an unknown name": (
        "names ['x', 'y'] of `inputs`, but here they are ['x', 'z']",
        lambda t: exported(t, {"x": None, "z": None}),
    ),
    "too many sizes of a tensor": (
        "(expected 2, but got 3 instead)",
        lambda t: exported(t, ((None,) * 3, None)),
    ),
    "size that is a text": (
        "Dim.STATIC, or Dim.DYNAMIC,  but got 'rows' instead",
        lambda t: exported(t, (("rows", None), None)),
    ),
    "sizes for one argument": (
        "`inputs` has 2 elements, but `dynamic_shapes` has 1 elements",
        lambda t: exported(t, (None,)),
    ),
    "sizes of another structure": (
        "but `dynamic_shapes['xs']` is a <class 'dict'>",
        lambda t: listed(t),
    ),
    "called without its module": (
        "Unable to call ExportedProgram directly",
        lambda t: exported(t, None)(t.ones(4, 2), t.ones(3)),
    ),
    "mapped over two lengths": (
        "Leading dimensions of mapped xs must be consistent.",
        lambda t: mapped(t, t.ones(2), t.ones(3)),
    ),
    "operands of no tuple": (
        "operands is a tuple, not",
        lambda t: t.cond(t.tensor(True), lambda x: x, lambda x: x, t.ones(1)),
    ),
    "ways of another structure": (
        "return different structures",
        lambda t: conditions(t, lambda x: (x, x)),
    ),
    "ways of another shape": ("cond: true_fn returns", lambda t: conditions(t, lambda x: x[:1])),
    "ways of another dtype": (
        "cond: true_fn returns",
        lambda t: conditions(t, lambda x: x.double()),
    ),
    "schema of an unknown class": (
        "no known type",
        signature("def f(x: dict) -> lib.Tensor: ..."),
    ),
    "method that is traced": (
        "'Linear' object has no attribute 'backwards'",
        lambda t: part(t, "jit").trace_module(t.nn.Linear(1, 1), {"backwards": t.ones(1)}),
    ),
    "forward that was not traced": ("no attribute 'forward'", lambda t: of_two(t)(t.ones(1))),
    "nothing behind an optional": (
        "Unwrapping null optional",
        lambda t: part(t, "jit")._unwrap_optional(None),
    ),
    "fuser that is none": ("unrecognized fuser option (name: fuser9)", fuser),
    "tree without paths": ("is registered without flatten_with_keys_fn", without_paths),
    "lists of other lengths": (
        "and got another list",
        lambda t: pytree(t).tree_map(operator.add, [1, 2], [1, 2, 3]),
    ),
    "dicts of other keys": (
        "and got another dict",
        lambda t: pytree(t).tree_map(operator.add, {"a": 1}, {"b": 1}),
    ),
    "settings that are frozen": ("after disable_global_flags", frozen),
    "mode that is a text": (
        "mode must be bool, not str",
        lambda t: t.use_deterministic_algorithms("yes"),
    ),
    "scripted and pickled": (
        "was scripted, and cannot be pickled",
        lambda t: pickle.dumps(part(t, "jit").script(clipped)),
    ),
}


def of_two(lib: Any) -> Any:
    lib.nn.Linear.twice = lambda self, x: x * 2 + self.bias
    try:
        return part(lib, "jit").trace_module(lib.nn.Linear(1, 1), {"twice": lib.ones(1)})
    finally:
        del lib.nn.Linear.twice


def clipped(x):  # type: ignore[no-untyped-def]
    return x.clamp(0.0, 1.0)


# ---- Tensors -------------------------------------------------------------------------------------


def fakes(lib: Any, call: Call) -> None:
    mode = private(lib, "_subclasses").FakeTensorMode()
    with mode:
        fake = lib.ones(2)
    call(fake)


def own_class(lib: Any) -> None:
    class Plain(lib.Tensor):
        pass

    lib.Tensor._make_wrapper_subclass(Plain, (2,))


TENSORS: dict[str, tuple[str, Call]] = {
    "real beside fake": (
        "Please convert all Tensors to FakeTensors first",
        lambda t: fakes(t, lambda x: x + t.ones(2)),
    ),
    "class without dispatch": ("must define a __torch_dispatch__", own_class),
    "pieces given twice": ("several values", lambda t: t.tensor_split(t.ones(3), 2, indices=(1,))),
    "limits that are set": ("cannot be set", lambda t: setattr(t.finfo(t.float32), "eps", 0.0)),
    "chunks of nothing": ("expects a non-empty", lambda t: t._chunk_cat([], 0, 2)),
    "chunks along a last dimension of several": (
        "expects non-negative dim when",
        lambda t: t._chunk_cat([t.ones(2), t.ones(2, 2)], -1, 1),
    ),
    "chunks of an empty tensor": (
        "expects non-empty tensor",
        lambda t: t._chunk_cat([t.ones(0)], 0, 1),
    ),
    "chunks along no dimension": (
        "dimension 1 of tensors of 1",
        lambda t: t._chunk_cat([t.ones(2)], 1, 1),
    ),
    "chunks of other rows": (
        "expects same sizes of 0,...,dim-1 dimensions",
        lambda t: t._chunk_cat([t.ones(2, 2), t.ones(3, 2)], 1, 1),
    ),
    "no chunks": ("expects positive num_chunks", lambda t: t._chunk_cat([t.ones(2)], 0, 0)),
    "matrices of two shapes": (
        "lobpcg: B must have A's shape (4, 4), got (3, 3)",
        lambda t: t.lobpcg(t.eye(4), k=1, B=t.eye(3)),
    ),
    "compressed without a layout": (
        "needs a layout",
        lambda t: t.sparse_compressed_tensor(t.tensor([0, 1]), t.tensor([0]), t.ones(1)),
    ),
    "compressed with sparse dimensions": (
        "takes no sparse_dim",
        lambda t: t.eye(2).to_sparse(1, layout=t.sparse_csr),
    ),
    "variant of a mask": (
        "variant must be a CausalVariant, got int",
        lambda t: part(t, "nn", "attention", "bias").CausalBias(3, 2, 2),
    ),
    "nested by a sparse mask": (
        "expects a strided mask",
        lambda t: t.nested.masked_select(t.eye(2), t.eye(2).bool().to_sparse()),
    ),
    "nested of other lengths": (
        "nested tensors of different lengths: [2, 3]",
        lambda t: nested(t, 2, 3) + nested(t, 1, 2, 3),
    ),
    "primitive of a dict": (
        "Expected TensorLike, Number, or Sequence.",
        lambda t: private(t, "_prims_common", "wrappers")._maybe_convert_to_dtype({}, t.int64),
    ),
}


def nested(lib: Any, *sizes: int) -> Any:
    return lib.nested.nested_tensor([lib.ones(n, 2) for n in sizes])


ALL = GRAPHS | PROGRAMS | TENSORS
# PyTorch's classes of these are of its compilers alone, or it takes the call or has none such.
NOT_THERE = {
    "sizes of an unknown name", "too many sizes of a tensor", "size that is a text",
    "sizes for one argument", "sizes of another structure", "ways of another structure",
    "ways of another shape", "ways of another dtype", "method that is traced",
    "compressed with sparse dimensions",
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    words, call = ALL[name]
    if name in NOT_THERE:
        check((Exception, words, lambda: call(tn)))
    else:
        check_beside(words, call)
