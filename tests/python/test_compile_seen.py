"""compile: what a call can see beside operators is what it sees on later calls, too."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import inspect
import pickle
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon._program.errors import Unsupported
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


class Holds:
    rows: ClassVar[list[int]] = [0]

    def __init__(self) -> None:
        self.table = {"n": 0}


HELD = Holds()


@tn.no_grad()
def decorated(x: tn.Tensor) -> tn.Tensor:
    return x


def count_in(held: Any, key: Any) -> None:
    held[key] = held[key] + 1


def items_of_names(x: tn.Tensor) -> tn.Tensor:
    COUNTS["n"] = COUNTS["n"] + 1
    return x * 2


def items_of_an_object(x: tn.Tensor) -> tn.Tensor:
    HELD.table["n"] = HELD.table["n"] + 1
    return x * 2


def items_of_a_class(x: tn.Tensor) -> tn.Tensor:
    type(HELD).rows[0] = Holds.rows[0] + 1
    return x * 2


def items_of_a_function(x: tn.Tensor) -> tn.Tensor:
    decorated.seen[0] = decorated.seen[0] + 1  # type: ignore[attr-defined]
    return x * 2


def items_elsewhere(x: tn.Tensor) -> tn.Tensor:
    count_in(COUNTS, "n")
    return x * 2


def items_of_a_default(x: tn.Tensor, rows: list[int] = [0]) -> tn.Tensor:  # noqa: B006
    rows[0] = rows[0] + 1
    return x * rows[0]


class Array(np.ndarray):  # type: ignore[type-arg]
    """Has attributes beside its memory."""


class Queue(deque):  # type: ignore[type-arg]
    """The same of a container of C."""


class Scaled(dict):  # type: ignore[type-arg]
    scale = 0


class Rows(list):  # type: ignore[type-arg]
    scale = 0


ARRAY, MEMORY, QUEUE = np.zeros(1).view(Array), (ctypes.c_int * 1)(), Queue([0])
SCALED, SCALED_ROWS = Scaled(a=1), Rows([1])


@pytest.mark.parametrize("how", HOW)
def test_what_objects_hold_beside_attributes(how: Made) -> None:
    looks = [
        how(lambda x: x * float(ARRAY[0])),
        how(lambda x: x * MEMORY[0]),
        how(lambda x: x * QUEUE[0]),
        how(lambda x: x * SCALED["a"] * SCALED.scale),
        how(lambda x: x * SCALED_ROWS[0] * SCALED_ROWS.scale),
    ]
    for i in range(4):
        ARRAY[0] = MEMORY[0] = QUEUE[0] = SCALED.scale = SCALED_ROWS.scale = i
        for fast in looks:
            assert fast(tn.ones(2)).tolist() == [i, i]


@pytest.mark.parametrize("made", [types.SimpleNamespace(), threading.local()])
def test_what_attributes_alone_tell_stays_a_graph(made: Any) -> None:
    made.scale = 2
    fast = tn.compile(lambda x: x * made.scale, backend=lambda gm, _: gm, fullgraph=True)
    assert fast(tn.ones(2)).tolist() == [2.0, 2.0]
    made.scale = 3
    assert fast(tn.ones(2)).tolist() == [3.0, 3.0]


COUNTS = {"n": 0}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "fn", [items_of_names, items_of_an_object, items_of_a_class, items_of_a_function,
           items_elsewhere, items_of_a_default],
)  # fmt: skip
def test_items_that_outlive_the_call(how: Made, fn: Any) -> None:
    decorated.seen = [0]  # type: ignore[attr-defined]
    COUNTS["n"] = HELD.table["n"] = HELD.rows[0] = 0
    if fn is items_of_a_default:
        fn.__defaults__[0][0] = 0
    fast = how(fn)
    for i in range(4):
        wanted = 2.0 if fn is not items_of_a_default else i + 1.0
        assert fast(tn.ones(2)).tolist() == [wanted] * 2
        counts = (COUNTS["n"], HELD.table["n"], HELD.rows[0], decorated.seen[0])  # type: ignore[attr-defined]
        assert max(*counts, items_of_a_default.__defaults__[0][0]) == i + 1  # type: ignore[index]
    with pytest.raises(Unsupported, match="something older than the call is written to"):
        tn.compile(fn, backend=lambda gm, _: gm, fullgraph=True)(tn.ones(2))


def test_items_of_what_the_call_made_stay_graphs() -> None:
    def rows(x: tn.Tensor) -> dict[str, tn.Tensor]:
        found, ordered = dict(), OrderedDict(a=x)  # noqa: C408
        for i, key in enumerate("abc"):
            found[key] = x * i
        del found["a"]
        ordered["b"] = found.get("b", x) + 1
        return {**found, **{k: v + 1 for k, v in ordered.copy().items()}}

    def pieces(x: tn.Tensor) -> list[tn.Tensor]:
        made, out = tn.zeros(3, 2), [x] * 2
        made[0], made[1, 1:] = x, 5
        out[1] = made
        return out

    graphs: list[Any] = []

    def keep(gm: Any, _: Any) -> Any:
        graphs.append(gm)
        return gm

    for fn in (rows, pieces):
        graphs.clear()
        fast = tn.compile(fn, backend=keep, fullgraph=True)
        for i in range(3):
            x = tn.ones(2) * i
            assert repr(fast(x)) == repr(fn(x))
        assert len(graphs) == 1


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


class Counter:
    def __init__(self, n: Any = 0) -> None:
        self.n = n

    def add(self, by: Any) -> Counter:
        self.n = self.n + by
        return self

    def __enter__(self) -> Counter:
        return self.add(1)

    def __exit__(self, *_: object) -> None:
        pass


COUNTER, FIELDS = Counter(), Counter()


def older_counter() -> Counter:
    return COUNTER


def older_rows() -> list[int]:
    return ROWS


def counted_by_a_closure() -> tuple[Any, Any]:
    n = 0

    def fn(x: tn.Tensor) -> tn.Tensor:
        nonlocal n
        n += 1
        return x * 2

    return fn, lambda: n


def _through_a_function(x: tn.Tensor) -> tn.Tensor:
    ROWS.extend([0] * (not ROWS))
    older_rows()[0] += 1
    return x * 2


def _enters(x: tn.Tensor) -> tn.Tensor:
    with COUNTER:
        return x * 2


def _enters_by_a_call(x: tn.Tensor) -> tn.Tensor:
    with older_counter():
        return x * 2


def _stores(x: tn.Tensor) -> tn.Tensor:
    older_counter().add(1)
    return x * 2


def _stores_the_same(x: tn.Tensor) -> tn.Tensor:
    COUNTER.__init__(COUNTER.n + 1)  # type: ignore[misc]
    return x * 2


def _items_of_attributes(x: tn.Tensor) -> tn.Tensor:
    vars(older_counter()).update(n=COUNTER.n + 1)
    return x * 2


def _appends(x: tn.Tensor) -> tn.Tensor:
    older_rows().append(0)
    COUNTER.n = len(ROWS)
    return x * 2


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "fn", [_enters, _enters_by_a_call, _stores, _stores_the_same, _items_of_attributes, _appends]
)
def test_what_outlives_the_call_is_written_each_time(how: Made, fn: Any) -> None:
    COUNTER.n = 0
    fast = how(fn)
    for i in range(4):
        assert fast(tn.ones(2)).tolist() == [2.0, 2.0]
        assert COUNTER.n == i + 1
    with pytest.raises(Unsupported):
        tn.compile(fn, backend=lambda gm, _: gm, fullgraph=True)(tn.ones(2))


@pytest.mark.parametrize("how", HOW)
def test_items_of_what_a_function_gives(how: Made) -> None:
    ROWS.append(0)
    fast = how(_through_a_function)
    for i in range(4):
        assert fast(tn.ones(2)).tolist() == [2.0, 2.0]
        assert ROWS == [i + 1]
    fn, count = counted_by_a_closure()
    fast = how(fn)
    for i in range(4):
        assert fast(tn.ones(2)).tolist() == [2.0, 2.0]
        assert count() == i + 1


@pytest.mark.parametrize("how", HOW)
def test_an_attribute_that_is_stored_again_has_the_new_value(how: Made) -> None:
    def last(x: tn.Tensor) -> tn.Tensor:
        FIELDS.__init__(x)  # type: ignore[misc]
        return x * 2

    fast = how(last)
    for _ in range(4):
        x = tn.ones(2)
        FIELDS.n = x
        assert fast(x).tolist() == [2.0, 2.0] and FIELDS.n is x


class Pair(NamedTuple):
    first: tn.Tensor
    second: tn.Tensor


@dataclass
class Options:
    scale: float
    names: list[str]


@contextlib.contextmanager
def doubling() -> Iterator[int]:
    yield 2


def _rows_of_its_own(x: tn.Tensor) -> Any:
    rows: list[tn.Tensor] = []

    def put(row: tn.Tensor) -> None:
        rows.append(row)

    put(x)
    put(x + 1)
    return Pair(rows.pop(), rows[0])


def _objects_of_its_own(x: tn.Tensor) -> Any:
    made = Counter(x).add(1).add(2)
    options = Options(3.0, ["a"])
    options.names.append("b")
    with Counter(2) as entered:
        return made.n * options.scale * entered.n * len(options.names)


def _blocks(x: tn.Tensor) -> Any:
    with tn.no_grad():
        y = x * 2
    with doubling() as by, tn.set_grad_enabled(False):
        y = y * by
    with tn.autocast("cpu", dtype=tn.bfloat16):
        return (y @ y).float(), x.exp()


def _variables_of_its_own(x: tn.Tensor) -> Any:
    n = 0

    def count() -> None:
        nonlocal n
        n += 1

    count()
    count()
    return x + n


def _iterators_and_imports(x: tn.Tensor) -> Any:
    import functools
    import math

    tables = defaultdict(list)
    tables["a"].append(x)
    tables.update(b=[x + 1])
    queue = deque([x])
    queue.appendleft(x * math.pi)
    rows = iter(queue)
    next(rows)
    return functools.reduce(lambda a, b: a + b, [next(rows), *tables["a"], tables.pop("b")[0]])


def _layers_of_its_own(x: tn.Tensor) -> Any:
    return nn.Softmax(dim=-1)(x)


@pytest.mark.parametrize(
    "fn", [_rows_of_its_own, _objects_of_its_own, _blocks, _variables_of_its_own,
           _iterators_and_imports, _layers_of_its_own],
)  # fmt: skip
def test_what_the_call_made_may_be_changed_in_a_graph(fn: Any) -> None:
    graphs: list[Any] = []
    fast = tn.compile(fn, backend=lambda gm, _: graphs.append(gm) or gm, fullgraph=True)
    for i in range(3):
        x = tn.arange(4.0).reshape(2, 2) + i
        for got, wanted in zip(fast(x), fn(x), strict=True):
            assert type(got) is type(wanted) and got.tolist() == wanted.tolist()
    assert len(graphs) == 1
    x = tn.ones(2, 2, requires_grad=True)
    for got, wanted in zip(fast(x), fn(x), strict=True):
        assert got.requires_grad == wanted.requires_grad


def test_blocks_that_a_graph_does_not_tell_of_are_none() -> None:
    lock = threading.Lock()

    def held(x: tn.Tensor) -> tn.Tensor:
        with lock:
            return x + 1

    def given(x: tn.Tensor) -> tn.Tensor:
        with tn.inference_mode():
            return x + 1

    def chosen(x: tn.Tensor) -> tn.Tensor:
        with tn.no_grad() if x.ndim == 1 else tn.inference_mode():
            return x + 1

    for fn in (held, given, chosen):
        assert tn.compile(fn)(tn.ones(2)).tolist() == [2.0, 2.0]
        with pytest.raises(Unsupported, match="BEFORE_WITH|cannot be seen"):
            tn.compile(fn, backend=lambda gm, _: gm, fullgraph=True)(tn.ones(2))
