"""Common mistakes: the class of the exception, which is PyTorch's, and words that its text has."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import tenon as tn

MISTAKES: list[tuple[str, type[Exception], list[str]]] = [
    # losses and classes
    ("F.cross_entropy(t.zeros(3, 5), t.zeros(3))", RuntimeError, ["Long", "Float"]),
    ("F.cross_entropy(t.zeros(3, 5), t.zeros(3, dtype=t.int32))", RuntimeError, ["Long", "Int"]),
    ("F.cross_entropy(t.zeros(3, 5), t.tensor([0, 1, 9]))", IndexError, ["9", "out of bounds"]),
    ("F.cross_entropy(t.zeros(3, 5), t.tensor([0, 1]))", ValueError, ["(3)", "(2)"]),
    ("F.binary_cross_entropy(t.tensor([1.5]), t.ones(1))", RuntimeError, ["between 0 and 1"]),
    ("F.binary_cross_entropy(t.ones(2), t.ones(1))", ValueError, ["target size", "input size"]),
    ("nn.BCEWithLogitsLoss()(t.zeros(3, 1), t.zeros(3))", ValueError, ["same", "[3, 1]"]),
    ("F.one_hot(t.tensor([5]), 3)", RuntimeError, ["smaller than num_classes"]),
    # words
    ("t.softmax(t.zeros(3), dims=0)", TypeError, ["softmax()", "dim"]),
    ("t.relu()", TypeError, ["relu()", "missing", "input"]),
    ("t.relu(t.zeros(2), 3, 4)", TypeError, ["relu()", "3"]),
    ("t.relu([1.0])", TypeError, ["input", "Tensor", "list"]),
    ("t.linalg.solve(t.eye(2), 3)", TypeError, ["solve()", "'B' (position 2)", "Tensor", "int"]),
    ("t.linalg.pinv(None)", TypeError, ["'input' (position 1)", "Tensor", "NoneType"]),
    ("F.interpolate([1.0], 2)", TypeError, ["interpolate()", "'input'", "Tensor", "list"]),
    ("t.chain_matmul(t.eye(2), 'a')", TypeError, ["'matrices' (position 2)", "Tensor", "str"]),
    ("t.linalg.pinv(t.eye(2), out=3)", TypeError, ["'out' must be Tensor", "int"]),
    ("F.binary_cross_entropy(t.ones(2), t.ones(2), 1)", TypeError, ["'weight' (position 3)"]),
    ("t.full((2, 2))", TypeError, ["fill_value"]),
    ("t.linspace(0, 1)", TypeError, ["linspace()", "int steps"]),
    ("nn.Linear(3)", TypeError, ["out_features"]),
    ("nn.Linear(3, 4, biass=False)", TypeError, ["biass"]),
    ("t.ones(3, dtype='float32')", TypeError, ["dtype", "str"]),
    ("t.zeros(3, device='cdua')", RuntimeError, ["cdua"]),
    ("t.device('cpu:x')", RuntimeError, ["cpu:x"]),
    # shapes
    ("nn.Linear(3, 4)(t.zeros(2, 5))", RuntimeError, ["2x5", "3x4"]),
    ("nn.Conv2d(3, 4, 3)(t.zeros(2, 5, 8, 8))", RuntimeError, ["[4, 3, 3, 3]", "5 channels"]),
    ("nn.Conv2d(3, 4, 3)(t.zeros(8, 8))", RuntimeError, ["conv2d", "3D", "4D"]),
    ("nn.Conv2d(3, 4, 9)(t.zeros(1, 3, 4, 4))", RuntimeError, ["Kernel size"]),
    ("t.zeros(2, 3) @ t.zeros(4, 5)", RuntimeError, ["2x3", "4x5"]),
    ("t.bmm(t.zeros(2, 3, 4), t.zeros(3, 4, 5))", RuntimeError, ["[2, 4]", "[3, 4]"]),
    ("t.cat([t.zeros(2, 3), t.zeros(2, 4)])", RuntimeError, ["dimension 0", "3", "4"]),
    ("t.stack([t.zeros(2), t.zeros(3)])", RuntimeError, ["[2]", "[3]"]),
    ("t.zeros(3) + t.zeros(4)", RuntimeError, ["(3)", "(4)", "dimension 0"]),
    ("t.zeros(2, 3).t().view(6)", RuntimeError, ["reshape"]),
    ("t.zeros(2, 3).reshape(4, 2)", RuntimeError, ["[4, 2]", "size 6"]),
    ("t.zeros(2, 3).view(-1, -1)", RuntimeError, ["one dimension"]),
    ("t.zeros(2, 3).expand(2, 4)", RuntimeError, ["4", "3", "dimension 1"]),
    ("t.zeros(3).softmax(1)", IndexError, ["[-1, 0]", "1"]),
    ("t.zeros(2, 3).transpose(0, 5)", IndexError, ["[-2, 1]", "5"]),
    ("t.split(t.zeros(3), [1, 1])", RuntimeError, ["3", "[1, 1]"]),
    ("t.zeros(3).topk(5)", RuntimeError, ["k"]),
    ("t.tensor([[1, 2], [3]])", ValueError, ["length 2", "1"]),
    ("nn.BatchNorm2d(3)(t.zeros(2, 3))", ValueError, ["4D", "2D"]),
    ("nn.BatchNorm1d(3)(t.zeros(1, 3))", ValueError, ["more than 1 value"]),
    ("nn.LayerNorm(4)(t.zeros(2, 3))", RuntimeError, ["[4]", "[2, 3]"]),
    ("nn.LSTM(3, 4)(t.zeros(2, 2, 5))", RuntimeError, ["3", "5"]),
    # dtypes
    ("t.zeros(2, 3) @ t.zeros(3, 4).double()", RuntimeError, ["same dtype"]),
    ("nn.Linear(3, 4)(t.zeros(2, 3).double())", RuntimeError, ["same dtype"]),
    ("nn.Linear(3, 4)(t.zeros(2, 3).long())", RuntimeError, ["same dtype"]),
    ("t.ones(3).long().mean()", RuntimeError, ["floating point", "Long"]),
    ("t.ones(3).long().requires_grad_()", RuntimeError, ["floating point"]),
    ("nn.Embedding(3, 4)(t.ones(1))", RuntimeError, ["indices", "Long", "Float"]),
    # indices
    ("t.arange(3)[5]", IndexError, ["5", "size 3"]),
    ("t.zeros(3, 4)[:, 7]", IndexError, ["7", "dimension 1", "size 4"]),
    ("t.arange(3)[t.tensor([4])]", IndexError, ["4", "size 3"]),
    ("t.zeros(2)[0, 0]", IndexError, ["too many indices", "1"]),
    ("t.zeros(3).gather(0, t.tensor([7]))", RuntimeError, ["7", "size 3"]),
    ("nn.Embedding(3, 4)(t.tensor([3]))", IndexError, ["out of range"]),
    ("t.zeros(3)[1.5]", IndexError, ["integers, slices", "float"]),
    ("t.zeros(3)[{}]", IndexError, ["integers, slices", "dict"]),
    ("t.zeros(3)['a']", TypeError, ["str"]),
    # data
    ("t.tensor(None)", RuntimeError, ["Could not infer dtype", "NoneType"]),
    ("t.tensor([1, {}])", RuntimeError, ["Could not infer dtype", "dict"]),
    ("t.tensor('a')", TypeError, ["invalid data type 'str'"]),
    ("t.tensor([1, 'a'])", TypeError, ["invalid data type 'str'"]),
    ("t.tensor(['a'])", ValueError, ["too many dimensions 'str'"]),
    ("t.tensor([[1], 2])", TypeError, ["not a sequence"]),
    ("t.ones(2) + 'a'", TypeError, ["'Tensor' and 'str'"]),
    ("t.ones(2).no_such_name", AttributeError, ["'Tensor' object has no attribute"]),
    # gradients
    ("t.ones(3, requires_grad=True).add_(1)", RuntimeError, ["leaf", "in-place"]),
    ("backward_twice(t)", RuntimeError, ["second time", "retain_graph"]),
    ("t.ones(3).sum().backward()", RuntimeError, ["does not require grad"]),
    ("(t.ones(3, requires_grad=True) * 2).backward()", RuntimeError, ["scalar"]),
    ("t.ones(3, requires_grad=True).numpy()", RuntimeError, ["detach()"]),
    ("anomaly(t)", RuntimeError, ["nan", "Sqrt"]),
    ("t.zeros(3).item()", RuntimeError, ["3 elements"]),
    ("bool(t.zeros(3))", RuntimeError, ["ambiguous"]),
    # training
    ("load(t, weight=t.zeros(4, 3))", RuntimeError, ["Missing key", "bias"]),
    ("load(t, weight=t.zeros(3, 4), bias=t.zeros(4))", RuntimeError,
     ["size mismatch for weight", "[3, 4]", "[4, 3]"]),
    ("load(t, weight=t.zeros(4, 3), bias=t.zeros(4), x=t.zeros(1))", RuntimeError,
     ["Unexpected key", '"x"']),
    ("t.optim.SGD([], lr=0.1)", ValueError, ["empty parameter list"]),
    ("t.optim.SGD(nn.Linear(2, 2).parameters(), lr=-1)", ValueError, ["learning rate", "-1"]),
    ("t.optim.SGD(t.ones(2), lr=0.1)", TypeError, ["iterable"]),
    ("list(t.utils.data.DataLoader([t.zeros(2), t.zeros(3)], batch_size=2))", RuntimeError,
     ["[2]", "[3]"]),
    ("list(t.utils.data.DataLoader([object(), object()], batch_size=2))", TypeError, ["object"]),
    ("nn.Dropout(2)", ValueError, ["between 0 and 1", "2"]),
    ("nn.Module()(1)", NotImplementedError, ["forward"]),
]  # fmt: skip


def backward_twice(t: Any) -> None:
    y = (t.ones(3, requires_grad=True) ** 2).sum()
    y.backward()
    y.backward()


def anomaly(t: Any) -> None:
    with t.autograd.detect_anomaly(check_nan=True):
        (t.zeros(1, requires_grad=True) * 0).sqrt().mul(0).sum().backward()


def load(t: Any, **state: Any) -> None:
    t.nn.Linear(3, 4).load_state_dict(state)


def make(t: ModuleType, code: str) -> Exception:
    names = {"t": t, "nn": t.nn, "F": t.nn.functional, "load": load, "anomaly": anomaly,
             "backward_twice": backward_twice}  # fmt: skip
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is asked
        eval(code, names)
    return caught.value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "kind", "words"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_told(code: str, kind: type[Exception], words: list[str]) -> None:
    err = make(tn, code)
    assert type(err) is kind
    assert not [word for word in words if word.lower() not in str(err).lower()], str(err)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_classes_are_those_of_pytorch() -> None:
    import torch

    differ = [code for code, kind, _ in MISTAKES if type(make(torch, code)) is not kind]
    assert not differ


def test_classes_may_be_bytes() -> None:
    x = tn.randn(3, 5, requires_grad=True)
    classes = tn.tensor([0, 4, 2])
    for loss in (tn.nn.functional.cross_entropy, tn.nn.functional.nll_loss):
        ours = loss(x, classes.to(tn.uint8))
        want = loss(x, classes)
        assert ours.item() == want.item()
        assert tn.equal(*(tn.autograd.grad(y, x)[0] for y in (ours, want)))


@pytest.mark.parametrize(("code", "meant"), [
    ("tn.softma", "softmax"), ("tn.nn.Linaer", "Linear"), ("tn.zeros(1).softma", "softmax"),
    ("tn.nn.functional.soft_max", "softmax"), ("tn.nn.Linear(1, 1).weigth", "weight"),
])  # fmt: skip
def test_a_misspelt_name_is_put_right(
    code: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AttributeError) as caught:
        eval(code)
    sys.__excepthook__(type(caught.value), caught.value, None)
    assert f"Did you mean: '{meant}'?" in capsys.readouterr().err


def test_a_wrong_shape_names_the_module() -> None:
    block = tn.nn.Sequential(tn.nn.ReLU(), tn.nn.Linear(5, 6))
    net = tn.nn.ModuleDict({"head": block})
    net.forward = lambda x: net["head"](x)
    with pytest.raises(RuntimeError, match="2x4 and 5x6") as caught:
        net(tn.zeros(2, 4))
    note = caught.value.__notes__[-1]
    assert note.startswith("in module head.1, Linear(in_features=5, out_features=6")
    assert note.endswith("of ModuleDict")


def test_of_a_long_list_the_error_shows_the_first() -> None:
    with pytest.raises(RuntimeError) as caught:
        tn.cat([tn.ones(2, 3)] * 9 + [tn.ones(3)])
    shown = ", ".join(["tensors: float32[2, 3]"] * 8)
    assert caught.value.detail == shown and caught.value.__notes__ == [f"in cat({shown})"]


@pytest.mark.parametrize(("words", "told"), [
    ("op softma", "softmax"), ("explain softma", "softmax"), ("coverage cdua", "cdua"),
    ("op softmax --device cdua", "cdua"), ("explain softmax --dtype flat32", "flat32"),
    ("graph /nonexistent.tng", "graph"), ("run /nonexistent.py", "/nonexistent.py"),
])  # fmt: skip
def test_commands_show_no_traceback(words: str, told: str) -> None:
    command = [sys.executable, "-m", "tenon", *words.split()]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert out.returncode != 0
    assert told in out.stderr
    assert "Traceback" not in out.stderr
