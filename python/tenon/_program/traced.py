"""Functions and modules as programs, with inputs and outputs in any containers."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tenon
from tenon import _program
from tenon._program import BUFFER, PARAMETER, Program, follow, places_of, turns, watched
from tenon._program.note import refused
from tenon.utils import _pytree


class TracerWarning(Warning):
    """A traced program may not be what the function is."""


def warn_of_constants(program: Program, stacklevel: int) -> None:
    """Says that a program has constants that follow from values."""
    where = program.reads[1]
    warnings.warn(
        "Converting a tensor to a Python number or array might cause the trace to be incorrect: "
        "what was computed with it is a constant of the program" + (f" ({where})" if where else ""),
        TracerWarning,
        stacklevel=stacklevel,
    )


# ---- Structures of tensors and other values ------------------------------------------------------

_PLAIN = (bool, int, float, str, type(None))


class Layout:
    """Where the tensors of a structure stand, and what else is in it."""

    def __init__(self, spec: _pytree.TreeSpec, fixed: list[Any], tensors: list[int]) -> None:
        self.spec, self.fixed, self.tensors = spec, fixed, tensors
        self.numbers: list[int] = []

    @classmethod
    def of(cls, tree: Any, what: str) -> tuple[Layout, list[Any]]:
        leaves, spec = _pytree.tree_flatten(watched.plain(tree))
        tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, tenon.Tensor)]
        found = [leaves[i] for i in tensors]
        fixed = [None if isinstance(leaf, tenon.Tensor) else leaf for leaf in leaves]
        for leaf in fixed:
            if not isinstance(leaf, _PLAIN):
                raise RuntimeError(
                    f"{what} may hold tensors, numbers, texts and None in tuples, lists and "
                    f"dicts, and here is a {type(leaf).__name__}"
                )
        return cls(spec, fixed, tensors), found

    def with_numbers(self, flat: list[Any]) -> list[Any]:
        """Makes whole numbers among the leaves tensors; `build` makes numbers of them again."""
        found = dict(zip(self.tensors, flat, strict=True))
        self.numbers = [i for i, v in enumerate(self.fixed) if type(v) is int and i not in found]
        for i in self.numbers:
            found[i], self.fixed[i] = tenon.full((), self.fixed[i], dtype=tenon.int64), None
        self.tensors = sorted(found)
        return [found[i] for i in self.tensors]

    def build(self, tensors: Sequence[Any]) -> Any:
        leaves = list(self.fixed)
        for i, t in zip(self.tensors, tensors, strict=True):
            leaves[i] = t.item() if i in self.numbers else t
        return self.spec.unflatten(leaves)

    def paths(self) -> list[tuple[Any, ...]]:
        """How each tensor is reached by indexing."""
        marked = self.spec.unflatten(list(range(len(self.fixed))))
        found = {i: path for path, i in _pytree.tree_leaves_with_path(marked)}
        return [
            tuple(getattr(k, "idx", getattr(k, "key", None)) for k in found[i])
            for i in self.tensors
        ]

    def matches(self, other: Layout) -> bool:
        same = [type(v) for v in self.fixed] == [type(v) for v in other.fixed]
        return (
            same
            and self.spec == other.spec
            and self.fixed == other.fixed
            and self.tensors == other.tensors
        )

    def dump(self) -> dict[str, Any]:
        return {
            "spec": _pytree.treespec_dumps(self.spec),
            "fixed": self.fixed,
            "tensors": self.tensors,
            **({"numbers": self.numbers} if self.numbers else {}),
        }

    @classmethod
    def load(cls, data: dict[str, Any]) -> Layout:
        """What `dump` gave. FileFormatError: it is something else."""
        with refused("the structure of a program's inputs or outputs is damaged"):
            made = cls(_pytree.treespec_loads(data["spec"]), data["fixed"], data["tensors"])
            made.numbers = data.get("numbers", [])
            made._check()
        return made

    def _check(self) -> None:
        count = len(self.fixed)
        if not all(isinstance(leaf, _PLAIN) for leaf in self.fixed):
            raise ValueError("a leaf is neither a number nor a text")
        if not all(type(i) is int and 0 <= i < count for i in self.tensors):
            raise ValueError("a tensor is no leaf")
        if len(set(self.tensors)) != len(self.tensors) or not set(self.numbers) <= set(
            self.tensors
        ):
            raise ValueError("a tensor is there twice, or a number that is none")
        if self.spec.num_leaves != count:
            raise ValueError("the structure has another number of leaves")
        if _is_known(self.spec):
            self.spec.unflatten(self.fixed)


def _is_known(spec: _pytree.TreeSpec) -> bool:
    """Whether a structure is of Python's own kinds. Puts those together that stand in one of the
    program's own, which alone knows what it takes for contents: raises what that raises."""
    known = [_is_known(c) for c in spec.children_specs]
    own = spec.is_leaf() or spec.type.__module__ in ("builtins", "collections")
    if all(known) and (own or hasattr(spec.type, "_fields")):
        return True
    for child, is_known in zip(spec.children_specs, known, strict=True):
        if is_known:
            child.unflatten([None] * child.num_leaves)
    return False


