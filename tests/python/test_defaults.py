"""What arguments are where they are left out: PyTorch's numbers, texts and truth values."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import Any

import pytest
import stored
import tenon

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
    ".optim._functional",
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


# ---- Operators, by their schemas -----------------------------------------------------------------

# Where functions are that operators are called by, and what the operators' names begin with there.
PLACES = (
    ("tenon", ""), ("tenon._C._ops", ""), ("tenon._C._nn", ""), ("tenon.nn.functional", ""),
    ("tenon.linalg", "linalg_"),
    ("tenon.special", "special_"), ("tenon.fft", "fft_"), ("tenon.sparse", "sparse_"),
)  # fmt: skip


def said(value: Any) -> bool:
    return value != [] and plain(value)


def schemas(torch: Any) -> dict[str, dict[str, list[Any]]]:
    """What arguments of PyTorch's operators are, in one of their forms each."""
    found: dict[str, dict[str, list[Any]]] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        for a in schema.arguments if space == "aten" else ():
            if a.has_default_value() and said(a.default_value):
                values = found.setdefault(name, {}).setdefault(a.name, [])
                if shown(a.default_value) not in values:
                    values.append(shown(a.default_value))
    return found


def alike(mine: Any, text: str) -> bool:
    """Whether a default is one that is written so; one number stands for one in each dimension."""
    value = eval(text)
    if isinstance(value, tuple) and not isinstance(mine, tuple | list):
        return all(alike(mine, shown(v)) for v in value)
    same = tuple(mine) == value if isinstance(value, tuple) else mine == value
    return same and isinstance(mine, bool) == isinstance(value, bool)


def test_defaults_of_operators_are_those_of_their_schemas() -> None:
    """Losses and bags aside: what they do is a word, or 0 where numbers are taken."""
    want, asked = stored.of_torch(schemas), 0
    places = [(name, attrgetter(name.removeprefix("tenon."))(tenon) if "." in name else tenon, pre)
              for name, pre in PLACES]  # fmt: skip
    for where, place, prefix in [*places, ("Tensor", tenon.Tensor, "")]:
        for name in sorted(n for n in dir(place) if not n.startswith("__")):
            function, values = getattr(place, name), want.get(prefix + name, {})
            try:
                parameters = inspect.signature(function).parameters if values else {}
            except (ValueError, TypeError):
                continue
            for argument, texts in values.items():
                mine = parameters[argument].default if argument in parameters else None
                word = argument == "reduction" or (name, argument) == ("embedding_bag", "mode")
                if mine is not None and said(mine) and not word:
                    asked += 1
                    assert any(alike(mine, v) for v in texts), f"{where}.{name}, {argument}: {mine}"
    assert asked > 700


@pytest.mark.parametrize(
    "name",
    "binary_cross_entropy_with_logits hinge_embedding_loss margin_ranking_loss triplet_margin_loss "
    "cosine_embedding_loss ctc_loss kl_div".split(),
)
def test_losses_by_numbers_are_not_reduced(name: str) -> None:
    assert inspect.signature(getattr(tenon, name)).parameters["reduction"].default == 0
