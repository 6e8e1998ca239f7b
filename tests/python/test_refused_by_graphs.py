"""What graphs, exports, scans, trees and parts of data refuse, each with the words that only this
check says, and with PyTorch's class of error."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

import pytest
import stored
import tenon as tn
from refusals import outcome

Call = Callable[[Any], Any]


def parts(lib: Any, *names: str) -> Any:
    """A module of the library by its path."""
    return importlib.import_module(".".join([lib.__name__, *names]))


def traced(lib: Any) -> Any:
    return lib.fx.symbolic_trace(lambda x, y: x.relu() + y)


def node(lib: Any, op: str = "call_function", target: Any = operator.add) -> Any:
    return lib.fx.Graph().create_node(op, target)


def names_twice(lib: Any) -> None:
    graph = traced(lib).graph
    a, b, *_ = graph.nodes
    b.name = a.name
    graph.lint()


def has_no_such_attribute(lib: Any) -> None:
    made = traced(lib)
    with made.graph.inserting_before(next(iter(made.graph.nodes))):
        made.graph.create_node("get_attr", "a.b")
    made.graph.lint()


def reads_nothing(lib: Any) -> None:
    made = traced(lib)
    with made.graph.inserting_before(next(iter(made.graph.nodes))):
        made.graph.create_node("get_attr", "weight_of_none")
    lib.fx.Interpreter(made).run(lib.ones(1), lib.ones(1))


def replaced(lib: Any, new: Any) -> None:
    rewriter = parts(lib, "fx", "subgraph_rewriter")
    rewriter.replace_pattern_with_filters(traced(lib), lambda x, y: x.relu() + y, new)


def rewritten(lib: Any, new: Any) -> None:
    parts(lib, "fx", "subgraph_rewriter").replace_pattern(traced(lib), lambda x: x.relu(), new)


def without_its_weight(lib: Any) -> None:
    module, graph = lib.nn.Module(), lib.fx.Graph()
    module.weight = lib.ones(1)
    graph.output(graph.get_attr("weight"))
    made = lib.fx.GraphModule(module, graph)
    del made.weight
    lib.fx.Interpreter(made).run()


def nodes_of_another(lib: Any) -> None:
    fuser = parts(lib, "fx", "passes", "utils", "fuser_utils")
    mine, other = traced(lib), traced(lib)
    fuser.fuse_as_graphmodule(mine, [n for n in other.graph.nodes if n.op == "call_method"], "f")


def around_what_is_between(lib: Any) -> None:
    fuser = parts(lib, "fx", "passes", "utils", "fuser_utils")
    made = lib.fx.symbolic_trace(lambda x: x.relu().neg() + x.relu())
    relu, neg, _, add = [n for n in made.graph.nodes if n.op.startswith("call")]
    fuser.fuse_as_graphmodule(made, [relu, add], "f")


def parts_in_a_circle(lib: Any) -> None:
    made = lib.fx.symbolic_trace(lambda x: x.relu().neg().relu())
    turn = iter("aba")
    parts(lib, "fx", "passes", "split_module").split_module(made, None, lambda n: next(turn))


class Size:
    def __init__(self, x: Any) -> None:
        self.x = x


def dim(lib: Any) -> Any:
    return lib.export.Dim("batch", min=2, max=8)


def exported(lib: Any, shapes: Any) -> None:
    class Doubled(lib.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x * 2

    lib.export.export(Doubled(), (lib.ones(3, 4),), dynamic_shapes=shapes)


def add(a: Any, b: Any) -> Any:
    return a + b


def scans(lib: Any) -> Any:
    return parts(lib, "_program", "scans") if lib is tn else parts(lib, "_higher_order_ops")


def steps(lib: Any) -> tuple[Any, Any]:
    found = scans(lib)
    return found.scan, found.associative_scan


GRAPHS: dict[str, tuple[str, Call]] = {
    "kind of node": ("no kind of node", lambda lib: node(lib, "call_all")),
    "function that is none": ("but a Callable is expected", lambda lib: node(lib, target="add")),
    "node erased from another": (
        "from wrong graph",
        lambda lib: traced(lib).graph.erase_node(traced(lib).graph.output_node()),
    ),
    "names twice": ("Node redefined name x", names_twice),
    "no attribute": ("references nonexistent attribute a of", has_no_such_attribute),
    "reads nothing": ("nonexistent target weight_of_none", reads_nothing),
    "wrapped": ("Unsupported type for global function", lambda lib: lib.fx.wrap(3)),
    "missing argument": (
        "Expected positional argument for parameter y",
        lambda lib: lib.fx.Interpreter(traced(lib)).run(lib.ones(1)),
    ),
    "target of a placeholder": (
        "Expect op types of",
        lambda lib: parts(lib, "fx", "passes", "tools_common").get_node_target(
            {}, next(iter(traced(lib).graph.nodes))
        ),
    ),
    "nothing instead": (
        "Must provide either replacement GraphModule or callback",
        lambda lib: replaced(lib, None),
    ),
    "replaced by what takes more": (
        "the pattern takes 1 arguments, and its replacement 2",
        lambda lib: rewritten(lib, lambda x, y: x + y),
    ),
    "replaced by two values": (
        "the pattern returns 1 values, and its replacement 2",
        lambda lib: rewritten(lib, lambda x: (x.neg(), x.abs())),
    ),
    "weight that is gone": ("Node referenced nonexistent target weight", without_its_weight),
    "nodes of another": ("doesn't belong to passed in graph module", nodes_of_another),
    "around what is between": ("found dependency cycles", around_what_is_between),
    "parts in a circle": ("cycle exists between partitions", parts_in_a_circle),
    "layer that is not there": (
        "root did not have that target",
        lambda lib: parts(lib, "fx", "operator_schemas").normalize_module(traced(lib), "a", ()),
    ),
    "least and most": (
        "min must be <= max",
        lambda lib: lib.export.Dim.AUTO(min=4, max=2),
    ),
    "derived below none": (
        "Expected derived min value of batch - 3 to be >= 0",
        lambda lib: dim(lib) - 3,
    ),
    "times nothing": ("multiplied by positive numbers, not 0", lambda lib: dim(lib) * 0),
    "broken rule": ("whole numbers, not 1.5", lambda lib: dim(lib) + 1.5),
    "shape of a number": (
        "Cannot assign shape to non-tensor of type",
        lambda lib: lib.export.ShapesCollection().__setitem__(3, {}),
    ),
    "arguments in a list": (
        "should be a tuple, got",
        lambda lib: lib.export.AdditionalInputs().add([lib.ones(1)]),
    ),
    "scan along a half": (
        "Dim must be an int",
        lambda lib: steps(lib)[0](add, lib.ones(()), lib.ones(3), dim=0.5),
    ),
    "scan back by a number": (
        "Reverse must be a bool",
        lambda lib: steps(lib)[0](add, lib.ones(()), lib.ones(3), reverse=1),
    ),
    "scan by nothing": (
        "Combine_fn must be a callable",
        lambda lib: steps(lib)[0](3, lib.ones(()), lib.ones(3)),
    ),
    "scan from nothing": (
        "requires init leaves",
        lambda lib: steps(lib)[0](add, (), lib.ones(3)),
    ),
    "scan of numbers": (
        "xs leaves must be a Tensor",
        lambda lib: steps(lib)[0](add, lib.ones(()), [1, 2]),
    ),
    "associative scan along a half": (
        "Dim must be an int",
        lambda lib: steps(lib)[1](add, lib.ones(3), 0.5),
    ),
    "associative scan back by a number": (
        "Reverse must be a bool",
        lambda lib: steps(lib)[1](add, lib.ones(3), 0, reverse=1),
    ),
    "associative scan by nothing": (
        "Combine_fn must be a callable",
        lambda lib: steps(lib)[1](3, lib.ones(3), 0),
    ),
    "associative scan of nothing": (
        "Expected at least 1 xs leaf",
        lambda lib: steps(lib)[1](add, [], 0),
    ),
    "associative scan point by point": (
        "need to be on CUDA or XPU",
        lambda lib: steps(lib)[1](add, lib.ones(3), 0, combine_mode="pointwise"),
    ),
    "associative scan in another mode": (
        "must either 'pointwise' or 'generic'",
        lambda lib: steps(lib)[1](add, lib.ones(3), 0, combine_mode="other"),
    ),
    "loop over one": (
        "must be a tuple",
        lambda lib: scans(lib).while_loop(lambda x: x.sum() < 3, lambda x: (x + 1,), 3),
    ),
}


def tree(lib: Any) -> Any:
    return parts(lib, "utils", "_pytree")


TREES: dict[str, tuple[str, Call]] = {
    "leaves": (
        "`leaves` has length 1 but the spec refers to a pytree that holds 2 items",
        lambda lib: tree(lib).tree_unflatten([1], tree(lib).tree_structure((1, 2))),
    ),
    "saved": ("is expected, not <class 'int'>", lambda lib: tree(lib).treespec_dumps(3)),
    "protocol": (
        "Unknown protocol 7",
        lambda lib: tree(lib).treespec_dumps(tree(lib).tree_structure((1, 2)), 7),
    ),
    "constant without equality": (
        "expects `cls` to have a non-default `__eq__`",
        lambda lib: tree(lib).register_constant(Size),
    ),
    "registered twice": (
        "is already registered as pytree node",
        lambda lib: tree(lib).register_pytree_node(list, list, list),
    ),
    "another structure": (
        "expected a tuple, and got",
        lambda lib: tree(lib).tree_map(add, (1, 2), [1, 2]),
    ),
    "tensors of one size": (
        "Size mismatch between tensors",
        lambda lib: lib.utils.data.TensorDataset(lib.ones(2), lib.ones(3)),
    ),
    "stacked both ways": (
        "both types are given",
        lambda lib: lib.utils.data.StackDataset([1], a=[2]),
    ),
    "weights of a matrix": (
        "weights should be a 1d sequence",
        lambda lib: lib.utils.data.WeightedRandomSampler(lib.ones(2, 2), 1),
    ),
    "sampler of half a sample": (
        "num_samples should be a positive integer",
        lambda lib: lib.utils.data.WeightedRandomSampler([1.0], 0),
    ),
    "pipe's name": (
        "as it is already taken",
        lambda lib: lib.utils.data.IterDataPipe.register_datapipe_as_function("map", list),
    ),
    "graph of a number": (
        "is found",
        lambda lib: parts(lib, "utils", "data", "graph").traverse_dps(3),
    ),
    "tau": ("Tau must be positive", lambda lib: lib.signal.windows.exponential(4, tau=0.0)),
    "deviation": (
        "Standard deviation must be positive",
        lambda lib: lib.signal.windows.gaussian(4, std=0.0),
    ),
    "context of no fake": (
        "can only be called inside of a fake impl",
        lambda lib: lib.library.get_ctx(),
    ),
    "windows": (
        "requires non-negative window length",
        lambda lib: lib.signal.windows.hann(-1),
    ),
    "timer": (
        "only Python statements are timed, not 'fortran'",
        lambda lib: parts(lib, "utils", "benchmark").Timer("x", language="fortran"),
    ),
    "checkpoint of a number": (
        "Only tuple of tensors is supported. Got Unsupported input type: int",
        lambda lib: parts(lib, "utils", "checkpoint").detach_variable(3),
    ),
    "exception of a future": (
        "not an Exception",
        lambda lib: lib.futures.Future().set_exception(3),
    ),
}


# Here PyTorch goes on, or fails for another reason.
NOT_THERE = {
    "derived below none", "scan of numbers", "associative scan of nothing", "loop over one",
    "context of no fake",
}  # fmt: skip


@pytest.mark.parametrize("name", [*GRAPHS, *TREES])
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    words, call = (GRAPHS | TREES)[name]
    with pytest.raises(Exception, match=words):
        call(tn)
    if name not in NOT_THERE:
        stored.same(outcome(call, tn), stored.of_torch(lambda torch: outcome(call, torch)))
