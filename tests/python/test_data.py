"""Datasets, samplers and loaders: PyTorch's orders, and workers that behave."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import stored
import tenon
from tenon.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)
from tenon.utils.data import dataloader as loaders
from tenon.utils.data._utils.channel import Channel

pytestmark = pytest.mark.usefixtures("torch_stream")


def columns(lib):
    x = np.arange(46.0, dtype=np.float32).reshape(23, 2)
    y = np.arange(23)
    return lib.utils.data.TensorDataset(lib.from_numpy(x.copy()), lib.from_numpy(y.copy()))


LOADERS = [
    "DataLoader(d, batch_size=5)",
    "DataLoader(d, batch_size=5, drop_last=True)",
    "DataLoader(d, batch_size=4, shuffle=True)",
    "DataLoader(d, batch_size=4, shuffle=True, generator=g)",
    "DataLoader(d, batch_size=4, sampler=u.RandomSampler(d, True, 50))",
    "DataLoader(d, batch_size=4, sampler=u.WeightedRandomSampler(list(range(1, 24)), 30))",
    "DataLoader(d, batch_size=4, sampler=u.SubsetRandomSampler([3, 1, 4, 15]))",
    "DataLoader(d, batch_sampler=u.BatchSampler(u.SequentialSampler(d), 7, False))",
    "DataLoader(d, batch_size=None)",
    "DataLoader(u.random_split(d, [0.5, 0.3, 0.2])[0], batch_size=3, shuffle=True)",
    "DataLoader(u.ConcatDataset([d, d]), batch_size=6, shuffle=True)",
    "DataLoader(u.StackDataset(a=d, b=d), batch_size=6)",
    "DataLoader(d, batch_size=4, shuffle=True, num_workers=2)",
]


def flat(batch):
    if isinstance(batch, dict):
        return [a for v in batch.values() for a in flat(v)]
    if isinstance(batch, (list, tuple)):
        return [a for v in batch for a in flat(v)]
    return [batch.numpy()]


@pytest.mark.parametrize("text", LOADERS)
def test_batches_are_pytorchs(text):
    def two_passes(lib):
        lib.manual_seed(3)
        g = lib.Generator()
        g.manual_seed(5)
        names = {"u": lib.utils.data, "d": columns(lib), "g": g}
        loader = eval("u." + text, names)
        got = [flat(batch) for _ in range(2) for batch in loader]
        return {"length": len(loader), "batches": got, "number drawn after": float(lib.rand(1))}

    stored.same(two_passes(tenon), stored.of_torch(two_passes), 0, 0)


@pytest.mark.parametrize(
    "options", [{}, {"drop_last": True}, {"shuffle": False}, {"seed": 4}], ids=repr
)
def test_distributed_sampler(options):
    def orders(lib):
        found = []
        for rank in range(3):
            sampler = lib.utils.data.distributed.DistributedSampler(range(11), 3, rank, **options)
            sampler.set_epoch(2)
            found.append(list(sampler))
        return found

    assert orders(tenon) == stored.of_torch(orders)


Pair = namedtuple("Pair", "a b")

SAMPLES = [
    [1, 2, 3],
    [1.5, 2.5],
    ["x", "y"],
    [(1, 2.0), (3, 4.0)],
    [{"a": 1, "b": [1, 2]}, {"a": 2, "b": [3, 4]}],
    [Pair(1, 2), Pair(3, 4)],
    [np.float32(1), np.float32(2)],
    [np.ones(2), np.zeros(2)],
    [True, False],
]


@pytest.mark.parametrize("batch", SAMPLES, ids=repr)
def test_collate(batch):
    def plain(value):
        if hasattr(value, "tolist"):
            return [str(value.dtype).split(".")[-1], value.tolist()]
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value).__name__, *map(plain, value)]
        return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    def collated(lib):
        return plain(lib.utils.data.default_collate(batch))

    stored.same(collated(tenon), stored.of_torch(collated))


def test_collate_errors():
    with pytest.raises(TypeError, match="batch must contain tensors"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="should be of equal size"):
        default_collate([[1], [1, 2]])


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return tenon.tensor(i * i)


class Failing(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("five")
        return super().__getitem__(i)


class Dying(Squares):
    def __getitem__(self, i):
        if i == 5:
            os._exit(3)
        return super().__getitem__(i)


class Slow(Squares):
    def __getitem__(self, i):
        time.sleep(30)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(start, 7, step))


def values(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_give_the_same_batches(workers):
    loader = DataLoader(Squares(), batch_size=4, num_workers=workers)
    assert values(loader) == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]


def test_streams():
    assert values(DataLoader(Stream(), batch_size=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert values(DataLoader(Stream(), batch_size=3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    got = values(DataLoader(Stream(), batch_size=2, num_workers=2))
    assert sorted(x for batch in got for x in batch) == list(range(7))
    assert list(DataLoader(Stream(), batch_size=None)) == list(range(7))


def test_a_workers_error_arrives_with_its_traceback():
    loader = DataLoader(Failing(), batch_size=2, num_workers=2)
    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker process") as info:
        values(loader)
    assert "in __getitem__" in str(info.value)


def test_a_worker_that_dies():
    loader = DataLoader(Dying(), batch_size=2, num_workers=2)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        values(loader)


def test_timeout():
    loader = DataLoader(Slow(), batch_size=2, num_workers=1, timeout=1)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        values(loader)
    assert time.monotonic() - start < 10


def test_persistent_workers_and_an_unfinished_pass():
    loader = DataLoader(Squares(), batch_size=2, num_workers=2, persistent_workers=True)
    first = next(iter(loader))
    assert first.tolist() == [0, 1]
    assert values(loader) == values(DataLoader(Squares(), batch_size=2))
    pids = [p.pid for p in loader._workers.processes]
    values(loader)
    assert pids == [p.pid for p in loader._workers.processes]
    processes = loader._workers.processes
    del loader
    assert not any(p.is_alive() for p in processes)


def test_leaving_a_pass_ends_the_workers():
    iterator = iter(DataLoader(Squares(), batch_size=2, num_workers=2))
    next(iterator)
    processes = iterator.workers.processes
    del iterator
    assert not any(p.is_alive() for p in processes)


class Large(Dataset):
    """Samples that do not fit a pipe."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return tenon.arange(60_000, dtype=tenon.float32) + i, tenon.full((3,), i)


