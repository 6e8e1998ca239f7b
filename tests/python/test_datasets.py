"""Datasets made of datasets, samplers, and what batches are made of: items, lengths, errors."""

from __future__ import annotations

import math
import os
import warnings
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import tenon
from tenon.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)
from tenon.utils.data._utils.pin_memory import pin_memory
from tenon.utils.data._utils.shared import LEAST, packed

Pair = namedtuple("Pair", "a b")


class Letters(Dataset):
    """Items with several at once."""

    def __init__(self, text: str, given: int | None = None) -> None:
        self.text, self.given = text, given

    def __getitem__(self, i: int) -> str:
        return self.text[i]

    def __getitems__(self, indices: list[int]) -> list[str]:
        return [self.text[i].upper() for i in indices][: self.given]

    def __len__(self) -> int:
        return len(self.text)


class Stream(IterableDataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.n


def test_datasets_one_after_the_other() -> None:
    joined = ConcatDataset([Letters("ab"), Letters("c"), Letters("def")])
    assert len(joined) == 6 and joined.cumulative_sizes == [2, 3, 6]
    assert [joined[i] for i in range(-6, 6)] == list("abcdef") * 2
    with pytest.raises(ValueError, match="should not exceed dataset length"):
        joined[-7]
    with pytest.raises(IndexError):
        joined[6]
    with pytest.raises(AssertionError, match="empty iterable"):
        ConcatDataset([])
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        ConcatDataset([Stream(2)])
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]


def test_streams_one_after_the_other() -> None:
    both = Stream(2) + Stream(3)
    assert isinstance(both, ChainDataset) and len(both) == 5
    assert list(both) == list(both) == [0, 1, 0, 1, 2]
    assert [b.tolist() for b in DataLoader(both, batch_size=2)] == [[0, 1], [0, 1], [2]]
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(ChainDataset([Letters("a")]))


