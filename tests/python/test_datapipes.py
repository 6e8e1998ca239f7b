"""Pipes of data: what each does to small sources, as PyTorch's own texts show it."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon.utils.data import DataLoader, IterDataPipe, MapDataPipe, functional_datapipe
from tenon.utils.data.datapipes.iter import (
    Collator,
    FileLister,
    FileOpener,
    IterableWrapper,
    Mapper,
    Sampler,
    StreamReader,
)
from tenon.utils.data.datapipes.map import SequenceWrapper


def numbers(n: int) -> Any:
    return IterableWrapper(range(n))


def is_even(x: int) -> bool:
    return x % 2 == 0


def half(x: int) -> int:
    return x // 2


def test_elements_one_by_one() -> None:
    assert list(numbers(3).map(lambda x: x + 1).filter(is_even)) == [2]
    assert list(numbers(4).batch(3)) == [[0, 1, 2], [3]] and len(numbers(4).batch(3)) == 2
    assert list(numbers(4).batch(3, drop_last=True)) == [[0, 1, 2]]
    assert numbers(3).map(abs).batch(2).__class__.__name__ == "BatcherIterDataPipe"
    nested = IterableWrapper([[[0, 1], [2]], [[3, 4], [5]], [[6]]])
    assert list(nested.unbatch()) == [[0, 1], [2], [3, 4], [5], [6]]
    assert list(nested.unbatch(unbatch_level=2)) == list(nested.unbatch(-1)) == list(range(7))
    with pytest.raises(IndexError, match="exceeds the depth"):
        list(nested.unbatch(4))
    files = IterableWrapper(["a.png", "b.json", "c.json", "a.json", "c.png", "b.png", "d.png"])
    groups = files.groupby(lambda f: f.split(".")[0], group_size=2, guaranteed_group_size=1)
    assert list(groups) == [
        ["a.png", "a.json"], ["c.json", "c.png"], ["b.json", "b.png"], ["d.png"],
    ]  # fmt: skip
    assert list(Sampler(numbers(3))) == [0, 1, 2]
    with pytest.raises(ValueError, match="Boolean output is required"):
        list(numbers(2).filter(lambda x: x))


def test_columns() -> None:
    rows = IterableWrapper([(1, 2, 3), (4, 5, 6)])
    assert list(rows.map(lambda a, b: a + b, input_col=[0, 1])) == [(3, 3), (9, 6)]
    assert list(rows.map(lambda a: -a, 2)) == [(1, 2, -3), (4, 5, -6)]
    assert list(rows.map(lambda a: -a, 2, -1)) == [(1, 2, 3, -3), (4, 5, 6, -6)]
    assert list(rows.map(lambda a: -a, 2, 0)) == [(-3, 2, 3), (-6, 5, 6)]
    named = IterableWrapper([{"x": 1}])
    assert list(named.map(str, "x", "y")) == [{"x": 1, "y": "1"}]
    with pytest.raises(ValueError, match="`output_col` must be None"):
        rows.map(str, output_col=1)


def test_several_pipes() -> None:
    assert list(numbers(2).concat(numbers(3))) == [0, 1, 0, 1, 2]
    assert list(numbers(2).zip(numbers(3))) == [(0, 0), (1, 1)]
    tens = IterableWrapper(range(10, 15))
    assert list(numbers(3).mux(tens, numbers(5))) == [0, 10, 0, 1, 11, 1, 2, 12, 2]
    with pytest.raises(TypeError, match="Expected all inputs"):
        numbers(2).concat([1])
    even, odd = numbers(5).demux(2, lambda x: x % 2)
    assert list(even) == [0, 2, 4] and list(odd) == [1, 3] and list(even) == [0, 2, 4]
    first, second = numbers(4).fork(2)
    assert list(first) == list(second) == list(first) == [0, 1, 2, 3]
    with pytest.raises(BufferError, match="buffer overflow"):
        list(numbers(5).fork(2, buffer_size=2)[0])
    with pytest.raises(ValueError, match="between 0 and 1. 4 is returned"):
        list(numbers(1).demux(2, lambda x: 4)[0])
    some = numbers(4).demux(2, lambda x: None if x == 3 else x % 2, drop_none=True)
    assert [list(part) for part in some] == [[0, 2], [1]]


def test_one_iterator_at_a_time() -> None:
    source = numbers(3)
    first, second = iter(source), iter(source)
    assert next(second) == 0
    with pytest.raises(RuntimeError, match="This iterator has been invalidated"):
        next(first)

    class Twice(Mapper):
        def __iter__(self) -> Any:
            for x in super().__iter__():
                yield 2 * x

    assert list(Twice(numbers(3), lambda x: x + 1)) == [2, 4, 6]


def test_shuffled_by_the_seed() -> None:
    tn.manual_seed(3)
    pipe = numbers(20).shuffle()
    once, again = list(pipe), list(pipe)
    assert once != again and sorted(once) == sorted(again) == list(range(20))
    tn.manual_seed(3)
    assert list(pipe) == once
    assert list(pipe.set_shuffle(False)) == list(range(20))
    few = numbers(20).shuffle(buffer_size=2).set_seed(1)
    assert all(x <= at + 2 for at, x in enumerate(few)), "an element left before it was there"


def test_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "c.bin").write_bytes(b"3")
    names = FileLister(str(tmp_path), "*.txt")
    assert [Path(n).name for n in names] == ["a.txt", "b.txt"]
    assert [text for _, text in StreamReader(FileOpener(names))] == ["one", "two"]
    letters = IterableWrapper([("abc", io.StringIO("abc"))], deepcopy=False)
    assert list(StreamReader(letters, chunk=2)) == [("abc", "ab"), ("abc", "c")]


def test_by_index() -> None:
    pipe = SequenceWrapper(range(5)).map(half)
    assert isinstance(pipe, MapDataPipe) and list(pipe) == [0, 0, 1, 1, 2] and len(pipe) == 5
    assert list(pipe.batch(2)) == [[0, 0], [1, 1], [2]]
    both = SequenceWrapper(range(2)).concat(SequenceWrapper("ab"))
    assert [both[i] for i in range(4)] == [0, 1, "a", "b"]
    assert SequenceWrapper(range(2)).zip(both)[1] == (1, 1)
    mixed = SequenceWrapper(range(9)).shuffle().set_seed(2)
    assert sorted(mixed) == list(range(9)) and isinstance(mixed, IterDataPipe)
    with pytest.raises(IndexError, match="out of range"):
        both[9]


def test_loaders_take_pipes() -> None:
    pipe = numbers(6).sharding_filter().map(half)
    assert [b.tolist() for b in DataLoader(pipe, 4)] == [[0, 0, 1, 1], [2, 2]]
    shared = [x for b in DataLoader(pipe, 2, num_workers=2) for x in b.tolist()]
    assert sorted(shared) == [0, 0, 1, 1, 2, 2]
    assert list(Collator(numbers(4).batch(2)))[1].tolist() == [2, 3]
    assert list(pickle.loads(pickle.dumps(pipe))) == list(pipe)


def test_pipes_of_ones_own() -> None:
    @functional_datapipe("thrice_for_a_test")
    class Thrice(IterDataPipe):
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Any:
            for x in self.source:
                yield from (x, x, x)

    assert list(numbers(2).thrice_for_a_test()) == [0, 0, 0, 1, 1, 1]
    assert "thrice_for_a_test" in dir(numbers(1)) and repr(numbers(1)).startswith("IterableW")
    with pytest.raises(AttributeError, match="no attribute 'never'"):
        numbers(1).never()
    with pytest.raises(Exception, match="already taken"):
        functional_datapipe("map")(Thrice)
