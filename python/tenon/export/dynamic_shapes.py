"""Which sizes of an exported program are free."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import tenon
from tenon._program.errors import ConstraintViolationError, UserError, UserErrorType
from tenon.nn import Module
from tenon.utils import _pytree

__all__ = ["AdditionalInputs", "Dim", "ShapesCollection", "dims"]

_ANY = (1 << 62) - 1


class _Kind(Enum):
    AUTO = 1
    STATIC = 2
    DYNAMIC = 3


@dataclass(frozen=True)
class _Hint:
    """What a size may become; `Dim.AUTO(min=2, max=8)` is another one with bounds."""

    kind: _Kind
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> _Hint:
        if (min or 0) < 0 or (max or 0) < 0:
            raise AssertionError("min and max must be non-negative")
        if min is not None and max is not None and min > max:
            raise AssertionError("min must be <= max")
        return _Hint(self.kind, min, max)

    def __repr__(self) -> str:
        bounds = [f"{n}={v}" for n, v in (("min", self.min), ("max", self.max)) if v is not None]
        return f"DimHint({', '.join([self.kind.name, *bounds])})"


class Dim:
    """A size that may differ, by name, within bounds. `2 * dim + 1` is another one, of a rule."""

    AUTO, STATIC, DYNAMIC = _Hint(_Kind.AUTO), _Hint(_Kind.STATIC), _Hint(_Kind.DYNAMIC)

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not str(name).isidentifier():
            raise ValueError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min, self.max = 0 if min is None else min, _ANY if max is None else max
        if self.max <= self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")

    def __add__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self, 1, _whole(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self, 1, -_whole(other))

    def __mul__(self, other: int) -> _DerivedDim:
        if _whole(other) < 1:
            raise NotImplementedError(f"a Dim is multiplied by positive numbers, not {other}")
        return _DerivedDim(self, other, 0)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        bounds = [f"min={self.min}"] if self.min else []
        bounds += [f"max={self.max}"] if self.max != _ANY else []
        return f"Dim({', '.join([repr(self.__name__), *bounds])})"


def _whole(n: Any) -> int:
    if type(n) is not int:
        raise NotImplementedError(f"a rule of a Dim has whole numbers, not {n!r}")
    return n


class _DerivedDim(Dim):
    """root * times + plus."""

    def __init__(self, root: Dim, times: int, plus: int) -> None:
        if isinstance(root, _DerivedDim):
            root, times, plus = root.root, root.times * times, root.plus * times + plus
        self.root, self.times, self.plus = root, times, plus
        self.__name__ = root.__name__ if times == 1 else f"{times}*{root.__name__}"
        self.__name__ += f" {'-' if plus < 0 else '+'} {abs(plus)}" if plus else ""
        self.min = root.min * times + plus
        self.max = _ANY if root.max == _ANY else root.max * times + plus
        if self.min < 0:
            raise ValueError(
                f"Expected derived min value of {self.__name__} to be >= 0. Please specify an "
                f"appropriate min value for {root.__name__} (currently {root.min})."
            )

    def __repr__(self) -> str:
        return self.__name__


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several of them."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """dynamic_shapes by tensor: `shapes[x] = {0: batch}` whatever container x stands in."""

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        if not isinstance(t, tenon.Tensor):
            raise AssertionError(f"Cannot assign shape to non-tensor of type {type(t)}")
        self._shapes[id(t)] = (t, shape)

    def __getitem__(self, t: Any) -> Any:
        return self._shapes.setdefault(id(t), (t, {}))[1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """The same in the structure of a call's arguments."""
        bound = _bound(m, args, kwargs or {})
        given = _pytree.tree_map(lambda t: self._shapes.get(id(t), (t, None))[1], bound)
        missing = {i for i in self._shapes if i not in map(id, _pytree.tree_leaves(bound))}
        if missing:
            raise ValueError("ShapesCollection has a shape for a tensor that is no argument")
        return given