def check_large(loader):
    seen = 0
    for x, y in loader:
        assert x.dtype == tenon.float32 and tuple(x.shape) == (4, 60_000)
        first = np.arange(seen, seen + 4, dtype=np.float32)
        np.testing.assert_array_equal(
            x.numpy(), np.arange(60_000, dtype=np.float32) + first[:, None]
        )
        np.testing.assert_array_equal(y.numpy(), np.repeat(first[:, None], 3, 1))
        x += 1  # the memory is ours
        seen += 4
    assert seen == 12


def test_large_batches_come_through_shared_memory(monkeypatch):
    received = []
    pull = Channel.pull

    def counted(channel):
        message = pull(channel)
        received.append(len(message.files) if message else 0)
        return message

    monkeypatch.setattr(Channel, "pull", counted)
    loader = DataLoader(Large(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    check_large(loader)
    assert sum(received) >= 3


def test_large_batches_without_shared_memory(monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOSYS, "no such memory here")

    monkeypatch.setattr(os, "memfd_create", fail)
    check_large(DataLoader(Large(), batch_size=4, num_workers=2, multiprocessing_context="fork"))


def started(worker):
    os.environ["WORKER"] = str(worker)


class Named(Squares):
    def __getitem__(self, i):
        return int(os.environ["WORKER"])


def test_worker_init():
    loader = DataLoader(Named(), batch_size=5, num_workers=2, worker_init_fn=started)
    assert values(loader) == [[0] * 5, [1] * 5]


WRONG = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"shuffle": True, "sampler": [1]},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
]


@pytest.mark.parametrize("options", WRONG, ids=repr)
def test_errors_read_like_pytorch(options):
    def said(lib):
        try:
            lib.utils.data.DataLoader([1, 2, 3], **options)
            return "no error"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    assert said(tenon) == stored.of_torch(said)


