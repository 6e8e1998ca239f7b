"""tenon.vision beside torchvision: lines of `expressions/vision`, as in test_expressions.

To store answers torchvision must be there.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from enum import EnumType
from pathlib import Path
from typing import Any

import pytest
import stored
import tenon
from test_expressions import label, names, plain

FILE = Path(__file__).parent / "expressions" / "vision" / "vision.txt"
TEXTS = FILE.read_text(encoding="utf-8").splitlines()


def computed(lib: Any, model: Any, *size: int) -> list[Any]:
    """What a model's entries are called, and what it makes of a picture with certain weights."""
    state = model.state_dict()
    with lib.no_grad():
        for k, (name, t) in enumerate(sorted(state.items())):
            if not t.dtype.is_floating_point:
                continue
            values = (lib.arange(t.numel()) * 37 + 11 * k) % 101
            values = values.to(t.dtype).reshape(t.shape) / 101
            inputs = t.numel() / t.shape[0] if t.dim() > 1 else 1
            t.copy_(values + 0.5 if name.endswith("running_var") else (values - 0.4) * inputs**-0.5)
        pixels = lib.arange(2 * 3 * size[0] * size[-1]) * 31 % 103
        result = model.eval()(pixels.float().reshape(2, 3, size[0], size[-1]) / 103)
    return [sorted(state), result]


def defaults(theirs: Any, mine: str, *left: str) -> dict[str, Any]:
    """What arguments are that are left out, of what a room of tenon.vision defines but for some."""
    plain_types = (bool, int, float, str, tuple, list, type(None))
    found = {}
    for name, here in sorted(vars(importlib.import_module(f"tenon.vision.{mine}")).items()):
        own = getattr(here, "__module__", None) or ""
        if (
            name.startswith("_")
            or name in left
            or not own.startswith("tenon.vision")
            or not callable(here)
        ):
            continue
        parameters = inspect.signature(here).parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters) and not isinstance(here, EnumType):
            given = inspect.signature(getattr(theirs, name)).parameters.values()
            found[name] = {p.name: repr(p.default) for p in given if type(p.default) in plain_types}
    return found


def beside(lib: Any, text: str) -> Any:
    """What the text gives, or the name of what it raises."""
    room = "tenon.vision" if lib is tenon else "torchvision"
    import_ = importlib.import_module
    transforms, ops = import_(room + ".transforms"), import_(room + ".ops")
    picture = (lib.arange(105).reshape(3, 5, 7) * 67 % 256).to(lib.uint8)
    boxes = lib.tensor([[0, 0, 2, 3], [1, 1, 4, 4], [2, 0, 7, 1], [3, 2, 5, 5.0], [1, 1, 2, 4]])
    more = {
        "T": transforms, "F": import_(room + ".transforms.functional"), "O": ops, "B": boxes,
        "M": import_(room + ".models"), "U": import_(room + ".utils"),
        "D": import_(room + ".datasets"), "defaults": defaults,
        "computed": lambda *given: computed(lib, *given),
        "I": transforms.InterpolationMode, "b": picture, "f": picture.float() / 255,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(eval(text, {**names(lib), **more}))
        except Exception as err:
            return f"{type(err).__name__} raised"


@pytest.mark.parametrize("text", TEXTS, ids=[label("vision", t) for t in TEXTS])
def test_as_torchvision(text: str) -> None:
    want = stored.of_torch(lambda lib: beside(lib, text), package="torchvision")
    stored.same(beside(tenon, text), want, 1e-5, 1e-6)