# ---- Recording -----------------------------------------------------------------------------------


def weights_of(module: Any) -> list[tuple[str, int, Any]]:
    """Parameters and buffers by name, those that several names mean once."""
    if not isinstance(module, tenon.nn.Module):
        return []
    found = [(n, PARAMETER, p) for n, p in module.named_parameters()]
    return found + [(n, BUFFER, b) for n, b in module.named_buffers()]


def write_back(module: Any, weights: Sequence[tuple[str, int, Any]]) -> None:
    """A buffer that a call has replaced keeps its tensor and gets the values of the new one."""
    for name, kind, before in weights:
        owner = module.get_submodule(name.rpartition(".")[0]) if kind == BUFFER else None
        now = None if owner is None else owner._buffers.get(name.rpartition(".")[2])
        if now is None or now is before:
            continue
        if now.shape != before.shape or now.dtype != before.dtype:
            raise RuntimeError(f"the call gives the buffer '{name}' another shape or dtype")
        with tenon.no_grad():
            before.copy_(now)
        owner._buffers[name.rpartition(".")[2]] = before


def key_text(key: Any) -> str:
    """A step of the way to a leaf, in words."""
    return str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", ""))))


def input_names(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """A name for each tensor among the arguments, from the function's own."""
    target = fn.forward if isinstance(fn, tenon.nn.Module) else fn
    try:
        bound = inspect.signature(target).bind(*args, **kwargs)
        top = list(bound.arguments.items())
    except (TypeError, ValueError):
        top = [(f"x{i}", a) for i, a in enumerate(args)] + list(kwargs.items())
    names: list[str] = []
    for name, value in top:
        for path, leaf in _pytree.tree_leaves_with_path(value):
            if isinstance(leaf, tenon.Tensor):
                names.append("_".join([name, *map(key_text, path)]))
    return [n if names.count(n) == 1 else f"{n}_{i}" for i, n in enumerate(names)]


@contextlib.contextmanager
def restored(tensors: Iterable[Any]) -> Iterator[None]:
    """What is written to these tensors, the random numbers that are drawn, and whether gradients
    are recorded, is taken back: a call may end in the middle."""
    saved = [(t, -1 if t.is_inference() else t._version, t.detach().clone()) for t in tensors]
    state, grad = tenon.get_rng_state(), tenon.is_grad_enabled()
    try:
        yield
    finally:
        tenon.set_rng_state(state)
        tenon.set_grad_enabled(grad)
        with tenon.no_grad():
            for tensor, version, before in saved:
                with tenon.inference_mode(tensor.is_inference()):
                    if tensor.is_inference() or tensor._version != version:
                        tensor.detach().copy_(before)


@contextlib.contextmanager
def unchanged(module: Any) -> Iterator[None]:
    """What a call changes in a module's parameters and buffers, and the random numbers it draws, is
    taken back."""
    weights = weights_of(module)
    with restored(t for _, _, t in weights):
        try:
            yield
        finally:
            for name, kind, tensor in weights:
                path, _, last = name.rpartition(".")
                owner = module.get_submodule(path)
                (owner._buffers if kind == BUFFER else owner._parameters)[last] = tensor


class _Before:
    """Random numbers, gradients and versions of tensors as they were before a call."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = [t for t in tensors if not t.is_inference()]
        self.state, self.versions = tenon.get_rng_state(), self._versions()
        self.grads = [(t, t.grad) for t in self.tensors if t.is_leaf]

    def _versions(self) -> list[int]:
        return [t._version for t in self.tensors]

    def put_back(self) -> bool:
        """False: the call has written to a tensor."""
        if self._versions() != self.versions:
            return False
        tenon.set_rng_state(self.state)
        for tensor, grad in self.grads:
            tensor.grad = grad
        return True


class Recording:
    """One call as a program, with what it took and gave."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        around: Callable[[Callable[[int], None]], Any] | None = None,
        numbers: bool = False,
        apart: Sequence[str] = (),
    ) -> None:
        """`numbers`: those that are returned are results of the program, too. `apart`: composites
        that become their parts."""
        self.numbers = numbers
        self.layout, tensors = Layout.of((args, kwargs), "inputs of a trace")
        names = input_names(fn, args, kwargs)
        if len(names) != len(tensors):
            names = [f"x{i}" for i in range(len(tensors))]
        self.names = names
        # Tensors of its own, so that one that comes twice is two inputs.
        own = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
        args, kwargs = self.layout.build(own)

        weights = weights_of(fn)

        def call() -> list[Any]:
            with watched.noted() as self.events:
                given = fn(*args, **kwargs)
            write_back(fn, weights)
            self.outputs, flat = Layout.of(given, "outputs of a trace")
            return self.outputs.with_numbers(flat) if numbers else flat

        inputs = dict(zip(names, own, strict=True))
        before = _Before([*own, *(t for _, _, t in weights)])
        try:
            self.program, self.results = _program.record(call, inputs, weights, around, apart)
        except _program.NeedsParts:
            if not before.put_back():  # a second call would write a second time
                raise
            self.program, self.results = _program.record(call, inputs, weights, around, None)

    def run(self, tensors: Sequence[Any]) -> Any:
        return self.outputs.build(self.program(*tensors))

    def note(self, **more: Any) -> str:
        return json.dumps(
            {"inputs": self.layout.dump(), "outputs": self.outputs.dump(), **more}, sort_keys=True
        )


