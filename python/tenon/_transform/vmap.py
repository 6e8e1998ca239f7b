"""`vmap`: a function of single elements, run on all of them at once.

Inside, each mapped tensor is a `Batched`: to the function it looks like one element (shape, dtype
and device are those of an element); behind it stands the tensor of all elements, whose dimension 0
is the mapped one. Calls of operators arrive here through `__torch_function__` or a method of the
class and go by the rules of vmap_rules.py; where there is none, the operator is called for
each element and the results are stacked. Regions nest: a level is a number, and a call belongs to
the innermost level among its arguments.
"""

from __future__ import annotations

import functools
import sys
import textwrap
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import tenon
from tenon import _C
from tenon._tape.call_modes import BaseTorchFunctionMode
from tenon._tensor import routed
from tenon._tensor.called import name_of
from tenon._transform import vmap_calls, vmap_rules
from tenon.overrides import DisableTorchFunctionSubclass

RANDOMNESS = ("error", "different", "same")


@dataclass
class Level:
    """A vmap that is running."""

    number: int
    size: int
    randomness: str


@dataclass
class Info:
    """What a vmap rule of a custom operator or Function is told."""

    batch_size: int
    randomness: str


NO_HISTORY_IN_A_TRANSFORM = (
    "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional"
    ".* APIs) inside of a function being transformed by a functorch transform. This is unsupported,"
    " please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or "
    "call requires_grad_() outside of a function being transformed instead."
)
_running = threading.local()


def levels() -> tuple[Level, ...]:
    """The vmaps of this thread, the outermost first."""
    return getattr(_running, "levels", ())


def _node_of(value: Any) -> Any:
    """How a program's own kind of structure is taken apart, if it told utils._pytree."""
    pytree = sys.modules.get("tenon.utils._pytree")
    return None if pytree is None else pytree.SUPPORTED_NODES.get(type(value))