def test_datasets():
    d = TensorDataset(tenon.arange(6))
    both = d + d
    assert isinstance(both, ConcatDataset) and int(both[7][0]) == 1 and int(both[-1][0]) == 5
    assert [int(v[0]) for v in Subset(d, [4, 2]).__getitems__([1, 0])] == [2, 4]
    assert len(StackDataset(d, d)[0]) == 2
    parts = random_split(range(10), [7, 3])
    assert sorted([*parts[0].indices, *parts[1].indices]) == list(range(10))
    assert len(list(BatchSampler(SequentialSampler(range(7)), 3, True))) == 2
    assert sorted(RandomSampler(range(4))) == [0, 1, 2, 3]
    assert len(list(WeightedRandomSampler([0.0, 1.0], 3))) == 3
    assert sorted(SubsetRandomSampler([5, 6])) == [5, 6]


def test_workers_of_one_loader_leave_those_of_another_alone():
    # A loader in a cycle is still there when the next one forks, and is collected in its worker.
    code = (
        "import gc\n"
        "from tenon.utils.data import DataLoader\n"
        "class Collecting:\n"
        "    def __len__(self): return 3\n"
        "    def __getitem__(self, i): gc.collect(); return i\n"
        "gc.disable()\n"
        "first = DataLoader(range(4), num_workers=1, persistent_workers=True)\n"
        "print([int(x) for x in first])\n"
        "cycle = [first]; cycle.append(cycle)\n"
        "del first, cycle\n"
        "print([int(x) for x in DataLoader(Collecting(), num_workers=1)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[0, 1, 2, 3]\n[0, 1, 2]\n", "")


