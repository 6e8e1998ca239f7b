"""What people see who look around: signatures, texts, notebooks, tables of models."""

from __future__ import annotations

import base64
import doctest
import importlib
import inspect
import pydoc
import re
import struct
import zlib
from types import ModuleType
from typing import Any

import pytest
import tenon as tn

PLACES = ["nn", "nn.functional", "optim", "linalg", "fft", "special", "nn.init", "nn.utils",
          "utils.data", "optim.lr_scheduler", "distributions"]  # fmt: skip


def public(owner: Any) -> list[tuple[str, Any]]:
    """The functions and classes of Tenon that a module or class offers."""
    found = []
    for name in dir(owner):
        value = None if name.startswith("_") else getattr(owner, name)
        if callable(value) and not isinstance(value, ModuleType):
            home = getattr(value, "__module__", None) or "tenon"
            if home.startswith(("tenon", "builtins")):
                found.append((name, value))
    return found


@pytest.mark.parametrize("where", ["", *PLACES])
def test_functions_and_classes_have_a_text(where: str) -> None:
    module = importlib.import_module(f"tenon.{where}" if where else "tenon")
    bare = [name for name, value in public(module)
            if (inspect.isfunction(value) or inspect.isbuiltin(value))
            and not (value.__doc__ or "").strip()]  # fmt: skip
    assert not bare


@pytest.mark.parametrize("owner", [tn._C._ops, tn._C._nn, tn.Tensor], ids=["ops", "nn", "Tensor"])
def test_every_operator_and_method_has_a_signature(owner: Any) -> None:
    names = [name for name in dir(owner) if not name.startswith("_")]
    assert len(names) > 80
    lacking = []
    for name in names:
        value = getattr(owner, name)
        if callable(value):
            try:
                inspect.signature(value)
            except ValueError as err:
                lacking.append(f"{name}: {err}")
    assert not lacking


@pytest.mark.parametrize(("function", "parameters"), [
    (tn.softmax, "(input, dim, dtype=None, *, out=None)"),
    (tn.Tensor.softmax, "(self, /, dim, dtype=None)"),
    (tn.add, "(input, other, *, alpha=1, out=None)"),
    (tn.Tensor.add_, "(self, /, other, *, alpha=1)"),
    (tn.nn.functional.linear, "(input, weight, bias=None, *, out=None)"),
    (tn.randn, "(*size, generator=None, dtype=None, device=None, out=None)"),
    (tn.Tensor.size, "(self, /, dim=None)"),
    (tn.Tensor.numel, "(self, /)"),
])  # fmt: skip
def test_signatures_are_those_of_the_table(function: Any, parameters: str) -> None:
    assert str(inspect.signature(function)) == parameters


def test_help_says_types_and_meaning() -> None:
    text = tn.softmax.__doc__ or ""
    assert "softmax(Tensor input, Dim dim" in text
    assert "sums to one" in text


def pixels_of(text: str) -> tuple[int, int, bytes]:
    """Width, height and pixel bytes of the PNG in a text, for a picture in grey."""
    found = re.search(r"base64,([^\"]+)", text)
    assert found
    data = base64.b64decode(found[1])
    width, height = struct.unpack(">II", data[16:24])
    at = data.index(b"IDAT")
    (size,) = struct.unpack(">I", data[at - 4 : at])
    assert zlib.crc32(data[at : at + 4 + size]) == struct.unpack(
        ">I", data[at + 4 + size : at + 8 + size]
    )[0]  # fmt: skip
    rows = zlib.decompress(data[at + 4 : at + 4 + size])
    return (
        width,
        height,
        b"".join(rows[i * (width + 1) + 1 : (i + 1) * (width + 1)] for i in range(height)),
    )


def test_notebooks_show_facts_and_a_picture() -> None:
    x = tn.arange(80.0).reshape(8, 10)
    text = x._repr_html_()
    for fact in ("8×10", "float32", "cpu", "min 0", "max 79", "mean 39.5", "std 23.09", "<pre>"):
        assert fact in text
    width, height, grey = pixels_of(text)
    assert (width, height) == (10, 8)
    assert list(grey) == [round(i / 79 * 255) for i in range(80)]


def test_notebooks_show_any_tensor() -> None:
    nan = tn.tensor([1.0, tn.nan], requires_grad=True)._repr_html_()
    assert "1 not finite" in nan
    assert "requires grad" in nan
    others = [tn.tensor(1), tn.zeros(0), tn.zeros(9, 9).to(tn.complex64), tn.ones(2) > 0]
    others += [tn.zeros(9, 9, device="meta"), tn.eye(9).to_sparse(), tn.zeros(3, 9, 400)]
    for x in others:
        assert x._repr_html_().startswith("<div>")


