"""What Python puts around operators: a function that has an operator's name calls that operator.

A second implementation under the same name would be what users get, and the operator's tests would
look at something else.
"""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import table
import tenon as tn
from tenon.profiler import profile

PLACES = {"torch": tn, "nn.functional": tn.nn.functional, "method": tn.Tensor}
IN_PLACE = ("relu", "leaky_relu", "elu", "celu", "selu", "silu", "mish", "relu6", "hardtanh",
            "hardsigmoid", "hardswish", "threshold")  # fmt: skip


def around() -> Iterator[Any]:
    """(entry, name, function) of every Python function that stands where an operator has a form."""
    path = Path(tn.__file__).parent / "ops.json"
    for row in json.loads(path.read_text(encoding="utf-8")):
        for place, owner in PLACES.items():
            if place not in row["where"]:
                continue
            for name in (row["py_name"], *row["alias"]):
                function = getattr(owner, name, None)
                if isinstance(function, FunctionType):
                    yield pytest.param(row, function, id=f"{place}.{name}")


def sample_args(row: dict[str, Any]) -> dict[str, Any]:
    dtype = "float32" if "float32" in row["dtypes"] else row["dtypes"][-1]
    return table.tensor_args(table.make_case(row, row["samples"][0], dtype))


def call(function: Any, args: dict[str, Any]) -> Any:
    """A call by the names of the entry, where Python's function has them; a list for its *args, and
    what is left over in the order of the parameters that are left over."""
    params = inspect.signature(function).parameters
    for folded, names in getattr(function, "_folds", {}).items():
        args[folded] = tuple(args.pop(n) for n in names)
    if any(p.kind is p.VAR_POSITIONAL for p in params.values()):
        named = {
            n: args.pop(n) for n, p in params.items() if p.kind is p.KEYWORD_ONLY and n in args
        }
        flat = [x for v in args.values() for x in (v if isinstance(v, list) else [v])]
        return function(*flat, **named)
    free = (n for n in params if n not in args)
    return function(**{n if n in params else next(free): v for n, v in args.items()})


@pytest.mark.parametrize("row, function", list(around()))
def test_python_calls_the_operator(row: dict[str, Any], function: Any) -> None:
    args = sample_args(row)
    with profile() as recorded:
        call(function, args)
    ran = {event.name for event in recorded.events()}
    assert f"aten::{row['name']}" in ran, (
        f"{function.__module__}.{function.__name__} runs {sorted(ran)}"
    )


@pytest.mark.parametrize("name", IN_PLACE)
def test_inplace_is_the_form_of_the_operator(name: str) -> None:
    args = (0.1, 2.0) if name == "threshold" else ()
    x = tn.randn(5, requires_grad=True)
    plain = getattr(tn.nn.functional, name)(x, *args)
    (want,) = tn.autograd.grad(plain.sum(), x)
    y = x.clone()
    with profile() as recorded:
        same = getattr(tn.nn.functional, name)(y, *args, inplace=True)
    assert same is y and tn.equal(y, plain)
    assert f"aten::{name}" in {event.name for event in recorded.events()}
    (got,) = tn.autograd.grad(same.sum(), x)
    assert tn.equal(got, want)


@pytest.mark.parametrize("function", [tn.add, tn.nn.functional.gelu, tn.nn.functional.relu])
def test_functions_are_pickled_by_name(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) is function