def flat(value: Any) -> Iterator[Any]:
    """The leaves of nested lists, tuples, dicts and structures of a program's own."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple) or isinstance(value, tenon.Size):
        node = None if isinstance(value, tenon.Tensor) else _node_of(value)
        if node is None:
            yield value
            return
        value = node.flatten_fn(value)[0]
    for v in value:
        yield from flat(v)


def _dict_like(value: dict[Any, Any], items: dict[Any, Any]) -> Any:
    if isinstance(value, defaultdict):
        return defaultdict(value.default_factory, items)
    return OrderedDict(items) if isinstance(value, OrderedDict) else items


def lift(value: Any, some: list[Level]) -> Any:
    """The tensor of all elements at these levels, theirs being its first dimensions."""
    if not some:
        return value
    inner = some[-1]
    own = is_batched(value, inner.number)
    return lift(value._batch if own else value.expand(inner.size, *value.shape), some[:-1])


def lower(value: Any, some: list[Level]) -> Any:
    """The opposite of lift."""
    for level in some:
        value = batched(value, level.number)
    return value


def mapped(fn: Callable[[Any], Any], value: Any) -> Any:
    """The same structure with fn of its leaves."""
    if isinstance(value, dict):
        return _dict_like(value, {k: mapped(fn, v) for k, v in value.items()})
    if isinstance(value, list | tuple) and not isinstance(value, tenon.Size):
        items = [mapped(fn, v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    node = None if isinstance(value, tenon.Tensor) else _node_of(value)
    if node is None:
        return fn(value)
    parts, context = node.flatten_fn(value)
    return node.unflatten_fn([mapped(fn, v) for v in parts], context)


class Batched(tenon.Tensor):
    """One element to look at, all elements behind it."""

    _batch: tenon.Tensor
    _level: int
    _stands_for_many = True  # the extension does not take it as the one that it looks like

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def __repr__(self) -> str:
        inside = textwrap.indent(repr(self._batch), "    ")
        return f"BatchedTensor(lvl={self._level}, bdim=0, value=\n{inside}\n)"

    def __bool__(self) -> bool:
        raise RuntimeError(
            "vmap: a mapped tensor has no single truth value: data-dependent control flow is not "
            "possible under vmap; use where()"
        )

    def _no_value(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor: a mapped tensor has no single value"
        )

    item = tolist = numpy = __int__ = __float__ = __index__ = __complex__ = __array__ = _no_value
    __contains__ = _no_value

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        return self._batch.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Batched:
        if requires_grad:
            raise RuntimeError(NO_HISTORY_IN_A_TRANSFORM)
        return self

    def detach(self) -> Batched:
        return batched(self._batch.detach(), self._level)

    @property
    def data(self) -> Any:  # type: ignore[override]
        return self.detach()

    @property
    def T(self) -> Any:  # noqa: N802
        return self.permute(*range(self.dim() - 1, -1, -1))

    @property
    def mT(self) -> Any:  # noqa: N802
        return self.transpose(-2, -1)

    @property
    def real(self) -> Any:  # type: ignore[override]
        return batched(self._batch.real, self._level)

    @property
    def imag(self) -> Any:  # type: ignore[override]
        return batched(self._batch.imag, self._level)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(0))

    def __hash__(self) -> int:
        return id(self)


def _element(batch: Any) -> Batched:
    plain = tenon.Tensor.detach(batch)
    first = plain.select(0, 0) if batch.shape[0] else plain.new_empty(batch.shape[1:])
    return first.as_subclass(Batched)


def batched(batch: Any, level: int) -> Batched:
    """The tensor whose dimension 0 is mapped, as one element."""
    if type(batch) is tenon.Tensor:
        element = _element(batch)
    else:
        with DisableTorchFunctionSubclass():
            element = _element(batch)
    element._batch = batch
    element._level = level
    return element


def _innermost(values: Iterable[Any], number: int) -> int:
    """The highest level of the mapped tensors among values, in lists, tuples and dicts too; at
    least `number`."""
    for v in values:
        kind = type(v)
        if kind is Batched:
            number = max(number, v._level)
        elif isinstance(v, dict):
            number = _innermost(v.values(), number)
        elif isinstance(v, list | tuple) and kind is not tenon.Size:
            number = _innermost(v, number)
    return number


def _level_of(number: int) -> Level:
    level = next((lv for lv in levels() if lv.number == number), None)
    if level is None:
        raise RuntimeError("vmap: a tensor is used outside of the vmap that made it")
    return level


def innermost_level(values: Iterable[Any]) -> Level:
    """The level that a call with these arguments, mapped tensors among them, belongs to."""
    return _level_of(_innermost(values, 0))


def is_batched(value: Any, level: int) -> bool:
    return isinstance(value, Batched) and value._level == level


def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with a mapped tensor among its arguments."""
    number = _innermost(args, _innermost(kwargs.values(), 0) if kwargs else 0)
    if not number:
        return func(*args, **kwargs)
    level = _level_of(number)
    name = name_of(func)
    if level.randomness == "error" and vmap_calls.draws(name, args, kwargs):
        raise RuntimeError(_NO_DRAWS)
    call = call_of(name, func, args, kwargs, level)
    call.check_target()
    if name in _VIEWS_IN_PLACE:
        return view_in_place(func, args, kwargs)
    before, _running.inside = getattr(_running, "inside", False), True
    try:
        out = vmap_rules.apply(call)
        return one_by_one(call) if out is NotImplemented else out
    finally:
        _running.inside = before


_NO_DRAWS = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)
_VIEWS_IN_PLACE = {"squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"}


def view_in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batched:
    """Another shape for a mapped tensor: of the element to look at, and of all behind it."""
    x: Batched = args[0]
    x._batch = run(getattr(tenon.Tensor, func.__name__[:-1]), args, kwargs)._batch
    with DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


routed.route_methods(Batched, run, {
    *routed.SIZES, *routed.KINDS, "backward", "requires_grad_", "__repr__", "__str__", "__format__",
    "__reduce__", "__reduce_ex__", "__getstate__", "__deepcopy__", "__dlpack__",
    "__dlpack_device__",
})  # fmt: skip


