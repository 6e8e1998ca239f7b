"""Code that classes of a program's own write, formats of values and arguments of other kinds beside
PyTorch's, by small programs that both libraries run."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any

import pytest
from fx_parts import compare, place, text


class Way(enum.Enum):
    UP = 2
    DOWN = 3


def of_lists(t: Any) -> type:
    class OfLists(place(t, "fx.graph").CodeGen):
        """The function takes its arguments as one list, and returns one."""

        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            taken = "".join(f"{name.split()[0]}, " for name in free_vars)
            head = f"def forward(self, given: Pair){maybe_return_annotation}:"
            return f"{head}\n    {taken}= given"

        def generate_output(self, output_args: Any) -> str:
            return f"return [len(Pair.__args__), {output_args}]"

        def additional_globals(self) -> list[tuple[str, Any]]:
            return [("Pair", tuple[Any, Any])]

        def process_inputs(self, *inputs: Any) -> Any:
            return inputs[0]

        def process_outputs(self, outputs: Any) -> Any:
            return [2, outputs]

    return OfLists


def codes_of_ones_own(t: Any) -> Any:
    gm = t.fx.symbolic_trace(lambda a, b: (a + b, a * t.float32.itemsize))
    given = [t.ones(2), t.full((2,), 3.0)]
    gm.graph.set_codegen(of_lists(t)())
    gm.recompile()
    plain = t.fx.GraphModule({}, copy.deepcopy(gm.graph))
    plain.graph.set_codegen(place(t, "fx.graph").CodeGen())
    plain.recompile()
    graph = gm.graph
    said = [gm(given), graph.process_outputs(plain(*graph.process_inputs(given)))]
    said.append(t.fx.Interpreter(gm).run(given))
    said.append(t.fx.Transformer(gm).transform()(given))
    lines = [line.strip() for line in gm.code.splitlines() if line.strip()]
    return [*said, lines[0], lines[1].replace(" ", ""), lines[-1].replace("return ", "")]


def definitions(t: Any) -> Any:
    own = place(t, "fx.graph").CodeGen()
    said = [own.gen_fn_def(["a", "b : int"], " -> int"), own.gen_fn_def([], "")]
    return [*said, own.generate_output((1, [2])), own.additional_globals()]


def formats_of_values(t: Any) -> Any:
    prop = place(t, "fx.passes.shape_prop")
    names = ("contiguous_format", "channels_last", "channels_last_3d")

    def told(x: Any) -> Any:
        gm = t.fx.symbolic_trace(lambda x: (x + 1).transpose(0, -1))
        prop.ShapeProp(gm).propagate(x)
        found = [n.meta["tensor_meta"].memory_format for n in list(gm.graph.nodes)[:3]]
        return [next((n for n in names if getattr(t, n) is f), None) for f in found]

    images, volumes = t.zeros(2, 3, 4, 5), t.zeros(2, 3, 4, 5, 6)
    said = [told(x) for x in (images, volumes, t.zeros(()), t.zeros(2, 3).t(), t.zeros(2, 3))]
    said.append(told(images.contiguous(memory_format=t.channels_last)))
    return [*said, told(volumes.contiguous(memory_format=t.channels_last_3d))]


def arguments_of_other_kinds(t: Any) -> Any:
    class Given:
        def __init__(self, value: float) -> None:
            self.value = value

        def __fx_create_arg__(self, tracer: Any) -> Any:
            return tracer.create_node("call_function", float, (self.value,), {})

    def way(x: Any, kind: Any) -> Any:
        return x * kind.value if isinstance(kind, Way) else x - kind

    class Leaves(t.fx.Tracer):
        def is_leaf_module(self, m: Any, name: str) -> bool:
            return True

    class Inner(t.nn.Module):
        def forward(self, x: Any, kind: Any) -> Any:
            return way(x, kind)

    class Outer(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return self.inner(self.inner(x, Way.DOWN), Given(0.5))

    root = Outer()
    gm = t.fx.GraphModule(root, Leaves().trace(root))
    again = pickle.loads(pickle.dumps(t.fx.symbolic_trace(lambda x: x + 1)))
    return [text(gm.graph), gm(t.ones(2)), again(t.ones(1))]


PROGRAMS = {
    fn.__name__: fn
    for fn in (codes_of_ones_own, definitions, formats_of_values, arguments_of_other_kinds)
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_say_the_same(name: str) -> None:
    compare(PROGRAMS[name])
