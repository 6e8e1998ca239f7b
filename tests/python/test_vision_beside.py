"""tenon.vision beside torchvision: lines of `expressions/vision`, as in test_expressions.

To store answers torchvision must be there; its own operators in C++ are not asked.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest
import stored
import tenon
from test_expressions import label, names, plain

FILE = Path(__file__).parent / "expressions" / "vision" / "vision.txt"
TEXTS = FILE.read_text(encoding="utf-8").splitlines()


def beside(lib: Any, text: str) -> Any:
    """What the text gives, or the name of what it raises."""
    room = "tenon.vision" if lib is tenon else "torchvision"
    import_ = importlib.import_module
    transforms, ops = import_(room + ".transforms"), import_(room + ".ops")
    picture = (lib.arange(105).reshape(3, 5, 7) * 67 % 256).to(lib.uint8)
    boxes = lib.tensor([[0, 0, 2, 3], [1, 1, 4, 4], [2, 0, 7, 1], [3, 2, 5, 5.0], [1, 1, 2, 4]])
    more = {
        "T": transforms, "F": import_(room + ".transforms.functional"), "O": ops, "B": boxes,
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