def call_of(name: str, func: Any, args: Any, kwargs: Any, level: Level) -> vmap_calls.Call:
    number, size = level.number, level.size
    if not args and "input" in kwargs and vmap_calls.starts_with_input(name):
        args, kwargs = (kwargs["input"],), {k: v for k, v in kwargs.items() if k != "input"}
    # what is mapped by an outer vmap goes the same way; methods in C would not notice by themselves
    inner = (lambda *a, **k: run(func, a, k)) if len(levels()) > 1 else func
    return vmap_calls.Call(
        name, inner, args, kwargs, number, size, batched, is_batched, level.randomness
    )


def run_own(
    name: str, func: Any, own_rule: Any, args: tuple[Any, ...], written: Iterable[Any] = ()
) -> Any:
    """A function of the program that autograd or a registry knows: by its own vmap rule, which gets
    the mapped tensors whole, (info, in_dims, *args) -> (result, out_dims), or for each element. It
    writes to some of its arguments."""
    level = innermost_level(args)
    call = call_of(name, func, args, {}, level)
    if own_rule is None:
        call.check_written(written)
        return one_by_one(call)
    dims = mapped(lambda v: 0 if call.maps(v) else None, args)
    wholes = mapped(call.all, args)
    returned = own_rule(Info(level.size, level.randomness), dims, *wholes)
    if not isinstance(returned, tuple) or len(returned) != 2:
        got = f"{len(returned)} returns" if isinstance(returned, tuple) else type(returned)
        raise RuntimeError(
            f"vmap: {name}: Expected the vmap staticmethod to have two returns, an output and "
            "out_dims with pytree structure compatible with the output. Got a "
            f"{got} instead"
        )
    out, places = returned
    if places is None or isinstance(places, int):
        places = mapped(lambda v: places, out)
    where = list(flat(places))
    if len(where) != len(list(flat(out))):
        raise RuntimeError(
            f"vmap: {name}: The autograd.Function's vmap staticmethod returned an incompatible "
            f"(output, out_dims) tuple. Expected out_dims={places} to be compatible with the "
            "structure of `output`"
        )
    if call.size and _is_cut(wholes, out):
        return one_by_one(call)  # the function itself is recorded, its rule computes as it likes
    where = iter(where)

    def wrapped(value: Any) -> Any:
        dim = next(where)
        return value if dim is None else batched(value.movedim(dim, 0), level.number)

    return mapped(wrapped, out)


def _is_cut(args: Any, out: Any) -> bool:
    """Whether gradients of arguments are wanted, and numbers came out without a history."""
    if not tenon.is_grad_enabled():
        return False
    given, made = ([t for t in flat(v) if isinstance(t, tenon.Tensor)] for v in (args, out))
    numbers = [t for t in made if t.is_floating_point() or t.is_complex()]
    wanted = any(t.requires_grad for t in given)
    return wanted and bool(numbers) and not any(t.requires_grad for t in numbers)


def any_batched(args: Any) -> bool:
    """Whether a mapped tensor is among them."""
    return bool(levels()) and _innermost(args, 0) > 0


def one_by_one(call: Any) -> Any:
    """The operator for each element, the results stacked; in-place forms write into elements."""
    outs = []
    if not call.size:
        raise RuntimeError(f"vmap: '{call.name}' runs for each element, and there is none")
    states = _rng_states(call) if call.randomness == "same" else []
    for i in range(call.size):
        for put, state in states:
            put(state)
        args, kwargs = mapped(lambda v, i=i: call.element(v, i), (call.args, call.kwargs))
        outs.append(call.func(*args, **kwargs))
        views = vmap_rules.views_of_all(call, outs[0]) if i == 0 else None
        if views is not None:
            return views
    if call.is_inplace:
        return call.args[0]
    return stacked(call, outs)


def _rng_states(call: Any) -> list[tuple[Callable[[Any], Any], Any]]:
    """The states that a call's random numbers depend on, and what sets them again."""
    given = [g for g in flat((call.args, call.kwargs)) if isinstance(g, tenon.Generator)]
    return [(tenon.set_rng_state, tenon.get_rng_state()),
            *((g.set_state, g.get_state()) for g in given)]  # fmt: skip


def stacked(call: Any, outs: list[Any]) -> Any:
    first = outs[0]
    if isinstance(first, tenon.Tensor):
        return call.wrap(tenon.stack(outs))
    if isinstance(first, list | tuple) and not isinstance(first, tenon.Size):
        items = [stacked(call, [o[k] for o in outs]) for k in range(len(first))]
        return type(first)(items)
    return first  # a fact that all elements share


