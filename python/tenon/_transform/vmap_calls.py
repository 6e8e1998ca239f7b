"""Calls with mapped tensors, and what the op table says of operators."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import tenon
from tenon._tensor.called import is_inplace, written_by
from tenon._tensor.op_rows import op_rows


@dataclass
class Call:
    """A call with mapped tensors of one level."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    level: int
    size: int
    batched: Callable[[Any, int], Any]
    is_batched: Callable[[Any, int], bool]
    randomness: str

    @property
    def is_inplace(self) -> bool:
        """It gives its first argument back. Operators of plugins that write return nothing, or
        results beside what they write."""
        name = self.name
        return is_inplace(name) or name in INPLACE_SIGNS

    def maps(self, value: Any) -> bool:
        return self.is_batched(value, self.level)

    def all(self, value: Any) -> Any:
        """The batch behind a mapped tensor; other values as they are."""
        return value._batch if self.maps(value) else value

    def element(self, value: Any, i: int) -> Any:
        return value._batch.select(0, i) if self.maps(value) else value

    def spread(self, value: Any) -> Any:
        """The batch; a tensor that is not mapped is repeated."""
        return value._batch if self.maps(value) else value.expand(self.size, *value.shape)

    def of_rank(self, value: Any, rank: int) -> Any:
        """The batch behind a mapped tensor, its elements with so many dimensions, new ones first;
        other values as they are."""
        if not self.maps(value) or value.dim() == rank:
            return self.all(value)
        return value._batch.reshape(self.size, *[1] * (rank - value.dim()), *value.shape)

    def wrap(self, result: Any) -> Any:
        if isinstance(result, tenon.Tensor):
            return self.batched(result, self.level)
        if isinstance(result, list | tuple):
            items = [self.wrap(r) for r in result]
            return type(result)(items)
        return result

    def check_target(self) -> None:
        """What is written by each element must have a place for each."""
        written = (
            self.args[:1] if self.is_inplace else written_by(self.name, self.args, self.kwargs)
        )
        out = self.kwargs.get("out")
        self.check_written((*written, *(out if isinstance(out, (list, tuple)) else [out])))

    def check_written(self, written: Iterable[Any]) -> None:
        if any(isinstance(v, tenon.Tensor) and not self.maps(v) for v in written):
            raise RuntimeError(
                f"vmap: inplace arithmetic(self, *extra_args) is not possible because '{self.name}'"
                " would write different elements into a tensor that is not mapped"
            )

    def others_mapped(self) -> bool:
        """Some argument behind the first is mapped."""
        rest = [*self.args[1:], *self.kwargs.values()]
        return any(self.maps(v) or holds_mapped(self, v) for v in rest)


def holds_mapped(call: Call, value: Any) -> bool:
    return isinstance(value, list | tuple) and any(
        call.maps(v) or holds_mapped(call, v) for v in value
    )


# Python's own operators are no names of the table.
SIGNS = {
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "lt", "le", "gt", "ge", "eq", "ne",
}  # fmt: skip
INPLACE_SIGNS = {f"__i{s}__" for s in (*SIGNS, "matmul")}
UNARY_SIGNS = {"__neg__", "__abs__", "__invert__", "__pos__"}
# Methods of the extension that change what numbers are made of.
CONVERSIONS = {"to", "float", "double", "half", "bfloat16", "int", "long", "bool", "type_as"}


@dataclass(frozen=True)
class Entry:
    """What the op table says of one overload."""

    name: str
    py_name: str
    family: str
    detail: str
    args: tuple[dict[str, Any], ...]
    forward: str | None

    def place(self, *names: str) -> int | None:
        return next((i for i, a in enumerate(self.args) if a["name"] in names), None)

    @cached_property
    def _names(self) -> tuple[list[str], dict[str, str], set[str]]:
        """Those that may come by position, the types of all, those without a default."""
        return (
            [a["name"] for a in self.args if not a["kwonly"]],
            {a["name"]: a["type"] for a in self.args},
            {a["name"] for a in self.args if a["default"] is None},
        )

    def placed(self, call: Call) -> Call:
        """The call with what it names in the places where it could stand without a name."""
        free, args, kwargs = self._names[0], list(call.args), dict(call.kwargs)
        while len(args) < len(free) and free[len(args)] in kwargs:
            args.append(kwargs.pop(free[len(args)]))
        return (
            replace(call, args=tuple(args), kwargs=kwargs) if len(args) > len(call.args) else call
        )

    def takes(self, call: Call) -> bool:
        """Whether the arguments are of this overload's kinds, as far as vmap has to know."""
        free, types, needed = self._names
        given = dict(zip(free, call.args))
        if len(call.args) > len(free) or given.keys() & call.kwargs.keys():
            return False
        given |= {k: v for k, v in call.kwargs.items() if k != "out"}
        if given.keys() - types.keys() or needed - given.keys():
            return False
        return all(_is_of(value, types[name]) for name, value in given.items())


def _is_of(value: Any, type_: str) -> bool:
    if value is None:
        return "?" in type_ or type_ == "Dims"
    if type_.startswith("Tensor") and "[]" not in type_:
        return isinstance(value, tenon.Tensor)
    if type_ in ("int", "Dim", "float", "Scalar", "bool") and isinstance(value, list | tuple):
        return False
    if (type_ == "bool") != isinstance(value, bool) and type_ in ("bool", "int", "Dim", "Dims"):
        return False
    if isinstance(value, str) and not type_.startswith(("str", "DType", "Device", "Format")):
        return False
    return type_ == "Operand" or not isinstance(value, tenon.Tensor)


class Table:
    """The entries by the names of Python and of C."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[Entry]] = {}
        self.by_c_name: dict[str, Entry] = {}
        self.random: set[str] = set()
        for row in op_rows():
            family, _, detail = row["vmap"].partition(" ")
            entry = Entry(
                row["name"], row["py_name"], family, detail, tuple(row["args"]), row["forward"]
            )
            self.by_c_name[row["name"]] = entry
            for name in (row["py_name"], *row["alias"]):
                self.by_name.setdefault(name, []).append(entry)
                if row["random"]:
                    self.random.add(name)

    def find(self, name: str) -> list[Entry]:
        plain = name.removesuffix("_") if not name.endswith("__") else name
        return self.by_name.get(name) or self.by_name.get(plain) or []


@cache
def table() -> Table:
    return Table()


@cache
def starts_with_input(name: str) -> bool:
    """Whether what rules look at first is called input, as it is where no row says other."""
    entries = table().find(name)
    return not entries or any(e.args and e.args[0]["name"] == "input" for e in entries)


def is_random(name: str) -> bool:
    return name in table().random


def draws(name: str, args: Any, kwargs: Any) -> bool:
    """Whether this call takes random numbers: not while its dropout is 0 or off."""
    return is_random(name) and not any(_is_quiet(e, args, kwargs) for e in table().find(name))


def _is_quiet(entry: Entry, args: Any, kwargs: Any) -> bool:
    names = [a["name"] for a in entry.args]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if "dropout_p" in names:
        return not given.get("dropout_p", 0.0)
    train, rate = given.get("train"), given.get("dropout", given.get("p"))
    fits = isinstance(train, bool) and isinstance(rate, int | float) and rate is not True
    return fits and (not train or ("dropout" in names and not rate))


# Names that defaults of the table use.
CONSTANTS = {"inf": math.inf, "nan": math.nan}


def literal(text: str) -> Any:
    return CONSTANTS[text] if text in CONSTANTS else ast.literal_eval(text)
