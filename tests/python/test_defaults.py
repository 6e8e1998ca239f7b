"""What arguments are where they are left out: PyTorch's numbers, texts and truth values."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import stored

MODULES = (
    "", ".accelerator", ".ao.quantization", ".autograd",
    ".autograd.functional", ".autograd.graph", ".autograd.profiler",
    ".compiler", ".distributed", ".distributed.checkpoint",
    ".distributed.fsdp", ".distributed.optim", ".distributed.pipelining", ".distributed.tensor",
    ".distributed.tensor.parallel", ".distributions", ".distributions.transforms", ".export",
    ".func", ".fx", ".hub", ".jit", ".library", ".masked", ".multiprocessing",
    ".nested", ".nn", ".nn.attention", ".nn.attention.flex_attention", ".nn.functional", ".nn.init",
    ".nn.parallel", ".nn.utils", ".nn.utils.parametrizations", ".nn.utils.parametrize",
    ".nn.utils.prune", ".nn.utils.rnn", ".nn.utils.stateless", ".onnx", ".optim",
    ".optim.lr_scheduler", ".optim.swa_utils", ".profiler", ".quasirandom", ".random",
    ".serialization", ".signal.windows", ".sparse", ".testing", ".utils._pytree",
    ".utils.benchmark", ".utils.checkpoint", ".utils.data",
    ".utils.flop_counter",
)  # fmt: skip
# What is another default on purpose, or another word for the same.
OTHERS = {
    ("", "norm", "p"): "2 is the Frobenius norm of all elements",
    (".hub", "load_state_dict_from_url", "weights_only"): "files from elsewhere run nothing",
    (".library", "opcheck", "test_utils"): "one of its tests is of a compiler that is not there",
}


def plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(plain(v) for v in value)
    return isinstance(value, bool | int | float | str)


def shown(value: Any) -> str:
    return f"({', '.join(map(shown, value))})" if isinstance(value, tuple | list) else repr(value)


def defaults(function: Any) -> dict[str, str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return {}
    found = {p.name: p.default for p in parameters if p.default is not p.empty}
    return {name: shown(value) for name, value in found.items() if plain(value)}


def functions(module: Any) -> Iterator[tuple[str, Any]]:
    """Those of a module and of its classes, each function where it is met first."""
    for name, thing in sorted(vars(module).items()):
        if name.startswith("_") or not callable(thing):
            continue
        if not inspect.isclass(thing):
            yield name, thing
            continue
        for key in ("__init__", "__call__", *sorted(k for k in vars(thing) if k[0] != "_")):
            member = inspect.getattr_static(thing, key, None)
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member):
                yield f"{name}.{key}", member


@cache
def table(package: Any) -> dict[str, dict[str, dict[str, str]]]:
    """Of all modules, all functions of which any argument may be left out."""
    seen: set[int] = set()
    out: dict[str, dict[str, dict[str, str]]] = {}
    for name in MODULES:
        out[name] = {}
        for path, function in functions(importlib.import_module(f"{package.__name__}{name}")):
            if id(function) not in seen:
                seen.add(id(function))
                if got := defaults(function):
                    out[name][path] = got
    return out


def known(module: Any, path: str) -> dict[str, str]:
    """Our defaults of what PyTorch has at a path; none where we have nothing there."""
    found = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return defaults(found)


@pytest.mark.parametrize("name", MODULES)
def test_defaults_are_pytorchs(name: str) -> None:
    want = stored.of_torch(lambda torch: table(torch)[name])
    module = importlib.import_module(f"tenon{name}")
    asked = 0
    for path, values in want.items():
        mine = known(module, path)
        for argument, value in values.items():
            if argument in mine and (name, path, argument) not in OTHERS:
                asked += 1
                assert mine[argument] == value, f"{path}, {argument}"
    assert asked
