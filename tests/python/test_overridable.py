"""Functions of Python show themselves to classes with __torch_function__, not their parts."""

from __future__ import annotations

import inspect

import pytest
import tenon as tn
import tenon.nn.functional as F
from tenon._tape.overridable import make_overridable


class Duck:
    """No tensor, and takes every call."""

    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append((func, types, args, kwargs))
        return 17


class Logged(tn.Tensor):
    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Raising(tn.overrides.TorchFunctionMode):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise self.error("of the mode")


def functions():
    for place in (tn.linalg, F, tn):
        for name in dir(place):
            f = getattr(place, name)
            if not name.startswith("_") and hasattr(f, "__wrapped__"):
                if getattr(f, "__code__", None) is F.normalize.__code__:
                    yield pytest.param(f, id=f"{place.__name__}.{name}")


@pytest.mark.parametrize("f", list(functions()))
def test_every_function_asks(f):
    required = [
        p.kind is p.VAR_POSITIONAL or Duck()
        for p in inspect.signature(f).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    args = [Duck() if a is True else a for a in required] or [Duck()]
    Duck.seen.clear()
    assert f(*args) == 17
    func, types, given, kwargs = Duck.seen[0]
    assert func is f and types == (Duck,) and list(given) == args and kwargs == {}


def test_there_are_many():
    assert len(list(functions())) > 120


def test_lists_and_keywords():
    Duck.seen.clear()
    one = Duck()
    assert tn.linalg.multi_dot([tn.ones(2, 2), one]) == 17
    assert tn.linalg.norm(tn.ones(2), dtype=one) == 17
    assert [s[0] for s in Duck.seen] == [tn.linalg.multi_dot, tn.linalg.norm]
    assert Duck.seen[1][3] == {"dtype": one}


def test_subclasses_of_tensors():
    x = tn.eye(2).as_subclass(Logged)
    Logged.seen.clear()
    y = tn.linalg.solve(x, tn.ones(2))
    assert Logged.seen == [tn.linalg.solve] and type(y) is Logged and y.tolist() == [1, 1]
    with tn._C.DisableTorchFunctionSubclass():
        assert type(tn.linalg.solve(x, tn.ones(2))) is tn.Tensor
    plain = tn.eye(2).as_subclass(type("Quiet", (tn.Tensor,), {}))
    assert type(tn.linalg.solve(plain, tn.ones(2))) is type(plain)


@pytest.mark.parametrize("error", [AttributeError, IndexError, RuntimeError, ValueError])
def test_errors_of_a_class_are_its_own(error):
    """Where a function of the package would speak of its argument's type."""

    class Failing:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise error("of the class")

    for call in (lambda: F.normalize(Failing()), lambda: F.pad(input=Failing(), pad=[1, 1])):
        with pytest.raises(error, match="of the class"):
            call()
    with pytest.raises(error, match="of the mode"), Raising(error):
        F.normalize("text")
    with pytest.raises(TypeError, match=r"normalize\(\): argument 'input'"):
        F.normalize("text")


def test_what_a_module_makes_overridable():
    space = {"__name__": __name__, "functions": functions, "Duck": Duck, "_source": functions}
    make_overridable(space, ("nothing",))
    assert space["functions"] is not functions and space["_source"] is functions
    assert space["functions"].__wrapped__ is functions and space["Duck"] is Duck
    space = {"__name__": "elsewhere", "functions": functions}
    make_overridable(space)
    assert space["functions"] is functions
    space = {"__name__": __name__, "functions": functions}
    make_overridable(space, ("functions",))
    assert space["functions"] is functions


def test_names_of_one_function():
    for name in ("conv2d", "conv_transpose1d", "pdist", "hardshrink"):
        assert getattr(F, name) is getattr(tn, name)
    Duck.seen.clear()
    assert F.layer_norm(Duck(), [1]) == 17 and Duck.seen[0][0] is F.layer_norm


def test_functions_called_often_are_shown_themselves_too():
    """As in PyTorch, whose places of the arguments these are."""
    seen = []

    class Watching(tn.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func, len(args), sorted(kwargs or ())))
            with tn._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    x, F = tn.randn(2, 3).as_subclass(Watching), tn.nn.functional
    weight = tn.randn(4, 2).as_subclass(Watching)
    how = ["max_norm", "norm_type", "padding_idx", "scale_grad_by_freq", "sparse"]
    for call, want in (
        (lambda: F.softmax(x, -1), (F.softmax, 1, ["_stacklevel", "dim", "dtype"])),
        (lambda: F.log_softmax(x, dim=1), (F.log_softmax, 1, ["_stacklevel", "dim", "dtype"])),
        (lambda: F.dropout(x, 0.5, False), (F.dropout, 1, ["inplace", "p", "training"])),
        (lambda: F.embedding(tn.tensor([1]), weight), (F.embedding, 2, how)),
    ):
        seen.clear()
        call()
        assert seen == [want]
    layers = tn.nn.Embedding(4, 2), tn.nn.Dropout(), tn.nn.Softmax(-1)
    del layers[0].weight
    layers[0].weight = weight
    for layer, want in zip(layers, (F.embedding, F.dropout, F.softmax), strict=True):
        seen.clear()
        layer(tn.tensor([1]) if want is F.embedding else x)
        assert [s[0] for s in seen] == [want]


def test_modes_see_functions_that_are_called_often():
    seen = []

    class Mode(tn.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    nn, at, x = tn.nn, tn.tensor([1]), tn.randn(2, 3)
    for layer, want in (
        (nn.Embedding(4, 2), F.embedding),
        (nn.Dropout(), F.dropout),
        (nn.Softmax(-1), F.softmax),
        (nn.LogSoftmax(-1), F.log_softmax),
    ):
        seen.clear()
        with Mode():
            y = layer(at if want is F.embedding else x)
        assert seen == [want] and type(y) is tn.Tensor
