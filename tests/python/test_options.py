"""Modules whose constructor is made of their annotations."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.nn.modules._options import options


@options
class Scaled(nn.Module):
    factor: float
    mode: str = "plain"
    inplace: bool = False

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.factor


class Doubled(Scaled):
    def __init__(self, mode: str) -> None:
        super().__init__(2.0, mode)


def test_a_constructor_follows_from_annotations() -> None:
    assert str(inspect.signature(Scaled)) == (
        "(factor: 'float', mode: 'str' = 'plain', inplace: 'bool' = False) -> 'None'"
    )
    assert Scaled.__constants__ == ["factor", "mode", "inplace"]
    assert Scaled.__init__.__qualname__ == "Scaled.__init__"
    module = Scaled(3.0, "other")
    assert (module.factor, module.mode, module.inplace, module.training) == (
        3,
        "other",
        False,
        True,
    )
    assert not hasattr(Scaled, "mode")
    assert module(tn.ones(1)).item() == 3.0
    assert repr(module) == "Scaled(factor=3.0, mode='other')"
    assert repr(Scaled(1.0, inplace=True)) == "Scaled(factor=1.0, mode='plain', inplace=True)"


@pytest.mark.parametrize(("args", "kwargs", "message"), [
    ((), {}, "missing 1 required positional argument: 'factor'"),
    ((1.0, "a", False, 4), {}, "takes from 2 to 4 positional arguments but 5 were given"),
    ((1.0,), {"size": 3}, "unexpected keyword argument 'size'"),
])  # fmt: skip
def test_wrong_arguments_are_told_as_python_does(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"Scaled.__init__.*{message}"):
        Scaled(*args, **kwargs)


def test_subclasses_copies_and_pickles() -> None:
    module = Doubled("of a subclass")
    assert (module.factor, module.mode) == (2.0, "of a subclass")
    assert repr(module) == "Doubled(factor=2.0, mode='of a subclass')"
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(other) == repr(module)
        assert vars(other).keys() == vars(module).keys()


def test_what_a_class_says_itself_stays() -> None:
    assert nn.LeakyReLU.__constants__ == ["inplace", "negative_slope"]
    assert repr(nn.LeakyReLU(0.2, True)) == "LeakyReLU(negative_slope=0.2, inplace=True)"
    assert repr(nn.Hardshrink()) == "Hardshrink(0.5)"
    assert repr(nn.AdaptiveMaxPool2d(3, True)) == "AdaptiveMaxPool2d(output_size=3)"
    assert repr(nn.GELU("tanh")) == "GELU(approximate='tanh')"
