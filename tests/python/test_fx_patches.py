"""fx: tracers that put their own functions in place, as programs write them that trace in another
way."""

from __future__ import annotations

import builtins
import math
from math import sqrt as root_of
from typing import Any

import tenon as tn
from tenon import fx, nn
from tenon.fx import _symbolic_trace as parts


class Own(fx.Tracer):
    """Traces by the parts of a trace."""

    @parts.compatibility(is_backward_compatible=True)
    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        self.root, self.tensor_attrs = root, {}
        self.graph = fx.Graph(tracer_cls=type(self))
        fn, args = self.create_args_for_root(type(root).forward, True, concrete_args)
        self.called: list[str] = []

        def module_call(mod: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.called.append(type(mod).__name__)
            parts._autowrap_check(patcher, mod.forward.__globals__, self._autowrap_function_ids)
            return self.call_module(mod, parts._orig_module_call, args, kwargs)

        with parts._Patcher() as patcher:
            patcher.patch_method(nn.Module, "__call__", module_call, deduplicate=False)
            parts._patch_wrapped_functions(patcher)
            for module in self._autowrap_search:
                parts._autowrap_check(patcher, vars(module), self._autowrap_function_ids)
            parts._autowrap_check(patcher, globals(), self._autowrap_function_ids)
            self.create_node("output", "output", (self.create_arg(fn(*args)),), {})
        return self.graph


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 1)

    def forward(self, x: Any) -> Any:
        return self.lin(x) * math.sqrt(x.size(0)) + root_of(x.size(1))


def test_a_tracer_that_does_it_itself() -> None:
    net, x, tracer = Net(), tn.randn(4, 3), Own()
    made = fx.GraphModule(net, tracer.trace(net))
    assert made(x).equal(net(x)) and tracer.called == ["Linear"]
    targets = [n.target for n in made.graph.nodes if n.op == "call_function"]
    assert targets.count(math.sqrt) == 2
    assert nn.Module.__call__ is parts._orig_module_call
    assert not hasattr(math.sqrt, "__wrapped__") and root_of is math.sqrt


def test_functions_of_wrapped_modules_are_nodes_by_the_names_they_have() -> None:
    graph = fx.symbolic_trace(Net()).graph
    assert [n.target for n in graph.nodes].count(math.sqrt) == 2
    assert root_of is math.sqrt


def test_what_was_patched_is_put_back() -> None:
    space, old = {"f": abs, "g": abs}, nn.Module.__call__
    first, second = (lambda *a: 1), (lambda *a: 2)
    with parts._Patcher() as patcher:
        patcher.patch(space, "f", first)
        patcher.patch(space, "f", second)  # one stands there
        patcher.patch(space, "g", second, deduplicate=False)
        patcher.patch(space, "g", first)
        patcher.patch(space, "len", first)  # of builtins, by no name of the module's
        patcher.patch_method(nn.Module, "__call__", first)
        patcher.patch_method(nn.Module, "__call__", second)
        assert (space["f"], space["g"], space["len"]) == (first, first, first)
        assert nn.Module.__call__ is first
        assert patcher.visit_once(space) and not patcher.visit_once(space)
    assert space == {"f": abs, "g": abs} and nn.Module.__call__ is old
    assert builtins.len([1]) == 1


def test_objects_of_scripts_have_a_class() -> None:
    assert isinstance(parts.ScriptObject, type) and not isinstance(tn.ones(1), parts.ScriptObject)


def test_a_walk_from_node_to_node_ends_at_the_root() -> None:
    node, names = next(iter(fx.symbolic_trace(Net()).graph.nodes)), []
    while node.op != "root":
        names.append(node.name)
        node = node.next
    assert names[0] == "x" and names[-1] == "output" and node.next.name == "x"