class Drawing(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return tenon.rand(3, dtype=tenon.float64)


def drawn(rank):
    """The random numbers of four workers in three epochs."""
    tenon.manual_seed(rank)
    loader = DataLoader(Drawing(), batch_size=2, num_workers=4)
    return [x for _ in range(3) for batch in loader for x in batch.reshape(-1).tolist()]


def test_random_numbers_of_workers():
    ranks = [drawn(rank) for rank in (0, 1)]
    assert len({x for rank in ranks for x in rank}) == 2 * 3 * 8 * 3
    assert ranks == [drawn(rank) for rank in (0, 1)]


def test_an_error_names_its_sample():
    class Broken:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            if i == 2:
                raise KeyError("no such row")
            return i

    with pytest.raises(KeyError, match="no such row") as told:
        list(DataLoader(Broken(), batch_size=3))
    assert told.value.__notes__ == ["It was raised by sample 2."]


@pytest.mark.usefixtures("cleared")
def test_no_worker_outlives_its_pass():
    others = set(multiprocessing.active_children())
    loader = DataLoader(range(4), batch_size=2, num_workers=1)
    workers = []
    for batch in loader:
        workers.append(len(set(multiprocessing.active_children()) - others))
        assert batch.numel() == 2
    assert workers[0] == 1 and not set(multiprocessing.active_children()) - others


class Bare:
    """What passes look at, without a DataLoader around it."""

    _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
    generator, prefetch_factor, worker_init_fn, pin_memory_device = None, 2, None, ""
    pin_memory, timeout, persistent_workers, multiprocessing_context = False, 0, False, None
    _dataset_kind = loaders._DatasetKind.Iterable

    def __init__(self, num_workers):
        self.num_workers, self.dataset, self._index_sampler = num_workers, self, range(10)

    def collate_fn(self, value):
        return value * 2

    def __iter__(self):
        return iter([tenon.tensor([1]), tenon.tensor([2])])


@pytest.mark.parametrize("workers", [0, 1])
def test_passes_need_no_loader_of_ours(workers):
    kinds = loaders._SingleProcessDataLoaderIter, loaders._MultiProcessingDataLoaderIter
    assert [int(x) for x in kinds[workers > 0](Bare(workers))] == [2, 4]


@pytest.mark.parametrize("workers", [0, 1])
def test_how_workers_are_started_is_asked_for(workers: int) -> None:
    def look(lib: Any) -> list[str]:
        answers = []
        for context in ("spawn", "nothing", 3, multiprocessing.get_context("fork"), None):
            try:
                loader = lib.utils.data.DataLoader(
                    [1], num_workers=workers, multiprocessing_context=context
                )
            except (TypeError, ValueError) as err:
                answers.append(f"{type(err).__name__}: {err}".partition(" in [")[0])
            else:
                answers.append(type(loader.multiprocessing_context).__name__)
        return answers

    assert look(tenon) == stored.of_torch(look)


def test_what_numpy_gives_is_converted():
    """Numbers become tensors in containers of any kind; texts and objects stay what they are."""

    def run(lib):
        convert = lib.utils.data.default_convert
        kept = np.array(["a", "b"]), np.array([b"x"]), np.array([{}, 1], dtype=object)
        said = [convert(v) is v for v in (*kept, "ab", b"x", None, 3)]
        made = convert({"a": np.ones(2), "b": (np.float32(2), 3), "c": [np.arange(2)]})
        return [*said, made, type(made["b"]).__name__, type(convert(Named(1, np.ones(1)))).__name__]

    Named = namedtuple("Named", "a b")
    stored.same(run(tenon), stored.of_torch(run))


def test_words_that_seed_numpy_in_workers():
    def run(lib):
        name = f"{lib.__name__}.utils.data._utils.worker"
        state = importlib.import_module(name)._generate_state
        return [state(base, worker) for base, worker in ((0, 0), (5, 1), (2**40 + 3, 7))]

    stored.same(run(tenon), stored.of_torch(run))


class Wants(Exception):
    """Cannot be made of a text."""

    def __init__(self, a, b):
        super().__init__(a, b)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("odd"), ValueError), (KeyError("key"), KeyError), (Wants(1, 2), RuntimeError)],
)
def test_what_a_worker_says_of_an_error(error, kind):
    """The class where it can be made of a text, the name, the place and the samples always."""
    parts = importlib.import_module("tenon.utils.data._utils.worker")
    told = {
        "samples [3, 4]": [3, 4], "the next samples of its stream": [None, None],
        "samples 7": 7, f"samples {'[0, ' + '0, ' * 65 + '0'}...": [0] * 90,
    }  # fmt: skip
    for text, index in told.items():
        try:
            raise error
        except Exception:
            failure = parts._Failure(2, parts._samples(index))
        with pytest.raises(kind) as caught:
            failure.reraise()
        assert type(caught.value) is kind
        said = str(caught.value)
        assert said.startswith(f"Caught {type(error).__name__} in DataLoader worker process 2.\n")
        assert "Original Traceback" in said and said.endswith(f"\nIt made {text}.")
    assert parts._samples(None) == "the next samples of its stream"


def test_more_workers_than_processors_are_warned_of(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    with pytest.warns(UserWarning, match=r"4 worker processes in total.*system is 3.*excessive"):
        DataLoader(range(4), num_workers=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(range(4), num_workers=3)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: 1)
    with pytest.warns(UserWarning, match=r"3 worker processes in total.*system is 1"):
        DataLoader(range(4), num_workers=3)


class _Longer(IterableDataset):
    """Says that it has fewer samples than it gives."""

    def __iter__(self):
        return iter(range(3))

    def __len__(self):
        return 2


def test_streams_that_are_longer_than_they_said_are_warned_of():
    loader = DataLoader(_Longer(), batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(loader) == [0, 1, 2]  # nobody has asked how long it is
        assert len(loader) == 2
        passing = iter(loader)
        assert [next(passing), next(passing)] == [0, 1]
    with pytest.warns(UserWarning, match="was reported to be 2 .* but 3 samples have been fetched"):
        assert next(passing) == 2


def test_sequences_and_texts_of_numpy_go_through_collation():
    assert default_convert(range(3)) == [0, 1, 2]
    assert default_convert([np.float32(1.5)])[0].item() == 1.5
    texts = list(np.array(["a", "b"]))
    assert default_collate(texts) == texts
    assert default_collate([{"name": t, "n": 1} for t in texts])["name"] == texts
