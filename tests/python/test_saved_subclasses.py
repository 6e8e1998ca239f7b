"""Checkpoints keep the subclass of a tensor, its attributes and its own reduction."""

from __future__ import annotations

import io
import pickle

import pytest
import tenon
import tenon.io.errors
from tenon import nn


class Plain(tenon.Tensor):
    pass


class Unit(tenon.Tensor):
    """A class with an argument of its own, which pickles itself."""

    def __new__(cls, data, unit):
        made = tenon.Tensor._make_subclass(cls, data, False)
        made.unit = unit
        return made

    def __init__(self, data, unit):
        pass

    def __reduce_ex__(self, protocol):
        build, args = super().__reduce_ex__(protocol)
        return _unit, (build, args, self.unit)


class UnitParameter(Unit, nn.Parameter):
    """The same, of parameters."""


def _unit(build, args, unit):
    return Unit(build(*args), unit)


def saved(value, **options):
    file = io.BytesIO()
    tenon.save(value, file)
    file.seek(0)
    return tenon.load(file, weights_only=False, **options), file


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: {"a": [t]}])
def test_a_class_of_its_own(wrap):
    t = Unit(tenon.arange(6.0).view(2, 3).t(), "m")
    found, _ = saved(wrap(t))
    found = found["a"][0] if isinstance(found, dict) else found
    assert type(found) is Unit and found.unit == "m" and found.stride() == (1, 3)
    assert found.tolist() == t.tolist()


def test_a_class_without_a_way_of_its_own():
    t = Plain(tenon.arange(4.0))
    t.note = [1, "two"]
    t.requires_grad_()
    found, file = saved(t)
    assert type(found) is Plain and found.note == [1, "two"] and found.requires_grad
    file.seek(0)
    with pytest.raises(tenon.io.errors.UnsafeContentError):  # a class of a program is no plain data
        tenon.load(file)


def test_parameters():
    t = UnitParameter(tenon.ones(2), "s")
    found, _ = saved([t])
    assert isinstance(found[0], Unit) and found[0].unit == "s"
    layer = nn.Linear(2, 2)
    again, _ = saved(layer)
    assert type(again.weight) is nn.Parameter and tenon.equal(again.weight, layer.weight)


def test_attributes_and_shared_memory():
    base = tenon.arange(8.0)
    one, two = Plain(base[2:]), base[:4]
    found, _ = saved([one, two])
    found[1][3] = 50
    assert found[0].tolist() == [2, 50, 4, 5, 6, 7] and type(found[1]) is tenon.Tensor


def test_pytorch_reads_them(tmp_path):
    torch = pytest.importorskip("torch")
    t = tenon.arange(3.0)
    t.note = "seen"
    tenon.save(
        {"t": t, "o": _unit}, tmp_path / "file.pt"
    )  # the function makes the file no plain one
    found = torch.load(tmp_path / "file.pt", weights_only=False)["t"]
    assert found.tolist() == [0, 1, 2] and found.note == "seen"


def test_other_pickles_are_as_they_were():
    t = Unit(tenon.ones(2), "kg")
    file = io.BytesIO()
    with pytest.raises(pickle.PicklingError):
        tenon.save([t, lambda: 0], file)
    found = pickle.loads(pickle.dumps(t))
    assert found.unit == "kg" and found.tolist() == [1, 1]
