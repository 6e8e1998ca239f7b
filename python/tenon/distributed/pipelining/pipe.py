"""A model that is cut into the stages of a pipeline where its program says so.

The model is traced as a graph of calls (`tenon.fx`); modules that no point of a split lies in are
one call each. A stage gets what the stages after it need, too, and hands it on.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import tenon
from tenon import Tensor, fx
from tenon.distributed.pipelining.stage import PipelineStage
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter
from tenon.utils._pytree import tree_leaves

__all__ = ["Pipe", "SplitPoint", "build_stage", "pipe_split", "pipeline"]


class SplitPoint(Enum):
    """Where a stage begins: in front of a module, or behind it."""

    BEGINNING = 1
    END = 2


_tracing: list[_Tracer] = []


def _boundary() -> None:
    """Where `pipe_split` was called."""


def pipe_split() -> None:
    """In a model's forward: the next stage begins here. Does nothing but in `pipeline`."""
    if _tracing:
        _tracing[-1].create_node("call_function", _boundary, (), {})


class _Tracer(fx.Tracer):
    def __init__(self, points: dict[str, SplitPoint]) -> None:
        super().__init__()
        self.points = points

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """A module is one call unless a point lies in it; where nobody has said any, the modules of
        programs are looked into for `pipe_split`."""
        if not self.points:
            return super().is_leaf_module(m, module_qualified_name)
        return not any(p.startswith(module_qualified_name + ".") for p in self.points)

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call, and the border in front of it or behind it."""
        point = self.points.get(self.path_of_module(m))
        if point is SplitPoint.BEGINNING:
            self.create_node("call_function", _boundary, (), {})
        result = super().call_module(m, forward, args, kwargs)
        if point is SplitPoint.END:
            self.create_node("call_function", _boundary, (), {})
        return result


class _Stage(fx.GraphModule):
    """The calls of one stage. Keyword arguments of the batch are the first stage's."""

    first = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **(kwargs if self.first else {}))


