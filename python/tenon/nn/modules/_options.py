"""Constructors of modules that keep their options and do nothing else."""

from __future__ import annotations

from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T", bound=type[Any])


def _shown(self: Any) -> str:
    """The options with their values; `inplace` where it is on, `return_indices` never."""
    options = {n: getattr(self, n) for n in self._options if n != "return_indices"}
    if options.get("inplace") is False:
        del options["inplace"]
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


@dataclass_transform()
def options(cls: T) -> T:
    """Makes `__init__`, `__constants__` and `extra_repr` of a class's annotations.

    `alpha: float = 1.0` is a parameter of the constructor, in the order of the class, and becomes
    an attribute. What the class defines itself stays. Annotations are texts here, and in what is
    made, which is compiled under this file's rules.
    """
    names = cls.__annotations__
    given = {name: vars(cls)[name] for name in names if name in vars(cls)}
    for name in given:
        delattr(cls, name)
    params = [f"{n}: {kind}" + f" = _given[{n!r}]" * (n in given) for n, kind in names.items()]
    body = ["super(_cls, self).__init__()", *(f"self.{name} = {name}" for name in names)]
    scope: dict[str, Any] = {"_cls": cls, "_given": given, "__name__": cls.__module__}
    exec(f"def __init__(self, {', '.join(params)}) -> None:\n    " + "\n    ".join(body), scope)
    made = {"__init__": scope["__init__"], "__constants__": list(names), "extra_repr": _shown}
    made["_options"] = tuple(names)
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    for name, value in made.items():
        if name not in vars(cls):
            setattr(cls, name, value)
    return cls