_LARGEST = 1 << 22  # elements of inputs that are made to try a size


def _alike(results: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and a.device == b.device
        and tenon.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(results, others, strict=True)
    )


class Left(NamedTuple):
    """What a call gave, and what its inputs, the module's buffers and those parameters that it has
    written to are behind it."""

    tensors: list[Any]
    written: dict[str, Any]

    @classmethod
    def of(cls, call: Callable[[], Sequence[Any]], inputs: Sequence[Any], module: Any) -> Left:
        weights = weights_of(module)
        before = {name: None if t.is_inference() else t._version for name, _, t in weights}
        results = call()
        buffers = (b for _, kind, b in weights_of(module) if kind == BUFFER)
        strided = (t for t in (*inputs, *buffers) if t.layout is tenon.strided)
        written = {
            name: t.detach().clone()
            for name, kind, t in weights
            if kind == PARAMETER and (t.is_inference() or t._version != before[name])
        }
        return cls([t.detach().clone() for t in (*results, *strided)], written)

    def alike(self, other: Left, module: Any) -> bool:
        """`module`: as it was before both calls."""
        now = {name: t for name, _, t in weights_of(module)}
        names = sorted({*self.written, *other.written})
        mine, others = ([left.written.get(n, now[n]) for n in names] for left in (self, other))
        return _alike([*self.tensors, *mine], [*other.tensors, *others])