# ---- vmap ----------------------------------------------------------------------------------------


def _dims_of(args: Any, in_dims: Any, name: str = "in_dims") -> Any:
    """in_dims in the structure of args."""
    if in_dims is None or isinstance(in_dims, int):
        return mapped(lambda v: in_dims, args)
    if name == "out_dims" and not isinstance(in_dims, (list, tuple, dict)):
        raise ValueError(
            "vmap(out_dims, ...): `out_dims` must be an int, None or a python collection of ints "
            f"that say where the mapped dimension goes in the outputs, got {in_dims!r}"
        )
    if isinstance(args, dict) and isinstance(in_dims, dict) and args.keys() == in_dims.keys():
        return {k: _dims_of(args[k], in_dims[k]) for k in args}
    same = isinstance(args, list | tuple) and isinstance(in_dims, type(args))
    if same and len(args) == len(in_dims):
        return type(args)(_dims_of(a, d) for a, d in zip(args, in_dims, strict=True))
    whose = "inputs" if name == "in_dims" else "outputs"
    raise ValueError(
        f"vmap({name}, ...): {name} is not compatible with the structure of `{whose}`: got "
        f"{name} {in_dims!r} for {whose} of the form {mapped(type, args)!r}"
    )


def _pairs(args: Any, dims: Any) -> Iterator[tuple[Any, Any]]:
    yield from zip(flat(args), flat(dims), strict=True)


