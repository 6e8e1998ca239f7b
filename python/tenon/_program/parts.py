"""A recording cut into graphs: where values were looked at, and where Python was called.

A path is a chain of steps. A look has one follower for each value that was seen, so that the paths
of several recordings make a tree whose beginning they share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenon
from tenon._program import Program
from tenon._program.as_fx import part_module
from tenon._program.foreign import Call
from tenon._program.guards import Unfit
from tenon._program.traced import Layout

MOST_VALUES = 64  # of a tensor that decides where a call goes on
_NOWHERE = "an unknown place"


@dataclass
class Step:
    """One of a chain; `follow` is None at the end."""

    follow: Step | None = None


@dataclass
class Graph(Step):
    """Runs nodes: values that it takes and gives."""

    text: str = ""  # equal for equal nodes
    takes: list[int] = field(default_factory=list)
    gives: list[int] = field(default_factory=list)
    run: Callable[..., Any] | None = None
    module: Any = None


@dataclass
class Look(Step):
    """Goes on by what a value is. `follow` is what this recording did."""

    value: int = -1
    outcome: Any = None
    where: str = ""
    is_size: bool = False  # not the values of the tensor, but its shape
    ways: list[tuple[Any, Step]] = field(default_factory=list)


@dataclass
class Done(Step):
    """The results."""

    layout: Layout | None = None
    values: list[int] = field(default_factory=list)


@dataclass
class Recorded:
    """All of one recorded call."""

    program: Program
    looks: list[Any]
    calls: list[Call]
    outputs: Layout
    result: Any

    def roots(self) -> list[set[int]]:
        return roots(self.program.data)

    def sizes(self) -> list[tuple[int, Look]]:
        """Results whose size follows from values and was read: where they are made, how later calls
        look."""
        data, found = self.program.data, []
        for k, node in enumerate(data["nodes"]):
            for value in node["outs"]:
                if value >= 0 and data["values"][value].get("held"):
                    shape = tuple(data["values"][value]["shape"])
                    where = f"the result of {node['op']}, whose size depends on values"
                    found.append((k + 1, Look(None, value, shape, where, True)))
        return found

    def check_outputs(self, known: set[int]) -> None:
        """A tensor that the call made without an operator is another one each time."""
        data, roots = self.program.data, self.roots()
        places = [i for i, v in enumerate(data["values"]) if v["role"] == "weight"]
        made = {
            i: name for i, (name, _, t) in zip(places, self.program.weights, strict=True)
            if not name and id(t) not in known
        }  # fmt: skip
        if any(not roots[i].isdisjoint(made) for i in data["outputs"]):
            raise Unfit("a result lies in memory that the call made without an operator")

    def writes_after(self, position: int, value: int, tensor: Any, version: int) -> bool:
        """Whether a tensor that was looked at was written to later. Inference tensors count no
        writes."""
        if not tensor.is_inference():
            return tensor._version != version
        roots = self.roots()
        later = self.program.data["nodes"][position:]
        return any(not roots[i].isdisjoint(roots[value]) for n in later for i in _written(n))

    def acts_before(self, end: int) -> str | None:
        """What the first nodes do that must not be done again; None: nothing."""
        data, roots = self.program.data, self.roots()
        local = {o for n in data["nodes"] if n["fresh"] for o in n["outs"]}
        for node in data["nodes"][:end]:
            if node["random"]:
                return f"{node['op']} draws random numbers"
            for i in _written(node):
                if not roots[i] <= local:
                    return f"{node['op']} writes to what is older than the call"
        if any(c.fn is not None and c.position <= end for c in self.calls):
            return "an operator of the program's own is called"
        return None


def roots(data: dict[str, Any]) -> list[set[int]]:
    """For each value the values whose memory it may look at."""
    found = [{i} for i in range(len(data["values"]))]
    for node in data["nodes"]:
        behind: set[int] = set()
        if not node["fresh"] or node["in_place"]:
            behind = set().union(*(found[i] for i in _inputs(node)))
        for i, out in enumerate(node["outs"]):
            given = node["given"][i] if i < len(node["given"]) else -1
            if out >= 0 and given >= 0:
                found[out] = found[given]
            elif out >= 0 and behind:
                found[out] = behind
    return found


def check_places(data: dict[str, Any], taken: Sequence[Sequence[int]]) -> None:
    """What x[i] gave, with a tensor i, is a copy in the program, where it is a view elsewhere: of
    pairs of x and that the second is not written to, nor read after the first was."""
    found = roots(data)
    for base, part in taken:
        (own,) = found[part]  # the value that indexing made, whatever wrote to it since
        made = stale = False
        for node in data["nodes"]:
            written = set().union(*(found[i] for i in _written(node)))
            if own in written or (stale and any(own in found[i] for i in _inputs(node))):
                raise NotImplementedError(_COPIED)
            stale = stale or (made and not found[base].isdisjoint(written))
            made = made or own in node["outs"]
        if stale and any(own in found[i] for i in data["outputs"]):
            raise NotImplementedError(_COPIED)


_COPIED = (
    "x[i], with a tensor i, is a copy in a program: it cannot be written to, nor read after x was "
    "written to; write x[i] = ..., or take x[i].clone()"
)


def _tensors(value: Any) -> list[int]:
    if isinstance(value, list):
        return [i for v in value for i in _tensors(v)]
    return [value["v"]] if isinstance(value, dict) and "v" in value else []


def _inputs(node: dict[str, Any]) -> list[int]:
    return _tensors(list(node["args"].values())) + [g for g in node["given"] if g >= 0]


def _written(node: dict[str, Any]) -> list[int]:
    first = _tensors(list(node["args"].values()))[:1] if node["in_place"] else []
    return first + node["wrote"] + [g for g in node["given"] if g >= 0]


def acts(program: Program) -> bool:
    """Whether a second run would change something again: writes, random numbers."""
    return any(n["random"] or _written(n) for n in program.data["nodes"])


def outcome(tensor: Any, is_size: bool) -> Any:
    """What a look saw."""
    if is_size:
        return tuple(tensor.shape)
    if tensor.numel() > MOST_VALUES:
        raise Unfit(f"all {tensor.numel()} values of a tensor were looked at")
    return repr(tensor.detach().tolist())


def path(rec: Recorded) -> Step:
    """The chain of steps of a recording, whose graphs no backend has seen yet."""
    cuts: list[tuple[int, int, Any]] = []
    for i, (position, value, where, _, version, tensor) in enumerate(rec.looks):
        if value < 0:
            raise Unfit(f"a value that the recording does not know was looked at: {where}")
        if rec.writes_after(position, value, tensor, version):
            raise Unfit(f"a tensor was looked at and written to afterwards: {where}")
        cuts.append((position, i, Look(None, value, outcome(tensor, False), where or _NOWHERE)))
    cuts += [(at, -1, look) for at, look in rec.sizes()]
    cuts += [(c.position, i, None) for i, c in enumerate(rec.calls) if not c.whole]
    cuts.sort(key=lambda c: (c[0], c[2] is None, c[1]))
    first = last = Step()
    begin, end = 0, len(rec.program.data["nodes"])
    for position, _, look in cuts:
        if position > begin:
            last.follow = _graph(rec, begin, position, False)
            last, begin = last.follow, position
        if look is not None:
            last.follow = look
            last = look
    if end > begin or any(c.whole and c.position >= begin for c in rec.calls):
        last.follow = _graph(rec, begin, end, True)
        last = last.follow
    last.follow = Done(None, rec.outputs, rec.program.data["outputs"])
    assert first.follow is not None
    return first.follow


def _graph(rec: Recorded, begin: int, end: int, is_last: bool) -> Graph:
    data = rec.program.data
    nodes = data["nodes"][begin:end]
    calls = [c for c in rec.calls if c.whole and (begin <= c.position < end or
             (is_last and c.position == end))]  # fmt: skip
    made = {o for n in nodes for o in n["outs"] if o >= 0} | {v for c in calls for v in c.gives}
    used = [i for n in nodes for i in _inputs(n)] + [v for c in calls for v in c.takes]
    takes = [
        i for i in dict.fromkeys(used) if i not in made and data["values"][i]["role"] != "weight"
    ]
    gives = [i for i in sorted(made) if i in _wanted(rec, end, is_last)]
    text = json.dumps([nodes, takes, [(c.position, c.takes, c.gives) for c in calls]])
    return Graph(None, text, takes, gives, None, (begin, end, calls))


def _wanted(rec: Recorded, end: int, is_last: bool) -> set[int]:
    """Values that somebody may need after the first `end` nodes."""
    data = rec.program.data
    wanted = set(data["outputs"])
    if is_last:
        return wanted
    for look in rec.looks:
        if look[0] == end:
            wanted |= {look[1], *look[3]}
    if any(at == end for at, _ in rec.sizes()):
        wanted |= {o for n in data["nodes"][:end] for o in n["outs"]}
    for call in rec.calls:
        wanted |= set(call.takes) if call.position >= end else set()
    for node in data["nodes"][end:]:
        wanted |= set(_inputs(node))
    return wanted


def compile_path(
    rec: Recorded, step: Step | None, tensors: Sequence[Any], begins: bool, backend: Any
) -> list[Any]:
    """Gives every graph of a chain to the backend; the graphs. The first one of all takes all
    arguments of the function."""
    found = []
    data = rec.program.data
    known = data["inputs"][: len(tensors)]
    given = dict(zip(known, tensors, strict=True))
    while step is not None:
        if isinstance(step, Graph):
            begin, end, calls = step.module
            step.takes = known if begins else step.takes
            step.module = part_module(rec.program, begin, end, step.takes, step.gives, calls)
            example = [given[i] if i in given else _like(data["values"][i]) for i in step.takes]
            step.run = backend(step.module, example)
            if not callable(step.run):
                raise TypeError(
                    f"the backend returned {type(step.run).__name__}, and not what can be called"
                )
            found.append(step.module)
        begins = False
        step = step.follow
    return found


def run_as_one(step: Step | None, program: Program, tensors: Sequence[Any]) -> None:
    """Lets a chain without looks run as the program that it is of."""
    if isinstance(step, Graph):
        step.takes = program.data["inputs"][: len(tensors)]
        step.gives, step.run, step.module = program.data["outputs"], program, None


def _like(fact: dict[str, Any]) -> Any:
    shape = [2 if size < 0 else size for size in fact["shape"]]  # they follow from values
    return tenon.zeros(shape, dtype=getattr(tenon, fact["dtype"]), device=fact["device"])


def merge(old: Step, new: Step) -> Step | None:
    """Hangs a new recording's path into the tree; what is new of it, or None: it does not fit."""
    while True:
        if isinstance(old, Graph) and isinstance(new, Graph):
            if old.text != new.text or not set(new.gives) <= set(old.gives):
                return None
        elif isinstance(old, Look) and isinstance(new, Look):
            if (old.value, old.is_size) != (new.value, new.is_size):
                return None
            way = next((s for o, s in old.ways if o == new.outcome), None)
            if way is None:
                assert new.follow is not None
                old.ways.append((new.outcome, new.follow))
                return new.follow
            assert new.follow is not None
            old, new = way, new.follow
            continue
        else:
            return None
        if old.follow is None or new.follow is None:
            return None
        old, new = old.follow, new.follow


def settle(step: Step | None) -> None:
    """Makes the followers of looks their first ways."""
    while step is not None:
        if isinstance(step, Look) and not step.ways and step.follow is not None:
            step.ways.append((step.outcome, step.follow))
        step = step.follow


def walk(step: Step | None, values: dict[int, Any], weights: dict[int, Any]) -> Any:
    """Runs a path; a Look is returned where it saw something new."""
    while True:
        if isinstance(step, Graph):
            assert step.run is not None
            results = step.run(*(values[i] for i in step.takes))
            values.update(zip(step.gives, results, strict=True))
        elif isinstance(step, Look):
            tensor = values[step.value] if step.value in values else weights[step.value]
            seen = outcome(tensor, step.is_size)
            way = next((s for o, s in step.ways if o == seen), None)
            if way is None:
                return step
            step = way
            continue
        elif isinstance(step, Done):
            assert step.layout is not None
            return step.layout.build(
                [values[i] if i in values else weights[i] for i in step.values]
            )
        assert step is not None
        step = step.follow