def test_a_model_has_a_summary() -> None:
    net = tn.nn.Sequential(tn.nn.Linear(3, 4), tn.nn.Dropout(), tn.nn.Linear(4, 2, bias=False))
    net[2].weight.requires_grad_(False)
    lines = net.summary(tn.zeros(5, 3)).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["(itself)", "0", "1", "2"]
    assert "[5, 4]" in lines[2]
    assert lines[2].endswith("16")
    assert "[5, 2]" in lines[1]
    assert lines[-1] == "24 parameters, 16 of them trained, 96 bytes"
    assert net.training
    assert net[1].training
    assert not net._forward_hooks
    assert "[5" not in net.summary()


# Base classes and wrappers, whose shapes are those of what they are made into.
WITHOUT_SHAPES = {"Module", "RNNBase", "RNNCellBase", "SyncBatchNorm", "DataParallel"}
UNEXPLAINED = {"args", "kwargs"}
EXAMPLE = {"tn": tn, "nn": tn.nn, "F": tn.nn.functional}


def classes(module: Any, base: type) -> dict[str, type]:
    return {name: value for name, value in public(module)
            if isinstance(value, type) and issubclass(value, base)}  # fmt: skip


LAYERS = classes(tn.nn, tn.nn.Module)
OPTIMIZERS = classes(tn.optim, tn.optim.Optimizer)
SCHEDULES = classes(tn.optim.lr_scheduler, tn.optim.lr_scheduler.LRScheduler)
BASES = {"Module", "Optimizer", "LRScheduler"}


def run_examples(name: str, text: str) -> int:
    """Runs what stands behind >>> in a text; how many lines that are."""
    example = doctest.DocTestParser().get_doctest(text, dict(EXAMPLE), name, None, None)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert not said, "".join(said)
    return len(example.examples)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*LAYERS, *OPTIMIZERS, *SCHEDULES} - BASES))
def test_help_of_a_class_has_arguments_shapes_and_an_example(name: str) -> None:
    cls = {**SCHEDULES, **OPTIMIZERS, **LAYERS}[name]
    text = cls.__doc__ or ""
    if name in WITHOUT_SHAPES:
        return
    for parameter in inspect.signature(cls).parameters:
        if not parameter.startswith("_") and parameter not in UNEXPLAINED:
            assert f"    {parameter}: " in text
    assert "Shapes: " in text or name not in LAYERS
    assert "Step: " in text or name not in OPTIMIZERS
    assert run_examples(name, text) > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ["ops", "nn"])
def test_examples_of_operators_run(where: str) -> None:
    """They come from the table, and so do the facts beside them."""
    module = getattr(tn._C, f"_{where}")
    home = tn if where == "ops" else tn.nn.functional
    names = [n for n in dir(module) if not n.startswith("_") and getattr(home, n, None)]
    ran = 0
    for name in names:
        text = getattr(module, name).__doc__
        assert "\nArguments:\n" in text or "()" in text.splitlines()[0], name
        assert "\nDtypes: " in text, name
        if getattr(home, name) in (getattr(module, name), getattr(tn._C._ops, name, None)):
            ran += run_examples(name, text) > 0
    assert ran > (500 if where == "ops" else 30)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ["nn.functional", ""])
def test_examples_of_functions_run(where: str) -> None:
    module = importlib.import_module(f"tenon.{where}" if where else "tenon")
    functions = {name: value for name, value in public(module) if inspect.isfunction(value)
                 and value.__module__ != "tenon.nn._reduction" and name[-1] != "_"}  # fmt: skip
    without = [n for n, f in functions.items() if not run_examples(n, f.__doc__ or "")]
    # Of the package's own, those that set or tell something have none.
    assert len(without) <= (0 if where else len(functions) - 30)


def test_help_of_linear_is_for_beginners() -> None:
    text = pydoc.render_doc(tn.nn.Linear, renderer=pydoc.plaintext)
    facts = ("in_features: size of the last dimension", "(*, out_features)", "RuntimeError")
    for fact in (*facts, ">>> nn.Linear(20, 30)", "bias: has an additive parameter (True unless"):
        assert fact in text
    assert "Arguments:" not in (type("Own", (tn.nn.Linear,), {}).__doc__ or "")