def _check(args: Any, dims: Any) -> int:
    """The size that all mapped dimensions share."""
    sizes = []
    for value, dim in _pairs(args, dims):
        if dim is None:
            continue
        if not isinstance(value, tenon.Tensor):
            raise ValueError(
                f"vmap: Got in_dim={dim} for an input but the input is of type {type(value)}. We "
                "cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -value.dim() <= dim < value.dim():
            raise ValueError(
                f"vmap: Got in_dim={dim} for some input, but that input is a Tensor of "
                f"dimensionality {value.dim()} so expected in_dim to satisfy "
                f"-{value.dim()} <= in_dim < {value.dim()}."
            )
        sizes.append(value.shape[dim])
    if not sizes:
        raise ValueError(
            "vmap: Expected at least one Tensor to vmap over: at least one input must be a Tensor "
            "with a mapped dimension"
        )
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _take_out(value: Any, level: Level, dim: Any) -> Any:
    """A result of the function with its mapped dimension at `dim`."""
    if not isinstance(value, tenon.Tensor):
        raise ValueError(
            f"vmap: `func` must only return Tensors, got type {type(value)}. Did you mean to "
            "return a Tensor?"
        )
    if dim is None:
        if is_batched(value, level.number):
            raise ValueError(
                "vmap: `func` can not return a BatchedTensor when out_dim is None: this result "
                "depends on mapped inputs"
            )
        return value
    if is_batched(value, level.number):
        batch = value._batch
    else:
        batch = value.expand(level.size, *value.shape)
    return batch.movedim(0, dim) if dim else batch


def _out_dims_of(out: Any, out_dims: Any) -> Any:
    single = isinstance(out, tenon.Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1
    return _dims_of(out, out_dims[0] if single else out_dims, "out_dims")


def map_once(
    func: Callable[..., Any], args: Any, kwargs: Any, dims: Any, out_dims: Any, size: int,
    randomness: str,
) -> Any:  # fmt: skip
    level = new_level(size, randomness)
    values = iter([
        v if d is None else batched(v.movedim(d, 0) if d else v, level.number)
        for v, d in _pairs(args, dims)
    ])  # fmt: skip
    with entered(level):
        out = func(*mapped(lambda v: next(values), args), **kwargs)
        places = iter(list(flat(_out_dims_of(out, out_dims))))
        return mapped(lambda v: _take_out(v, level, next(places)), out)


@contextmanager
def entered(level: Level) -> Iterator[None]:
    outer = levels()
    drawn = _Draws(level) if level.randomness == "different" else nullcontext()
    before = _C._draws() if level.randomness == "error" else None
    _running.levels = (*outer, level)
    try:
        with drawn:
            yield
    finally:
        _running.levels = outer  # needs no memory
    # Draws of no mapped tensor come by no call that vmap sees.
    if before is not None and before != _C._draws():
        raise RuntimeError(_NO_DRAWS)


def new_level(size: int, randomness: str) -> Level:
    outer = levels()
    return Level(outer[-1].number + 1 if outer else 1, size, randomness)


def _in_parts(
    parts: Any, func: Callable[..., Any], args: Any, kwargs: Any, in_dims: Any, out_dims: Any,
    randomness: str,
) -> Any:  # fmt: skip
    """vmap by the functions of `torch._functorch.vmap`."""
    size, dims, values, spec = parts._process_batched_inputs(in_dims, args, func)
    level = new_level(size, randomness)
    with entered(level):
        inside = parts._create_batched_inputs(dims, values, level.number, spec)
        out = func(*inside, **kwargs)
        return parts._unwrap_batched(out, out_dims, level.number, size, func)


class _Draws(BaseTorchFunctionMode):
    """What draws random numbers without mapped tensors does it for each element."""

    sees_members = False

    def __init__(self, level: Level) -> None:
        self.level = level

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, keywords = name_of(func), kwargs or {}
        if (
            getattr(_running, "inside", False)  # on behalf of a mapped tensor
            or not vmap_calls.is_random(name)
            or _innermost((args, keywords), 0)
            or not vmap_calls.draws(name, args, keywords)
        ):
            return func(*args, **keywords)
        if name.endswith("_"):
            raise RuntimeError(
                f"vmap: {name}: Cannot ask for different inplace randomness on an unbatched tensor:"
                " it cannot take different random numbers for each element. Make it from a mapped "
                "tensor, or use randomness='same'"
            )
        draws = [func(*args, **keywords) for _ in range(self.level.size)]
        return batched(tenon.stack(draws), self.level.number)


def _joined(parts: list[Any], out_dims: Any) -> Any:
    """The results of chunks, side by side."""
    places = iter(list(flat(_out_dims_of(parts[0], out_dims))))
    columns = zip(*[list(flat(p)) for p in parts], strict=True)
    items = iter([c[0] if d is None else tenon.cat(c, dim=d) for c, d in zip(columns, places)])
    return mapped(lambda v: next(items), parts[0])


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function like func for inputs that have one dimension more, which func never sees.

    in_dims: which dimension of each input is mapped; None: the input is the same for all. out_dims:
    where it goes in the results. chunk_size: so many elements at a time. Keyword arguments are the
    same for all. Operators without a rule run for each element.
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        parts = sys.modules.get("tenon._torch._functorch.vmap")
        if parts is not None and parts.are_replaced():  # by a package with arguments of its own
            if chunk_size is not None:
                raise NotImplementedError("vmap: chunk_size does not go with replaced parts of it")
            return _in_parts(parts, func, args, kwargs, in_dims, out_dims, randomness)
        if not args:
            raise ValueError("vmap: got no inputs: the function is called without arguments")
        if in_dims is not None and not isinstance(in_dims, (int, tuple)):
            raise ValueError(
                "vmap(in_dims, ...): expected `in_dims` to be int or a (potentially nested) tuple "
                f"matching the structure of inputs, got: {type(in_dims)}"
            )
        dims = _dims_of(args, in_dims)
        size = _check(args, dims)
        if chunk_size is None or size <= chunk_size:
            return map_once(func, args, kwargs, dims, out_dims, size, randomness)
        parts = []
        start = tenon.get_rng_state() if randomness == "same" else None
        for at in range(0, size, chunk_size):
            if at and start is not None:
                tenon.set_rng_state(start)  # all elements draw the same, not those of a chunk alone
            n = min(chunk_size, size - at)
            some = iter([v if d is None else v.narrow(d, at, n) for v, d in _pairs(args, dims)])
            now = mapped(lambda v, some=some: next(some), args)
            parts.append(map_once(func, now, kwargs, dims, out_dims, n, randomness))
        return _joined(parts, out_dims)

    return wrapped