def _traced(module: Module, tracer: _Tracer, args: Any, kwargs: Any) -> fx.Graph:
    """The graph of a call with such arguments: those that are not given have their defaults, and
    what is no tensor stays as it is; another value is an error when the stages run."""
    params = inspect.signature(module.forward).parameters
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    left = {n: p.default for n, p in params.items() if n not in given and p.default is not p.empty}
    fixed = {n: v for n, v in given.items() if v is None or isinstance(v, (int, float, str))}
    _tracing.append(tracer)
    try:
        graph = tracer.trace(module, {**left, **fixed})
    finally:
        _tracing.remove(tracer)
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    for name, node in zip(params, inputs, strict=False):
        if name in left:
            _erase(graph, node)
        elif name in fixed:
            node.target = name  # which tracing has numbered
        else:
            _drop_default(graph, node)
    return graph


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """An input that has its default, with the checks of it."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _drop_default(graph: fx.Graph, node: fx.Node) -> None:
    """An input that is given has no default, such as a tensor, which code cannot name."""
    defaults = [d for d in node.args if isinstance(d, fx.Node)]
    node.args = ()
    for default in defaults:
        _erase(graph, default)


def _cut(graph: fx.Graph) -> list[list[fx.Node]]:
    """The nodes of each stage, in order."""
    stages: list[list[fx.Node]] = [[]]
    for node in graph.nodes:
        if node.target is _boundary:
            stages.append([])
        elif node.op != "output":
            stages[-1].append(node)
    return [nodes for nodes in stages if nodes]


def _needed(stages: list[list[fx.Node]], output: fx.Node) -> list[list[fx.Node]]:
    """For each border between two stages, the values that cross it, in the order of the graph."""
    where = {n: i for i, nodes in enumerate(stages) for n in nodes}
    last = len(stages) - 1
    borders = []
    for border in range(last):
        crosses = [
            n
            for nodes in stages[: border + 1]
            for n in nodes
            if n.op != "get_attr" and any(where.get(user, last) > border for user in n.users)
        ]
        borders.append(crosses)
    return borders


def _stage(
    model: Module, nodes: list[fx.Node], given: list[fx.Node], gives: list[fx.Node], first: bool,
    output: fx.Node | None,
) -> _Stage:  # fmt: skip
    graph = fx.Graph()
    known: dict[fx.Node, Any] = {}
    if not first:
        for n in given:
            known[n] = graph.placeholder(n.name)

    def own(n: fx.Node) -> Any:
        if n not in known and n.op == "get_attr":
            known[n] = graph.get_attr(str(n.target))
        return known[n]

    for n in nodes:
        known[n] = graph.node_copy(n, own)
    if output is not None:
        graph.output(fx.map_arg(output.args[0], own))
    else:
        values = [own(n) for n in gives]
        graph.output(values[0] if len(values) == 1 else tuple(values))
    graph.lint()
    made = _Stage(model, graph)
    made.first = first
    return made


class Pipe(Module):
    """A model as a chain of stages, each a module with the names of the model's parameters."""

    def __init__(self, stages: list[Any], graph: fx.GraphModule) -> None:
        super().__init__()
        self._stages, self.num_stages = stages, len(stages)
        self.__dict__["split_gm"] = graph  # the whole graph, by PyTorch's name

    def _results(self, args: Any, kwargs: Any) -> Iterator[Any]:
        """What each stage gives the next one."""
        for stage in self._stages:
            result = stage(*args, **kwargs)
            yield result
            args = result if isinstance(result, tuple) else (result,)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """All stages, one after the other, in this process: a tuple of the tensors of the
        result."""
        for result in self._results(args, kwargs):
            last = result
        return tuple(tree_leaves(last))

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}: there are {self.num_stages} stages")
        return self._stages[stage_idx]

    def info(self) -> Any:
        """What `build_stage` asks for."""
        return self

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """The stage that this process runs, on a device."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self, device, group)

    def print_readable(self) -> str:
        """Prints the code of every stage; returns it."""
        text = "\n".join(f"# stage {i}\n{s.code}" for i, s in enumerate(self._stages))
        print(text)
        return text


def build_stage(
    stage_module: Module, stage_index: int, pipe_info: Any, device: Any, group: Any = None
) -> PipelineStage:
    """The stage of a module that was cut out of a model."""
    return PipelineStage(
        stage_module.to(device), stage_index, pipe_info.num_stages, device, group=group
    )


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[Any], Any] | None = None,
) -> Pipe:
    """Cuts a model into stages: in front of or behind the modules that split_spec names, where
    forward calls `pipe_split`, or as split_policy(graph module) says, which puts calls of
    `pipe_split` into a graph module and returns it.

    mb_args, mb_kwargs: the arguments of one micro-batch, of which numbers, texts and None are
    fixed; the stages run once, so that what cannot go from one to the next is an error here.
    Python's branches must not ask for values. What a stage hands on are tensors. A parameter of two
    stages is refused: each would train its own.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError(
            "Cannot specify both `split_spec` and `split_policy`. Please use only one."
        )
    points = dict(split_spec or {})
    there = dict(module.named_modules())
    for name, point in points.items():
        if name not in there:
            raise ValueError(f"split_spec: the model has no module {name!r}")
        if not isinstance(point, SplitPoint):
            raise TypeError(f"split_spec: expected a SplitPoint for {name!r}, got {point!r}")
    graph = _traced(module, _Tracer(points), tuple(mb_args), dict(mb_kwargs or {}))
    whole = fx.GraphModule(module, graph)
    if split_policy is not None:
        whole = split_policy(whole)
        graph = whole.graph
        for n in graph.nodes:
            n.target = _boundary if n.target is pipe_split else n.target
    cut = _cut(graph)
    output = next(n for n in graph.nodes if n.op == "output")
    borders = _needed(cut, output)
    stages: list[Any] = []
    for i, nodes in enumerate(cut):
        end = i == len(cut) - 1
        stages.append(
            _stage(module, nodes, borders[i - 1] if i else [], [] if end else borders[i], i == 0,
                   output if end else None)
        )  # fmt: skip
    _refuse_shared(stages)
    pipe = Pipe(stages, whole)
    _try(pipe, tuple(mb_args), dict(mb_kwargs or {}))
    return pipe


def _refuse_shared(stages: list[Any]) -> None:
    owner: dict[int, tuple[int, str]] = {}
    for i, stage in enumerate(stages):
        for name, p in stage.named_parameters():
            before = owner.setdefault(id(p), (i, name))
            if before[0] != i and isinstance(p, Parameter) and p.requires_grad:
                raise NotImplementedError(
                    f"pipeline: the parameter {name} is in the stages {before[0]} and {i}; each "
                    "would train its own"
                )


def _try(pipe: Pipe, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with tenon.no_grad():
        before_last = itertools.islice(pipe._results(args, kwargs), pipe.num_stages - 1)
        for i, result in enumerate(before_last):
            for value in result if isinstance(result, tuple) else (result,):
                if not isinstance(value, Tensor):
                    raise TypeError(
                        f"pipeline: stage {i} would give a {type(value).__name__} to the next one; "
                        "stages exchange tensors"
                    )
