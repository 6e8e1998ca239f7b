"""compile: what a call can see beside operators is what it sees on later calls, too."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon._torch import _dynamo as dynamo

ROWS: list[int] = []
NAMES: set[int] = set()
TABLE: dict[int, int] = {}
NAME = "grad"
Made = Callable[[Any], Any]
HOW = [
    pytest.param(lambda fn: tn.compile(fn), id="default"),
    pytest.param(lambda fn: tn.compile(fn, dynamic=True), id="dynamic"),
    pytest.param(lambda fn: tn.compile(fn, backend=lambda gm, inputs: gm), id="backend"),
]


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    for held in (ROWS, NAMES, TABLE):
        held.clear()  # type: ignore[attr-defined]
    yield


@pytest.mark.parametrize("how", HOW)
def test_lists_that_grow_without_a_call(how: Made) -> None:
    def local(x: tn.Tensor) -> tn.Tensor:
        rows = ROWS
        rows += [1]
        return x * 2

    def inner(held: Any, more: Any) -> None:
        held |= more

    def passed(x: tn.Tensor) -> tn.Tensor:
        inner(NAMES, {len(NAMES)})
        inner(TABLE, {len(TABLE): 1})
        return x * 2

    fast, other = how(local), how(passed)
    for i in range(4):
        assert fast(tn.ones(2)).tolist() == other(tn.ones(2)).tolist() == [2.0, 2.0]
        assert len(ROWS) == len(NAMES) == len(TABLE) == i + 1


@pytest.mark.parametrize("how", HOW)
def test_an_argument_that_grows(how: Made) -> None:
    def fn(x: tn.Tensor, out: list[float]) -> tn.Tensor:
        out += [2.0]
        return x * 2

    fast, same = how(fn), [0.0]
    for i in range(3):
        fresh: list[float] = []
        fast(tn.ones(2), fresh)
        fast(tn.ones(2), same)
        assert fresh == [2.0] and len(same) == i + 2


def test_additions_to_tensors_and_own_lists_stay_graphs() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            rows = []
            y = self.inner(x)
            y += x
            rows += [y, x]
            return sum(rows)

    fast = tn.compile(Block())
    for _ in range(3):
        fast(tn.ones(2, 3))
    assert len(fast._ways) == 1


@pytest.mark.parametrize("how", HOW)
def test_which_tensor_it_is(how: Made) -> None:
    own, others = tn.ones(2), [tn.ones(2)]

    def by_number(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if id(x) in NAMES else x * 3

    def by_name(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if x is own or any(x is o for o in others) else x * 3

    NAMES.add(id(own))
    fast, named = how(by_number), how(by_name)
    for _ in range(3):
        for x in (tn.ones(2), own, others[0], tn.zeros(2) + 1):
            assert tn.equal(fast(x), by_number(x)) and tn.equal(named(x), by_name(x))


@pytest.mark.parametrize("how", HOW)
def test_gradients_under_a_computed_name(how: Made) -> None:
    x = tn.ones(2, requires_grad=True)

    def fn(x: tn.Tensor) -> tn.Tensor:
        g = getattr(x, NAME)
        return x * 2 if g is None else x * 3 + g

    fast = how(fn)
    assert fast(x).tolist() == fast(x).tolist() == [2.0, 2.0]
    x.sum().backward()
    assert fast(x).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("name", ["_base", "output_nr", "retains_grad", "_version", "grad_fn"])
@pytest.mark.parametrize("how", HOW)
def test_facts_that_guards_do_not_compare(how: Made, name: str) -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        held = getattr(x, name)
        return x * 2 if isinstance(held, tn.Tensor) or held else x * 3

    fast = how(fn)
    leaf = tn.ones(2, requires_grad=True)
    kept = leaf * 1
    kept.retain_grad()
    written = tn.ones(2)
    written.add_(0)
    for x in (tn.ones(2), tn.ones(4)[:2], tn.stack([leaf, leaf]).unbind()[1], leaf * 1, kept,
              leaf, written, tn.ones(2)):  # fmt: skip
        assert tn.equal(fast(x), fn(x)), (name, x)


@pytest.mark.parametrize("how", HOW)
def test_attributes_of_tensors(how: Made) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.inner(x) * getattr(x, "k", 1) * getattr(self.inner.weight, "gain", 1)

    m = Scaled()
    fast = how(m)
    for k, gain in ((0, 0), (0, 0), (3, 0), (3, 2), (4, 2), (0, 2), (0, 5), (0, 0)):
        x = tn.ones(1, 2)
        if k:
            x.k = k
        if gain:
            m.inner.weight.gain = gain
        elif hasattr(m.inner.weight, "gain"):
            del m.inner.weight.gain
        for _ in range(2):
            assert tn.equal(fast(x), m(x))


@pytest.mark.parametrize("how", HOW)
def test_settings_that_are_read(how: Made) -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        if tn.are_deterministic_algorithms_enabled():
            return x * 2
        return x * (3 if tn.is_anomaly_enabled() else 4)

    fast = how(fn)
    for _ in range(2):
        assert fast(tn.ones(1)).item() == 4
        with tn.autograd.set_detect_anomaly(True):
            assert fast(tn.ones(1)).item() == 3
        tn.use_deterministic_algorithms(True)
        try:
            assert fast(tn.ones(1)).item() == 2
        finally:
            tn.use_deterministic_algorithms(False)


@pytest.mark.parametrize("how", HOW)
def test_a_generator_of_the_functions_own(how: Made) -> None:
    own = tn.Generator().manual_seed(5)

    def fn(x: tn.Tensor) -> tn.Tensor:
        return x + tn.rand(3, generator=own)

    wanted = []
    for call in (fn, how(fn)):
        own.manual_seed(5)
        wanted.append([call(tn.zeros(3)).tolist() for _ in range(3)])
        assert wanted[0] == wanted[-1]


def test_a_graph_that_ends_is_an_error_with_a_backend() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    fast = tn.compile(fn, fullgraph=True, backend=lambda gm, inputs: gm)
    for _ in range(2):
        with pytest.raises(dynamo.exc.Unsupported, match="test_compile_seen"):
            fast(tn.ones(2))
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    mask = tn.tensor([[False, True, True]])
    whole = tn.compile(layer, fullgraph=True)
    x = tn.ones(1, 3, 4)
    wanted = layer(x, src_key_padding_mask=mask)
    assert tn.equal(whole(x, src_key_padding_mask=mask), wanted)


@pytest.mark.parametrize("how", HOW)
def test_errors_that_are_caught(how: Made) -> None:
    """Which operators failed is seen nowhere among those that ran."""

    def square(x: tn.Tensor) -> tn.Tensor:
        try:
            return x @ x
        except RuntimeError:
            return x * 2

    def steady(x: tn.Tensor) -> tn.Tensor:
        try:
            return tn.linalg.cholesky(x)
        except RuntimeError:
            return x + 5

    fast, other = how(square), how(steady)
    for shape in ((3, 4), (4, 4), (3, 4), (3, 3), (5, 6)):
        x = tn.arange(shape[0] * shape[1]).reshape(shape).float()
        assert tn.equal(fast(x), square(x))
    for by in (-1, 1, -1, 2, 1):
        x = tn.eye(3) * by
        assert tn.equal(other(x), steady(x))


@pytest.mark.parametrize("how", HOW)
def test_modes_of_a_call_that_ends_in_the_middle(how: Made) -> None:
    """Other sizes are tried with the function, which may not take them."""
    weight = tn.ones(3, 4, requires_grad=True)

    def fn(x: tn.Tensor) -> tn.Tensor:
        tn.set_grad_enabled(False)
        y = x + weight
        tn.set_grad_enabled(True)
        return y * weight

    fast = how(fn)
    for _ in range(3):
        assert fast(tn.ones(3, 4)).requires_grad and tn.is_grad_enabled()


@pytest.mark.parametrize("how", HOW)
def test_names_that_are_not_there_yet(how: Made) -> None:
    """Those of builtins, too, which a module may define at any time."""
    space = globals()

    def fn(x: tn.Tensor) -> tn.Tensor:
        try:
            return x * COMES_LATER * len([1, 2])  # type: ignore[name-defined]  # noqa: F821
        except NameError:
            return x

    fast = how(fn)
    try:
        for name, value in (("nothing", 0), ("COMES_LATER", 3), ("len", lambda v: 9)):
            space[name] = value
            assert [fast(tn.ones(1)).item() for _ in range(3)] == [fn(tn.ones(1)).item()] * 3
        del space["COMES_LATER"]
        assert fast(tn.ones(1)).item() == 1
    finally:
        for name in ("nothing", "COMES_LATER", "len"):
            space.pop(name, None)
    assert fast(tn.ones(1)).item() == 1


@pytest.mark.parametrize("how", HOW)
def test_tensors_that_are_cut_off_in_place(how: Made) -> None:
    fast = how(lambda x: (x * 2).detach_())
    x = tn.ones(2, requires_grad=True)
    assert not any(fast(x).requires_grad for _ in range(3))


@pytest.mark.parametrize("how", HOW)
def test_names_of_modules_that_functions_hold(how: Made) -> None:
    module = types.ModuleType("settings")
    module.by = 2.0  # type: ignore[attr-defined]
    fast = how(lambda x: x * module.by)
    assert [fast(tn.ones(1)).item() for _ in range(3)] == [2.0] * 3
    module.by = 5.0  # type: ignore[attr-defined]
    assert fast(tn.ones(1)).item() == 5.0


def test_what_stands_for_a_function_is_like_one() -> None:
    class Scale:
        by = 3.0

        @tn.compile
        def run(self, x: tn.Tensor) -> tn.Tensor:
            """Scales."""
            return x * self.by

    def inner(x: tn.Tensor, k: float = 2.0) -> tn.Tensor:
        return x * k

    made = Scale()
    assert made.run(tn.ones(1)).item() == made.run(tn.ones(1)).item() == 3
    made.by = 4.0
    assert made.run(tn.ones(1)).item() == 4 and Scale.run(made, tn.ones(1)).item() == 4
    assert (Scale.run.__doc__, Scale.run.__name__) == ("Scales.", "run")
    fast = tn.compile(inner)
    outer = tn.compile(lambda x: fast(x) + 1)
    for _ in range(3):
        assert fast(tn.ones(1), k=3.0).item() == 3 and outer(tn.ones(1)).item() == 3
    inner.__defaults__ = (5.0,)
    assert fast(tn.ones(1)).item() == 5 and outer(tn.ones(1)).item() == 6
    assert str(inspect.signature(fast)) == str(inspect.signature(inner))
    assert copy.deepcopy(fast) is fast and weakref.ref(fast)() is fast
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top  # noqa: S301
    gone = weakref.ref(tn.compile(lambda x: x))
    gc.collect()
    assert gone() is None


@tn.compile
def at_the_top(x: tn.Tensor) -> tn.Tensor:
    return x + 1