class Other(NamedTuple):
    """A call with another size: with what, and what it gave and left."""

    recording: Recording
    given: list[Any]
    left: Left
    size: int


def _copies(tensors: Sequence[Any]) -> list[Any]:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]


class NumbersDiffer(RuntimeError):
    """A number that a function returns follows from a size."""


Rules = Mapping[tuple[int, int], tuple[int, int]]  # (tensor, dimension) -> times, plus


def resized(
    tensors: Sequence[Any], chosen: Sequence[tuple[int, int]], size: int, rules: Rules | None = None
) -> list[Any]:
    """The tensors with `size`, or what follows from it, in the chosen (tensor, dimension): their
    own values over again."""
    out = list(tensors)
    for i, dim in chosen:
        t = out[i]
        times, plus = (rules or {}).get((i, dim), (1, 0))
        index = tenon.arange(times * size + plus, device=t.device) % max(t.shape[dim], 1)
        out[i] = t.detach().index_select(dim, index).requires_grad_(t.requires_grad)
    return out


def _other_sizes(seen: int, rule: tuple[int, int], low: int, high: int) -> list[int]:
    """The sizes to try beside the one that was seen, those that tell most first."""
    times, plus = rule
    n, least = (seen - plus) // times, -((plus - low) // times)
    counts = (2 * n + 1, n + 1, max(n // 2, least), 3 * n + 2, n + 2, 2 * n, 4 * n, 3 * n, n + 8,
              n - 1, n - 2)  # fmt: skip
    wanted = dict.fromkeys(times * count + plus for count in counts)
    return [s for s in wanted if max(low, 1) <= s <= high and s != seen]


def free_size(
    recording: Recording,
    fn: Callable[..., Any],
    tensors: Sequence[Any],
    chosen: Sequence[tuple[int, int]],
    name: str,
    low: int,
    high: int,
    rule: tuple[int, int] = (1, 0),
    find_turns: bool = True,
    rules: Rules | None = None,
) -> None:
    """Makes one size of a recording free: that of each (tensor, dimension).

    The function is called with other sizes: one to see what follows from it, two to check. They
    lie apart, so that what is divided or cut off shows. RuntimeError says why it cannot be free.
    `rule`: sizes are times * n + plus. `rules`: they are so each in its place, and what is
    free, and has the bounds, is n. Turn: it can be free within other bounds.
    """
    seen = tensors[chosen[0][0]].shape[chosen[0][1]]
    own = [(rules or {}).get(place, (1, 0)) for place in chosen]
    seen = (seen - own[0][1]) // own[0][0]
    slowest = min(own, key=lambda r: r[0])  # what the others follow from in the program
    between = [slowest[0] * n + slowest[1] for n in (low, high)]
    sizes = _other_sizes(seen, rule, low, high)
    if len(sizes) < min(2, max(1, (high - max(low, 1)) // rule[0])):
        raise RuntimeError(f"{name}: two sizes from {low} to {high} that are not {seen} are needed")
    module = fn if isinstance(fn, tenon.nn.Module) else getattr(fn, "__self__", None)
    places = {d for _, d in chosen}
    dim = places.pop() if len(places) == 1 and not rules else -1

    def again(size: int) -> Other:
        """The function's call with that size. What it writes, it writes to copies."""
        given = resized(tensors, chosen, size, rules)
        own = _copies(given)
        args, kwargs = recording.layout.build(own)
        made: list[Recording] = []

        def call() -> Sequence[Any]:
            made.append(Recording(fn, args, kwargs, numbers=recording.numbers))
            return made[0].results

        with unchanged(module):
            left = Left.of(call, own, module)
        return Other(made[0], given, left, size)

    def does_the_same(other: Other) -> bool:
        """Whether the program gives what the function gave, and has written what it has."""
        own = _copies(other.given)
        with unchanged(module):
            left = Left.of(lambda: recording.program(*own), own, module)
        return left.alike(other.left, module)

    second, *others = _those_taken(again, sizes, seen)
    for other in (second, *others):
        if not recording.outputs.matches(other.recording.outputs):
            raise NumbersDiffer(f"{name}: what the function returns beside tensors depends on it")
    try:
        inputs = {i for i, _ in chosen}
        recording.program.generalize(second.recording.program, inputs, dim, *between, name)
        for other in others:
            if not does_the_same(other):
                raise RuntimeError(
                    f"{name}: with {other.size} the function gives or writes something else than "
                    "the program: numbers in it follow from the size by no rule that a program "
                    "keeps"
                )
    except (RuntimeError, NotImplementedError) as err:
        turn = turns.guess(name, seen, (low, high), recording.events) if find_turns else None
        if turn is not None:
            raise turn from err
        raise

    events = {seen: recording.events}
    events |= {other.size: other.recording.events for other in (second, *others)}

    def agrees(size: int) -> bool:
        """Whether the program does what the function does, or nothing."""
        try:
            with unchanged(module):
                recording.program(*_copies(resized(tensors, chosen, size, rules)))
        except RuntimeError:
            return True
        try:
            other = again(size)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever the function raises at this size
            return False
        events[size] = other.recording.events
        return recording.outputs.matches(other.recording.outputs) and does_the_same(other)

    if find_turns:
        times, plus = rule
        elements = sum(tensors[i].numel() for i, _ in chosen) // max(seen, 1)
        turns.check(
            name, seen, (max(low, 0), high), events,
            lambda size: size >= plus and (size - plus) % times == 0,
            agrees, max(seen, _LARGEST // max(elements, 1)),
        )  # fmt: skip
    if recording.program.mixes:
        with unchanged(module):
            _check_together(recording, fn, tensors, name)


def _those_taken(call: Callable[[int], Any], sizes: list[int], seen: int) -> list[Any]:
    """Up to three calls with sizes that the function takes. It may take multiples alone (halves
    that are doubled), or none below some size (a window's), of which an operator's error tells."""
    made: list[Any] = []
    failed: list[int] = []
    common, error = seen, None
    for size in sizes:
        if len(made) == 3:
            break
        try:
            made.append(call(size))
            common = math.gcd(common, size)
        except RuntimeError as err:
            if type(err) is not RuntimeError:
                raise
            failed.append(size)
            error = error or err
    try:
        least = min([seen, *(other.size for other in made)])
        if error and (len(made) < 2 or any(s % common == 0 and s > least for s in failed)):
            raise error
        return made
    finally:
        error = None  # whose frames hold it, and all that was recorded


def all_resized(program: Program, tensors: Sequence[Any]) -> Iterator[list[Any]]:
    """The tensors with all free sizes of the program changed, in a few ways."""
    data = program.data
    for grow in (lambda n: n + 1, lambda n: 2 * n, lambda n: 2 * n + 1, lambda n: n - 1):
        out = list(tensors)
        for symbol in data["symbols"]:
            size = min(max(grow(symbol["seen"]), symbol["low"]), symbol["high"])
            for i, d, rule in places_of(data, symbol["name"]):
                out = resized(out, [(i, d)], follow(rule, size))
        yield out


def _check_together(
    recording: Recording, fn: Callable[..., Any], tensors: Sequence[Any], name: str
) -> None:
    """What follows from several sizes is what it is when they all differ."""

    def record(other: list[Any]) -> Program:
        args, kwargs = recording.layout.build(other)
        return Recording(fn, args, kwargs, numbers=recording.numbers).program

    others = all_resized(recording.program, tensors)
    recording.program.agrees(name, (functools.partial(record, other) for other in others))