class AdditionalInputs:
    """Other arguments that the module takes: sizes that differ among them are free."""

    def __init__(self) -> None:
        self._examples: list[tuple[Any, Any]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if type(args) is not tuple:
            raise AssertionError(f"Representation of args should be a tuple, got {type(args)}")
        self._examples.append((args, kwargs))

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """The sizes that differ, in the structure of a call's arguments."""
        calls = [(args, kwargs), *self._examples]
        trees = [_bound(m, a, k or {}) for a, k in calls]
        leaves = [_pytree.tree_leaves(t) for t in trees]
        if len({len(found) for found in leaves}) != 1:
            raise ValueError("AdditionalInputs: all calls have the same structure")

        def free(*same: Any) -> Any:
            if not isinstance(same[0], tenon.Tensor):
                return None
            sizes = zip(*(t.shape for t in same), strict=True)
            return tuple(Dim.DYNAMIC if len(set(s)) > 1 else Dim.STATIC for s in sizes)

        found = [free(*same) for same in zip(*leaves, strict=True)]
        return _pytree.tree_unflatten(found, _pytree.tree_structure(trees[0]))


def _bound(m: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    target = m.forward if isinstance(m, Module) else m
    return dict(inspect.signature(target).bind(*args, **kwargs).arguments)


def _mismatch(text: str) -> UserError:
    return UserError(
        UserErrorType.INVALID_INPUT,
        f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: {text}",
    )


def _invalid(text: str) -> UserError:
    return UserError(UserErrorType.INVALID_INPUT, text)


_DIMS = "an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC"


def _of_tensor(given: Any, shape: Any, where: str) -> dict[int, Any]:
    """Dimension -> Dim or hint, for one tensor."""
    if given is None:
        return {}
    rank, spec = len(shape), given
    if isinstance(given, (tuple, list)):
        if len(given) != rank:
            raise _invalid(
                f"Expected dynamic shape spec {given} specified at `dynamic_shapes{where}` to have "
                f"the same length as the actual tensor shape {shape} (expected {rank}, but got "
                f"{len(given)} instead)"
            )
        given = dict(enumerate(given))
    if not isinstance(given, dict):
        raise _invalid(
            f"Unexpected input tensor shape {given!r} specified at `dynamic_shapes{where}` "
            "(expected either a list/tuple of dimensions, or a dict mapping indices to dimensions, "
            f"where each dimension is {_DIMS})"
        )
    found = {}
    for dim, free in given.items():
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise IndexError(f"dynamic_shapes{where}: there is no dimension {dim} of {rank}")
        if isinstance(free, int) and free != shape[dim]:
            raise ConstraintViolationError(
                f"Static shape constraint of {free} does not match input size of {shape[dim]}, for "
                f"L{where}.size()[{dim}]"
            )
        if isinstance(free, int) or free is None or getattr(free, "kind", None) is _Kind.STATIC:
            continue
        if not isinstance(free, (Dim, _Hint)):
            raise _invalid(
                f"Unexpected dimension mapped to index {dim} in input tensor shape {spec} "
                f"specified at `dynamic_shapes{where}` (expected None, {_DIMS},  but got {free!r} "
                "instead)"
            )
        found[dim % rank] = free
    return found


Found = list[tuple[dict[int, Any], str]]  # for each tensor its free sizes, and where it stands


def _match(example: Any, given: Any, where: str, out: Found) -> None:
    """Walks arguments and dynamic_shapes together; one entry for each tensor."""
    if isinstance(example, tenon.Tensor):
        out.append((_of_tensor(given, example.shape, where), where))
        return
    if _pytree.tree_structure(example).is_leaf():
        return
    mine, other = f"`inputs{where}`", f"`dynamic_shapes{where}`"
    kind = type(example)
    if kind in (dict, list, tuple) and type(given) is not kind:
        is_other = _pytree.tree_structure(given).type in (dict, list, tuple)
        what = f"is a {type(given)}" if is_other else "is not"
        raise _mismatch(f"{mine} is a {kind}, but {other} {what}")
    if kind is dict:
        if set(example) != set(given):
            raise _mismatch(f"{mine} has keys {list(example)}, but {other} has keys {list(given)}")
        for key, part in example.items():
            _match(part, given[key], f"{where}[{key!r}]", out)
        return
    parts, _ = _pytree.tree_flatten(example, is_leaf=lambda x: x is not example)
    if type(given) is kind:
        given, _ = _pytree.tree_flatten(given, is_leaf=lambda x: x is not given)
    given = [None] * len(parts) if given is None else given
    if not isinstance(given, (tuple, list)):
        raise _mismatch(f"{mine} is a {kind}, but {other} is not")
    if len(given) != len(parts):
        raise _mismatch(f"{mine} has {len(parts)} elements, but {other} has {len(given)} elements")
    for i, (a, b) in enumerate(zip(parts, given, strict=True)):
        _match(a, b, f"{where}[{i}]", out)


@dataclass
class FreeSize:
    """A size that is to be free: the Dim, and where it stands, as (tensor, dimension)."""

    dim: Dim
    hint: _Hint | None = None
    places: list[tuple[int, int]] = field(default_factory=list)
    bounds: tuple[int, int] | None = None  # in place of the Dim's
    # Of sizes that follow from the Dim in places of their own: times and plus, and the name of what
    # the others follow from.
    rules: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    name: str = ""


def free_sizes(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], given: Any
) -> list[FreeSize]:
    """The sizes that dynamic_shapes names."""
    if isinstance(given, (ShapesCollection, AdditionalInputs)):
        given = given.dynamic_shapes(fn, args, kwargs)
    if given is None:
        return []
    bound = _bound(fn, args, kwargs)
    if isinstance(given, (tuple, list)):
        if len(given) != len(bound):
            raise _mismatch(
                f"`inputs` has {len(bound)} elements, but `dynamic_shapes` has {len(given)} "
                "elements"
            )
        given = dict(zip(bound, given, strict=True))
    if set(given) != set(bound):
        raise _invalid(
            "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg "
            f"names {list(bound)} of `inputs`, but here they are {list(given)}. Alternatively, you "
            "could also ignore arg names entirely and specify `dynamic_shapes` as a list/tuple "
            "matching `inputs`."
        )
    found: Found = []
    for name, example in bound.items():
        _match(example, given[name], f"['{name}']", found)
    tensors = [t for t in _pytree.tree_leaves(list(bound.values())) if isinstance(t, tenon.Tensor)]
    sizes: dict[str, FreeSize] = {}
    for i, (free, where) in enumerate(found):
        for dim, wanted in free.items():
            hint = wanted if isinstance(wanted, _Hint) else None
            if hint is not None:
                low = 1 if hint.min is None else hint.min
                wanted = Dim(f"s{i}_{dim}", min=low, max=hint.max)
            size = sizes.setdefault(wanted.__name__, FreeSize(wanted, hint))
            seen, place = tensors[i].shape[dim], f"L{where}.size()[{dim}]"
            if hint is None:
                _check_same(wanted, seen, place, size, tensors, found)
            size.places.append((i, dim))
    return [*_joined(list(sizes.values()), tensors)]


def _check_same(
    wanted: Dim, seen: int, place: str, size: FreeSize, tensors: list[Any], found: Found
) -> None:
    """An error where a Dim's sizes differ, or lie out of its bounds, or where two have one name."""
    if (wanted.min, wanted.max) != (size.dim.min, size.dim.max):
        raise _invalid(
            f"Found different definitions {size.dim} and {wanted} for the same symbolic dimension "
            f"{wanted}!"
        )
    if size.places:
        i, dim = size.places[0]
        if tensors[i].shape[dim] != seen:
            raise UserError(
                UserErrorType.CONSTRAINT_VIOLATION,
                f"{place} = {seen} is not equal to L{found[i][1]}.size()[{dim}] = "
                f"{tensors[i].shape[dim]}",
            )
    elif not wanted.min <= seen <= wanted.max:
        top = "int_oo" if wanted.max == _ANY else wanted.max
        raise ConstraintViolationError(f"{seen} not in range [{wanted.min}, {top}]")


def _rule(dim: Dim) -> tuple[int, int]:
    return (dim.times, dim.plus) if isinstance(dim, _DerivedDim) else (1, 0)


def _joined(sizes: list[FreeSize], tensors: list[Any]) -> Iterator[FreeSize]:
    """Sizes that follow from one Dim, in several ways, are one."""
    families: dict[str, list[FreeSize]] = {}
    for size in sizes:
        root = getattr(size.dim, "root", size.dim)
        families.setdefault(root.__name__, []).append(size)
    for family in families.values():
        if len(family) == 1:
            yield family[0]
            continue
        places = sorted(((p, s.dim) for s in family for p in s.places), key=lambda p: p[0])
        slowest = min((dim for _, dim in places), key=lambda dim: _rule(dim)[0])
        root = getattr(slowest, "root", slowest)
        made = FreeSize(root, places=[p for p, _ in places], name=slowest.__name__)
        made.rules = {place: _rule(dim) for place, dim in places}
        found = {divmod(tensors[i].shape[d] - made.rules[i, d][1], made.rules[i, d][0])
                 for i, d in made.places}  # fmt: skip
        if len(found) > 1 or any(rest for _, rest in found):
            texts = [f"{dim.__name__} = {tensors[i].shape[d]}" for (i, d), dim in places]
            raise UserError(
                UserErrorType.CONSTRAINT_VIOLATION,
                f"Constraints violated ({root.__name__})! The sizes of the example do not follow "
                f"from one {root.__name__}: {', '.join(texts)}",
            )
        yield made
