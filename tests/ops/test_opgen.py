"""The generator of the op table: entries that it refuses, with their place."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

OPGEN = Path(__file__).resolve().parents[2] / "dispatch" / "opgen"


def generator() -> tuple[Any, ...]:
    """The generator's modules, whose names other modules of the tests have too."""
    names = ("table", "language", "expr", "batching", "emit_c", "emit_py")
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(OPGEN))
    try:
        return tuple(importlib.import_module(name) for name in ("table", "emit_c", "emit_py"))
    finally:
        sys.path.remove(str(OPGEN))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


table, emit_c, emit_py = generator()

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
    (folder / "here").write_text("f(x), f_(x), gelu(x)")
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


TESTS = {
    "missing": ('"here"', '"nowhere.py"', "tests names 'nowhere.py', which is no file"),
    "silent": ("f_(T", "g_(T", "tests names 'here', where 'g_' does not occur"),
    "via": ('"here"', '"here"\nvia = "nn.f"', "tests names 'here', where 'nn.f' is not called"),
    "alone": ('tests   = "here"', 'ref = "f"\nsamples = []\nvia = "f"', "via goes with tests"),
}


@pytest.mark.parametrize("what", TESTS)
def test_tests_exist(what: str, tmp_path: Path) -> None:
    """An entry names a file of tests that exists and calls the operator."""
    old, new, message = TESTS[what]
    text = COMPOSITE.replace(old, new)
    if what == "silent":
        text = text.replace("[f_]", "[g_]")
    with pytest.raises(table.TableError) as caught:
        load(text, tmp_path)
    assert message in str(caught.value)
    assert len(load(COMPOSITE.replace('"here"', '"here"\nvia = "f_(x)"'), tmp_path)) == 1


def test_written_argument_without_result(tmp_path: Path) -> None:
    """No form of such an operator takes its first argument for a result."""
    (op,) = load(COMPOSITE, tmp_path)
    assert op.where == ["method"] and op.writes and not op.inplace_only
    (op,) = load(COMPOSITE.replace("-> ()", "-> Tensor"), tmp_path)
    assert op.inplace_only and not op.writes


VERSIONS = """
[gelu]
sig     = "gelu(Tensor input, str approximate='none') -> Tensor"
kind    = "structured"
shape   = "same(input)"
version = 2
grad    = "none"
tests   = "here"
doc     = "d"

["gelu@1"]
sig     = "gelu(Tensor input) -> Tensor"
kind    = "composite"
forward = "gelu(input)"
"""


def test_versions(tmp_path: Path) -> None:
    """An entry that took the place of another keeps it as a composite of itself."""
    new, old = load(VERSIONS, tmp_path)
    assert (new.name, new.call_name, new.version) == ("gelu", "gelu", 2)
    assert (old.name, old.call_name, old.version) == ("gelu_v1", "gelu@1", 1)
    assert old.where == [] and old.is_adapter
    made = emit_c.emit([new, old])
    family = made[f"op_{emit_c.family(new)}.c"]
    assert '"gelu@1",' in family and ".version = 2," in family
    assert "tn_status tn_gelu_v1(tn_tensor *input, tn_tensor **ret)" in family
    assert "tn_gelu(tni_t(a->input), " in family
    hash_of = dict(re.findall(r"#define TN_SIG_(\w+) (\S+)", "".join(made.values())))
    before = VERSIONS.split('["gelu@1"]')[0].replace("version = 2", "")
    first = load(before.replace(", str approximate='none'", ""), tmp_path)
    # kernels that were built for the first version still fit it
    assert f"#define TN_SIG_gelu {hash_of['gelu_v1']}" in "".join(emit_c.emit(first).values())
    assert emit_py.grouped([new, old]) == {"gelu": [new]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("version = 2", "version = 1"), "stands behind no entry of a later version"),
        (("[gelu]", "[relu]"), "sig names 'gelu'"),
        (("version = 2", "version = 0"), "version is a number from 1 to 9999"),
        (('forward = "gelu(input)"', 'forward = "gelu(input)"\ngrad = "none"'), "key 'grad' is"),
        (('kind    = "composite"\nforward = "gelu(input)"', 'kind = "view"'), "is a composite of"),
    ],
)
def test_bad_versions(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    assert change[0] in VERSIONS
    with pytest.raises(table.TableError) as caught:
        load(VERSIONS.replace(*change), tmp_path)
    assert message in str(caught.value)


POINTWISE = """
[double]
sig     = "double(Tensor input) -> Tensor"
kind    = "composite"
forward = "input * 2"
where   = ["torch"]
ref     = "input * 2"
samples = [{ input = [3] }]
doc     = "d"
"""


@pytest.mark.parametrize(
    ("text", "family"),
    [
        (POINTWISE, "pointwise"),
        (POINTWISE.replace("input * 2", "input * input.ndim"), "parts"),
        (POINTWISE.replace("input * 2", "input * input.ndim") + 'grad.input = "g"', "each"),
        (POINTWISE + 'vmap = "last"', "last"),
        (POINTWISE + 'vmap = "sideways"', "vmap 'sideways' is none of pointwise"),
        (POINTWISE + 'vmap = "fold"', "has the rank of one sample behind it"),
        (POINTWISE + 'vmap = "last other"', "names 'other', which is no argument"),
    ],
)
def test_batching(text: str, family: str, tmp_path: Path) -> None:
    """Derived where the entry says nothing, refused where it says what there is not."""
    ops = load(text, tmp_path)
    if " " in family:
        with pytest.raises(table.TableError, match=re.escape(family)):
            emit_py.families(ops)
    else:
        assert emit_py.families(ops) == {"double": family}
