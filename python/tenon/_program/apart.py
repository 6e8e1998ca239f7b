"""Programs whose composite operators are the calls that they make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import tenon
from tenon._program import COMMON, DEAD, FOLD, Program, input_shapes, places_of, record
from tenon._program.traced import restored

_BY_NODE = -1  # each node bears the number of the one that it was a part of


def take_apart(
    program: Program, names: Iterable[str] | None = None, inputs: Sequence[Any] = ()
) -> Program:
    """The program with those composites as their parts, None: with all.

    It runs on `inputs`, or made-up ones, and on other sizes where sizes are free, to be recorded
    from inside. What a composite makes otherwise than by operators, and what writes, stays.
    RuntimeError: the parts do not follow a free size by a rule that a program keeps.
    """
    chosen = None if names is None else tuple(names)
    given = [t.detach() for t in inputs] or _inputs(program, {})
    made, wanted = _recorded(program, chosen, given)
    if not _gives(made, given, wanted):
        listed = _listed(program, chosen)
        raise RuntimeError(f"the parts of {listed} do not give what the whole gives")
    for symbol in program.data["symbols"]:
        _free(program, chosen, made, symbol)
    made.optimize(FOLD | COMMON | DEAD)
    made.note = _note(program, made)
    return made


def _inputs(program: Program, sizes: dict[str, int]) -> list[Any]:
    """Inputs as the program wants them, with these free sizes or the recorded ones: zeros, which
    any index may be, and small numbers."""
    facts = [program.data["values"][i] for i in program.data["inputs"]]
    made = []
    for fact, shape in zip(facts, input_shapes(program.data, sizes), strict=True):
        dtype = getattr(tenon, fact["dtype"])
        t = tenon.zeros(shape, dtype=dtype, device=fact["device"])
        if dtype.is_floating_point:
            t = (tenon.arange(t.numel(), device=fact["device"]) % 7 / 8).reshape(shape).to(dtype)
        made.append(t)
    return made


def _undone(program: Program) -> AbstractContextManager[None]:
    """Takes back what runs of the program write to its parameters and buffers, and draw."""
    return restored(t for _, _, t in program.weights)


def _values(results: Iterable[Any]) -> list[Any]:
    """Copies: a result may be a buffer."""
    return [t.detach().clone() for t in results]


def _recorded(
    program: Program, names: Sequence[str] | None, inputs: list[Any]
) -> tuple[Program, list[Any]]:
    """The parts that a run of the program consists of, and what it gives."""
    own = _values(inputs)
    by_name = dict(zip((slot[0] for slot in program.inputs), own, strict=True))
    weights = [w for w in program.weights if w[0]]
    with _undone(program):
        made, results = record(lambda: program(*own), by_name, weights, apart=names, scope=_BY_NODE)
        return made, _values(results)


def _sizes(symbol: dict[str, Any]) -> Iterator[int]:
    """Other sizes, multiples first: a size may have to be one."""
    seen, wanted = symbol["seen"], []
    wanted += [seen * k for k in (2, 3)] + [seen + k for k in (1, 2, 3)] + [seen // 2, seen - 1]
    for size in dict.fromkeys(wanted):
        if max(symbol["low"], 1) <= size <= symbol["high"] and size != seen:
            yield size


def _free(
    program: Program, names: Sequence[str] | None, made: Program, symbol: dict[str, Any]
) -> None:
    """Makes one size of `made` free, as it is in `program`."""
    name = symbol["name"]
    places = places_of(program.data, name)
    dims = {d if rule["num"] == rule["den"] and not rule["add"] else -1 for _, d, rule in places}
    dim = dims.pop() if len(dims) == 1 else -1
    known = False
    for size in _sizes(symbol):
        inputs = _inputs(program, {name: size})
        try:
            other, wanted = _recorded(program, names, inputs)
        except MemoryError:
            raise
        except Exception:  # the program does not take this size
            continue
        if not known:
            made.generalize(
                other, {i for i, _, _ in places}, dim, symbol["low"], symbol["high"], name
            )
            known = True
        elif not _gives(made, inputs, wanted):
            listed = _listed(program, names)
            raise RuntimeError(f"{name}: the parts of {listed} follow from it by no rule")
    if known and made.mixes:
        _check_together(program, names, made)
    if not known:
        raise RuntimeError(f"{name}: there is no other size to find out what follows from it")


def _check_together(program: Program, names: Sequence[str] | None, made: Program) -> None:
    """What follows from several sizes is what it is when they all differ."""
    free = {symbol["name"] for symbol in made.data["symbols"]}
    choices = [(s["name"], list(_sizes(s))) for s in program.data["symbols"] if s["name"] in free]

    def again(i: int) -> Program:
        sizes = {name: other[i % len(other)] for name, other in choices if other}
        return _recorded(program, names, _inputs(program, sizes))[0]

    most = max(len(sizes) for _, sizes in choices)
    made.agrees(", ".join(sorted(free)), (partial(again, i) for i in range(most)))


def _gives(made: Program, inputs: list[Any], wanted: Sequence[Any]) -> bool:
    """Whether the parts give what the whole gave; random numbers, what has its shape."""
    with _undone(made):
        try:
            got = _values(made(*_values(inputs)))
        except RuntimeError:
            return False
    drawn = any(n["random"] for n in made.data["nodes"])
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and (drawn or a.layout != tenon.strided or _close(a, b))
        for a, b in zip(got, wanted, strict=True)
    )


def _close(a: Any, b: Any) -> bool:
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return tenon.equal(a, b)
    return tenon.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)


def _listed(program: Program, names: Sequence[str] | None) -> str:
    if names is None:
        return "the composites"
    return ", ".join(sorted(set(names) & {n["op"] for n in program.data["nodes"]}))


def _note(program: Program, made: Program) -> str:
    """The note, where it says which module each node is of."""
    note = json.loads(program.note or "{}")
    if "scope_of" in note:
        note["scope_of"] = [note["scope_of"][n["scope"]] for n in made.data["nodes"]]
    return json.dumps(note, sort_keys=True)
