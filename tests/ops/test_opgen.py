"""The generator of the op table: entries that it refuses, with their place."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).resolve().parents[2] / "dispatch" / "opgen" / "table.py"
spec = importlib.util.spec_from_file_location("opgen_table", TABLE)
assert spec is not None and spec.loader is not None
table = importlib.util.module_from_spec(spec)
sys.modules["opgen_table"] = table  # dataclasses look their module up
spec.loader.exec_module(table)

COMPOSITE = """
[f_]
sig     = "f_(Tensor! self) -> ()"
kind    = "composite"
forward = "custom"
tests   = "here"
doc     = "d"
"""
BAD = {
    "inplace": (
        COMPOSITE.replace("f_", "f") + 'where = ["method", "inplace"]',
        "returns nothing, so it has no form 'inplace'",
    ),
    "out": (COMPOSITE + 'where = ["method", "out"]', "returns nothing, so it has no form 'out'"),
    "gradient": (COMPOSITE + 'grad.self = "g"', "returns nothing, so no gradient comes to it"),
    "nothing": (COMPOSITE.replace("Tensor!", "Tensor"), "writes to no argument"),
    "pointwise": (COMPOSITE.replace("composite", "pointwise"), "a pointwise operator has a result"),
    "unknown": (COMPOSITE + 'colour = "red"', "unknown key 'colour'"),
}


def load(text: str, folder: Path) -> list[Any]:
    path = folder / "trial.toml"
    path.write_text(text)
    return table.load([path], folder)


@pytest.mark.parametrize("what", BAD)
def test_refused(what: str, tmp_path: Path) -> None:
    text, message = BAD[what]
    with pytest.raises(table.TableError) as caught:
        load(text, tmp_path)
    assert message in str(caught.value)
    assert "trial.toml:2: [f" in str(caught.value)


def test_written_argument_without_result(tmp_path: Path) -> None:
    """No form of such an operator takes its first argument for a result."""
    (op,) = load(COMPOSITE, tmp_path)
    assert op.where == ["method"] and op.writes and not op.inplace_only
    (op,) = load(COMPOSITE.replace("-> ()", "-> Tensor"), tmp_path)
    assert op.inplace_only and not op.writes
