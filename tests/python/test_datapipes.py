"""Pipes of data: what each does to small sources, as PyTorch's own texts show it."""

from __future__ import annotations

import importlib
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from refusals import by_name, check
from tenon.utils.data import DataLoader, IterDataPipe, MapDataPipe, functional_datapipe
from tenon.utils.data.datapipes.datapipe import DataChunk
from tenon.utils.data.datapipes.iter import (
    Collator,
    FileLister,
    FileOpener,
    IterableWrapper,
    Mapper,
    Sampler,
    StreamReader,
)
from tenon.utils.data.datapipes.iter.sharding import _ShardingIterDataPipe
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
    assert list(FileLister(str(tmp_path / "a.txt"))) == [str(tmp_path / "a.txt")]
    assert list(FileLister(str(tmp_path / "a.txt"), "*.bin")) == []
    with pytest.raises(FileNotFoundError):
        list(FileLister(str(tmp_path / "not there"), recursive=True))
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


def indexed(n: int) -> Any:
    return SequenceWrapper(list(range(n)))


A, V, E, X = AssertionError, ValueError, TypeError, IndexError
REFUSED = by_name(
    elements=(
        (A, "Batch size is required to be larger than 0!", lambda: numbers(2).batch(0)),
        (V, "unbatch_level must be -1 or >= 0", lambda: list(numbers(2).unbatch(-2))),
        (A, "group_size must be > 0 and <= buffer_size",
         lambda: numbers(2).groupby(is_even, group_size=0)),
        (A, "group_size must be > 0 and <= buffer_size",
         lambda: numbers(2).groupby(is_even, group_size=3, buffer_size=2)),
        (A, "guaranteed_group_size must be > 0 and <= group_size",
         lambda: numbers(2).groupby(is_even, group_size=2, guaranteed_group_size=3)),
        (A, "guaranteed_group_size must be > 0 and <= group_size",
         lambda: numbers(2).groupby(is_even, group_size=2, guaranteed_group_size=0)),
        (A, "group_size must be set", lambda: numbers(2).groupby(is_even, guaranteed_group_size=1)),
        (RuntimeError, "Failed to group items", lambda: list(
            numbers(4).groupby(abs, group_size=2, buffer_size=2))),
        (V, "`output_col` must be a single-element list",
         lambda: numbers(2).map(abs, input_col=0, output_col=[0, 1])),
        (E, "conversion is a function", lambda: numbers(2).collate({"x": 1})),
        (A, "buffer_size should be larger than 0", lambda: numbers(2).shuffle(buffer_size=0)),
        (V, "instance_id(2) should be smaller than num_of_instances(2)",
         lambda: numbers(2).sharding_filter().apply_sharding(2, 2)),
    ),
    several=(
        (V, "Expected at least one DataPipe, but got 0",
         lambda: type(numbers(1).zip(numbers(1)))()),
        (V, "`num_instances` larger than 0, but 0 is", lambda: numbers(2).fork(0)),
        (V, "Unknown copy method `none` requested", lambda: numbers(2).fork(2, copy="none")),
        (V, "`num_instances` larger than 0, but -1 is", lambda: numbers(2).demux(-1, is_even)),
        (V, "between 0 and 1. -1 is returned",
         lambda: list(numbers(2).demux(2, lambda x: -1)[0])),
        (V, "between 0 and 1. None is returned",
         lambda: list(numbers(2).demux(2, lambda x: None)[0])),
        (BufferError, "buffer overflow",
         lambda: list(numbers(9).demux(2, lambda x: 1, buffer_size=3)[0])),
    ),
    indexed=(
        (A, "Batch size is required to be larger than 0!", lambda: indexed(2).batch(0)),
        (X, "Index 1 is out of bound.", lambda: indexed(2).batch(2)[1]),
        (X, "Index -1 is out of bound.", lambda: indexed(2).batch(2)[-1]),
        (X, "Index 4 is out of range.", lambda: indexed(2).concat(indexed(2))[4]),
        (V, "Expected at least one DataPipe, but got nothing",
         lambda: type(indexed(1).concat(indexed(1)))()),
        (V, "Expected at least one DataPipe, but got nothing",
         lambda: type(indexed(1).zip(indexed(1)))()),
        (E, "Expected all inputs to be `MapDataPipe`", lambda: indexed(1).concat([1])),
        (E, "Expected all inputs to be `MapDataPipe`", lambda: indexed(1).zip([1])),
    ),
    files=(
        (V, "Invalid mode w", lambda: FileOpener(["a"], mode="w")),
        (V, "binary mode doesn't take an encoding", lambda: FileOpener(["a"], "b", "utf-8")),
        (E, "Expected string type for pathname, but got <class 'int'>",
         lambda: list(FileOpener([3]))),
        (E, "FileOpenerIterDataPipe instance doesn't have valid length",
         lambda: len(FileOpener(["a"]))),
        (E, "FileListerIterDataPipe instance doesn't have valid length",
         lambda: len(FileLister("."))),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_pipes_refuse(case: str) -> None:
    check(REFUSED[case])


def test_what_stands_at_the_bounds() -> None:
    """The least that is not refused."""
    assert list(numbers(2).batch(1)) == [[0], [1]] and list(numbers(2).unbatch(0)) == [0, 1]
    assert list(indexed(2).batch(1)[1]) == [1] and len(indexed(2).batch(1)) == 2
    assert list(numbers(2).groupby(abs, group_size=1)) == [[0], [1]]
    full = numbers(4).groupby(is_even, group_size=2, buffer_size=2, drop_remaining=True)
    assert list(full) == [[3]]
    assert list(numbers(3).groupby(is_even, group_size=2, guaranteed_group_size=2)) == [[0, 2], [1]]
    assert list(numbers(3).shuffle(buffer_size=1)) == [0, 1, 2]
    assert [list(p) for p in numbers(2).fork(1)] == [[0, 1]]
    assert [list(p) for p in numbers(2).demux(1, lambda x: 0)] == [[0, 1]]
    share = numbers(5).sharding_filter()
    share.apply_sharding(2, 1)
    assert list(share) == [1, 3] and len(share) == 2
    rows = IterableWrapper([(1, 2, 3)])
    assert list(rows.map(lambda a: a + 4, 0, [2])) == [(1, 2, 5)]
    assert list(rows.map(lambda a: a + 4, [1], -1)) == [(1, 2, 3, 6)]
    assert list(IterableWrapper([[1, 2, 3]]).map(lambda a, b: a + b, [0, 2])) == [[4, 2]]
    both = indexed(2).concat(indexed(3))
    assert [both[i] for i in range(5)] == [0, 1, 0, 1, 2] and len(both) == 5
    assert indexed(3).zip(indexed(2))[1] == (1, 1) and len(indexed(3).zip(indexed(2))) == 2


def test_files_are_closed_when_they_were_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcde", encoding="utf-8")
    opened = list(FileOpener([str(tmp_path / "a.txt")], mode="rt", encoding="utf-8", length=1))
    assert [s for _, s in StreamReader(opened, chunk=2)] == ["ab", "cd", "e"]
    assert opened[0][1].closed and len(FileOpener(["a"], length=3)) == 3


def test_settings_of_shuffles(recwarn: pytest.WarningsRecorder) -> None:
    settings = importlib.import_module("tenon.utils.data.graph_settings")
    plain, mixed = numbers(5), numbers(5).shuffle().map(half)
    assert settings.apply_shuffle_settings(plain, None) is plain
    assert settings.apply_shuffle_settings(plain, False) is plain
    for wanted in (True, False, True):
        assert settings.apply_shuffle_settings(mixed, wanted) is mixed
        assert mixed.datapipe._enabled is wanted
    assert not recwarn
    with pytest.warns(UserWarning, match="Adding one at the end") as told:
        added = settings.apply_shuffle_settings(plain, True)
    assert [w.filename for w in told] == [__file__] and sorted(added) == list(range(5))
    assert added.datapipe is plain and added._enabled
    with pytest.warns(FutureWarning, match="traverse_dps") as told:
        assert importlib.import_module("tenon.utils.data.graph").traverse(plain)
    assert [w.filename for w in told] == [__file__]


def test_functions_are_methods_by_name() -> None:
    def every(pipe: Any, step: int) -> list[int]:
        return list(pipe)[::step]

    IterDataPipe.register_function("every", every)
    try:
        assert numbers(5).every(2) == [0, 2, 4]
        with pytest.raises(AttributeError, match="no attribute 'every'"):
            SequenceWrapper([1]).every(2)
    finally:
        del IterDataPipe.functions["every"]
    with pytest.raises(AttributeError, match="no attribute 'every'"):
        numbers(5).every(2)


def test_a_length_that_no_one_knows() -> None:
    class Endless(IterDataPipe):
        def __iter__(self) -> Any:
            return iter(())

    for make in (lambda p: p.map(half), lambda p: p.batch(2), lambda p: p.shuffle()):
        pipe = make(Endless())
        with pytest.raises(TypeError, match=f"{type(pipe).__name__} instance doesn't have valid"):
            len(pipe)
        assert len(make(numbers(4))) in (2, 4)


def test_a_sequence_is_copied_unless_told_otherwise() -> None:
    own = [1, 2]
    copied, shared = SequenceWrapper(own), SequenceWrapper(own, deepcopy=False)
    own.append(3)
    assert len(copied) == 2 and len(shared) == 3


def test_parts_of_pipes() -> None:
    chunk = DataChunk(iter([1, 2]))
    assert chunk == chunk.items == list(chunk.raw_iterator()) == [1, 2]
    assert chunk.as_str("  ") == "  [1, 2]"

    class Shards(_ShardingIterDataPipe):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(NotImplementedError):
        Shards().apply_sharding(2, 0, None)
