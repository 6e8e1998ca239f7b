"""Arguments that change or vanish while they are read."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.vision.transforms


def test_sizes_in_an_array_of_floats_are_refused() -> None:
    for _ in range(50):  # the array's elements are temporary objects
        with pytest.raises(TypeError, match="found element of type float at pos 0"):
            tn.roll(tn.zeros(3), (1, 1), np.ones(2))


def test_a_list_that_shrinks_while_it_is_read() -> None:
    class Shrinks:
        def __index__(self) -> int:
            sizes.clear()
            return 1

    sizes = [Shrinks(), 2, 3]
    with pytest.raises(IndexError):
        tn.zeros(sizes)


def emptying(held: list[Any]) -> Any:
    """A number that empties a list when somebody asks what it is."""

    class Number:
        def emptied(self) -> None:
            held.clear()
            gc.collect()
            self.more = [[object()] for _ in range(100)]  # takes the memory that came free

        def __float__(self) -> float:
            self.emptied()
            return 1.0

        def __index__(self) -> int:
            self.emptied()
            return 1

    return Number()


class Row(list):  # type: ignore[type-arg]
    """A list that comes from no free list, so that its memory is given back when it goes."""


@pytest.mark.parametrize("kind", [list, Row])
@pytest.mark.parametrize("dtype", [None, tn.float32, tn.int64])
def test_a_number_that_empties_its_list(kind: Any, dtype: Any) -> None:
    for _ in range(20):
        held: list[Any] = []
        held += [kind([emptying(held), 1, 2]), kind([1, 2, 3])]
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            tn.tensor(held, dtype=dtype)
        held += [emptying(held), 1, 2]
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            tn.tensor(held, dtype=dtype)


def test_sizes_that_empty_their_list() -> None:
    for call in (tn.ones, tn.ones(3, 3).sum, tn.ones(3, 3).reshape, tn.zeros(3, 3).permute):
        held: list[Any] = []
        held += [emptying(held), 1, 2]
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            call(held)


def test_a_class_that_empties_the_list() -> None:
    """Whether a class overrides functions is asked of its attributes."""
    held: list[Any] = []

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            held.clear()
            return super().__getattribute__(name)

    class Odd(metaclass=Meta):
        pass

    for call in (tn.cat, tn.stack, tn.ones, tn.tensor):
        held[:] = [Odd(), Odd(), tn.ones(2)]
        with pytest.raises((IndexError, RuntimeError, TypeError, ValueError)):
            call(held)


def test_results_in_lists_that_lie() -> None:
    """A list of results is read as it is, whatever its class says that it holds."""

    class Other(list):  # type: ignore[type-arg]
        def __getitem__(self, at: Any) -> Any:
            return tn.zeros(3)

    values, places = tn.zeros(3), tn.zeros(3, dtype=tn.int64)
    tn.sort(tn.tensor([2.0, 3.0, 1.0]), out=Other([values, places]))
    assert (values.tolist(), places.tolist()) == ([1, 2, 3], [2, 0, 1])
    with pytest.raises(TypeError, match="out"):
        tn.sort(tn.rand(3), out=Other([1, 2]))


def test_a_length_that_is_none() -> None:
    class Long(list):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return -1

    assert tn.zeros(2, 3).movedim(Long([0]), Long([1])).shape == (3, 2)
    assert tn.zeros(6).as_strided(Long([2]), Long([3])).stride() == (3,)


# What came out as a SystemError, or as a key alone, and the words that say more.
SAYS_WHY: dict[str, tuple[type[Exception], str]] = {
    "tn.device('cpu')(function=abs)": (TypeError, "no keywords"),
    "tn.optim.SGD([{}])": (KeyError, "needs 'params'"),
    "tn.optim.SGD([tn.ones(1)]).load_state_dict({'state': {}})": (KeyError, "'param_groups'"),
    "tn.optim.SGD([tn.ones(1)]).load_state_dict({'state': {}, 'param_groups': [{}]})": (
        KeyError, "'params'"),
    "tn.nn.utils.spectral_norm(tn.nn.ReLU())": (KeyError, "ReLU has no parameter 'weight'"),
    "tn.export.InterpreterModule(tn.nn.ReLU())": (AssertionError, "Expected a Graph"),
    "tn.set_printoptions(linewidth=iter([]))": (ValueError, "linewidth is a number"),
    "tn.set_printoptions(edgeitems=-1)": (ValueError, "edgeitems is a number"),
    "tn.vision.transforms.Resize(2, -1)": (ValueError, "one of Pillow's"),
}  # fmt: skip


@pytest.mark.parametrize("text", SAYS_WHY)
def test_errors_say_why(text: str) -> None:
    kind, words = SAYS_WHY[text]
    with pytest.raises(kind, match=words):
        eval(text, {"tn": tn})


def test_truth_values_of_numpy() -> None:
    x = tn.ones(2, 3)
    for yes, no in ((np.True_, np.False_), (np.bool_(1), np.bool_(0))):
        assert x.sum(1, keepdim=yes).shape == (2, 1) and x.sum(1, keepdim=no).shape == (2,)
        numbers = tn.arange(3.0)
        assert numbers.sort(descending=yes)[0].tolist() == [2.0, 1.0, 0.0]
        assert numbers.var(0, no).item() == pytest.approx(2 / 3)


def test_no_format_is_the_default_one():
    x = tn.randn(2, 3, 4, 5).contiguous(memory_format=tn.channels_last)
    for call in (
        x.clone, x.float, x.double, x.cpu, x.bool, partial(x.to, tn.float64),
        partial(tn.clone, x), partial(tn.empty_like, x), partial(tn.zeros_like, x),
        partial(tn.rand_like, x), partial(tn.full_like, x, 2.0),
    ):  # fmt: skip
        got = call(memory_format=None)
        assert got.stride() == x.stride() and got.dtype == call().dtype
    assert tn.empty(2, 3, memory_format=None, dtype=None).shape == (2, 3)
    for refused in (x.contiguous, x.is_contiguous):
        with pytest.raises(TypeError, match="memory_format"):
            refused(memory_format=None)