def test_datasets_side_by_side() -> None:
    numbers = TensorDataset(tenon.arange(3))
    assert StackDataset(Letters("abc"), range(3)).__getitems__([2, 0]) == [("C", 2), ("A", 0)]
    named = StackDataset(x=Letters("abc"), n=range(3))
    assert named[1] == {"x": "b", "n": 1} and len(named) == 3
    assert named.__getitems__([1]) == [{"x": "B", "n": 1}]
    assert StackDataset(numbers)[2] == ((tenon.tensor(2),),)
    with pytest.raises(ValueError, match="Expected 2, got 1"):
        StackDataset(Letters("abc", given=1)).__getitems__([0, 1])
    for args, named_, message in (
        ((), {}, "At least one"), ((range(2), range(3)), {}, "Size mismatch"),
        ((range(2),), {"x": range(2)}, "both types"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            StackDataset(*args, **named_)
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(tenon.zeros(2), tenon.zeros(3))


def test_parts_of_datasets() -> None:
    part = Subset(Letters("abcdef"), [5, 0, 3])
    assert [part[i] for i in range(3)] == ["f", "a", "d"] and len(part) == 3
    assert part.__getitems__([2, 0]) == ["D", "F"]
    assert Subset(range(10), [5, 0, 3]).__getitems__([0, 2]) == [5, 3]
    rows = Subset(TensorDataset(tenon.arange(6) * 10), [5, 0, 3])
    assert [b[0].tolist() for b in DataLoader(rows, batch_size=2)] == [[50, 0], [30]]
    assert rows[[0, 2]][0].tolist() == [50, 30]
    for lengths, want in (
        ([0.5, 0.3, 0.2], [12, 7, 4]), ([0.4, 0.6], [10, 13]), ([20, 3], [20, 3]),
    ):  # fmt: skip
        parts = random_split(range(23), lengths, tenon.Generator().manual_seed(0))
        assert [len(p) for p in parts] == want
        assert sorted(i for p in parts for i in p.indices) == list(range(23))
    with pytest.raises(ValueError, match="does not equal the length"):
        random_split(range(5), [2, 2])
    with pytest.raises(ValueError, match="index 0 is not between"):
        random_split(range(5), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="index 1 is 0"):
        random_split(range(1), [0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(p) for p in random_split(range(2), [0.5, 0.5])] == [1, 1]


def test_lengths_and_orders_of_samplers() -> None:
    with pytest.raises(NotImplementedError):
        iter(Sampler())
    for n in range(8):
        for drop in (False, True):
            batches = BatchSampler(SequentialSampler(range(n)), 3, drop)
            assert len(batches) == len(list(batches)) == (n // 3 if drop else math.ceil(n / 3))
    stream = DataLoader(Stream(7), batch_size=3)
    assert len(stream) == 3 and len(DataLoader(Stream(7), batch_size=3, drop_last=True)) == 2
    assert len(DataLoader(Stream(7), batch_size=None)) == 7
    tenon.manual_seed(0)
    drawn = list(RandomSampler(range(4), replacement=True, num_samples=70))
    assert len(drawn) == 70 and set(drawn) == {0, 1, 2, 3}
    assert sorted(RandomSampler(range(4), num_samples=8)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(WeightedRandomSampler([1.0, 2.0, 1.0], 3, replacement=False)) == [0, 1, 2]
    orders = [list(RandomSampler(range(100))) for _ in range(2)]
    assert orders[0] != orders[1]
    tenon.manual_seed(0)
    again = list(RandomSampler(range(4), replacement=True, num_samples=70))
    assert again == drawn
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="positive integer"):
            WeightedRandomSampler([1.0], wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="positive integer"):
            BatchSampler([0], wrong, False)  # type: ignore[arg-type]
    for n in (1,):
        assert len(WeightedRandomSampler([1.0], n)) == len(BatchSampler([0], n, False)) == n


def test_samples_go_round_where_processes_outnumber_them() -> None:
    ranks = [list(DistributedSampler(range(2), 7, r, shuffle=False)) for r in range(7)]
    assert ranks == [[0], [1], [0], [1], [0], [1], [0]]
    sampler = DistributedSampler(range(7), 2, 0, shuffle=False, uneven="exact")
    passes = iter(sampler)
    assert [next(passes), next(passes)] == [0, 2]
    other = DistributedSampler(range(7), 2, 1, shuffle=False, uneven="exact")
    other.load_state_dict(sampler.state_dict())
    assert list(other) == [5] and list(other) == [1, 3, 5]
    assert list(sampler) == [0, 2, 4, 6]  # a pass that is begun anew begins at the front


def test_what_a_batch_is_made_of() -> None:
    arrays = default_collate([np.float32(1.5), np.float32(2.5)])
    assert arrays.dtype is tenon.float32 and arrays.tolist() == [1.5, 2.5]
    assert default_collate([np.ones((2, 1)), np.zeros((2, 1))]).shape == (2, 2, 1)
    for odd in (np.array(["x"]), np.array([None]), object(), None):
        with pytest.raises(TypeError, match="must contain tensors"):
            default_collate([odd])
    texts = np.array(["x"])
    kept = default_convert([np.ones(2), (1, "a"), Pair(np.zeros(1), b"x"), {"t": texts}, 2.5])
    assert isinstance(kept[0], tenon.Tensor) and kept[0].tolist() == [1, 1]
    assert kept[1] == [1, "a"] and isinstance(kept[2], Pair) and kept[2].b == b"x"
    assert isinstance(kept[2].a, tenon.Tensor) and kept[3]["t"] is texts and kept[4] == 2.5
    again = default_convert(kept[0])
    assert again is kept[0]
    ordered = default_collate([OrderedDict(a=1), OrderedDict(a=2)])
    assert isinstance(ordered, OrderedDict) and ordered["a"].tolist() == [1, 2]


def test_what_of_a_batch_is_pinned() -> None:
    class Own:
        def pin_memory(self) -> str:
            return "pinned"

    class Kept(tenon.Tensor):
        def pin_memory(self, device: Any = None) -> str:  # type: ignore[override]
            return f"pinned {self.tolist()}"

    x = tenon.ones(1).as_subclass(Kept)
    found = pin_memory({"a": [x, (x, "s")], "b": Pair(x, range(2)), "c": Own(), "d": 3})
    p = "pinned [1.0]"
    assert found == {"a": [p, [p, "s"]], "b": Pair(p, range(2)), "c": "pinned", "d": 3}


@pytest.mark.usefixtures("cleared")
def test_large_tensors_travel_as_files() -> None:
    n = LEAST // 8
    large = tenon.arange(n)
    samples = [large, large[:-1], large.view(2, -1).t(), large.double().requires_grad_()]
    data, files = packed(samples)
    try:
        assert [os.fstat(fd).st_size for fd in files] == [LEAST]
        assert np.frombuffer(os.pread(files[0], LEAST, 0), np.int64).tolist() == list(range(n))
        assert n * 8 * 2 < len(data) < n * 8 * 4  # what is small or odd is pickled
    finally:
        for fd in files:
            os.close(fd)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises((AttributeError, TypeError)):
        packed([large, lambda: None])
    assert set(os.listdir("/proc/self/fd")) == before


def test_more_workers_than_processors() -> None:
    loader = DataLoader([1, 2], num_workers=(os.cpu_count() or 1) + 1)
    with pytest.warns(UserWarning, match="suggested max number of worker"):
        loader.check_worker_number_rationality()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader([1, 2], num_workers=os.cpu_count() or 1).check_worker_number_rationality()


def test_a_pass_that_is_shut_down_has_no_workers() -> None:
    loader = DataLoader(range(8), num_workers=1, persistent_workers=True)
    batches = iter(loader)
    assert next(batches).tolist() == [0]
    (worker,) = batches.workers.processes
    assert worker.is_alive()
    batches._shutdown_workers()
    assert not worker.is_alive()
